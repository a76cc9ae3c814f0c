//! Several processes on one store: races, kill -9 in the middle of a transaction, and waiting. The
//! other processes are this test binary started again, with a role in its environment.

mod common;

use common::{Fixture, branch, decision, reserve, sealed};
use forkpoint_model::{BranchId, Generation, GroupId, WorldId};
use forkpoint_store::{BranchRecord, CommitRecord, Durability, Race, Store, codes};
use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

const ROLE: &str = "FORKPOINT_TEST_ROLE";
const STORE: &str = "FORKPOINT_TEST_STORE";
const NUMBER: &str = "FORKPOINT_TEST_NUMBER";

fn start(role: &str, store: &Path, number: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "child_process",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .env(STORE, store)
        .env(NUMBER, number.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until the child says `word`; returns the rest of its output's reader.
fn wait_for(child: &mut Child, word: &str) -> BufReader<std::process::ChildStdout> {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        assert_ne!(
            out.read_line(&mut line).unwrap(),
            0,
            "the child never said {word}"
        );
    }
    out
}

/// Ends a child's input, reads what it still says, and expects that it went well.
fn finish(child: &mut Child, mut out: BufReader<std::process::ChildStdout>) {
    drop(child.stdin.take());
    out.read_to_end(&mut Vec::new()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Not a test of its own: what a child does.
#[test]
fn child_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let number: u64 = std::env::var(NUMBER).unwrap().parse().unwrap();
    let store = Store::open(Path::new(&std::env::var_os(STORE).unwrap())).unwrap();
    let stdin = std::io::stdin();
    match role.as_str() {
        "decide" => {
            println!("ready");
            for line in stdin.lines() {
                let round: u64 = line.unwrap().parse().unwrap();
                println!("{} {round}", race(&store, round, number));
            }
        }
        "fork" => {
            for n in 0..200 {
                store
                    .insert_branch(&branch(10_000 * (number + 1) + n))
                    .unwrap();
            }
        }
        "hang" => {
            let held = store.batch(Durability::Full, |s| {
                s.insert_branch(&branch(number))?;
                println!("holding");
                // Until it is killed, or its input ends.
                stdin.lock().read_to_end(&mut Vec::new()).unwrap();
                Ok(())
            });
            held.unwrap();
        }
        other => panic!("no role {other}"),
    }
}

/// One racer of one round: reserves when it can, decides, and says how it went.
fn race(store: &Store, round: u64, number: u64) -> &'static str {
    let id = BranchId::from_bits(1 + round * 100 + number);
    let txn = 1 + round * 100 + number;
    loop {
        let b = store.branch(id).unwrap();
        let row = CommitRecord::reservation(&common::plan(txn, &b), 1);
        match store.reserve(&row, false, 1) {
            Ok(Race::Won(())) => break,
            Ok(Race::Lost(forkpoint_model::commit::Lost::Reserved { .. })) => {
                std::thread::yield_now();
            }
            Ok(Race::Lost(_)) => return "lost",
            Err(error) => panic!("{error}"),
        }
    }
    match store.decide(&decision(txn, false), 2).unwrap() {
        Race::Won(_) => "won",
        Race::Lost(_) => "lost",
    }
}

#[test]
fn law_07_of_eight_racing_processes_exactly_one_wins_thirty_times() {
    let f = Fixture::new();
    let mut racers: Vec<_> = (0..8)
        .map(|n| {
            let mut child = start("decide", &f.path(), n);
            let out = wait_for(&mut child, "ready");
            (child, out)
        })
        .collect();
    for round in 0..30u64 {
        let generation = Generation(round);
        let group = GroupId::from_bits(round + 1);
        let all: Vec<_> = (0..8)
            .map(|n| BranchRecord {
                generation,
                group: Some(group),
                ..branch(1 + round * 100 + n)
            })
            .collect();
        f.store.insert_branches(&all).unwrap();
        for b in &all {
            f.store
                .transition(b.id, &forkpoint_model::state::BranchEvent::Sealed, 1)
                .unwrap();
        }
        for (child, _) in &mut racers {
            writeln!(child.stdin.as_mut().unwrap(), "{round}").unwrap();
        }
        let mut won = 0;
        for (_, out) in &mut racers {
            let mut line = String::new();
            assert_ne!(out.read_line(&mut line).unwrap(), 0);
            won += u32::from(line.starts_with("won"));
        }
        assert_eq!(won, 1, "round {round}");
        let head = f.store.world(WorldId::from_bits(1)).unwrap().head;
        assert_eq!(head, Generation(round + 1));
        let states = f.store.siblings(group).unwrap();
        let text: Vec<_> = states.iter().map(|b| b.state.as_str()).collect();
        assert_eq!(
            text.iter().filter(|s| **s == "committed").count(),
            1,
            "{text:?}"
        );
        assert_eq!(
            text.iter().filter(|s| **s == "invalidated").count(),
            7,
            "{text:?}"
        );
    }
    for (mut child, out) in racers {
        finish(&mut child, out);
    }
    f.store.check().unwrap();
}

#[test]
fn forks_of_many_processes_all_arrive() {
    let f = Fixture::new();
    let children: Vec<_> = (0..4).map(|n| start("fork", &f.path(), n)).collect();
    for child in children {
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success());
    }
    assert_eq!(f.store.branches(None, true).unwrap().len(), 800);
}

#[test]
fn law_10_a_kill_in_a_transaction_leaves_the_old_rows_and_a_store_that_works() {
    let f = Fixture::new();
    for n in 1..6 {
        let mut child = start("hang", &f.path(), n);
        wait_for(&mut child, "holding");
        child.kill().unwrap();
        child.wait().unwrap();
        let again = Store::open(&f.path()).unwrap();
        assert!(
            again.branch(BranchId::from_bits(n)).is_err(),
            "half a transaction was kept"
        );
        again.insert_branch(&branch(n)).unwrap();
        again.check().unwrap();
    }
}

#[test]
fn waiting_for_another_process_is_bounded_and_says_for_what() {
    let mut f = Fixture::new();
    let mut child = start("hang", &f.path(), 1);
    let out = wait_for(&mut child, "holding");
    f.store.set_patience(Duration::from_millis(50));
    let error = f.store.insert_branch(&branch(2)).unwrap_err();
    assert_eq!(error.code, codes::BUSY.text);
    assert!(error.hint.contains("lock"), "{error:?}");
    // Reading needs no lock, and the child's row is not there yet.
    assert_eq!(f.store.branches(None, true).unwrap(), []);
    f.store.set_patience(Duration::from_secs(30));
    drop(child.stdin.take());
    f.store.insert_branch(&branch(2)).unwrap();
    finish(&mut child, out);
    assert_eq!(f.store.branches(None, true).unwrap().len(), 2);
    // The thread that gave up waiting let go of the lock when it got it.
    let b = sealed(&f.store, 3, None);
    assert_eq!(reserve(&f.store, 100, &b), Race::Won(()));
}
