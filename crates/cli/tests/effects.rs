//! Effects and events through the command: performed, undone, held, read; and a drain that is killed
//! at each row.

mod common;

use common::{Lab, signal, wait_until};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn lab() -> Lab {
    let lab = Lab::new(&[("a", "base\n")]);
    lab.run(&["fork", ".", "--name", "b1"]).expect(0);
    lab
}

fn perform(lab: &Lab, branch: &str, undo: &str, script: &str) {
    lab.run(&["effect", branch, "--undo", undo, "--", "sh", "-c", script])
        .expect(0);
}

fn journal(lab: &Lab, branch: &str) -> Vec<String> {
    let (list, _) = lab.json(&["effect", branch, "--list"]);
    let rows = list["effects"].as_array().expect("rows").clone();
    rows.iter()
        .map(|row| row["state"].as_str().expect("a state").to_owned())
        .collect()
}

#[test]
fn an_effect_is_undone_by_an_abort_and_told() {
    let lab = lab();
    let out = tempfile::tempdir().unwrap();
    let made = out.path().join("made").display().to_string();
    let done = lab.run(&[
        "effect",
        "b1",
        "--undo",
        &format!("read id; test $id = 7 && rm {made}"),
        "--",
        "sh",
        "-c",
        &format!("touch {made}; echo 7"),
    ]);
    assert_eq!(done.expect(0).stdout, "7\n", "what it printed is passed on");
    assert!(Path::new(&made).exists());
    let table = lab.run(&["effect", "b1", "--list"]).expect(0).stdout;
    assert!(
        table.contains("acknowledged") && table.contains("compensated"),
        "{table}"
    );
    let (show, _) = lab.json(&["show", "b1"]);
    assert_eq!(show["effects"]["open"], 1, "{show}");
    lab.run(&["abort", "b1"]).expect(0);
    assert!(!Path::new(&made).exists());
    assert_eq!(journal(&lab, "b1"), ["compensated"]);
}

#[test]
fn what_is_left_has_status_4_and_is_resolved() {
    let lab = lab();
    perform(&lab, "b1", "exit 9", "true");
    perform(&lab, "b1", "exit 9", "true");
    let done = lab.run(&["abort", "b1"]).expect(4);
    assert!(done.stdout.contains("rollback incomplete"), "{done:?}");
    assert!(
        done.stderr.contains("effect 2") && done.stderr.contains("exit status: 9"),
        "{done:?}"
    );
    assert!(lab.run(&["list"]).expect(0).stdout.contains("rollback"));
    lab.run(&["resolve", "b1"]).expect(4);
    lab.run(&["resolve", "b1", "--mark", "2"]).expect(2);
    lab.run(&["resolve", "b1", "--mark", "9", "--reason", "x"])
        .expect(2);
    lab.run(&["resolve", "b1", "--inverse", "true"]).expect(2);
    let done = lab.run(&[
        "resolve",
        "b1",
        "--mark",
        "2",
        "--reason",
        "looked",
        "--inverse",
        "1=true",
    ]);
    assert!(done.expect(0).stdout.contains("rolled back"));
    let history = lab.run(&["history"]).expect(0).stdout;
    assert!(history.contains("settled by hand: looked"), "{history}");
    lab.run(&["resolve", "b1"]).expect(2);
}

#[test]
fn doubt_is_told_and_bad_commands_are_refused() {
    let lab = lab();
    lab.run(&["effect", "b1", "--", "true"]).expect(2);
    lab.run(&["effect", "b1", "--undo", "true"]).expect(2);
    lab.run(&["effect", "b1", "--undo", "true", "--defer", "--", "true"])
        .expect(2);
    let missing = lab.run(&[
        "effect",
        "b1",
        "--undo",
        "true",
        "--",
        "no-such-program-xyz",
    ]);
    assert!(missing.expect(2).stderr.contains("FP0440"));
    let doubtful = lab
        .run(&["effect", "b1", "--undo", "true", "--", "false"])
        .expect(4);
    assert!(doubtful.stderr.contains("ambiguous"), "{doubtful:?}");
    lab.run(&["exec", "b1", "--", "touch", "new"]).expect(0);
    let refused = lab.run(&["commit", "b1"]).expect(3);
    assert!(format!("{refused:?}").contains("effect 2"), "{refused:?}");
    lab.run(&["abort", "b1"]).expect(4);
    lab.run(&["resolve", "b1", "--mark", "2", "--reason", "it never ran"])
        .expect(0);
    let sealed = lab
        .run(&["effect", "b1", "--undo", "true", "--", "true"])
        .expect(3);
    assert!(sealed.stderr.contains("FP0112"), "{sealed:?}");
}

