//! Keys: what a nested commit, a commit under others, an undo and a collection make of them.

mod common;

use common::{Fixture, branch, decision, reserve};
use forkpoint_model::state::BranchEvent;
use forkpoint_model::{BranchId, Epoch, Generation, Source, WorldId};
use forkpoint_store::{BranchRecord, Race, Store, codes, kv};

const WORLD: WorldId = WorldId::from_bits(1);
const E0: Epoch = Epoch(0);

fn id(n: u64) -> BranchId {
    BranchId::from_bits(n)
}

fn open(s: &Store, n: u64) -> BranchId {
    let head = s.world(WORLD).unwrap().head;
    s.insert_branch(&BranchRecord {
        generation: head,
        ..branch(n)
    })
    .unwrap();
    id(n)
}

/// A fork of another branch.
fn child(s: &Store, n: u64, of: BranchId) -> BranchId {
    let shared = s.seal_overlay(of).unwrap();
    let record = s.branch(of).unwrap();
    let child = BranchRecord::new(id(n), WORLD, Source::Branch(of), record.generation);
    s.insert_branch(&BranchRecord { shared, ..child }).unwrap();
    id(n)
}

fn put(s: &Store, b: BranchId, key: &str, value: &str) -> u64 {
    let done = s
        .kv_write(b, E0, key.as_bytes(), Some(value.as_bytes()), None)
        .unwrap();
    assert!(done.done && done.version >= kv::HELD, "{done:?}");
    done.version
}

fn head(s: &Store, key: &str, value: &str) -> u64 {
    let done = s
        .kv_write_head(WORLD, key.as_bytes(), Some(value.as_bytes()), None)
        .unwrap();
    assert!(
        done.done && done.version > 0 && done.version < kv::HELD,
        "{done:?}"
    );
    done.version
}

fn text(value: Option<forkpoint_store::KvEntry>) -> Option<String> {
    value.map(|e| String::from_utf8(e.value).unwrap())
}

fn get(s: &Store, b: BranchId, key: &str) -> Option<String> {
    text(s.kv_get(b, E0, key.as_bytes()).unwrap())
}

fn outside(s: &Store, key: &str) -> Option<String> {
    text(s.kv_get_head(WORLD, key.as_bytes()).unwrap())
}

fn keys(s: &Store, b: BranchId, prefix: &str) -> Vec<String> {
    let page = s.kv_list(b, E0, prefix.as_bytes(), None, 100).unwrap();
    assert_eq!(page.next, None);
    page.entries
        .into_iter()
        .map(|e| String::from_utf8(e.key).unwrap())
        .collect()
}

fn conflicts(s: &Store, b: BranchId) -> Vec<String> {
    let found = s.kv_conflicts(b).unwrap();
    found
        .into_iter()
        .map(|c| String::from_utf8(c.key).unwrap())
        .collect()
}

fn commit(s: &Store, txn: u64, b: BranchId) {
    let sealed = s.transition(b, &BranchEvent::Sealed, 1).unwrap();
    assert_eq!(reserve(s, txn, &sealed), Race::Won(()));
    assert!(matches!(
        s.decide(&decision(txn, false), 9).unwrap(),
        Race::Won(_)
    ));
    s.end_commit(forkpoint_model::CommitId::from_bits(txn), 10)
        .unwrap();
}

