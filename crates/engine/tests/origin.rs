//! Frozen origins: a branch whose processes stand still while its children try something.

mod common;

use common::{Place, ok};
use forkpoint_engine::{
    AbortOptions, Branch, BranchState, ExitKind, ForkOptions, GcOptions, Layer, SealOptions, Side,
    Stream,
};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const HOLDER: &str = "FORKPOINT_TEST_HOLDER";

/// Waits until it is so.
#[track_caller]
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if so() {
            return;
        }
        let pause = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        rustix::event::poll(&mut [], Some(&pause)).ok();
    }
    panic!("{what} never came to be");
}

/// Starts a loop that counts up in `n`.
fn counting(branch: &Branch) {
    let script = "(i=0; while :; do i=$((i+1)); echo $i > .n; mv .n n; done) >/dev/null 2>&1 &";
    ok(branch, script);
    eventually("a first number", || count(branch).is_some());
}

fn count(branch: &Branch) -> Option<u64> {
    let text = branch
        .read_file(Path::new("n"), Side::Branch, 100)
        .unwrap()?;
    String::from_utf8(text).unwrap().trim().parse().ok()
}

/// It runs: the number moves.
#[track_caller]
fn runs(branch: &Branch) {
    let before = count(branch);
    eventually("another number", || {
        let now = count(branch);
        now.is_some() && now != before
    });
}

fn one(forks: forkpoint_engine::Result<Vec<forkpoint_engine::Result<Branch>>>) -> Branch {
    forks.unwrap().pop().unwrap().unwrap()
}

#[test]
fn a_held_branch_stands_still_until_it_is_let_go() {
    let place = Place::new();
    let parent = place.fork();
    counting(&parent);
    let origin = parent.hold_origin().unwrap();
    let held = count(&parent).unwrap();
    let options = ForkOptions {
        count: 3,
        ..ForkOptions::default()
    };
    for child in origin.fork(&options).unwrap() {
        let child = child.unwrap();
        assert_eq!(ok(&child, "cat n").trim(), held.to_string());
        ok(&child, "echo child > mine");
    }
    // Whoever forks it, or takes a step, and is done with that does not end the hold.
    let beside = one(parent.fork(&ForkOptions::default()));
    parent.step("x").unwrap();
    assert_eq!(ok(&beside, "cat n").trim(), held.to_string());
    parent.pause_and_resume();
    assert!(origin.alive());
    assert_eq!(count(&parent), Some(held));
    drop(origin);
    runs(&parent);
    parent.kill().unwrap();
}

trait Paused {
    fn pause_and_resume(&self);
}

impl Paused for Branch {
    fn pause_and_resume(&self) {
        self.freeze().unwrap();
        self.thaw().unwrap();
    }
}

#[test]
fn nothing_is_started_in_a_held_branch() {
    let place = Place::new();
    let (running, stopped) = (place.fork(), place.fork());
    counting(&running);
    ok(&stopped, "echo 1 > n");
    for parent in [&running, &stopped] {
        let origin = parent.hold_origin().unwrap();
        let error = parent.command("true").status().unwrap_err();
        assert_eq!(error.code, "FP0415", "{error}");
        assert_eq!(parent.hold_origin().unwrap_err().code, "FP0415");
        let child = one(origin.fork(&ForkOptions::default()));
        assert_eq!(
            ok(&child, "cat n").trim(),
            count(parent).unwrap().to_string()
        );
        drop(origin);
        assert_eq!(
            parent.command("true").status().unwrap().status,
            ExitKind::Code(0)
        );
        drop(parent.hold_origin().unwrap());
    }
    runs(&running);
    running.kill().unwrap();
}

