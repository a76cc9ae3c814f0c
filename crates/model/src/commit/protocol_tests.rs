//! The coordinator with an immediate driver: each step's failure by hand. The simulator does the
//! rest.

use super::*;
use crate::{BranchId, CommitId, Generation, GroupId, WorldId};

fn plan(participants: usize) -> CommitPlan {
    CommitPlan {
        txn: CommitId::from_bits(1),
        world: WorldId::from_bits(2),
        branch: BranchId::from_bits(3),
        parent_generation: Generation(4),
        group: Some(GroupId::from_bits(5)),
        participants: (0..participants)
            .map(|n| ParticipantId(format!("disk:{n}")))
            .collect(),
    }
}

fn vote(n: &ParticipantId, in_place: bool) -> Vote {
    Vote {
        digest: Digest::of(n.0.as_bytes()),
        in_place,
    }
}

/// What a flawless driver answers.
fn perfect(command: &Command, in_place: bool) -> Event {
    match command.clone() {
        Command::Seal { .. } => Event::Sealed,
        Command::Validate { participant, .. } => Event::Validated {
            participant,
            conflicts: Vec::new(),
        },
        Command::Reserve { .. } => Event::Reserved,
        Command::Stage { participant, .. } => Event::Voted {
            vote: vote(&participant, in_place),
            participant,
        },
        Command::Decide { .. } => Event::Decided,
        Command::Inquire { .. } => Event::Inquired { decided: false },
        Command::Apply { participant, .. } => Event::Applied { participant },
        Command::MarkApplied { .. } => Event::MarkedApplied,
        Command::MarkBlocked { .. } => Event::MarkedBlocked,
        Command::Release { .. } => Event::Released,
        Command::End { participant, .. } => Event::Ended { participant },
        Command::EndTxn { .. } => Event::TxnEnded,
        Command::Unreserve { .. } => Event::Unreserved,
        Command::AbortStaged { participant, .. } => Event::StagedAborted { participant },
        Command::MarkUndoing { .. } => Event::MarkedUndoing,
        Command::Undo { participant, .. } => Event::Undone { participant },
        Command::MarkUndone { .. } => Event::MarkedUndone,
    }
}

/// Runs to a standstill; returns the names of the commands in order.
fn drive(
    (mut c, first): (Coordinator, Vec<Command>),
    mut answer: impl FnMut(&Command) -> Event,
) -> (Coordinator, Vec<String>) {
    let mut log = Vec::new();
    let mut queue: std::collections::VecDeque<_> = first.into();
    while let Some(command) = queue.pop_front() {
        let text = format!("{command:?}");
        log.push(text[..text.find(' ').unwrap()].to_owned());
        let event = answer(&command);
        queue.extend(c.handle(event));
        assert!(log.len() < 1000, "it does not end: {log:?}");
    }
    (c, log)
}

fn broken() -> Error {
    codes::IMPOSSIBLE.error("broken")
}

fn conflict() -> Conflict {
    Conflict {
        participant: ParticipantId("disk:0".into()),
        item: "a".into(),
        why: "b".into(),
    }
}

#[test]
fn the_order_of_a_managed_commit() {
    let (c, log) = drive(Coordinator::new(plan(2)), |command| perfect(command, false));
    let order = "Seal Validate Validate Reserve Stage Stage Decide Release End End EndTxn";
    assert_eq!(log.join(" "), order);
    assert_eq!(
        c.outcome(),
        Some(&Outcome::Committed {
            generation: Generation(5)
        })
    );
    assert!(c.is_ended());
}

#[test]
fn an_in_place_commit_is_redone_after_the_decision_only() {
    let (c, log) = drive(Coordinator::new(plan(1)), |command| perfect(command, true));
    let order = "Seal Validate Reserve Stage Decide Apply MarkApplied Release End EndTxn";
    assert_eq!(log.join(" "), order);
    assert!(c.is_ended());
}

#[test]
fn a_world_without_participants_commits() {
    let (c, log) = drive(Coordinator::new(plan(0)), |command| perfect(command, true));
    assert_eq!(log.join(" "), "Seal Reserve Decide Release EndTxn");
    assert!(c.is_ended());
}

#[test]
fn every_conflict_is_listed_and_nothing_is_reserved() {
    let (c, log) = drive(Coordinator::new(plan(2)), |command| match command.clone() {
        Command::Validate { participant, .. } => Event::Validated {
            participant,
            conflicts: vec![conflict()],
        },
        other => perfect(&other, true),
    });
    assert_eq!(log.join(" "), "Seal Validate Validate");
    let both = vec![conflict(), conflict()];
    assert_eq!(c.outcome(), Some(&Outcome::Refused { conflicts: both }));
    assert!(c.is_ended());
}

