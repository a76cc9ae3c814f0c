//! What is collected of events and of the effect journal, and what is not.

mod common;

use common::{Fixture, branch, decision, reserve};
use forkpoint_model::effect::EffectState;
use forkpoint_model::state::BranchEvent;
use forkpoint_model::{BranchId, Epoch, Source, WorldId};
use forkpoint_store::{BranchRecord, EventCursor, Race, SharedFreed, Store};

const WORLD: WorldId = WorldId::from_bits(1);
const E0: Epoch = Epoch(0);

fn id(n: u64) -> BranchId {
    BranchId::from_bits(n)
}

fn open(s: &Store, n: u64) -> BranchId {
    let head = s.world(WORLD).unwrap().head;
    let record = BranchRecord {
        generation: head,
        ..branch(n)
    };
    s.insert_branch(&record).unwrap();
    id(n)
}

fn child(s: &Store, n: u64, of: BranchId) -> BranchId {
    let shared = s.seal_overlay(of).unwrap();
    let record = s.branch(of).unwrap();
    let child = BranchRecord::new(id(n), WORLD, Source::Branch(of), record.generation);
    s.insert_branch(&BranchRecord { shared, ..child }).unwrap();
    id(n)
}

fn end(s: &Store, b: BranchId) {
    s.drop_intended(b, 5).unwrap();
    s.transition(b, &BranchEvent::AbortRequested, 5).unwrap();
    s.transition(b, &BranchEvent::Drained { left: vec![] }, 5)
        .unwrap();
}

fn commit(s: &Store, txn: u64, b: BranchId, now: i64) {
    let sealed = s.transition(b, &BranchEvent::Sealed, 1).unwrap();
    assert_eq!(reserve(s, txn, &sealed), Race::Won(()));
    let decided = s.decide(&decision(txn, false), now).unwrap();
    assert!(matches!(decided, Race::Won(_)));
}

fn publish(s: &Store, topic: &str, now: i64) -> EventCursor {
    let event = s.publish_outside(WORLD, topic, b"12345", now).unwrap();
    event.cursor
}

fn topics(s: &Store) -> Vec<String> {
    let events = s.events(WORLD, None, EventCursor::default(), 100).unwrap();
    events.into_iter().map(|e| e.topic).collect()
}

/// Collects what is older than `before`; how many events and how many rows of the journal went.
fn collect(s: &Store, before: i64) -> (u64, u64) {
    s.kv_collect(false).unwrap();
    let would = s.shared_collect(before, true).unwrap();
    let freed = s.shared_collect(before, false).unwrap();
    assert_eq!(freed, would);
    (freed.events, freed.effects)
}

#[test]
fn old_events_go_once_nobody_can_see_them_and_every_consumer_has_them() {
    let f = Fixture::new();
    let s = &f.store;
    publish(s, "a", 1);
    let seen = open(s, 1);
    let (b, a) = (publish(s, "b", 2), publish(s, "a", 2));
    publish(s, "new", 9);
    assert_eq!(collect(s, 2), (0, 0), "the branch sees what is older");
    assert_eq!(collect(s, 5), (2, 0), "and not what came after its fork");
    assert_eq!(topics(s), ["a", "new"]);
    let (b2, a2) = (publish(s, "b", 3), publish(s, "a", 3));
    s.acknowledge(WORLD, "slow", "a", a, 4).unwrap();
    assert_eq!(collect(s, 5), (1, 0), "`slow` has no part in `b`");
    assert!(b < a && b2 < a2);
    assert_eq!(topics(s), ["a", "new", "a"]);
    s.acknowledge(WORLD, "all", "", b2, 4).unwrap();
    s.acknowledge(WORLD, "slow", "a", a2, 4).unwrap();
    assert_eq!(collect(s, 5), (0, 0), "a consumer of every topic counts");
    s.acknowledge(WORLD, "all", "", a2, 4).unwrap();
    assert_eq!(collect(s, 5), (1, 0));
    end(s, seen);
    let freed = s.shared_collect(5, false).unwrap();
    let bytes = "a".len() as u64 + 5;
    let all = SharedFreed {
        events: 1,
        effects: 0,
        bytes,
        more: false,
    };
    assert_eq!(freed, all);
    assert_eq!(topics(s), ["new"]);
    assert_eq!(collect(s, 10), (1, 0));
}

#[test]
fn a_checkpoint_and_what_is_retained_keep_the_events_they_see() {
    let f = Fixture::new();
    let s = &f.store;
    publish(s, "a", 1);
    let kept = open(s, 1);
    end(s, kept);
    s.modify_branch(kept, |b| b.retained = true).unwrap();
    assert_eq!(collect(s, 9), (0, 0));
    s.modify_branch(kept, |b| b.retained = false).unwrap();
    assert_eq!(collect(s, 9), (1, 0));
}

#[test]
fn the_journal_stays_as_long_as_its_branch_is_known_or_somebody_stands_on_it() {
    let f = Fixture::new();
    let s = &f.store;
    let (a, b, open_one) = (open(s, 1), open(s, 2), open(s, 3));
    for branch in [a, b, open_one] {
        s.publish(branch, E0, "t", b"x", 3).unwrap();
    }
    let below = child(s, 4, a);
    end(s, a);
    commit(s, 100, b, 4);
    assert_eq!(s.effects(b).unwrap()[0].state, EffectState::Released);
    assert_eq!(collect(s, 9).1, 0, "the branches are known");
    s.remove_branch(b).unwrap();
    assert_eq!(collect(s, 4).1, 0, "not older than that");
    assert_eq!(collect(s, 9).1, 1);
    assert_eq!(s.effects(b).unwrap(), []);
    s.remove_branch(a).unwrap();
    assert_eq!(collect(s, 9).1, 0, "another stands on its overlay");
    end(s, below);
    assert_eq!(collect(s, 9).1, 1);
    assert_eq!(s.effects(open_one).unwrap().len(), 1);
}
