//! The effect journal and the event bus: who may write, what a commit and a rollback make of it.

mod common;

use common::{Fixture, branch, decision, reserve};
use forkpoint_model::effect::{EffectClass, EffectEvent, EffectState};
use forkpoint_model::state::BranchEvent;
use forkpoint_model::{BranchId, Epoch, WorldId};
use forkpoint_store::{
    BranchRecord, Durability, EventCursor, NewEffect, Race, SharedRecord, Store, codes,
};

const WORLD: WorldId = WorldId::from_bits(1);
const E0: Epoch = Epoch(0);

fn id(n: u64) -> BranchId {
    BranchId::from_bits(n)
}

fn open(s: &Store, n: u64) -> BranchId {
    s.insert_branch(&branch(n)).unwrap();
    id(n)
}

fn topics(s: &Store, b: BranchId) -> Vec<String> {
    let events = s.branch_events(b, E0, None, EventCursor::default(), 100);
    events.unwrap().into_iter().map(|e| e.topic).collect()
}

fn outside(s: &Store) -> Vec<String> {
    let events = s.events(WORLD, None, EventCursor::default(), 100).unwrap();
    events.into_iter().map(|e| e.topic).collect()
}

fn commit(s: &Store, txn: u64, b: BranchId) {
    let sealed = s.transition(b, &BranchEvent::Sealed, 1).unwrap();
    assert_eq!(reserve(s, txn, &sealed), Race::Won(()));
    assert!(matches!(
        s.decide(&decision(txn, false), 9).unwrap(),
        Race::Won(_)
    ));
}

fn sent(intent: &[u8]) -> NewEffect<'_> {
    NewEffect {
        participant: "tool",
        class: EffectClass::Compensated,
        intent,
        inverse: Some(b"undo"),
    }
}

#[test]
fn law_02_held_events_are_seen_by_their_branch_alone_until_it_is_committed() {
    let f = Fixture::new();
    let s = &f.store;
    s.publish_outside(WORLD, "before", b"0", 1).unwrap();
    let (a, b) = (open(s, 1), open(s, 2));
    s.publish(a, E0, "one", b"1", 2).unwrap();
    s.publish(a, E0, "two", b"2", 3).unwrap();
    assert_eq!(topics(s, a), ["before", "one", "two"]);
    assert_eq!(topics(s, b), ["before"], "law 3: no sibling sees them");
    assert_eq!(outside(s), ["before"]);

    let held = s
        .branch_events(a, E0, Some("two"), EventCursor::default(), 9)
        .unwrap();
    assert!(held[0].held && held[0].branch == Some(a) && held[0].payload == b"2");
    let rest = s.branch_events(a, E0, None, held[0].cursor, 9).unwrap();
    assert_eq!(rest, [], "a cursor goes on behind what was read");

    commit(s, 100, a);
    assert_eq!(outside(s), ["before", "one", "two"]);
    assert_eq!(topics(s, b), ["before"], "a snapshot stays what it was");
    let out = s
        .events(WORLD, Some("two"), EventCursor::default(), 9)
        .unwrap();
    assert_eq!(out[0].id, held[0].id, "the same event, whoever reads it");
    let states: Vec<_> = s.effects(a).unwrap().iter().map(|e| e.state).collect();
    assert_eq!(states, [EffectState::Released; 2]);
    let late = open(s, 3);
    assert_eq!(topics(s, late), ["before", "one", "two"]);
}

#[test]
fn what_comes_after_the_seal_is_refused() {
    let f = Fixture::new();
    let s = &f.store;
    let a = open(s, 1);
    s.transition(a, &BranchEvent::Sealed, 1).unwrap();
    for epoch in [E0, Epoch(1)] {
        let error = s.publish(a, epoch, "late", b"", 2).unwrap_err();
        assert_eq!(error.code, codes::FENCED.text);
    }
    assert!(
        s.branch_events(a, E0, None, EventCursor::default(), 1)
            .is_err()
    );
    assert_eq!(s.effects(a).unwrap(), []);
    let pure = BranchRecord {
        layer: forkpoint_model::ForkLayer::Reasoning,
        ..branch(2)
    };
    s.insert_branch(&pure).unwrap();
    let error = s.publish(id(2), E0, "out", b"", 2).unwrap_err();
    assert_eq!(error.code, codes::FENCED.text, "law 4");
}