#[test]
fn a_held_state_is_not_collected() {
    let place = Place::new();
    let parent = place.fork();
    counting(&parent);
    let origin = parent.hold_origin().unwrap();
    let held = count(&parent).unwrap().to_string();
    place.engine.gc(&GcOptions::default()).unwrap();
    let child = one(origin.fork(&ForkOptions::default()));
    assert_eq!(ok(&child, "cat n").trim(), held);
    child.abort(&AbortOptions::default()).unwrap();
    place.again().gc(&GcOptions::default()).unwrap();
    let child = one(origin.fork(&ForkOptions::default()));
    assert_eq!(ok(&child, "cat n").trim(), held);
    child.abort(&AbortOptions::default()).unwrap();
    drop(origin);
    parent.abort(&AbortOptions::default()).unwrap();
    place.engine.gc(&GcOptions::default()).unwrap();
    let left = std::fs::read_dir(place.dir().join("store/layers")).unwrap();
    assert_eq!(left.count(), 0, "and is, when nobody holds it");
}

#[test]
fn a_held_branch_is_aborted_from_outside_and_its_children_with_it() {
    let place = Place::new();
    let parent = place.fork();
    counting(&parent);
    let origin = parent.hold_origin().unwrap();
    let options = ForkOptions {
        count: 2,
        ..ForkOptions::default()
    };
    let children: Vec<Branch> = (origin.fork(&options).unwrap().into_iter())
        .map(|child| child.unwrap())
        .collect();
    ok(&children[0], "sleep 1000 >/dev/null 2>&1 &");
    let plain = one(parent.fork(&ForkOptions::default()));
    assert!(origin.alive());
    parent.abort(&AbortOptions::default()).unwrap();
    assert!(!origin.alive());
    for child in &children {
        assert_eq!(child.state().unwrap(), BranchState::RolledBack);
        assert!(!child.is_running().unwrap());
    }
    assert_eq!(
        plain.state().unwrap(),
        BranchState::Open,
        "is somebody's own"
    );
    let refused = origin.fork(&ForkOptions::default()).unwrap_err();
    assert_eq!(refused.code, "FP0405", "{refused}");
}

#[test]
fn a_held_branch_is_not_alive_once_it_was_stopped_or_sealed() {
    let place = Place::new();
    for seal in [false, true] {
        let parent = place.fork();
        counting(&parent);
        let origin = parent.hold_origin().unwrap();
        assert!(origin.alive());
        match seal {
            true => drop(parent.seal(&SealOptions::default()).unwrap()),
            false => parent.kill().unwrap(),
        }
        assert!(!origin.alive());
        assert_eq!(
            origin.fork(&ForkOptions::default()).unwrap_err().code,
            "FP0405"
        );
        drop(origin);
    }
}

#[test]
fn who_cannot_be_an_origin_is_refused() {
    let place = Place::new();
    let options = ForkOptions {
        layer: Layer::Reasoning,
        ..ForkOptions::default()
    };
    let thinking = one(place.world().fork(&options));
    assert_eq!(thinking.hold_origin().unwrap_err().code, "FP0405");
    let gone = place.fork();
    gone.abort(&AbortOptions::default()).unwrap();
    assert_eq!(gone.hold_origin().unwrap_err().code, "FP0405");
    let Some((copies, _mounted, _under)) = common::without_overlay() else {
        return;
    };
    assert_eq!(copies.fork().hold_origin().unwrap_err().code, "FP0405");
}

/// Run as a process of its own by the tests below: holds a branch and says so.
#[test]
#[ignore = "a part of other tests"]
fn holder() {
    let Ok(what) = std::env::var(HOLDER) else {
        return;
    };
    let (dir, branch) = what.split_once('|').unwrap();
    let engine = common::open(Path::new(dir));
    let origin = engine.branch(branch).unwrap().hold_origin().unwrap();
    println!("\nheld");
    std::io::stdin().lock().lines().for_each(drop);
    drop(origin);
}

#[test]
fn what_a_dead_process_held_goes_on() {
    let place = Place::new();
    let parent = place.fork();
    counting(&parent);
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--ignored", "--nocapture"])
        .env(HOLDER, format!("{}|{}", place.dir().display(), parent.id()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "held"));
    let held = count(&parent);
    assert_eq!(parent.command("true").status().unwrap_err().code, "FP0415");
    assert_eq!(count(&parent), held);
    holder.kill().unwrap();
    holder.wait().unwrap();
    runs(&parent);
    ok(&parent, "true");
    let mut command = parent.command("true");
    assert!(command.stdin(Stream::Null).status().is_ok());
    parent.kill().unwrap();
}
