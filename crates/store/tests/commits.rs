//! Reservation, decision, apply, end and undo: the contracts the coordinator relies on.

mod common;

use common::{Fixture, branch, decision, disk, plan, reserve, sealed, world};
use forkpoint_model::commit::{DurablePhase, Lost};
use forkpoint_model::state::{BranchEvent, BranchState};
use forkpoint_model::{BranchId, CommitId, Conflict, Generation, WorldId};
use forkpoint_store::{BranchRecord, CommitRecord, CommitState, Durability, Race, Store, codes};

const TXN: CommitId = CommitId::from_bits(100);
const WORLD: WorldId = WorldId::from_bits(1);

fn conflict() -> Conflict {
    Conflict {
        participant: disk(),
        item: "a".into(),
        why: "edited since".into(),
    }
}

fn state(s: &Store, n: u64) -> BranchState {
    s.branch(BranchId::from_bits(n)).unwrap().state
}

/// Commits branch `n` in place as far as the decision.
fn decide(s: &Store, txn: u64, b: &BranchRecord) -> forkpoint_store::Decided {
    assert_eq!(reserve(s, txn, b), Race::Won(()));
    match s.decide(&decision(txn, true), 4).unwrap() {
        Race::Won(decided) => decided,
        Race::Lost(why) => panic!("lost: {why:?}"),
    }
}

#[test]
fn a_commit_from_reservation_to_end() {
    let f = Fixture::new();
    let s = &f.store;
    let b = sealed(s, 1, None);
    s.transition(b.id, &BranchEvent::Verified { passed: true }, 2)
        .unwrap();
    assert_eq!(reserve(s, 100, &b), Race::Won(()));
    assert_eq!(reserve(s, 100, &b), Race::Won(()), "again");
    assert_eq!(state(s, 1), BranchState::Staged);
    assert!(s.commit(TXN).unwrap().verified);
    assert_eq!(s.in_doubt().unwrap()[0].durable().plan, plan(100, &b));

    let Race::Won(decided) = s.decide(&decision(100, true), 4).unwrap() else {
        panic!("lost")
    };
    assert_eq!(
        (decided.generation, decided.in_place),
        (Generation(1), true)
    );
    assert_eq!(
        s.decide(&decision(100, true), 5).unwrap(),
        Race::Won(decided),
        "again"
    );
    assert_eq!(state(s, 1), BranchState::Applying);
    assert_eq!(s.world(WORLD).unwrap().head, Generation(1));
    assert_eq!(
        s.journal(TXN, &disk()).unwrap(),
        Some(vec![0, 159, 146, 150])
    );
    assert!(
        !s.abort_commit(TXN, 6).unwrap(),
        "what was decided cannot be aborted"
    );
    assert!(
        s.end_commit(TXN, 6).is_err(),
        "nor ended before it is applied"
    );
    let durable = s.commit(TXN).unwrap().durable();
    assert_eq!(
        (durable.phase, durable.votes),
        (DurablePhase::Applying, decision(100, true).votes)
    );

    s.mark_blocked(TXN, &[conflict()], 6).unwrap();
    assert_eq!(state(s, 1), BranchState::ApplyBlocked);
    assert_eq!(s.commit(TXN).unwrap().blocked, [conflict()]);
    assert_eq!(
        s.active_commit(WORLD).unwrap(),
        Some(TXN),
        "a blocked redo keeps the world"
    );

    s.mark_applied(TXN, 7).unwrap();
    s.mark_applied(TXN, 7).unwrap();
    assert_eq!(state(s, 1), BranchState::Committed);
    assert_eq!(s.branch(b.id).unwrap().ended_ns, Some(7));
    assert_eq!(s.active_commit(WORLD).unwrap(), None);
    s.end_commit(TXN, 8).unwrap();
    assert_eq!(s.in_doubt().unwrap(), []);
}

#[test]
fn law_07_a_decision_invalidates_siblings_and_makes_others_stale() {
    let f = Fixture::new();
    let s = &f.store;
    s.insert_world(&world(2)).unwrap();
    let winner = sealed(s, 1, Some(7));
    let sibling = sealed(s, 2, Some(7));
    let other = sealed(s, 3, None);
    let elsewhere = BranchRecord {
        world: WorldId::from_bits(2),
        ..branch(4)
    };
    s.insert_branch(&elsewhere).unwrap();
    let decided = decide(s, 100, &winner);
    assert_eq!(decided.invalidated, [sibling.id]);
    let now = s.branch(sibling.id).unwrap();
    assert_eq!(
        (now.state, now.epoch.0),
        (BranchState::Invalidated, sibling.epoch.0 + 1)
    );
    assert_eq!(now.reason.as_deref(), Some("sibling_committed"));
    let now = s.branch(other.id).unwrap();
    assert_eq!((now.state, now.stale), (BranchState::Sealed, true));
    assert!(!s.branch(elsewhere.id).unwrap().stale);
    let lost = Race::Lost(Lost::Sibling {
        winner: Some(winner.id),
    });
    assert_eq!(reserve(s, 101, &sibling), lost);
    assert_eq!(
        reserve(s, 102, &other),
        Race::Lost(Lost::HeadMoved {
            head: Generation(1)
        })
    );
    // A rebase makes it fresh.
    s.mark_applied(TXN, 5).unwrap();
    let fresh = s.transition(other.id, &BranchEvent::Rebased, 6).unwrap();
    assert_eq!((fresh.generation, fresh.stale), (Generation(1), false));
    assert_eq!(reserve(s, 103, &fresh), Race::Won(()));
}