#[test]
fn law_05_a_drain_killed_at_each_row_is_finished_by_the_next_command() {
    let lab = lab();
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().display().to_string();
    // The first time, the inverse kills the very process that is draining.
    let undo = |n: u32| {
        format!(
            "cd {dir}; test -e killed{n} || {{ touch killed{n}; kill -9 $PPID; sleep 0.05; }}; rm -f made{n}"
        )
    };
    for n in 1..=4 {
        perform(&lab, "b1", &undo(n), &format!("touch {dir}/made{n}"));
    }
    lab.run(&["bus", "publish", "never", "x", "--branch", "b1"])
        .expect(0);
    let killed = lab.run(&["abort", "b1"]);
    assert!(killed.status.code().is_none(), "{killed:?}");
    for _ in 0..3 {
        let killed = lab.run(&["list"]);
        assert!(
            killed.status.code().is_none(),
            "recovery goes on, and is killed: {killed:?}"
        );
    }
    let done = lab.run(&["list"]).expect(0);
    assert!(done.stderr.contains("rolled back"), "{done:?}");
    let states = journal(&lab, "b1");
    assert_eq!(states[..4], ["compensated"; 4].map(str::to_owned));
    assert_eq!(states[4], "never_sent");
    for n in 1..=4 {
        assert!(!out.path().join(format!("made{n}")).exists());
    }
    assert_eq!(lab.json(&["show", "b1"]).0["state"], "rolled_back");
}

#[test]
fn law_05_a_send_that_was_killed_is_asked_for_once_it_is_over() {
    let lab = lab();
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().display().to_string();
    let script =
        format!("cd {dir}; touch begun; while test ! -e go; do sleep 0.01; done; touch made");
    let undo = format!("rm {dir}/made");
    let query = format!("test -e {dir}/made");
    let mut sending = lab.spawn(&[
        "effect", "b1", "--undo", &undo, "--query", &query, "--", "sh", "-c", &script,
    ]);
    wait_until(PATIENCE, || out.path().join("begun").exists()).unwrap();
    sending.kill().unwrap();
    sending.wait().unwrap();
    // The command itself goes on, and holds the branch: nobody asks too early.
    let busy = lab.run(&["abort", "b1"]).expect(3);
    assert!(busy.stderr.contains("FP0406"), "{busy:?}");
    std::fs::write(out.path().join("go"), "").unwrap();
    wait_until(PATIENCE, || {
        lab.run(&["abort", "b1"]).status.code() == Some(0)
    })
    .unwrap();
    assert!(
        !out.path().join("made").exists(),
        "asked for, found, and undone"
    );
    assert_eq!(journal(&lab, "b1"), ["compensated"]);
}

#[test]
fn held_commands_and_events_go_out_with_the_commit() {
    let lab = lab();
    let out = tempfile::tempdir().unwrap();
    let sent = out.path().join("sent").display().to_string();
    lab.run(&["exec", "b1", "--", "touch", "new"]).expect(0);
    let held = lab
        .run(&["effect", "b1", "--defer", "--", "touch", &sent])
        .expect(0);
    assert!(held.stderr.contains("held"), "{held:?}");
    lab.run(&["bus", "publish", "news", "hello", "--branch", "b1"])
        .expect(0);
    lab.run(&["bus", "publish", "news", "two\nlines", "--branch", "b1"])
        .expect(0);
    lab.run(&["bus", "publish", "other", "now"]).expect(0);
    assert_eq!(
        lab.run(&["bus", "read"]).expect(0).stdout.lines().count(),
        1
    );
    let (seen, _) = lab.json(&["bus", "read", "news", "--branch", "b1"]);
    assert_eq!(seen["events"][0]["payload"], "hello");
    assert_eq!(seen["events"][0]["held"], true);
    let after = seen["events"][0]["cursor"].as_str().unwrap().to_owned();
    let rest = lab
        .run(&["bus", "read", "--branch", "b1", "--after", &after])
        .expect(0);
    assert_eq!(rest.stdout.lines().count(), 1, "{rest:?}");
    assert!(!Path::new(&sent).exists());
    lab.run(&["commit", "b1"]).expect(0);
    assert!(Path::new(&sent).exists());
    audited(&lab);

    let consume = || {
        lab.run(&["bus", "read", "news", "--consumer", "c", "--limit", "1"])
            .expect(0)
            .stdout
    };
    assert!(consume().contains("hello"));
    assert!(consume().contains("two"));
    assert_eq!(consume(), "");
    let undone = lab.run(&["undo"]).expect(0);
    assert!(
        undone.stderr.contains("event on news"),
        "what is out is told: {undone:?}"
    );
    lab.run(&["bus", "publish", "", "x"]).expect(2);
    lab.run(&["bus", "read", "--after", "nonsense"]).expect(2);
}

