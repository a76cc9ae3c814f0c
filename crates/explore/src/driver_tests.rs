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
        attempts: vec![AttemptSpec {
            command: shell("try"),
            params: Default::default(),
            env: Vec::new(),
        }],
        count: Some(n as u32),
        jobs: Some(8),
        verify: Some(VerifySpec {
            command: shell("check"),
            repeat: 1,
            mounts: Vec::new(),
            timeout: None,
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

#[test]
fn no_commit_leaves_the_winner_sealed_and_keep_says_what_becomes_of_the_rest() {
    for (keep, loser, how) in [
        (Keep::None, S::RolledBack, "abort failed_verify drop 1"),
        (Keep::Losers, S::RolledBack, "abort failed_verify retain 1"),
        (Keep::All, S::Sealed, ""),
    ] {
        let fake = Fake::new(vec![Script::default(), failing()]);
        let report = explore(
            &fake,
            &ExploreSpec {
                no_commit: true,
                keep,
                ..scored(2)
            },
        )
        .unwrap();
        assert_eq!((report.winner, report.outcome), (Some(0), Outcome::Chosen));
        assert!(!report.committed);
        assert_eq!(states(&report), [S::Sealed, loser]);
        let all = fake.journal.all();
        assert!(!all.iter().any(|e| e.starts_with("commit")), "{all:?}");
        let aborts: Vec<_> = all.iter().filter(|e| e.starts_with("abort")).collect();
        assert_eq!(aborts.first().map_or("", |e| e), how);
    }
}

#[test]
fn protected_paths_are_restored_before_the_verifier_looks_and_listed() {
    let cheat = Script {
        restored: vec!["tests/a"],
        ..Script::default()
    };
    let fake = Fake::new(vec![cheat]);
    let spec = ExploreSpec {
        protect: vec!["tests/**".into()],
        ..spec(1)
    };
    let report = explore(&fake, &spec).unwrap();
    assert_eq!(report.attempts[0].restored, ["tests/a".into()]);
    assert!(fake.journal.place("seal 0") < fake.journal.place("verify 0"));
}

#[test]
fn the_gate_looks_at_the_base_first_and_a_pass_there_is_said() {
    let mut fake = Fake::new(vec![Script::default()]);
    fake.base_verdict = Ended::Code(0);
    let spec = ExploreSpec {
        prepare: Some(PrepareSpec {
            command: shell("setup"),
            inputs: Vec::new(),
            network: NetworkSpec::Host,
            timeout: None,
        }),
        ..spec(1)
    };
    let report = explore(&fake, &spec).unwrap();
    let baseline = report.baseline.unwrap();
    assert_eq!((baseline.passed, baseline.exit_code), (Some(true), Some(0)));
    assert!(
        report
            .notes
            .iter()
            .any(|n| n.contains("passes on the base already"))
    );
    let journal = &fake.journal;
    assert!(journal.place("prepare") < journal.place("base verify.log"));
    assert!(journal.place("base verify.log") < journal.place("fork 1"));
}

#[test]
fn a_failed_preparation_ends_it_and_is_recorded() {
    let mut fake = Fake::new(vec![Script::default()]);
    fake.prepare_fails = true;
    let prepare = PrepareSpec {
        command: shell("setup"),
        inputs: Vec::new(),
        network: NetworkSpec::Loopback,
        timeout: None,
    };
    let error = explore(
        &fake,
        &ExploreSpec {
            prepare: Some(prepare),
            ..spec(1)
        },
    )
    .unwrap_err();
    assert_eq!(error.code, "FP0990");
    let ended = fake.ended.lock().unwrap();
    let (report, recorded) = ended.as_ref().unwrap();
    assert_eq!(
        (report.outcome, recorded.as_ref()),
        (Outcome::Failed, Some(&error))
    );
}

#[test]
fn when_nothing_can_be_forked_the_reason_is_the_error() {
    let broken = || Script {
        fork_fails: true,
        ..Script::default()
    };
    let error = explore(&Fake::new(vec![broken(), broken()]), &spec(2)).unwrap_err();
    assert_eq!(error.message, "no space left");
}

fn cancelled_in(index: u32, scripts: Vec<Script>, spec: &ExploreSpec) -> (Fake, Report) {
    let cancel = Cancel::new().unwrap();
    let mut fake = Fake::new(scripts);
    let raise = cancel.clone();
    fake.on_start = Some(Arc::new(move |i| {
        if i == index {
            raise.cancel();
        }
    }));
    let none = |_: &OsStr| None::<OsString>;
    let begun = Instant::now();
    let report = run(&fake, spec, &none, &mut Seen::default(), &cancel).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    (fake, report)
}

#[test]
fn an_interrupt_stops_and_rolls_back_everything() {
    let (fake, report) = cancelled_in(
        1,
        vec![endless(), endless(), endless()],
        &ExploreSpec {
            jobs: Some(2),
            ..spec(3)
        },
    );
    assert_eq!(
        (report.outcome, report.winner),
        (Outcome::Interrupted, None)
    );
    assert_eq!(reasons(&report), [R::Interrupted; 3]);
    assert_eq!(states(&report), [S::RolledBack; 3]);
    assert!(!fake.journal.all().contains(&"run 2".to_owned()));
    let ended = fake.ended.lock().unwrap();
    assert_eq!(
        ended.as_ref().map(|(r, _)| r.outcome),
        Some(Outcome::Interrupted)
    );
}

#[test]
fn an_interrupt_kills_a_verifier_too() {
    let stuck = Script {
        verify_takes: None,
        ..Script::default()
    };
    let late = Script {
        takes: Some(Duration::from_millis(50)),
        ..Script::default()
    };
    // Attempt 1 begins when a slot is free, which is while attempt 0 is being verified.
    let fake = Fake::new(vec![stuck, late]);
    let timed = ExploreSpec {
        total_timeout: "80ms".parse().ok(),
        ..spec(1)
    };
    let report = explore(&fake, &timed).unwrap();
    assert_eq!(report.outcome, Outcome::Timeout);
    assert!(fake.journal.all().contains(&"judge killed 0".to_owned()));
}

#[test]
fn an_interrupt_during_preparation_forks_nothing() {
    let prepare = PrepareSpec {
        command: shell("setup"),
        inputs: Vec::new(),
        network: NetworkSpec::Loopback,
        timeout: None,
    };
    // The watch's thread passes the flag on; whichever side of the fork that falls, all is undone.
    let (_, report) = cancelled_in(
        u32::MAX,
        vec![endless()],
        &ExploreSpec {
            prepare: Some(prepare),
            ..spec(1)
        },
    );
    assert_eq!(
        (report.outcome, reasons(&report)),
        (Outcome::Interrupted, vec![R::Interrupted])
    );
}

#[test]
fn the_total_time_ends_what_runs() {
    let fake = Fake::new(vec![endless(), failing()]);
    let spec = ExploreSpec {
        total_timeout: "60ms".parse().ok(),
        ..spec(2)
    };
    let report = explore(&fake, &spec).unwrap();
    assert_eq!(report.outcome, Outcome::Timeout);
    assert_eq!(reasons(&report), [R::TotalTimeout, R::FailedVerify]);
}

#[test]
fn an_attempt_is_told_its_deadline_and_who_it_is() {
    let fake = Fake::new(vec![Script::default()]);
    let spec = ExploreSpec {
        timeout: "90s".parse().ok(),
        ..spec(1)
    };
    explore(&fake, &spec).unwrap();
    let vars = fake.vars.lock().unwrap();
    assert_eq!(vars[&0]["FORKPOINT_DEADLINE"], "1090");
    assert_eq!(vars[&0]["FORKPOINT_ATTEMPT"], "0");
}

#[test]
fn output_is_in_the_log_and_shown_line_by_line() {
    let loud = Script {
        output: "one\ntwo\n",
        ..Script::default()
    };
    let fake = Fake::new(vec![loud]);
    let mut seen = Seen::default();
    let none = |_: &OsStr| None::<OsString>;
    let report = run(&fake, &spec(1), &none, &mut seen, &Cancel::new().unwrap()).unwrap();
    let log = report.attempts[0].log.as_ref().unwrap();
    assert_eq!(std::fs::read_to_string(&log.0).unwrap(), "one\ntwo\n");
    assert!(
        seen.0.iter().any(|l| l.contains("text: \"two\"")),
        "{:?}",
        seen.0
    );
}