#[test]
fn a_failure_at_any_step_before_the_decision_leaves_the_old_generation() {
    for (step, after) in [
        ("Seal", ""),
        ("Validate", ""),
        ("Reserve", "Unreserve AbortStaged AbortStaged EndTxn"),
        ("Stage", "Stage Unreserve AbortStaged AbortStaged EndTxn"),
        ("Decide", "Inquire Unreserve AbortStaged AbortStaged EndTxn"),
    ] {
        let mut failed = false;
        let (c, log) = drive(Coordinator::new(plan(2)), |command| {
            let hit = !failed && format!("{command:?}").starts_with(step);
            failed |= hit;
            if hit {
                Event::Failed {
                    command: command.clone(),
                    error: broken(),
                }
            } else {
                perfect(command, true)
            }
        });
        let at = log.iter().position(|name| name == step).unwrap();
        let rest = log[at + 1..].join(" ");
        // A step that goes to several participants at once was already sent to the other.
        assert_eq!(rest.trim_start_matches("Validate"), after, "{step}");
        assert_eq!(
            c.outcome(),
            Some(&Outcome::Aborted { why: broken() }),
            "{step}"
        );
        assert!(c.is_ended(), "{step}");
    }
}

#[test]
fn a_decision_of_unknown_outcome_is_looked_up() {
    let (c, log) = drive(Coordinator::new(plan(1)), |command| match command {
        Command::Decide { .. } => Event::Failed {
            command: command.clone(),
            error: broken(),
        },
        Command::Inquire { .. } => Event::Inquired { decided: true },
        other => perfect(other, false),
    });
    assert!(!log.contains(&"AbortStaged".to_owned()), "{log:?}");
    assert_eq!(
        c.outcome(),
        Some(&Outcome::Committed {
            generation: Generation(5)
        })
    );
}

#[test]
fn an_undecidable_decision_has_no_outcome() {
    let (c, log) = drive(Coordinator::new(plan(1)), |command| match command {
        Command::Decide { .. } | Command::Inquire { .. } => Event::Failed {
            command: command.clone(),
            error: broken(),
        },
        other => perfect(other, false),
    });
    assert_eq!(log.last().unwrap(), "Inquire");
    assert_eq!(c.outcome(), None);
    assert_eq!(c.last_error(), Some(&broken()));
    assert!(!c.is_ended());
}

#[test]
fn a_lost_race_takes_back_what_was_staged() {
    let (c, log) = drive(Coordinator::new(plan(1)), |command| match command {
        Command::Decide { .. } => Event::Beaten { why: Lost::Fenced },
        other => perfect(other, true),
    });
    assert!(
        log.join(" ")
            .ends_with("Decide Unreserve AbortStaged EndTxn"),
        "{log:?}"
    );
    assert_eq!(c.outcome(), Some(&Outcome::Lost { why: Lost::Fenced }));
}

/// Blocks the redo of `disk:0` for the first `times` times.
fn blocking(mut times: u32) -> impl FnMut(&Command) -> Event {
    move |command| match command.clone() {
        Command::Apply { participant, .. } if participant.0 == "disk:0" && times > 0 => {
            times -= 1;
            Event::Blocked {
                participant,
                items: vec![conflict()],
            }
        }
        other => perfect(&other, true),
    }
}

#[test]
fn a_blocked_redo_waits_and_goes_forward() {
    let mut driver = blocking(1);
    let (mut c, log) = drive(Coordinator::new(plan(2)), &mut driver);
    assert!(
        log.join(" ").ends_with("Decide Apply Apply MarkBlocked"),
        "{log:?}"
    );
    assert_eq!(
        c.outcome(),
        Some(&Outcome::ApplyBlocked {
            items: vec![conflict()]
        })
    );
    assert!(!c.is_ended());
    let next = c.handle(Event::ResolveForward);
    // Only what was blocked is driven again.
    let (c, log) = drive((c, next), driver);
    assert_eq!(log.join(" "), "Apply MarkApplied Release End End EndTxn");
    assert_eq!(
        c.outcome(),
        Some(&Outcome::Committed {
            generation: Generation(5)
        })
    );
}

#[test]
fn a_blocked_redo_is_driven_back_at_every_participant() {
    let mut driver = blocking(1);
    let (mut c, _) = drive(Coordinator::new(plan(2)), &mut driver);
    let next = c.handle(Event::ResolveBack);
    let (c, log) = drive((c, next), driver);
    assert_eq!(
        log.join(" "),
        "MarkUndoing Undo Undo MarkUndone End End EndTxn"
    );
    assert_eq!(c.outcome(), Some(&Outcome::DrivenBack));
    assert!(c.is_ended());
}

