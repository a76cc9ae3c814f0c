//! Judging, protection, preparation and drift through the library.

mod common;

use common::{Place, has, ok};
use forkpoint_engine::{
    Cancel, CommitOptions, CommitOutcome, ForkOptions, JudgeSpec, Limits, Network, PrepareOptions,
    SealOptions,
};

fn spec(script: &str) -> JudgeSpec {
    JudgeSpec {
        argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: Vec::new(),
        timeout: None,
        limits: Limits::default(),
        network: Network::Loopback,
        mounts: Vec::new(),
        log: None,
        redactor: Default::default(),
        capture_limit: 1 << 16,
        score: false,
        cancel: Cancel::new().unwrap(),
    }
}

fn preparation(script: &str, inputs: &[&str]) -> PrepareOptions {
    PrepareOptions {
        argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: Vec::new(),
        network: Network::Loopback,
        limits: Limits::default(),
        inputs: inputs.iter().map(|&i| i.to_owned()).collect(),
        log: None,
        redactor: Default::default(),
        cancel: Cancel::new().unwrap(),
    }
}

#[test]
fn law_06_a_judge_sees_the_sealed_attempt_and_what_it_writes_is_thrown_away() {
    let place = Place::new();
    place.write("f", "base");
    let branch = place.fork();
    ok(
        &branch,
        "echo -n attempt > f; echo -n x > /etc/forkpoint-test || true",
    );
    assert!(
        branch.judge(&spec("true")).is_err(),
        "an open branch was judged"
    );
    branch.seal(&SealOptions::default()).unwrap();
    let judged = branch
        .judge(&spec(
            "cat f; echo -n judge > f; test ! -e /etc/forkpoint-test",
        ))
        .unwrap();
    assert!(judged.passed(), "{:?}", judged.exit);
    assert_eq!(judged.stdout, b"attempt");
    let again = branch.judge(&spec("cat f")).unwrap();
    assert_eq!(again.stdout, b"attempt");
    assert!(!branch.judge(&spec("exit 3")).unwrap().passed());
}

#[test]
fn law_06_protected_paths_are_what_the_base_has() {
    let place = Place::new();
    place.write("tests/t.sh", "exit 1");
    place.write("code", "old");
    let branch = place.fork();
    ok(
        &branch,
        "echo 'exit 0' > tests/t.sh; echo > tests/new.sh; echo -n fixed > code",
    );
    let protect = vec!["tests/**".to_owned()];
    let report = branch.seal(&SealOptions { protect }).unwrap();
    assert_eq!(report.restored.len(), 2, "{:?}", report.restored);
    let judged = branch
        .judge(&spec("cat tests/t.sh code; test ! -e tests/new.sh"))
        .unwrap();
    assert!(judged.passed());
    assert_eq!(judged.stdout, b"exit 1fixed");
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    assert_eq!(
        (report.changed.items, place.read("tests/t.sh")),
        (1, "exit 1".to_owned())
    );
}

#[test]
fn a_score_comes_by_descriptor_or_file_and_never_from_the_attempt() {
    let place = Place::new();
    let branch = place.fork();
    ok(&branch, "echo 1 > f; echo 99 > \"$FORKPOINT_OUT/score\"");
    branch.seal(&SealOptions::default()).unwrap();
    let mut scoring = spec("echo 42 >&3");
    scoring.score = true;
    assert_eq!(branch.judge(&scoring).unwrap().score_text.unwrap(), b"42\n");
    let mut scoring = spec("echo 43 > \"$FORKPOINT_SCORE_FILE\"");
    scoring.score = true;
    assert_eq!(branch.judge(&scoring).unwrap().score_text.unwrap(), b"43\n");
    let mut scoring = spec("true");
    scoring.score = true;
    assert_eq!(branch.judge(&scoring).unwrap().score_text, None);
}

