//! Every rule of an exploration, against a scripted backend.

use forkpoint_model::participant::Conflict;
use forkpoint_model::{ParticipantId, Result};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{CommitOutcome, Ended};
use crate::fake::{Fake, Script};
use crate::report::{AttemptState as S, Changed, Outcome, Reason as R};
use crate::spec::*;
use crate::{Cancel, Observer, Progress, Report, run};

fn shell(line: &str) -> CommandLine {
    CommandLine::Shell(line.into())
}

fn spec(n: usize) -> ExploreSpec {
    ExploreSpec {
        attempts: vec![AttemptSpec::new(shell("try"))],
        count: Some(n as u32),
        jobs: Some(8),
        verify: Some(VerifySpec {
            command: shell("check"),
            repeat: 1,
            mounts: Vec::new(),
            timeout: None,
            exclusive: false,
        }),
        ..ExploreSpec::default()
    }
}

fn scored(n: usize) -> ExploreSpec {
    ExploreSpec {
        score: Some(ScoreSpec {
            command: shell("measure"),
            repeat: 1,
            exclusive: false,
            direction: Default::default(),
            timeout: None,
        }),
        ..spec(n)
    }
}

#[derive(Default)]
struct Seen(Vec<String>);

impl Observer for Seen {
    fn on(&mut self, progress: &Progress<'_>) {
        self.0.push(format!("{progress:?}"));
    }
}

fn explore(fake: &Fake, spec: &ExploreSpec) -> Result<Report> {
    let none = |_: &OsStr| None::<OsString>;
    run(
        fake,
        spec,
        &none,
        &mut Seen::default(),
        &Cancel::new().unwrap(),
    )
}

fn reasons(report: &Report) -> Vec<R> {
    report.attempts.iter().map(|a| a.reason).collect()
}

fn states(report: &Report) -> Vec<S> {
    report.attempts.iter().map(|a| a.state).collect()
}

fn failing() -> Script {
    Script {
        verdicts: vec![Ended::Code(1)],
        ..Script::default()
    }
}

fn endless() -> Script {
    Script {
        takes: None,
        ..Script::default()
    }
}

#[test]
fn the_first_that_passes_wins_and_stops_the_others_before_its_commit() {
    let slow = Script {
        takes: Some(Duration::from_millis(30)),
        ..Script::default()
    };
    let fake = Fake::new(vec![endless(), slow, endless(), failing()]);
    let report = explore(&fake, &spec(4)).unwrap();
    assert_eq!(
        (report.winner, report.committed, report.outcome),
        (Some(1), true, Outcome::Committed)
    );
    assert_eq!(
        reasons(&report),
        [
            R::SiblingCommitted,
            R::Passed,
            R::SiblingCommitted,
            R::FailedVerify
        ]
    );
    assert_eq!(
        states(&report),
        [S::RolledBack, S::Committed, S::RolledBack, S::RolledBack]
    );
    for loser in ["dead 0", "dead 2"] {
        assert!(
            fake.journal.place(loser) < fake.journal.place("commit 1"),
            "{loser}"
        );
    }
    assert!(
        fake.journal.place("commit 1") < fake.journal.place("abort sibling_committed retain 0")
    );
    assert_eq!(report.attempts[1].withheld, [".git/hooks/x".into()]);
    assert_eq!(
        fake.ended.lock().unwrap().as_ref().map(|(r, _)| r.winner),
        Some(Some(1))
    );
}

#[test]
fn an_exclusive_verifier_runs_alone() {
    let slow = Script {
        takes: Some(Duration::from_millis(40)),
        verify_takes: Some(Duration::from_millis(5)),
        ..Script::default()
    };
    let quick = Script {
        takes: Some(Duration::ZERO),
        ..slow.clone()
    };
    let fake = Fake::new(vec![quick.clone(), slow.clone(), quick, slow]);
    let mut spec = scored(4);
    spec.verify.as_mut().unwrap().exclusive = true;
    explore(&fake, &spec).unwrap();
    let mut running = 0;
    for event in fake.journal.all() {
        match event.split(' ').next() {
            Some("run") => running += 1,
            Some("dead") => running -= 1,
            Some("verify") => assert_eq!(running, 0, "{:?}", fake.journal.all()),
            _ => {}
        }
    }
}

#[test]
fn a_secret_reaches_the_attempt_and_no_log() {
    let script = Script {
        output: "token=s3cret-value!\n",
        ..Script::default()
    };
    let fake = Fake::new(vec![script]);
    let spec = ExploreSpec {
        secrets: vec!["TOKEN".into()],
        ..spec(1)
    };
    let caller = |name: &OsStr| (name == "TOKEN").then(|| OsString::from("s3cret-value!"));
    let mut seen = Seen::default();
    let report = run(&fake, &spec, &caller, &mut seen, &Cancel::new().unwrap()).unwrap();
    let log = std::fs::read_to_string(fake.dir.path().join("0.log")).unwrap();
    assert_eq!(log, "token=[secret]\n");
    assert_eq!(fake.vars.lock().unwrap()[&0]["TOKEN"], "s3cret-value!");
    let told = format!("{:?} {}", seen.0, serde_json::to_string(&report).unwrap());
    assert!(told.contains("token=[secret]") && !told.contains("s3cret"));
    assert!(!serde_json::to_string(&spec).unwrap().contains("s3cret"));
    assert!(
        explore(&fake, &spec)
            .unwrap_err()
            .message
            .contains("not set")
    );
}

