//! Explorations with the real binary: outcomes, exit statuses, JSON.

mod common;

use common::{Lab, processes_with, shells_with, signal, wait_until};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[test]
fn the_first_that_passes_is_committed_and_the_json_has_the_shape_of_the_design() {
    let lab = Lab::new(&[("a.txt", "bad\n")]);
    let (report, done) = lab.json(&[
        "explore",
        "--attempt",
        "echo good > a.txt; echo note > \"$FORKPOINT_OUT/report\"",
        "--attempt",
        "sleep 300",
        "--verify",
        "grep -q good a.txt",
        "--jobs",
        "2",
    ]);
    done.expect(0);
    assert_eq!(report["schema"], "forkpoint.explore/1");
    assert_eq!(
        (report["winner"].as_u64(), report["committed"].as_bool()),
        (Some(0), Some(true))
    );
    assert_eq!(report["baseline"]["passed"], false);
    assert_eq!(lab.read("a.txt").as_deref(), Some("good\n"));
    let (winner, loser) = (&report["attempts"][0], &report["attempts"][1]);
    assert_eq!(
        (&winner["state"], &winner["reason"]),
        (&"committed".into(), &"passed".into())
    );
    assert_eq!(
        (&loser["state"], &loser["reason"]),
        (&"rolled_back".into(), &"sibling_committed".into())
    );
    assert_eq!(winner["changed"]["files"], 1);
    let out = std::path::Path::new(winner["out"].as_str().unwrap()).join("report");
    assert_eq!(std::fs::read_to_string(out).unwrap(), "note\n");
    let (again, _) = lab.json(&["show", "last"]);
    assert_eq!(again, report);
    lab.run(&["undo"]).expect(0);
    assert_eq!(lab.read("a.txt").as_deref(), Some("bad\n"));
}

#[test]
fn the_best_score_wins_and_parameters_reach_the_attempts() {
    let lab = Lab::new(&[]);
    let (report, done) = lab.json(&[
        "explore",
        "--param",
        "size=3,9,5",
        "--score",
        "cat n",
        "--verify",
        "test -s n",
        "--",
        "sh",
        "-c",
        "echo $FORKPOINT_PARAM_SIZE > n",
    ]);
    done.expect(0);
    assert_eq!(
        (report["strategy"].as_str(), report["winner"].as_u64()),
        (Some("best-of-n"), Some(1))
    );
    assert_eq!(report["attempts"][0]["reason"], "outscored");
    assert_eq!(report["attempts"][2]["score"], 5.0);
    assert_eq!(lab.read("n").as_deref(), Some("9\n"));
}

#[test]
fn every_exit_status_means_what_the_design_says() {
    let lab = Lab::new(&[("a", "1\n")]);
    lab.run(&["explore", "--", "sh", "-c", "echo 2 > a; exit 3"])
        .expect(1);
    lab.run(&["explore", "--", "true"]).expect(1);
    lab.run(&["explore"]).expect(2);
    lab.run(&["explore", "-n", "3", "--attempt", "x", "--attempt", "y"])
        .expect(2);
    lab.run(&["explore", "--timeout", "NaN", "--", "true"])
        .expect(2);
    lab.run(&["explore", "--total-timeout", "300ms", "--", "sleep", "300"])
        .expect(124);
    lab.run(&["diff", "no-such-branch"]).expect(2);
    let (report, done) = lab.json(&["explore", "--timeout", "200ms", "--", "sleep", "300"]);
    done.expect(1);
    assert_eq!(report["attempts"][0]["reason"], "timeout");
    assert_eq!(lab.read("a").as_deref(), Some("1\n"));
}

#[test]
fn an_error_is_two_lines_and_one_document() {
    let lab = Lab::new(&[]);
    let (error, done) = lab.json(&["explore"]);
    assert_eq!(
        (error["code"].as_str(), error["kind"].as_str()),
        (Some("FP0501"), Some("invalid"))
    );
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", done.stderr);
    assert!(lines[0].starts_with("error[FP0501]: ") && lines[1].starts_with("hint: "));
}

