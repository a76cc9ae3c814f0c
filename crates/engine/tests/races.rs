//! Law 7: of siblings that are committed at once exactly one wins, whoever commits them.

mod common;

use common::{Place, ok};
use forkpoint_engine::{Branch, BranchState, CommitOptions, CommitOutcome, Kind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;

const COMMITTER: &str = "FORKPOINT_TEST_RACE";

/// How one of the racers ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Won,
    Lost,
}

/// Commits until it is known who won: a base that another is committing to is tried again.
fn race(branch: &Branch) -> Ended {
    for _ in 0..10_000 {
        match branch.commit(&CommitOptions::default()) {
            Ok(report) => match report.outcome {
                CommitOutcome::Committed => return Ended::Won,
                CommitOutcome::Lost { .. } => return Ended::Lost,
                other => panic!("{other:?}"),
            },
            Err(error) if error.code == "FP0406" || error.code == "FP0407" => {
                let pause = rustix::event::Timespec {
                    tv_sec: 0,
                    tv_nsec: 1_000_000,
                };
                rustix::event::poll(&mut [], Some(&pause)).ok();
            }
            Err(error) => {
                let over = matches!(
                    branch.state().unwrap(),
                    BranchState::Invalidated | BranchState::Aborting | BranchState::RolledBack
                );
                assert!(over, "{error} ({:?})", branch.state());
                assert!(
                    matches!(error.kind, Kind::Conflict | Kind::Invalid | Kind::Closed),
                    "{error:?}"
                );
                return Ended::Lost;
            }
        }
    }
    panic!("it came to no end");
}

/// Siblings that each changed the same file and one of their own, and run on.
fn siblings(place: &Place, count: u32) -> Vec<Branch> {
    let forks = place.forks(count);
    for (index, fork) in forks.iter().enumerate() {
        let script = format!(
            "echo {index} > shared; echo {index} > own-{index}; \
             (trap '' TERM HUP; setsid sleep 1000) >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 &"
        );
        ok(fork, &script);
    }
    forks
}

/// One winner, whose files are the base's; everybody else is dead and fenced.
fn settled(place: &Place, forks: &[Branch], ended: &[Ended], round: usize) {
    let winners: Vec<usize> = (0..ended.len())
        .filter(|&i| ended[i] == Ended::Won)
        .collect();
    assert_eq!(winners.len(), 1, "round {round}: {ended:?}");
    assert_eq!(place.read("shared"), format!("{}\n", winners[0]));
    for (index, fork) in forks.iter().enumerate() {
        let won = index == winners[0];
        assert_eq!(place.file(&format!("own-{index}")).exists(), won);
        let record = fork.record().unwrap();
        assert_eq!(record.process, None, "round {round}: {index} runs");
        match won {
            true => assert_eq!(record.state, BranchState::Committed),
            false => assert!(
                matches!(
                    record.state,
                    BranchState::Invalidated | BranchState::RolledBack
                ),
                "round {round}: {:?}",
                record.state
            ),
        }
        if !won && record.state == BranchState::Invalidated {
            let report = fork.abort(&Default::default()).unwrap();
            assert_eq!(report.state, BranchState::RolledBack);
        }
    }
    std::fs::remove_file(place.file(&format!("own-{}", winners[0]))).unwrap();
}

#[test]
fn law_07_of_eight_siblings_committed_by_eight_threads_one_wins_thirty_times() {
    let place = Place::new();
    place.write("shared", "none");
    for round in 0..30 {
        let forks = siblings(&place, 8);
        let barrier = Barrier::new(forks.len());
        let ended: Vec<Ended> = std::thread::scope(|scope| {
            let threads: Vec<_> = forks
                .iter()
                .map(|fork| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        race(fork)
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        settled(&place, &forks, &ended, round);
    }
}

/// One of the racing processes.
#[test]
#[ignore = "executed by the others as a process of its own"]
fn committer() {
    let Ok(text) = std::env::var(COMMITTER) else {
        return;
    };
    let (dir, id) = text.split_once('|').unwrap();
    let engine = common::open(Path::new(dir));
    let branch = engine.branch(id).unwrap();
    // All begin when the starter closes this.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    println!("\nENDED {:?}", race(&branch));
}

#[test]
fn law_07_of_four_siblings_committed_by_four_processes_one_wins() {
    let place = Place::new();
    place.write("shared", "none");
    let own = std::env::current_exe().unwrap();
    for round in 0..8 {
        let forks = siblings(&place, 4);
        let mut children: Vec<_> = forks
            .iter()
            .map(|fork| {
                Command::new(&own)
                    .args(["--exact", "committer", "--ignored", "--nocapture"])
                    .env(
                        COMMITTER,
                        format!("{}|{}", place.dir().display(), fork.id()),
                    )
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        children
            .iter_mut()
            .for_each(|child| drop(child.stdin.take()));
        let ended: Vec<Ended> = children
            .into_iter()
            .map(|child| {
                let output = child.wait_with_output().unwrap();
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                match text.lines().find_map(|l| l.strip_prefix("ENDED ")) {
                    Some("Won") => Ended::Won,
                    Some("Lost") => Ended::Lost,
                    other => panic!("{other:?}: {text}"),
                }
            })
            .collect();
        settled(&place, &forks, &ended, round);
    }
}