#[test]
fn a_followed_bus_tells_each_event_once() {
    let lab = lab();
    lab.run(&["bus", "publish", "t", "first"]).expect(0);
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut following = lab
        .command(&["bus", "read", "--follow", "--json"])
        .stdout(out.reopen().unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = || std::fs::read_to_string(out.path()).unwrap().lines().count();
    wait_until(PATIENCE, || lines() == 1).unwrap();
    lab.run(&["bus", "publish", "t", "second"]).expect(0);
    wait_until(PATIENCE, || lines() == 2).unwrap();
    signal(&following, rustix::process::Signal::INT);
    assert_eq!(following.wait().unwrap().code(), Some(130));
    assert_eq!(lines(), 2);
}

/// What the audit of the last commit says, and that it notices what is wrong.
fn audited(lab: &Lab) {
    let (audit, _) = lab.json(&["audit"]);
    assert_eq!(audit["sound"], true, "{audit}");
    assert_eq!((&audit["from"], &audit["to"]), (&0.into(), &1.into()));
    let checks = audit["checks"].as_array().unwrap();
    let of = |subject: &str| {
        checks
            .iter()
            .find(|c| c["subject"] == subject)
            .unwrap()
            .clone()
    };
    for subject in [
        "decision",
        "generation",
        "disk:0",
        "lineage",
        "shared",
        "effects",
    ] {
        assert_eq!(of(subject)["holds"], true, "{audit}");
    }
    assert!(
        lab.run(&["audit", "b1"])
            .expect(0)
            .stdout
            .contains("disk:0")
    );
    lab.run(&["audit", "nothing"]).expect(2);
    // Somebody else's overlay under the branch, as a fault of the store would leave it.
    let db = rusqlite::Connection::open(lab.store().join("forkpoint.db")).unwrap();
    db.execute("UPDATE overlays SET branch = branch + 1", [])
        .unwrap();
    let wrong = lab.run(&["audit"]).expect(1);
    assert!(wrong.stdout.contains("WRONG"), "{wrong:?}");
}

#[test]
fn law_04_a_reasoning_branch_says_its_proposal_and_has_no_other_way_out() {
    let lab = lab();
    lab.run(&["fork", ".", "--name", "r", "--layer", "reasoning"])
        .expect(0);
    let proposal = lab.path("proposal");
    let script = "echo said; echo thought >&3; (echo x > /proc/self/fd/3.not) 2>/dev/null; \
                  readlink /proc/self/fd/3";
    let line = format!(
        "exec \"$0\" exec r -- sh -c '{script}' 3> '{}'",
        proposal.display()
    );
    let binary = lab.command(&[]).get_program().to_owned();
    let done = std::process::Command::new("sh")
        .args([std::ffi::OsStr::new("-c"), line.as_ref(), &binary])
        .current_dir(lab.base())
        .env("FORKPOINT_HOME", lab.store())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{done:?}");
    assert!(out.starts_with("said\npipe:"), "not the file itself: {out}");
    assert_eq!(std::fs::read_to_string(&proposal).unwrap(), "thought\n");
    // At the effect layer, which has its disk, nothing is passed on.
    let line = line.replace("exec r --", "exec b1 --");
    let done = std::process::Command::new("sh")
        .args([std::ffi::OsStr::new("-c"), line.as_ref(), &binary])
        .current_dir(lab.base())
        .env("FORKPOINT_HOME", lab.store())
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&done.stderr).contains('3'),
        "{done:?}"
    );
    let explained = lab.run(&["explain", "r"]).expect(0).stdout;
    assert!(
        explained.contains("effects by") && explained.contains("nothing"),
        "{explained}"
    );
    let explained = lab.run(&["explain", "b1"]).expect(0).stdout;
    assert!(explained.contains("disk:0"), "{explained}");
    let host = lab.run(&["exec", "--network", "host", "r", "--", "true"]);
    assert_ne!(host.code(), Some(0), "{host:?}");
    lab.run(&["fork", "r", "--name", "mixed"]).expect(2);
    let unsafe_fork = lab.run(&["fork", "b1", "--layer", "reasoning"]).expect(2);
    assert!(unsafe_fork.stderr.contains("FP0083"), "{unsafe_fork:?}");
    let ended = lab.run(&["abort", "r"]).expect(0);
    assert!(ended.stdout.contains("discarded"), "{ended:?}");
}