#[test]
fn one_reservation_per_world() {
    let f = Fixture::new();
    let (a, b) = (sealed(&f.store, 1, None), sealed(&f.store, 2, None));
    assert_eq!(reserve(&f.store, 100, &a), Race::Won(()));
    assert_eq!(
        reserve(&f.store, 101, &b),
        Race::Lost(Lost::Reserved { by: TXN })
    );
    assert!(f.store.abort_commit(TXN, 4).unwrap());
    assert_eq!(state(&f.store, 1), BranchState::Sealed);
    let late = f.store.decide(&decision(100, true), 5).unwrap();
    assert_eq!(late, Race::Lost(Lost::Fenced), "a decision after the abort");
    assert_eq!(reserve(&f.store, 101, &b), Race::Won(()));
    assert!(
        f.store.abort_commit(CommitId::from_bits(999), 4).unwrap(),
        "never reserved"
    );
}

#[test]
fn a_decision_needs_every_vote_and_cannot_hide_in_a_batch() {
    let f = Fixture::new();
    let b = sealed(&f.store, 1, None);
    reserve(&f.store, 100, &b);
    let mut short = decision(100, true);
    short.votes.clear();
    assert_eq!(
        f.store.decide(&short, 4).unwrap_err().code,
        codes::COMMIT_STATE.text
    );
    let weak = f
        .store
        .batch(Durability::Normal, |s| s.decide(&decision(100, true), 4));
    assert!(weak.is_err());
    assert_eq!(f.store.world(WORLD).unwrap().head, Generation(0));
    assert!(
        f.store
            .batch(Durability::Full, |s| s.decide(&decision(100, true), 4))
            .is_ok()
    );
}

#[test]
fn what_cannot_be_committed_is_not_reserved() {
    let f = Fixture::new();
    f.store.insert_branch(&branch(1)).unwrap();
    let row = CommitRecord::reservation(&plan(100, &branch(1)), 3);
    let error = f.store.reserve(&row, false, 3).unwrap_err();
    assert_eq!(error.code, forkpoint_model::codes::WRONG_STATE.text);
    assert_eq!(f.store.in_doubt().unwrap(), []);
    let b = sealed(&f.store, 2, None);
    f.store
        .transition(b.id, &BranchEvent::Verified { passed: false }, 2)
        .unwrap();
    let row = CommitRecord::reservation(&plan(101, &b), 3);
    assert!(f.store.reserve(&row, false, 3).is_err());
    assert_eq!(f.store.reserve(&row, true, 3).unwrap(), Race::Won(()));
    assert!(!f.store.commit(CommitId::from_bits(101)).unwrap().verified);
}

#[test]
fn an_undo_takes_back_what_was_not_overtaken() {
    let f = Fixture::new();
    let s = &f.store;
    let first = sealed(s, 1, None);
    decide(s, 100, &first);
    s.mark_applied(TXN, 5).unwrap();
    s.end_commit(TXN, 5).unwrap();
    s.insert_branch(&BranchRecord {
        generation: Generation(1),
        ..branch(2)
    })
    .unwrap();
    let second = s
        .transition(BranchId::from_bits(2), &BranchEvent::Sealed, 1)
        .unwrap();
    decide(s, 101, &second);
    let later = CommitId::from_bits(101);
    let error = s.begin_undo(TXN).unwrap_err();
    assert!(error.message.contains("under way"), "{error}");
    s.mark_applied(later, 6).unwrap();
    let error = s.begin_undo(TXN).unwrap_err();
    assert!(error.message.contains("overtaken"), "{error}");
    for txn in [later, TXN] {
        assert_eq!(s.begin_undo(txn).unwrap().state, CommitState::Undoing);
        assert_eq!(s.active_commit(WORLD).unwrap(), Some(txn));
        assert_eq!(s.in_doubt().unwrap().len(), 1);
        s.mark_undone(txn, 7).unwrap();
        s.end_commit(txn, 7).unwrap();
    }
    assert_eq!(s.world(WORLD).unwrap().head, Generation(4));
    assert_eq!(state(s, 1), BranchState::Committed);
    assert!(s.begin_undo(TXN).is_err());
}

#[test]
fn a_blocked_redo_that_is_driven_back_seals_its_branch_again() {
    let f = Fixture::new();
    let b = sealed(&f.store, 1, None);
    decide(&f.store, 100, &b);
    f.store.mark_blocked(TXN, &[conflict()], 5).unwrap();
    f.store.begin_undo(TXN).unwrap();
    assert_eq!(f.store.mark_undone(TXN, 6).unwrap(), Generation(2));
    assert_eq!(f.store.mark_undone(TXN, 6).unwrap(), Generation(2), "again");
    let now = f.store.branch(b.id).unwrap();
    assert_eq!(
        (now.state, now.stale, now.ended_ns),
        (BranchState::Sealed, true, None)
    );
}
