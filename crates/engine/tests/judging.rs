//! Judging, protection, preparation and drift through the library.

mod common;

use common::{Place, ok};
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