#[test]
fn nothing_starts_beyond_jobs() {
    let fake = Fake::new(vec![failing(), failing(), Script::default(), endless()]);
    let report = explore(
        &fake,
        &ExploreSpec {
            jobs: Some(1),
            ..spec(4)
        },
    )
    .unwrap();
    assert_eq!(report.winner, Some(2));
    let all = fake.journal.all();
    assert!(!all.contains(&"run 3".to_owned()), "{all:?}");
    assert!(
        all.contains(&"abort sibling_committed drop 3".to_owned()),
        "{all:?}"
    );
    assert_eq!(report.attempts[3].reason, R::SiblingCommitted);
}

#[test]
fn best_of_n_lets_all_finish_and_ties_go_to_the_smaller_change() {
    let with = |score: &'static str, bytes| Script {
        scores: vec![score],
        changed: Changed { files: 1, bytes },
        ..Script::default()
    };
    let fake = Fake::new(vec![with("2", 50), with("3", 50), with("3", 20), failing()]);
    let report = explore(&fake, &scored(4)).unwrap();
    assert_eq!(
        (report.winner, report.strategy.as_str()),
        (Some(2), "best-of-n")
    );
    assert_eq!(
        reasons(&report),
        [R::Outscored, R::Outscored, R::Passed, R::FailedVerify]
    );
    assert_eq!(report.attempts[0].score, Some(2.0));
    assert_eq!(report.baseline.as_ref().and_then(|b| b.score), Some(0.0));
}

#[test]
fn a_score_that_is_no_number_is_out() {
    let with = |score: &'static str| Script {
        scores: vec![score],
        ..Script::default()
    };
    let fake = Fake::new(vec![with("NaN"), with("inf"), with("oops"), with("-1")]);
    let report = explore(&fake, &scored(4)).unwrap();
    assert_eq!(report.winner, Some(3));
    assert_eq!(
        reasons(&report),
        [R::ScoreError, R::ScoreError, R::ScoreError, R::Passed]
    );
    assert!(report.attempts[0].passed && report.attempts[0].score.is_none());
}

#[test]
fn an_exclusive_score_waits_for_every_attempt_and_is_the_median() {
    let slow = Script {
        takes: Some(Duration::from_millis(20)),
        ..Script::default()
    };
    let quick = Script {
        scores: vec!["1", "100", "3"],
        ..Script::default()
    };
    let mut spec = scored(2);
    if let Some(score) = &mut spec.score {
        (score.exclusive, score.repeat) = (true, 3);
    }
    let fake = Fake::new(vec![quick, slow]);
    let report = explore(&fake, &spec).unwrap();
    assert_eq!(report.attempts[0].score, Some(3.0));
    assert!(fake.journal.place("verify 1") < fake.journal.place("score 0"));
}

#[test]
fn a_flaky_gate_must_pass_every_time() {
    let flaky = Script {
        verdicts: vec![Ended::Code(0), Ended::Code(1)],
        ..Script::default()
    };
    let fake = Fake::new(vec![flaky]);
    let mut spec = spec(1);
    if let Some(verify) = &mut spec.verify {
        verify.repeat = 3;
    }
    let report = explore(&fake, &spec).unwrap();
    assert_eq!((report.winner, report.outcome), (None, Outcome::NonePassed));
    assert_eq!(reasons(&report), [R::FailedVerify]);
}

#[test]
fn without_a_verifier_passing_means_exit_zero() {
    let exits = |code| Script {
        ended: Ended::Code(code),
        ..Script::default()
    };
    let fake = Fake::new(vec![exits(3), exits(0)]);
    let spec = ExploreSpec {
        verify: None,
        jobs: Some(1),
        ..spec(2)
    };
    let report = explore(&fake, &spec).unwrap();
    assert_eq!(
        (report.winner, reasons(&report)),
        (Some(1), vec![R::Exit, R::Passed])
    );
    assert_eq!(report.attempts[0].exit_code, Some(3));
    assert!(report.baseline.is_none() && report.attempts[1].verifier.is_none());
}

#[test]
fn with_a_verifier_it_alone_decides() {
    let fake = Fake::new(vec![Script {
        ended: Ended::Code(3),
        ..Script::default()
    }]);
    let report = explore(&fake, &spec(1)).unwrap();
    assert_eq!(
        (report.winner, report.attempts[0].exit_code),
        (Some(0), Some(3))
    );
}