#[test]
fn files_mounted_for_the_verifier_are_seen_by_it_alone() {
    let place = Place::new();
    std::fs::write(place.dir().join("hidden"), "secret test").unwrap();
    let branch = place.fork();
    ok(&branch, "echo 1 > f; test ! -e hidden");
    branch.seal(&SealOptions::default()).unwrap();
    let mut with = spec("cat hidden; ! echo no > hidden");
    with.mounts = vec![(place.dir().join("hidden"), place.file("hidden"))];
    let judged = branch.judge(&with).unwrap();
    assert!(judged.passed(), "{judged:?}");
    assert_eq!(judged.stdout, b"secret test");
}

#[test]
fn a_judge_that_runs_out_of_time_or_is_cancelled_is_ended() {
    let place = Place::new();
    let branch = place.fork();
    ok(&branch, "echo 1 > f");
    branch.seal(&SealOptions::default()).unwrap();
    let mut slow = spec("sleep 1000 & sleep 1000");
    slow.timeout = Some(std::time::Duration::from_millis(200));
    let judged = branch.judge(&slow).unwrap();
    assert!(!judged.passed(), "{judged:?}");
    let slow = spec("sleep 1000");
    let cancel = slow.cancel.clone();
    let judge = std::thread::spawn(move || branch.judge(&slow));
    cancel.cancel();
    assert_eq!(judge.join().unwrap().unwrap_err().code, "FP0412");
}

#[test]
fn a_preparation_lies_under_every_attempt_and_is_committed_with_the_winner() {
    let place = Place::new();
    place.write("src", "1");
    let world = place.world();
    let prepared = world
        .prepare(&preparation(
            "echo -n built > out; echo -n p > /tmp/../var/tmp/p",
            &[],
        ))
        .unwrap();
    assert_eq!(prepared.changes.items, 1);
    let options = ForkOptions {
        count: 2,
        over: Some(prepared.layers.clone()),
        ..ForkOptions::default()
    };
    let forks: Vec<_> = world
        .fork(&options)
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(ok(&forks[0], "cat out /var/tmp/p"), "builtp");
    ok(&forks[0], "echo -n 2 > src");
    assert_eq!(ok(&forks[1], "cat out src"), "built1");
    let deltas = forks[0].deltas().unwrap();
    assert_eq!(
        (deltas.attempt.changes.len(), deltas.prepared.changes.len()),
        (1, 1)
    );
    let baseline = world
        .judge(Some(&prepared.layers), &spec("cat out src"))
        .unwrap();
    assert_eq!(baseline.stdout, b"built1");
    forks[0].commit(&CommitOptions::default()).unwrap();
    assert_eq!(
        (place.read("src"), place.read("out")),
        ("2".into(), "built".into())
    );
}

#[test]
fn a_preparation_is_used_again_only_while_all_it_saw_is_unchanged() {
    let place = Place::new();
    place.write("lock", "1");
    place.write("config", "base\n");
    let world = place.world();
    let options = preparation("echo more >> config; echo -n x > out", &["lock"]);
    assert!(!world.prepare(&options).unwrap().cached);
    assert!(world.prepare(&options).unwrap().cached);
    // A declared input changed.
    place.write("lock", "2");
    assert!(!world.prepare(&options).unwrap().cached);
    assert!(world.prepare(&options).unwrap().cached);
    // A file it had copied up changed underneath.
    place.write("config", "edited\n");
    let third = world.prepare(&options).unwrap();
    assert!(!third.cached);
    let fork = ForkOptions {
        over: Some(third.layers),
        ..ForkOptions::default()
    };
    let fork = world.fork(&fork).unwrap().pop().unwrap().unwrap();
    assert_eq!(ok(&fork, "cat config"), "edited\nmore\n");
    assert_eq!(
        world
            .prepare(&preparation("exit 4", &["lock"]))
            .unwrap_err()
            .code,
        "FP0413"
    );
}