#[test]
fn a_nested_commit_conflicts_in_both_directions() {
    let f = Fixture::new();
    let s = &f.store;
    head(s, "k", "0");
    let p = open(s, 1);
    put(s, p, "before", "0");
    let (c, d, e, g) = (
        child(s, 2, p),
        child(s, 3, p),
        child(s, 4, p),
        child(s, 5, p),
    );
    let meet = |c| -> Vec<String> {
        let found = s.kv_nested_conflicts(c, p).unwrap();
        found
            .into_iter()
            .map(|c| String::from_utf8(c.key).unwrap())
            .collect()
    };
    put(s, c, "mine", "1");
    put(s, d, "p-read", "1");
    get(s, e, "p-wrote");
    keys(s, g, "p-");
    get(s, p, "p-read");
    put(s, p, "p-wrote", "1");
    assert_eq!(
        (meet(c), meet(d), meet(e)),
        (vec![], vec!["p-read".into()], vec!["p-wrote".into()])
    );
    assert_eq!(meet(g), ["p-wrote"]);
    s.kv_commit_into(c, p).unwrap();
    assert_eq!(get(s, p, "mine").as_deref(), Some("1"));
    assert_eq!(get(s, p, "p-wrote").as_deref(), Some("1"));
    assert_eq!(get(s, p, "before").as_deref(), Some("0"));
    put(s, p, "mine", "2");
    assert_eq!(get(s, p, "mine").as_deref(), Some("2"));
}

#[test]
fn who_stands_on_a_committed_branch_goes_on_where_its_reads_hold() {
    let f = Fixture::new();
    let s = &f.store;
    for key in ["k", "x"] {
        head(s, key, "0");
    }
    let p = open(s, 1);
    put(s, p, "k", "1");
    let (fits, reads, fresh) = (child(s, 2, p), child(s, 3, p), child(s, 4, p));
    put(s, p, "late", "1");
    assert_eq!(get(s, fits, "k").as_deref(), Some("1"));
    put(s, fits, "k", "2");
    assert_eq!(get(s, reads, "late"), None);
    head(s, "x", "1");
    commit(s, 100, p);
    assert!(s.kv_settle(fits, p, Generation(1)).unwrap());
    assert!(
        !s.kv_settle(reads, p, Generation(1)).unwrap(),
        "it had read that there is no `late`"
    );
    assert!(s.kv_settle(fresh, p, Generation(1)).unwrap());
    assert_eq!((conflicts(s, fits), conflicts(s, fresh)), (vec![], vec![]));
    assert_eq!(
        s.branch(fits).unwrap().shared.stack().len(),
        1,
        "its own alone"
    );
    assert_eq!(get(s, fits, "k").as_deref(), Some("2"));
    assert_eq!(get(s, fits, "late").as_deref(), Some("1"));
    head(s, "k", "3");
    assert_eq!(conflicts(s, fits), ["k"]);
}

#[test]
fn an_undo_gives_keys_their_former_values() {
    let f = Fixture::new();
    let s = &f.store;
    let txn = forkpoint_model::CommitId::from_bits(100);
    head(s, "k", "0");
    let a = open(s, 1);
    put(s, a, "k", "1");
    put(s, a, "new", "1");
    commit(s, 100, a);
    let seen = open(s, 2);
    head(s, "new", "2");
    let refused = s.begin_undo(txn).unwrap_err();
    assert!(refused.message.contains("new"), "{refused}");
    assert_eq!(outside(s, "k").as_deref(), Some("1"), "nothing began");
    s.kv_write_head(WORLD, b"new", None, None).unwrap();
    s.begin_undo(txn).unwrap_err();
    let f = Fixture::new();
    let s = &f.store;
    head(s, "k", "0");
    let a = open(s, 1);
    put(s, a, "k", "1");
    put(s, a, "new", "1");
    commit(s, 100, a);
    let late = open(s, 2);
    assert_eq!(get(s, late, "k").as_deref(), Some("1"));
    s.begin_undo(txn).unwrap();
    let refused = s.kv_write_head(WORLD, b"k", Some(b"9"), None).unwrap_err();
    assert_eq!(refused.code, codes::WORLD_BUSY.text);
    s.mark_undone(txn, 11).unwrap();
    assert_eq!(
        (outside(s, "k").as_deref(), outside(s, "new")),
        (Some("0"), None)
    );
    assert_eq!(
        get(s, late, "new").as_deref(),
        Some("1"),
        "a snapshot stays what it was"
    );
    assert_eq!(conflicts(s, late), ["k", "new"]);
    let _ = seen;
}

