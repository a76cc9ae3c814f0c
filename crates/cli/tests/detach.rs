//! Long work: explorations that go on without their terminal, waiting for them, ending them; and what
//! is freed by itself when one is over.

mod common;

use common::{Lab, wait_until};
use std::time::{Duration, Instant};

/// Starts a detached exploration; its identifier.
fn detach(lab: &Lab, args: &[&str]) -> String {
    let all: Vec<&str> = ["explore", "--detach"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    let begun = Instant::now();
    let done = lab.run(&all).expect(0);
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "it returns at once"
    );
    done.stdout.trim().to_owned()
}

/// The process that supervises: the only one with the mark in its arguments and the hidden flag.
fn supervisor(mark: &str) -> u32 {
    let mut found = common::processes_with(mark);
    found.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--supervised")
    });
    // What it has forked looks like it until that has executed something else.
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(") ").next().unwrap_or_default().to_owned();
        rest.split(' ')
            .nth(1)
            .and_then(|ppid| ppid.parse::<u32>().ok())
    };
    let all = found.clone();
    found.retain(|pid| parent(pid).is_some_and(|ppid| !all.contains(&ppid)));
    assert_eq!(found.len(), 1, "{all:?}");
    found[0]
}

#[test]
fn a_detached_exploration_goes_on_and_is_waited_for() {
    let lab = Lab::new(&[("a", "bad\n")]);
    let id = detach(
        &lab,
        &[
            "--attempt",
            "sleep 2; echo good > a",
            "--verify",
            "grep good a",
        ],
    );
    lab.run(&["wait", &id, "--timeout", "50ms"]).expect(124);
    assert_eq!(lab.read("a").as_deref(), Some("bad\n"));
    let (report, done) = lab.json(&["wait", "last"]);
    done.expect(0);
    assert_eq!(
        (&report["exploration"], &report["committed"]),
        (&id.as_str().into(), &true.into())
    );
    assert_eq!(lab.read("a").as_deref(), Some("good\n"));
    let log = lab
        .store()
        .join("explorations")
        .join(&id)
        .join("supervisor.log");
    assert!(std::fs::read_to_string(log).unwrap().contains("committed"));
    lab.run(&["undo"]).expect(0);
    assert_eq!(lab.read("a").as_deref(), Some("bad\n"));
}

#[test]
fn its_supervisor_has_a_session_of_its_own_and_no_stream_of_the_callers() {
    let lab = Lab::new(&[("a", "0\n")]);
    let mark = &format!("sleep 301 # session {}", std::process::id());
    let id = detach(&lab, &["--attempt", mark]);
    let pid = supervisor(mark);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(fields[3], pid.to_string(), "it leads its session");
    assert_eq!(fields[4], "0", "it has no terminal");
    let stream = |n: u32| std::fs::read_link(format!("/proc/{pid}/fd/{n}")).unwrap();
    assert_eq!(stream(0).to_str(), Some("/dev/null"));
    assert_eq!(stream(1).to_str(), Some("/dev/null"));
    assert!(stream(2).starts_with(lab.store().canonicalize().unwrap()));
    lab.run(&["abort", &id]).expect(0);
    lab.run(&["wait", &id]).expect(130);
    assert_eq!(lab.read("a").as_deref(), Some("0\n"));
}

#[test]
fn a_supervisor_that_died_leaves_no_result_and_no_attempt() {
    let lab = Lab::new(&[("a", "0\n")]);
    let mark = &format!("echo 1 > a; sleep 302 # killed {}", std::process::id());
    let id = detach(&lab, &["--attempt", mark]);
    let pid = rustix::process::Pid::from_raw(supervisor(mark) as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let gone = || {
        let done = lab.run(&["wait", &id, "--timeout", "100ms"]);
        done.code() == Some(125) && done.stderr.contains("FP0505")
    };
    wait_until(Duration::from_secs(20), gone).expect("it is told that nothing came of it");
    wait_until(Duration::from_secs(20), || {
        common::processes_with(mark).is_empty()
    })
    .expect("its attempt is dead");
    assert_eq!(lab.read("a").as_deref(), Some("0\n"));
}

#[test]
fn a_mistake_is_told_before_anything_is_detached() {
    let lab = Lab::new(&[]);
    let done = lab
        .run(&["explore", "--detach", "--strategy", "beam", "--", "true"])
        .expect(2);
    assert!(done.stderr.contains("FP0501"), "{done:?}");
    lab.run(&["wait", "last"]).expect(2);
    // What only the supervisor finds is passed on with its status.
    let done = lab
        .run(&["explore", "--detach", "--base", "nowhere", "--", "true"])
        .expect(2);
    assert!(done.stderr.contains("nowhere"), "{done:?}");
}

#[test]
fn what_is_kept_of_losers_is_bounded_by_itself() {
    let lab = Lab::new(&[("a", "0\n")]);
    let explore = |extra: &[&str]| {
        let args = [
            "explore",
            "--attempt",
            "head -c 100000 /dev/zero > big",
            "--verify",
            "false",
        ];
        let args: Vec<&str> = args.iter().chain(extra).copied().collect();
        lab.run(&args).expect(1);
    };
    let retained = || {
        let (report, done) = lab.json(&["gc", "--dry-run", "--all"]);
        done.expect(0);
        report["kinds"]["retained"]["count"].as_u64().unwrap_or(0)
    };
    for _ in 0..3 {
        explore(&[]);
    }
    assert_eq!(
        retained(),
        3,
        "within the default bounds everything is kept"
    );
    explore(&["--keep-size", "250K"]);
    assert_eq!(retained(), 2, "the oldest went");
    explore(&["--keep-age", "1ms"]);
    assert_eq!(retained(), 0);
}

#[test]
fn gc_says_what_it_frees_by_kind() {
    let lab = Lab::new(&[("a", "0\n")]);
    lab.run(&[
        "explore",
        "--attempt",
        "head -c 100000 /dev/zero > big",
        "--verify",
        "false",
    ])
    .expect(1);
    let done = lab.run(&["gc", "--all"]).expect(0);
    assert!(done.stdout.contains("  retained       1  "), "{done:?}");
    let (report, _) = lab.json(&["gc", "--all"]);
    assert_eq!(report["kinds"].get("retained"), None, "{report:#}");
}