#[test]
fn law_01_drift_elsewhere_in_the_base_voids_the_verification() {
    let place = Place::new();
    place.write("a", "a");
    place.write("b", "good");
    let verify = spec("grep -q good b");
    for (edit, committed) in [("good, edited", true), ("bad", false)] {
        let branch = place.fork();
        ok(&branch, &format!("echo -n '{edit}' > a"));
        branch.seal(&SealOptions::default()).unwrap();
        assert!(branch.verify(&verify).unwrap().passed());
        place.write("b", edit);
        // Without anything to verify it again, it is refused.
        let report = branch.commit(&CommitOptions::default()).unwrap();
        assert!(
            matches!(report.outcome, CommitOutcome::Drift(_)),
            "{:?}",
            report.outcome
        );
        let options = CommitOptions {
            reverify: Some(verify.clone()),
            ..CommitOptions::default()
        };
        let report = branch.commit(&options).unwrap();
        assert_eq!(
            matches!(report.outcome, CommitOutcome::Committed),
            committed,
            "{:?}",
            report.outcome
        );
        assert_eq!(place.read("a") == edit, committed);
    }
}

/// Asks the judge's socket each line in turn; prints what is answered, a line each, as `ok` or a code.
const ASK: &str = r#"
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(os.environ['FORKPOINT_SOCK']); f = s.makefile('rb')
for line in sys.argv[1:]:
    s.sendall(line.encode() + b'\n')
    a = json.loads(f.readline())
    print(json.dumps(a['ok'], sort_keys=True) if 'ok' in a else a['error']['code'])
"#;

fn asking(lines: &[&str]) -> JudgeSpec {
    let mut argv = vec!["python3".into(), "-c".into(), ASK.into()];
    argv.extend(lines.iter().map(Into::into));
    JudgeSpec {
        argv,
        ..spec("true")
    }
}

fn said(judged: &forkpoint_engine::Judgement) -> Vec<serde_json::Value> {
    assert!(judged.passed(), "{:?}", judged.exit);
    let text = String::from_utf8_lossy(&judged.stdout).into_owned();
    let one = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| line.into());
    text.lines().map(one).collect()
}