#[test]
fn what_nobody_sees_is_collected_and_what_somebody_sees_is_not() {
    let f = Fixture::new();
    let s = &f.store;
    for n in 0..5 {
        head(s, "k", &n.to_string());
    }
    head(s, "gone", "x");
    let a = open(s, 1);
    put(s, a, "own", "x");
    for n in 5..9 {
        head(s, "k", &n.to_string());
    }
    s.kv_write_head(WORLD, b"gone", None, None).unwrap();
    assert_eq!(s.kv_collect(true).unwrap().versions, 4);
    let freed = s.kv_collect(false).unwrap();
    assert_eq!((freed.versions, freed.overlays, freed.more), (4, 0, false));
    assert_eq!(get(s, a, "k").as_deref(), Some("4"));
    assert_eq!(get(s, a, "gone").as_deref(), Some("x"));
    s.transition(a, &BranchEvent::AbortRequested, 1).unwrap();
    s.transition(a, &BranchEvent::Drained { left: vec![] }, 2)
        .unwrap();
    let freed = s.kv_collect(false).unwrap();
    assert_eq!(
        (freed.versions, freed.overlays),
        (6, 1),
        "and the removal itself"
    );
    assert_eq!(
        (outside(s, "k").as_deref(), outside(s, "gone")),
        (Some("8"), None)
    );
    assert_eq!(s.kv_collect(false).unwrap().versions, 0);
}

#[test]
fn long_stacks_are_merged_and_compared_by_what_they_were() {
    let f = Fixture::new();
    let s = &f.store;
    head(s, "k", "0");
    let p = open(s, 1);
    put(s, p, "first", "0");
    let early = child(s, 2, p);
    for n in 0..40 {
        put(s, p, "k", &n.to_string());
        put(s, p, &format!("k{n}"), "x");
        s.seal_overlay(p).unwrap();
    }
    let stack = s.branch(p).unwrap().shared.stack();
    assert!(stack.len() <= 17, "{}", stack.len());
    assert_eq!(get(s, p, "k").as_deref(), Some("39"));
    // Looked at and not listed by the branch, whose list would count.
    let shared = s.branch(p).unwrap().shared;
    let all = s.kv_see_list(WORLD, &shared, b"", None, 100).unwrap();
    assert_eq!(all.entries.len(), 42);
    let late = child(s, 3, p);
    put(s, late, "late", "1");
    put(s, early, "early", "1");
    assert_eq!(s.kv_nested_conflicts(late, p).unwrap(), []);
    let found = s.kv_nested_conflicts(early, p).unwrap();
    assert_eq!(
        found,
        [],
        "what lies below both is not what the parent did since"
    );
    put(s, early, "k7", "1");
    let found = s.kv_nested_conflicts(early, p).unwrap();
    assert_eq!(found.len(), 1);
    // What was merged once more goes; what it was made of stays, since it is compared by that.
    let merged = s.kv_collect(false).unwrap().overlays;
    assert_eq!(merged, 1);
    assert_eq!(s.kv_collect(false).unwrap().overlays, 0);
    assert_eq!(s.kv_nested_conflicts(early, p).unwrap(), found);
    assert_eq!(s.kv_nested_changes(late, p).unwrap(), 1);
    s.kv_commit_into(late, p).unwrap();
    assert_eq!(get(s, p, "late").as_deref(), Some("1"));
    assert_eq!(conflicts(s, p), [""; 0]);
    // Whose it was is known of what was merged too.
    let deep = child(s, 4, p);
    for n in 0..40 {
        put(s, deep, "own", &n.to_string());
        s.seal_overlay(deep).unwrap();
    }
    let stack = s.branch(deep).unwrap().shared.stack();
    assert!(stack.len() <= 17, "{}", stack.len());
    let owners = s.overlay_owners(&stack).unwrap();
    for owner in [p, late, deep] {
        assert!(owners.contains(&owner), "{owners:?}");
    }
    commit(s, 100, p);
    assert_eq!(outside(s, "k").as_deref(), Some("39"));
}
