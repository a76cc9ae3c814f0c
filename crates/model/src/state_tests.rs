//! Tests of the branch state machine.

use super::*;
use crate::{Kind, ParticipantId};
use proptest::prelude::*;

fn branch(state: BranchState) -> BranchContext {
    BranchContext {
        state,
        ..BranchContext::new()
    }
}

fn left() -> Vec<Conflict> {
    vec![Conflict {
        participant: ParticipantId("http".into()),
        item: "POST /charge".into(),
        why: "sent, and its inverse failed".into(),
    }]
}

fn events() -> Vec<BranchEvent> {
    use BranchEvent as E;
    vec![
        E::Sealed,
        E::Resumed,
        E::Verified { passed: true },
        E::Verified { passed: false },
        E::DriftFound,
        E::StageBegan { force: false },
        E::StageBegan { force: true },
        E::StageAborted,
        E::Decided { in_place: true },
        E::Decided { in_place: false },
        E::ApplyBlocked,
        E::ApplyResumed,
        E::Applied,
        E::DrivenBack,
        E::SiblingCommitted,
        E::IndependentCommitted,
        E::AbortRequested,
        E::Drained { left: Vec::new() },
        E::Drained { left: left() },
        E::Rebased,
    ]
}

#[test]
fn every_state_survives_its_text() {
    for state in BranchState::ALL {
        assert_eq!(state.as_str().parse::<BranchState>(), Ok(state));
    }
    assert!("opened".parse::<BranchState>().is_err());
}

#[test]
fn law_05_what_a_drained_branch_may_call_itself() {
    let drained = |layer, uncaptured: &[&str], left| {
        let ctx = BranchContext {
            layer,
            uncaptured: uncaptured.iter().map(|s| s.to_string()).collect(),
            ..branch(Aborting)
        };
        step(&ctx, &BranchEvent::Drained { left }).unwrap().state
    };
    assert_eq!(drained(ForkLayer::Effect, &[], vec![]), RolledBack);
    assert_eq!(
        drained(ForkLayer::Effect, &["network host"], vec![]),
        Abandoned
    );
    assert_eq!(drained(ForkLayer::Reasoning, &[], vec![]), Discarded);
    assert_eq!(drained(ForkLayer::Effect, &[], left()), RollbackIncomplete);
    assert_eq!(
        drained(ForkLayer::Effect, &["network host"], left()),
        RollbackIncomplete
    );
    // Should a reasoning-layer branch have had an effect path after all, it must not hide it.
    assert_eq!(
        drained(ForkLayer::Reasoning, &["network host"], vec![]),
        Abandoned
    );
}

#[test]
fn law_05_an_incomplete_rollback_goes_on() {
    let next = step(&branch(RollbackIncomplete), &BranchEvent::AbortRequested).unwrap();
    assert_eq!(next.state, Aborting);
}

#[test]
fn law_07_a_sibling_is_fenced_and_an_independent_branch_is_not() {
    for state in [Open, Sealed, Verified { passed: true }] {
        let next = step(&branch(state), &BranchEvent::SiblingCommitted).unwrap();
        assert_eq!((next.state, next.epoch), (Invalidated, Epoch(1)));
        let next = step(&branch(state), &BranchEvent::IndependentCommitted).unwrap();
        assert_eq!(
            next,
            Next {
                state,
                stale: true,
                epoch: Epoch(0)
            }
        );
    }
}

#[test]
fn a_committed_branch_says_so() {
    for event in [
        BranchEvent::AbortRequested,
        BranchEvent::StageBegan { force: true },
    ] {
        let error = step(&branch(Committed), &event).unwrap_err();
        assert!(error.message.contains("already committed"), "{error}");
        assert_eq!(error.kind, Kind::Closed);
        assert!(!error.hint.is_empty());
    }
}

