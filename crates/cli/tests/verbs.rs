//! The other verbs with the real binary.

mod common;

use common::{Done, Lab, signal};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

fn forked(lab: &Lab) {
    lab.run(&["fork", ".", "--name", "one"]).expect(0);
}

#[test]
fn exec_passes_streams_and_status_through() {
    let lab = Lab::new(&[("a", "1\n")]);
    forked(&lab);
    let mut child = lab
        .command(&["exec", "one", "--", "sh", "-c", "cat; echo err >&2; exit 7"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let done = Done::of(&["exec"], child.wait_with_output().unwrap()).expect(7);
    assert_eq!(done.stdout, "through\n");
    assert!(done.stderr.ends_with("err\n"), "{done:?}");
    lab.run(&["exec", "one", "--", "/no/such/program"])
        .expect(127);
    lab.run(&["exec", "one", "--", "/etc"]).expect(126);
    lab.run(&["exec", "no-such-branch", "--", "true"])
        .expect(125);
    lab.run(&["exec", "one", "--timeout", "200ms", "--", "sleep", "300"])
        .expect(124);
    let done = lab
        .run(&["exec", "one", "--env", "A=b", "--", "sh", "-c", "echo $A"])
        .expect(0);
    assert_eq!(done.stdout, "b\n");
}

#[test]
fn exec_dies_of_the_commands_signal_and_passes_signals_on() {
    let lab = Lab::new(&[]);
    forked(&lab);
    let done = lab.run(&["exec", "one", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(done.status.signal(), Some(9), "{done:?}");
    let line = "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = lab.spawn(&["exec", "one", "--", "sh", "-c", line]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready", "its trap is set");
    signal(&child, Signal::TERM);
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["got"]);
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_branch_is_looked_at_verified_and_committed() {
    let lab = Lab::new(&[("a", "1\n2\n3\n"), ("gone", "x\n")]);
    forked(&lab);
    lab.run(&[
        "exec",
        "one",
        "--",
        "sh",
        "-c",
        "printf '1\\ntwo\\n3\\n' > a; rm gone; mkdir d; echo n > d/new",
    ])
    .expect(0);
    let list = lab.run(&["diff", "one"]).expect(0).stdout;
    assert_eq!(list, "M a\nA d/\nA d/new\nD gone\n");
    let patch = lab.run(&["diff", "one", "--patch"]).expect(0).stdout;
    assert!(
        patch.contains("@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"),
        "{patch}"
    );
    assert!(
        lab.run(&["diff", "one", "--stat"])
            .expect(0)
            .stdout
            .ends_with("4 paths, 10 B\n")
    );
    let (diff, _) = lab.json(&["diff", "one"]);
    assert_eq!(diff["changes"].as_array().unwrap().len(), 4);
    lab.run(&["verify", "one", "--", "grep", "-q", "nothing-like-it", "a"])
        .expect(1);
    lab.run(&["commit", "one"]).expect(3);
    lab.run(&["verify", "one", "--", "grep", "-q", "two", "a"])
        .expect(0);
    let (commit, done) = lab.json(&["commit", "one"]);
    done.expect(0);
    assert_eq!(
        (
            commit["outcome"].as_str(),
            commit["changed"]["files"].as_u64()
        ),
        (Some("committed"), Some(4))
    );
    assert_eq!(
        (lab.read("a").as_deref(), lab.read("gone")),
        (Some("1\ntwo\n3\n"), None)
    );
    // Compared with the directory it would differ in nothing, or in what became of that since.
    let branch = commit["branch"].as_str().unwrap();
    let done = lab.run(&["diff", branch]).expect(2);
    assert!(done.stderr.contains("FP0005"), "{done:?}");
    let (history, _) = lab.json(&["history"]);
    assert!(
        history["history"]
            .as_array()
            .unwrap()
            .iter()
            .any(|h| h["verb"] == "commit")
    );
    lab.run(&["undo", commit["commit"].as_str().unwrap()])
        .expect(0);
    assert_eq!(
        (lab.read("a").as_deref(), lab.read("gone").as_deref()),
        (Some("1\n2\n3\n"), Some("x\n"))
    );
}

#[test]
fn an_independent_branch_becomes_stale_and_is_rebased() {
    let lab = Lab::new(&[("a", "1\n"), ("b", "1\n")]);
    for name in ["one", "two", "three"] {
        lab.run(&["fork", ".", "--name", name]).expect(0);
    }
    for (name, line) in [
        ("one", "echo 2 > a"),
        ("two", "echo 2 > b"),
        ("three", "echo 3 > a"),
    ] {
        lab.run(&["exec", name, "--", "sh", "-c", line]).expect(0);
    }
    lab.run(&["commit", "one"]).expect(0);
    lab.run(&["commit", "two"]).expect(3);
    lab.run(&["rebase", "two"]).expect(0);
    lab.run(&["commit", "two"]).expect(0);
    lab.run(&["rebase", "three"]).expect(3);
    assert_eq!(
        (lab.read("a").as_deref(), lab.read("b").as_deref()),
        (Some("2\n"), Some("2\n"))
    );
    assert!(lab.run(&["tree"]).expect(0).stdout.contains("three"));
    lab.run(&["abort", "three"]).expect(0);
    lab.run(&["abort", "three"]).expect(3);
    assert_eq!(lab.run(&["list"]).expect(0).stdout, "");
    lab.run(&["gc", "--all"]).expect(0);
}

#[test]
fn shells_race_on_one_store() {
    let lab = Lab::new(&[("a", "1\n")]);
    let children: Vec<_> = (0..8)
        .map(|i| {
            let name = format!("s{i}");
            let line = format!(
                "\"$0\" fork . --name {name} && \"$0\" exec {name} -- sh -c 'echo {name} > f{i}' && \
                 \"$0\" diff {name} && \"$0\" abort {name}"
            );
            let program = lab.command(&[]).get_program().to_owned();
            std::process::Command::new("sh")
                .arg("-c").arg(line).arg(program)
                .current_dir(lab.base())
                .env("FORKPOINT_HOME", lab.store())
                .stdout(Stdio::piped()).stderr(Stdio::piped())
                .spawn().unwrap()
        })
        .collect();
    for (i, child) in children.into_iter().enumerate() {
        let done = Done::of(&["race"], child.wait_with_output().unwrap()).expect(0);
        assert!(done.stdout.contains(&format!("A f{i}\n")), "{done:?}");
    }
    assert_eq!(lab.run(&["list"]).expect(0).stdout, "");
}

#[test]
fn a_reader_that_has_gone_ends_the_output_quietly() {
    let lab = Lab::new(&[]);
    forked(&lab);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let output = lab
        .command(&["list"])
        .stdout(Stdio::from(writer))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn names_are_resolved_and_mistakes_told() {
    let lab = Lab::new(&[]);
    lab.run(&["fork", ".", "--name", "last"]).expect(2);
    lab.run(&["fork", "./nowhere"]).expect(2);
    lab.run(&["diff", "last/0"]).expect(2);
    lab.run(&[
        "explore",
        "--keep",
        "all",
        "--no-commit",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "echo $FORKPOINT_ATTEMPT > n; echo out",
    ])
    .expect(0);
    let (report, _) = lab.json(&["show", "last"]);
    let exploration = report["exploration"].as_str().unwrap();
    // The first that passes; the other may have been stopped before it said anything.
    let winner = report["winner"].as_u64().unwrap();
    assert!(
        lab.run(&["logs", &format!("{}/{winner}", &exploration[..8])])
            .expect(0)
            .stdout
            .contains("out")
    );
    lab.run(&["diff", &format!("{exploration}/9")]).expect(2);
    lab.run(&["logs", "last/0", "--score"]).expect(2);
    assert!(
        lab.run(&["doctor"])
            .code()
            .is_some_and(|c| c == 0 || c == 5)
    );
}