#[test]
fn recovery_presumes_abort_without_a_decision() {
    for (phase, expected) in [
        (DurablePhase::Reserved, "Unreserve AbortStaged EndTxn"),
        (DurablePhase::Aborted, "AbortStaged EndTxn"),
    ] {
        let durable = DurableTxn {
            plan: plan(1),
            phase,
            votes: Vec::new(),
        };
        let (c, log) = drive(Coordinator::recover(durable), |command| {
            perfect(command, true)
        });
        assert_eq!(log.join(" "), expected);
        assert!(matches!(c.outcome(), Some(Outcome::Aborted { .. })));
    }
}

#[test]
fn a_recovery_overtaken_by_a_decision_does_not_guess_its_votes() {
    let durable = DurableTxn {
        plan: plan(1),
        phase: DurablePhase::Reserved,
        votes: Vec::new(),
    };
    let (c, log) = drive(Coordinator::recover(durable), |_| Event::Decided);
    assert_eq!(log.join(" "), "Unreserve");
    assert_eq!(c.outcome(), None);
    assert!(c.last_error().is_some() && !c.is_ended());
}

#[test]
fn recovery_after_the_decision_redoes_what_was_voted_for() {
    let p = ParticipantId("disk:0".into());
    let pinned = vote(&p, true);
    let durable = DurableTxn {
        plan: plan(1),
        phase: DurablePhase::Applying,
        votes: vec![(p.clone(), pinned.clone())],
    };
    let (c, first) = Coordinator::recover(durable);
    let apply = Command::Apply {
        participant: p,
        txn: c.plan().txn,
        digest: pinned.digest,
    };
    assert_eq!(first, [apply]);
    let (c, log) = drive((c, first), |command| perfect(command, true));
    assert_eq!(log.join(" "), "Apply MarkApplied Release End EndTxn");
    assert_eq!(
        c.outcome(),
        Some(&Outcome::Committed {
            generation: Generation(5)
        })
    );
}

#[test]
fn an_undo_that_is_refused_leaves_the_commit() {
    let p = ParticipantId("disk:0".into());
    let votes = vec![(p.clone(), vote(&p, true))];
    let durable = DurableTxn {
        plan: plan(1),
        phase: DurablePhase::Applied,
        votes,
    };
    let (c, log) = drive(
        Coordinator::undo(durable.clone()),
        |command| match command {
            Command::MarkUndoing { .. } => Event::Failed {
                command: command.clone(),
                error: broken(),
            },
            other => perfect(other, true),
        },
    );
    assert_eq!(log.join(" "), "MarkUndoing");
    assert_eq!(c.outcome(), Some(&Outcome::Aborted { why: broken() }));
    let (c, log) = drive(Coordinator::undo(durable), |command| perfect(command, true));
    assert_eq!(log.join(" "), "MarkUndoing Undo MarkUndone End EndTxn");
    assert_eq!(c.outcome(), Some(&Outcome::DrivenBack));
}

#[test]
fn two_different_votes_abort() {
    let (mut c, _) = drive(Coordinator::new(plan(2)), |command| match command.clone() {
        Command::Stage { participant, .. } if participant.0 == "disk:1" => Event::TxnEnded,
        other => perfect(&other, true),
    });
    // The second stage was answered with something meaningless, so its vote is still missing.
    let p = ParticipantId("disk:0".into());
    let other = Vote {
        digest: Digest::of(b"other"),
        in_place: true,
    };
    let next = c.handle(Event::Voted {
        participant: p,
        vote: other,
    });
    assert_eq!(next, [Command::Unreserve { txn: c.plan().txn }]);
}

#[test]
fn late_and_repeated_answers_change_nothing() {
    let (mut c, _) = drive(Coordinator::new(plan(1)), |command| perfect(command, true));
    let p = ParticipantId("disk:0".into());
    for event in [
        Event::Sealed,
        Event::Decided,
        Event::Unreserved,
        Event::Applied {
            participant: p.clone(),
        },
        Event::Beaten { why: Lost::Fenced },
        Event::Failed {
            command: Command::Reserve { txn: c.plan().txn },
            error: broken(),
        },
        Event::Timeout,
        Event::ResolveBack,
    ] {
        assert_eq!(c.handle(event), []);
    }
    assert_eq!(
        c.outcome(),
        Some(&Outcome::Committed {
            generation: Generation(5)
        })
    );
}