#[test]
fn every_way_not_to_pass_has_its_reason() {
    let ended = |ended| Script {
        ended,
        ..Script::default()
    };
    let verdict = |verdict| Script {
        verdicts: vec![verdict],
        ..Script::default()
    };
    let empty = Script {
        changed: Changed::default(),
        ..Script::default()
    };
    let cases = [
        (ended(Ended::TimeLimit), R::Timeout),
        (ended(Ended::Limit("memory".into())), R::Limit),
        (
            ended(Ended::NotStarted("no such file".into())),
            R::StartError,
        ),
        (empty, R::NoChange),
        (failing(), R::FailedVerify),
        (verdict(Ended::Signal(11)), R::FailedVerify),
        (verdict(Ended::TimeLimit), R::VerifierTimeout),
        (verdict(Ended::Code(127)), R::VerifierError),
        (verdict(Ended::NotStarted("gone".into())), R::VerifierError),
        (
            Script {
                fork_fails: true,
                ..Script::default()
            },
            R::StartError,
        ),
    ];
    let (scripts, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let fake = Fake::new(scripts);
    let report = explore(&fake, &spec(expected.len())).unwrap();
    assert_eq!(reasons(&report), expected);
    assert_eq!(report.outcome, Outcome::NonePassed);
    assert_eq!(report.attempts[9].state, S::FailedToStart);
    assert!(report.attempts[9].branch.is_none());
    assert!(
        report.attempts[..9]
            .iter()
            .all(|a| a.state == S::RolledBack && !a.passed)
    );
    let all = fake.journal.all();
    for i in 0..4 {
        assert!(
            !all.contains(&format!("verify {i}")),
            "{i} was verified: {all:?}"
        );
    }
}

#[test]
fn an_empty_change_passes_where_that_is_allowed() {
    let empty = Script {
        changed: Changed::default(),
        ..Script::default()
    };
    let report = explore(
        &Fake::new(vec![empty]),
        &ExploreSpec {
            allow_empty: true,
            ..spec(1)
        },
    );
    assert_eq!(report.unwrap().winner, Some(0));
}

#[test]
fn a_refused_commit_goes_on_with_the_next_and_only_a_commit_rolls_it_back() {
    let conflict = || {
        CommitOutcome::Conflict(vec![Conflict {
            participant: ParticipantId("disk:0".into()),
            item: "a.txt".into(),
            why: "changed in the base".into(),
        }])
    };
    let refused = || Script {
        commit: conflict(),
        scores: vec!["9"],
        ..Script::default()
    };
    let fake = Fake::new(vec![refused(), Script::default()]);
    let report = explore(&fake, &scored(2)).unwrap();
    assert_eq!(
        (report.winner, reasons(&report)),
        (Some(1), vec![R::Conflict, R::Passed])
    );
    assert_eq!(states(&report), [S::RolledBack, S::Committed]);

    let fake = Fake::new(vec![refused(), failing()]);
    let report = explore(&fake, &scored(2)).unwrap();
    assert_eq!((report.winner, report.outcome), (None, Outcome::Refused));
    assert_eq!(states(&report), [S::Sealed, S::RolledBack]);
    assert_eq!(report.attempts[0].conflicts[0].item, "a.txt");
}

#[test]
fn every_refusal_has_its_reason_and_a_failed_commit_is_said_to_be_one() {
    for (commit, reason) in [
        (CommitOutcome::Drift(vec!["x".into()]), R::Drift),
        (CommitOutcome::Lost("another was first".into()), R::Lost),
        (CommitOutcome::Empty, R::NoChange),
    ] {
        let report = explore(
            &Fake::new(vec![Script {
                commit,
                ..Script::default()
            }]),
            &spec(1),
        );
        assert_eq!(reasons(&report.unwrap()), [reason]);
    }
    let fake = Fake::new(vec![Script {
        commit_fails: true,
        ..Script::default()
    }]);
    let report = explore(&fake, &spec(1)).unwrap();
    assert_eq!((report.outcome, report.winner), (Outcome::Failed, None));
    assert_eq!(
        (reasons(&report), states(&report)),
        (vec![R::CommitError], vec![S::Sealed])
    );
}

#[test]
fn a_blocked_commit_is_decided_and_incomplete() {
    let blocked = CommitOutcome::Blocked(Vec::new());
    let report = explore(
        &Fake::new(vec![Script {
            commit: blocked,
            ..Script::default()
        }]),
        &spec(1),
    );
    let report = report.unwrap();
    assert!(report.committed && report.incomplete());
    assert_eq!(states(&report), [S::ApplyBlocked]);
}

#[test]
fn an_incomplete_rollback_is_said_beside_the_commit() {
    let fake = Fake::new(vec![
        Script::default(),
        Script {
            left: 2,
            ..failing()
        },
    ]);
    let report = explore(
        &fake,
        &ExploreSpec {
            jobs: Some(1),
            ..scored(2)
        },
    )
    .unwrap();
    assert!(report.committed && report.incomplete());
    assert_eq!(report.attempts[1].state, S::RollbackIncomplete);
    assert_eq!(report.attempts[1].conflicts.len(), 2);
}

#[path = "driver_end_tests.rs"]
mod ends;