#[test]
fn a_conflicting_edit_of_the_base_refuses_the_commit_and_keeps_the_attempt() {
    let lab = Lab::new(&[("a", "old\n")]);
    // The attempt goes on once the base has been edited: its sleep is then ended from outside.
    let nap = format!("300.{}", std::process::id());
    let line = format!("echo new > a; sleep {nap}; true");
    let verify = "test \"$(cat a)\" = new";
    let child = lab.spawn(&["explore", "--json", "--verify", verify, "--attempt", &line]);
    let asleep = || {
        let sleeps = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|c| c == format!("sleep\0{nap}\0").into_bytes())
        };
        processes_with(&nap).into_iter().find(sleeps)
    };
    wait_until(Duration::from_secs(20), || asleep().is_some()).expect("the attempt runs");
    std::fs::write(lab.base().join("a"), "edited meanwhile\n").unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(asleep().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["attempts"][0]["reason"], "conflict");
    assert_eq!(report["attempts"][0]["state"], "sealed");
    assert_eq!(lab.read("a").as_deref(), Some("edited meanwhile\n"));
    assert!(
        lab.run(&["diff", "last/0"])
            .expect(0)
            .stdout
            .contains("M a")
    );
}

#[test]
fn an_interrupt_ends_everything_within_a_second() {
    let lab = Lab::new(&[]);
    let mark = format!("interrupt-mark-{}", std::process::id());
    let line = format!("trap '' INT TERM; setsid sleep 300 & echo {mark} >/dev/null; sleep 300");
    let child = lab.spawn(&[
        "explore",
        "--json",
        "-n",
        "4",
        "--jobs",
        "4",
        "--attempt",
        &line,
    ]);
    wait_until(Duration::from_secs(20), || shells_with(&mark).len() >= 4).expect("4 attempts");
    let begun = Instant::now();
    signal(&child, Signal::INT);
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let took = begun.elapsed();
    assert_eq!(output.status.code(), Some(130));
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["outcome"], "interrupted");
    for attempt in report["attempts"].as_array().unwrap() {
        assert_eq!(
            (&attempt["state"], &attempt["reason"]),
            (&"rolled_back".into(), &"interrupted".into())
        );
    }
}

#[test]
fn after_kill_9_of_the_supervisor_the_next_command_cleans_up() {
    let lab = Lab::new(&[("a", "1\n")]);
    let mark = format!("kill-mark-{}", std::process::id());
    let line = format!("echo 2 > a; echo {mark} >/dev/null; sleep 300");
    let mut child = lab.spawn(&["explore", "-n", "2", "--jobs", "2", "--attempt", &line]);
    wait_until(Duration::from_secs(20), || shells_with(&mark).len() >= 2).expect("2 attempts");
    child.kill().unwrap();
    child.wait().unwrap();
    // The attempts hold a lifeline of their supervisor.
    wait_until(Duration::from_secs(5), || processes_with(&mark).is_empty()).expect("they end");
    let done = lab.run(&["list"]).expect(0);
    assert!(done.stderr.contains("recovered:"), "{done:?}");
    let (list, _) = lab.json(&["list", "--all"]);
    for branch in list["branches"].as_array().unwrap() {
        assert_eq!(branch["state"], "rolled_back", "{branch}");
        assert_eq!(branch["reason"], "interrupted", "{branch}");
    }
    assert_eq!(lab.read("a").as_deref(), Some("1\n"));
    assert!(
        lab.run(&["list"])
            .stderr
            .lines()
            .all(|l| !l.contains("recovered"))
    );
}

#[test]
fn a_preparation_lies_under_every_attempt_and_is_cached_by_its_inputs() {
    let lab = Lab::new(&[("lock", "1\n")]);
    let explore = || {
        lab.json(&[
            "explore",
            "--no-commit",
            "--prepare",
            "echo dep > dep",
            "--prepare-input",
            "lock",
            "--verify",
            "test -s dep && test -s x",
            "--",
            "sh",
            "-c",
            "cat dep > x",
        ])
        .0
    };
    let first = explore();
    assert_eq!(first["preparation"]["cached"], false);
    assert_eq!(
        (first["winner"].as_u64(), first["committed"].as_bool()),
        (Some(0), Some(false))
    );
    assert_eq!(first["attempts"][0]["prepared"]["files"], 1);
    assert_eq!(first["attempts"][0]["changed"]["files"], 1);
    assert_eq!(explore()["preparation"]["cached"], true);
    std::fs::write(lab.base().join("lock"), "2\n").unwrap();
    assert_eq!(explore()["preparation"]["cached"], false);
    assert_eq!(lab.read("x"), None);
    lab.run(&["commit", "last/0"]).expect(0);
    assert_eq!(lab.read("x").as_deref(), Some("dep\n"));
}