#[test]
fn a_fork_stands_on_what_its_source_held() {
    let f = Fixture::new();
    let s = &f.store;
    let a = open(s, 1);
    s.publish(a, E0, "base", b"", 1).unwrap();
    let shared = s.seal_overlay(a).unwrap();
    s.insert_branch(&BranchRecord {
        shared,
        ..branch(2)
    })
    .unwrap();
    s.publish(a, E0, "parent", b"", 2).unwrap();
    s.publish(id(2), E0, "child", b"", 3).unwrap();
    assert_eq!(topics(s, a), ["base", "parent"]);
    assert_eq!(topics(s, id(2)), ["base", "child"]);
}

#[test]
fn after_going_back_the_same_intent_is_taken_up_again_and_another_is_another_effect() {
    let f = Fixture::new();
    let s = &f.store;
    let a = open(s, 1);
    s.publish(a, E0, "kept", b"", 1).unwrap();
    let step: SharedRecord = s.seal_overlay(a).unwrap();
    let perform = |intent: &[u8]| s.intend(a, E0, &sent(intent), Durability::Full, 2).unwrap();
    let first = perform(b"POST 1");
    s.effect_happened(a, first.ordinal, EffectEvent::SendBegan, 3, |_| {})
        .unwrap();
    let done = s.effect_happened(a, first.ordinal, EffectEvent::Acknowledged, 4, |e| {
        e.response = Some(b"201".to_vec());
    });
    assert_eq!(done.unwrap().state, EffectState::Acknowledged);

    s.set_shared(a, &step).unwrap();
    assert_eq!(s.forsaken_effects(a).unwrap().len(), 1);
    let again = perform(b"POST 1");
    assert_eq!(
        (again.ordinal, again.response.as_deref()),
        (first.ordinal, Some(&b"201"[..]))
    );
    assert_eq!(s.forsaken_effects(a).unwrap(), []);

    s.set_shared(a, &step).unwrap();
    let other = perform(b"POST 1, please");
    assert_eq!(
        other.state,
        EffectState::Intended,
        "nobody answered this yet"
    );
    assert_ne!(other.key, first.key);
    let forsaken = s.forsaken_effects(a).unwrap();
    assert_eq!(
        forsaken[0].ordinal, first.ordinal,
        "to be undone before a commit"
    );
    s.transition(a, &BranchEvent::Sealed, 5).unwrap();
    assert_eq!(reserve(s, 100, &s.branch(a).unwrap()), Race::Won(()));
    let refused = s.decide(&decision(100, false), 9).unwrap_err();
    assert_eq!(refused.code, codes::COMMIT_STATE.text, "{refused}");
    assert_eq!(outside(s), [] as [&str; 0], "and nothing of it happened");

    // Undone, then intended once more: the remote must not take it for the one it undid.
    s.effect_happened(a, first.ordinal, EffectEvent::Compensated, 6, |_| {})
        .unwrap();
    let b = open(s, 2);
    let one = s.intend(b, E0, &sent(b"x"), Durability::Full, 1).unwrap();
    s.effect_happened(b, one.ordinal, EffectEvent::Dropped, 2, |_| {})
        .unwrap();
    s.set_shared(
        b,
        &SharedRecord {
            position: Some(0),
            ..SharedRecord::default()
        },
    )
    .unwrap();
    let two = s.intend(b, E0, &sent(b"x"), Durability::Full, 3).unwrap();
    assert_ne!((one.ordinal, &one.key), (two.ordinal, &two.key));
}