#[test]
fn what_cannot_be_committed_says_why() {
    let begin = BranchEvent::StageBegan { force: false };
    let failed = branch(Verified { passed: false });
    assert_eq!(
        step(&failed, &begin).unwrap_err().code,
        codes::FAILED_VERIFY.text
    );
    assert_eq!(
        step(&failed, &BranchEvent::StageBegan { force: true })
            .unwrap()
            .state,
        Staged
    );
    let stale = BranchContext {
        stale: true,
        ..branch(Sealed)
    };
    assert_eq!(step(&stale, &begin).unwrap_err().code, codes::STALE.text);
    assert_eq!(
        step(&branch(Open), &begin).unwrap_err().code,
        codes::WRONG_STATE.text
    );
    let reasoning = BranchContext {
        layer: ForkLayer::Reasoning,
        ..branch(Sealed)
    };
    assert_eq!(
        step(&reasoning, &begin).unwrap_err().code,
        codes::WRONG_STATE.text
    );
}

#[test]
fn law_04_a_reasoning_fork_with_an_effect_path_is_refused() {
    let paths = vec!["network host".to_owned()];
    assert!(check_fork_point(ForkLayer::Reasoning, &[]).is_ok());
    assert!(check_fork_point(ForkLayer::Effect, &paths).is_ok());
    let error = check_fork_point(ForkLayer::Reasoning, &paths).unwrap_err();
    assert_eq!(error.code, codes::UNSAFE_FORK_POINT.text);
}

#[test]
fn law_01_a_rebase_voids_a_verification() {
    let ctx = BranchContext {
        stale: true,
        ..branch(Verified { passed: true })
    };
    let next = step(&ctx, &BranchEvent::Rebased).unwrap();
    assert_eq!(
        next,
        Next {
            state: Sealed,
            stale: false,
            epoch: Epoch(0)
        }
    );
    let next = step(&branch(Verified { passed: true }), &BranchEvent::DriftFound).unwrap();
    assert_eq!(next.state, Sealed);
}

/// A fact that is delivered again after a crash, right after it took effect, changes nothing.
#[test]
fn facts_can_be_delivered_twice() {
    use BranchEvent as E;
    let once_only = |event: &E| matches!(event, E::Drained { .. } | E::DrivenBack | E::Rebased);
    for state in BranchState::ALL {
        for event in events() {
            let Ok(next) = step(&branch(state), &event) else {
                continue;
            };
            let after = BranchContext {
                stale: next.stale,
                epoch: next.epoch,
                ..branch(next.state)
            };
            match step(&after, &event) {
                Ok(again) => assert_eq!(again, next, "{state} {event:?}"),
                Err(e) => assert!(once_only(&event), "{state} {event:?}: {e}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn a_life_keeps_the_laws(steps in prop::collection::vec(0usize..20, 0..60), uncaptured: bool) {
        let events = events();
        let mut ctx = branch(Open);
        if uncaptured {
            ctx.uncaptured.push("network host".into());
        }
        let mut decided = false;
        for n in steps {
            let event = &events[n];
            let Ok(next) = step(&ctx, event) else { continue };
            prop_assert!(next.epoch >= ctx.epoch, "an epoch never goes back");
            if ctx.state.is_end() {
                prop_assert_eq!(next.state, ctx.state, "an end is final");
            }
            decided |= matches!(event, BranchEvent::Decided { .. });
            decided &= !matches!(event, BranchEvent::DrivenBack);
            match next.state {
                Committed | Applying | ApplyBlocked => prop_assert!(decided),
                RolledBack => prop_assert!(!uncaptured && !decided),
                Aborting | Invalidated => prop_assert!(!decided),
                _ => {}
            }
            if ctx.state == Open && next.state != Open {
                prop_assert!(next.epoch > ctx.epoch, "leaving Open fences what still writes");
            }
            ctx = BranchContext { state: next.state, stale: next.stale, epoch: next.epoch, ..ctx };
        }
    }
}