#[test]
fn law_06_a_judge_reads_keys_and_events_of_what_it_judges_and_writes_nothing() {
    if !has("python3") {
        return common::skip("no python3 to speak to the socket");
    }
    let place = Place::new();
    let world = place.world();
    world.kv().put(b"seen", b"0").unwrap();
    world.kv().put(b"other", b"0").unwrap();
    world.bus().publish("t", b"before").unwrap();
    let branch = place.fork();
    ok(&branch, "echo x > f");
    branch.kv().unwrap().put(b"seen", b"1").unwrap();
    branch.kv().unwrap().put(b"new", b"1").unwrap();
    branch.bus().unwrap().publish("t", b"held").unwrap();
    branch.seal(&SealOptions::default()).unwrap();
    // What is committed after the fork is not what is judged.
    world.kv().put(b"other", b"1").unwrap();
    world.bus().publish("t", b"after").unwrap();
    let before = branch.kv_changes(None, 100).unwrap();
    let judged = branch
        .judge(&asking(&[
            r#"{"op":"info"}"#,
            r#"{"op":"kv.get","key":"seen"}"#,
            r#"{"op":"kv.get","key":"other"}"#,
            r#"{"op":"kv.get","key":"none"}"#,
            r#"{"op":"kv.list","prefix":""}"#,
            r#"{"op":"bus.read","topic":"t"}"#,
            r#"{"op":"kv.put","key":"seen","value":"2"}"#,
            r#"{"op":"kv.delete","key":"seen"}"#,
            r#"{"op":"bus.publish","topic":"t","payload":"x"}"#,
            r#"{"op":"score","score":9}"#,
            r#"{"op":"cost","cost":1}"#,
            r#"{"op":"progress","text":"x"}"#,
            r#"{"op":"step"}"#,
            r#"{"op":"checkpoint"}"#,
        ]))
        .unwrap();
    let said = said(&judged);
    assert_eq!(said[0]["branch"], branch.id().to_string());
    assert_eq!(said[0]["reads_only"], true);
    assert_eq!(said[1]["value"], "1");
    assert_eq!(
        (&said[2]["value"], &said[3]["version"]),
        (&"0".into(), &0.into())
    );
    let keys: Vec<_> = said[4]["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["key"].clone())
        .collect();
    assert_eq!(keys, ["new", "other", "seen"]);
    let events: Vec<_> = said[5]["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["payload"].clone())
        .collect();
    assert_eq!(events, ["before", "held"]);
    assert_eq!(said[6..], ["FP0453"; 8]);
    assert_eq!(branch.kv_changes(None, 100).unwrap(), before);
    // Nothing that the judge read counts as read by the branch: `other` was changed since.
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    let events = world.bus().read(Some("t"), Default::default(), 9).unwrap();
    assert_eq!(events.len(), 3);
}

#[test]
fn a_judge_of_the_base_sees_what_is_committed_and_of_no_branch_anything() {
    if !has("python3") {
        return common::skip("no python3 to speak to the socket");
    }
    let place = Place::new();
    let world = place.world();
    world.kv().put(b"k", b"0").unwrap();
    world.bus().publish("t", b"out").unwrap();
    let branch = place.fork();
    branch.kv().unwrap().put(b"k", b"1").unwrap();
    branch.bus().unwrap().publish("t", b"held").unwrap();
    let lines = [
        r#"{"op":"info"}"#,
        r#"{"op":"kv.get","key":"k"}"#,
        r#"{"op":"bus.read"}"#,
        r#"{"op":"kv.put","key":"k","value":"2"}"#,
    ];
    let said = said(&world.judge(None, &asking(&lines)).unwrap());
    assert_eq!(said[0]["branch"], serde_json::Value::Null);
    assert_eq!(said[1]["value"], "0");
    assert_eq!(said[2]["events"].as_array().unwrap().len(), 1);
    assert_eq!(said[3], "FP0453");
    branch.seal(&SealOptions::default()).unwrap();
    let compared = world
        .compare(
            None,
            [&branch, &branch],
            &spec("test -z \"$FORKPOINT_SOCK\""),
        )
        .unwrap();
    assert!(compared.passed());
}

#[test]
fn two_judges_of_one_branch_and_a_branch_that_ends_meanwhile() {
    if !has("python3") {
        return common::skip("no python3 to speak to the socket");
    }
    let place = Place::new();
    place.write("gate", "");
    let branch = place.fork();
    ok(&branch, "echo x > f");
    branch.kv().unwrap().put(b"k", b"1").unwrap();
    branch.seal(&SealOptions::default()).unwrap();
    let gate = place.dir().join("gate");
    common::host("mkfifo", &[gate.to_str().unwrap()]);
    let inside = place.file("gate");
    let script = format!(
        "{ASK}\nprint('waits', flush=True)\nopen('gate').read()\n\
         s.sendall(b'{{\"op\":\"kv.get\",\"key\":\"k\"}}\\n')\n\
         a = json.loads(f.readline()); print(a['error']['code'] if 'error' in a else 'ok')"
    );
    let mut waiting = JudgeSpec {
        argv: vec!["python3".into(), "-c".into(), script.into()],
        ..spec("true")
    };
    waiting.argv.push(r#"{"op":"kv.get","key":"k"}"#.into());
    waiting.mounts = vec![(gate.clone(), inside)];
    let judged = std::thread::scope(|scope| {
        let first = scope.spawn(|| branch.judge(&waiting).unwrap());
        // It opens its end after its first answer; until then there is nobody to write to.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let open = loop {
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = std::fs::OpenOptions::new();
            options
                .write(true)
                .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
            match options.open(&gate) {
                Ok(open) => break open,
                Err(_) if !first.is_finished() && std::time::Instant::now() < end => {
                    std::thread::yield_now();
                }
                Err(e) => panic!("{e}: {:?}", first.join()),
            }
        };
        let second = branch
            .judge(&asking(&[r#"{"op":"kv.get","key":"k"}"#]))
            .unwrap();
        assert_eq!(said(&second)[0]["value"], "1");
        branch
            .abort(&forkpoint_engine::AbortOptions::default())
            .unwrap();
        drop(open);
        first.join().unwrap()
    });
    let said = said(&judged);
    assert_eq!(said[0]["value"], "1");
    assert_eq!(said[2], "FP0112");
}