#[test]
fn dropping_and_moving() {
    let f = Fixture::new();
    let s = &f.store;
    let (a, b) = (open(s, 1), open(s, 2));
    for n in 0..3 {
        s.publish(a, E0, &format!("a{n}"), b"", n).unwrap();
        s.publish(b, E0, &format!("b{n}"), b"", n).unwrap();
    }
    s.move_effects(b, a).unwrap();
    assert_eq!(s.effects(b).unwrap(), []);
    let all = s.effects(a).unwrap();
    assert_eq!(
        all.iter().map(|e| e.ordinal).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6]
    );
    assert!(all[3..].iter().all(|e| e.origin == b));
    assert_eq!(s.drop_intended(a, 9).unwrap(), 6);
    assert_eq!(s.open_effects(a).unwrap(), []);
    assert!(
        s.effects(a)
            .unwrap()
            .iter()
            .all(|e| e.state == EffectState::NeverSent)
    );
    assert_eq!(topics(s, a), [] as [&str; 0]);
}

#[test]
fn a_consumer_gets_everything_it_has_not_acknowledged() {
    let f = Fixture::new();
    let s = &f.store;
    for n in 0..5 {
        s.publish_outside(WORLD, "t", &[n], 1).unwrap();
    }
    let at = |who: &str| s.acknowledged(WORLD, who, "t").unwrap();
    let unread = |who: &str| s.events(WORLD, Some("t"), at(who), 2).unwrap();
    let two = unread("c");
    assert_eq!(two.len(), 2);
    assert_eq!(
        unread("c"),
        two,
        "delivered again, with the same identifiers"
    );
    s.acknowledge(WORLD, "c", "t", two[1].cursor, 3).unwrap();
    assert_eq!(unread("c")[0].payload, [2]);
    s.acknowledge(WORLD, "c", "t", two[0].cursor, 4).unwrap();
    assert_eq!(unread("c")[0].payload, [2], "it never goes back");
    assert_eq!(unread("d"), two);
}

#[test]
fn what_is_out_of_bounds_is_refused_and_a_commit_under_way_is_waited_for() {
    let f = Fixture::new();
    let s = &f.store;
    let a = open(s, 1);
    for topic in ["", "a\nb", &"x".repeat(257)] {
        let error = s.publish(a, E0, topic, b"", 1).unwrap_err();
        assert_eq!(error.code, codes::BOUNDS.text);
    }
    let large = vec![0; (1 << 20) + 1];
    assert_eq!(
        s.publish(a, E0, "t", &large, 1).unwrap_err().code,
        codes::BOUNDS.text
    );
    s.publish(a, E0, "t", &large[1..], 1).unwrap();
    let sealed = s.transition(a, &BranchEvent::Sealed, 1).unwrap();
    assert_eq!(reserve(s, 100, &sealed), Race::Won(()));
    let busy = s.publish_outside(WORLD, "t", b"", 1).unwrap_err();
    assert_eq!(busy.code, codes::WORLD_BUSY.text);
}

#[test]
fn a_clock_that_jumps_changes_no_order_and_no_key() {
    let f = Fixture::new();
    let s = &f.store;
    let b = open(s, 1);
    let times = [i64::MAX / 2, 5, -1_000_000, 0, i64::MAX / 2];
    let mut keys = Vec::new();
    for (n, now) in times.into_iter().enumerate() {
        s.publish(b, E0, &format!("t{n}"), b"x", now).unwrap();
        let effect = s
            .intend(b, E0, &sent(&[n as u8]), Durability::Normal, now)
            .unwrap();
        keys.push(effect.key);
    }
    assert_eq!(topics(s, b), ["t0", "t1", "t2", "t3", "t4"]);
    let open_now = s.open_effects(b).unwrap();
    let ordinals: Vec<_> = open_now.iter().map(|e| e.ordinal).collect();
    assert!(
        ordinals.windows(2).all(|two| two[0] < two[1]),
        "{ordinals:?}"
    );
    // In another store, at other times, the keys are the same.
    let other = Fixture::new();
    let c = open(&other.store, 1);
    for (n, key) in keys.iter().enumerate() {
        other
            .store
            .publish(c, E0, &format!("t{n}"), b"x", 7)
            .unwrap();
        let intent = [n as u8];
        let again = other
            .store
            .intend(c, E0, &sent(&intent), Durability::Normal, 7)
            .unwrap();
        assert_eq!(again.key, *key);
    }
}
