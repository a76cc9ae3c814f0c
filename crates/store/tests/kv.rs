//! Keys: who sees what, what is remembered of reads, versions, bounds, and what conflicts.

mod common;

use common::{Fixture, branch, decision, reserve};
use forkpoint_model::state::BranchEvent;
use forkpoint_model::{BranchId, Epoch, Source, WorldId};
use forkpoint_store::{BranchRecord, KvWritten, Race, SharedRecord, Store, codes, kv};

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

/// Rows of reads that are remembered.
fn remembered(f: &Fixture) -> i64 {
    let conn = rusqlite::Connection::open(f.path().join("forkpoint.db")).unwrap();
    conn.query_row("SELECT count(*) FROM overlay_reads", [], |r| r.get(0))
        .unwrap()
}

#[test]
fn law_02_and_03_keys_are_seen_by_their_branch_alone_until_it_is_committed() {
    let f = Fixture::new();
    let s = &f.store;
    head(s, "k", "0");
    let (a, b) = (open(s, 1), open(s, 2));
    put(s, a, "k", "1");
    put(s, a, "new", "n");
    s.kv_write(a, E0, b"gone", None, None).unwrap();
    assert_eq!(get(s, a, "k").as_deref(), Some("1"));
    assert_eq!(
        get(s, b, "k").as_deref(),
        Some("0"),
        "law 3: never a sibling's"
    );
    assert_eq!((get(s, b, "new"), outside(s, "new")), (None, None), "law 2");
    commit(s, 100, a);
    assert_eq!(outside(s, "k").as_deref(), Some("1"));
    assert_eq!(
        get(s, b, "k").as_deref(),
        Some("0"),
        "a snapshot stays what it was"
    );
    assert_eq!(keys(s, b, ""), ["k"]);
    assert_eq!(get(s, open(s, 3), "new").as_deref(), Some("n"));
}

#[test]
fn a_fork_sees_what_its_source_had_written_and_nothing_after() {
    let f = Fixture::new();
    let s = &f.store;
    let a = open(s, 1);
    put(s, a, "k", "1");
    put(s, a, "gone", "x");
    let b = child(s, 2, a);
    put(s, a, "k", "2");
    assert!(s.kv_write(b, E0, b"gone", None, None).unwrap().done);
    put(s, b, "z", "z");
    assert_eq!(get(s, b, "k").as_deref(), Some("1"));
    assert_eq!(get(s, a, "k").as_deref(), Some("2"));
    assert_eq!(
        (keys(s, a, ""), keys(s, b, "")),
        (
            vec!["gone".into(), "k".into()],
            vec!["k".into(), "z".into()]
        )
    );
}

#[test]
fn what_comes_after_the_seal_is_refused_and_reading_it_from_outside_is_not() {
    let f = Fixture::new();
    let s = &f.store;
    let a = open(s, 1);
    put(s, a, "k", "1");
    s.transition(a, &BranchEvent::Sealed, 1).unwrap();
    let fenced = codes::FENCED.text;
    assert_eq!(s.kv_get(a, E0, b"k").unwrap_err().code, fenced);
    assert_eq!(
        s.kv_write(a, E0, b"k", Some(b"2"), None).unwrap_err().code,
        fenced
    );
    assert_eq!(s.kv_list(a, E0, b"", None, 9).unwrap_err().code, fenced);
    let shared = s.branch(a).unwrap().shared;
    assert_eq!(
        text(s.kv_see(WORLD, &shared, b"k").unwrap()).as_deref(),
        Some("1")
    );
    assert_eq!(
        s.kv_see_list(WORLD, &shared, b"", None, 9)
            .unwrap()
            .entries
            .len(),
        1
    );
}

#[test]
fn versions_tell_every_write_from_every_other() {
    let f = Fixture::new();
    let s = &f.store;
    let committed = head(s, "k", "0");
    let a = open(s, 1);
    let write =
        |expected, value: Option<&[u8]>| s.kv_write(a, E0, b"k", value, Some(expected)).unwrap();
    let wrong = write(0, Some(b"x"));
    assert_eq!(
        wrong,
        KvWritten {
            done: false,
            version: committed,
            was: Some(committed)
        }
    );
    let first = write(committed, Some(b"1"));
    assert!(first.done && first.version >= kv::HELD);
    assert!(
        !write(committed, Some(b"x")).done,
        "it has another version now"
    );
    // A rewind: the sealed overlay is left, and what is written anew has a version of its own.
    let before = SharedRecord {
        position: Some(1),
        ..SharedRecord::default()
    };
    s.set_shared(a, &before).unwrap();
    assert_eq!(get(s, a, "k").as_deref(), Some("0"));
    let again = write(committed, Some(b"2"));
    assert!(again.done && again.version != first.version);
    assert!(
        !write(first.version, Some(b"x")).done,
        "a version of before the rewind"
    );
    let gone = write(again.version, None);
    assert_eq!((gone.done, gone.version), (true, 0));
    assert!(write(0, Some(b"3")).done, "0 is that there is none");
    // Outside the same rules hold.
    let h = |expected, value: Option<&[u8]>| {
        s.kv_write_head(WORLD, b"k", value, Some(expected)).unwrap()
    };
    assert!(!h(0, Some(b"x")).done && !h(again.version, Some(b"x")).done);
    let second = h(committed, Some(b"1"));
    assert!(second.done && second.version > committed);
    assert!(h(second.version, None).done && h(0, Some(b"4")).done);
}

#[test]
fn law_08_what_was_read_written_or_listed_and_then_changed_conflicts() {
    let f = Fixture::new();
    let s = &f.store;
    for key in ["read", "written", "other", "dir/a"] {
        head(s, key, "0");
    }
    let a = open(s, 1);
    get(s, a, "read");
    get(s, a, "absent");
    put(s, a, "written", "a");
    put(s, a, "own", "a");
    get(s, a, "own");
    assert_eq!(keys(s, a, "dir/"), ["dir/a"]);
    head(s, "other", "1");
    assert_eq!(conflicts(s, a), [""; 0], "what it has nothing to do with");
    head(s, "dir/b", "1");
    assert_eq!(conflicts(s, a), ["dir/b"], "a phantom");
    for key in ["absent", "read", "written", "dirt"] {
        head(s, key, "1");
    }
    assert_eq!(conflicts(s, a), ["dir/b", "absent", "read", "written"]);
    let why = s.kv_conflicts(a).unwrap();
    assert!(why[0].why.contains("listed below \"dir/\""), "{why:?}");
    assert!(why[2].why.contains("read here"), "{why:?}");
    assert!(why[3].why.contains("written here"), "{why:?}");
    let b = open(s, 2);
    s.kv_read_all(b).unwrap();
    head(s, "anything", "1");
    assert_eq!(conflicts(s, b), ["anything"]);
}

#[test]
fn a_repeated_read_writes_nothing() {
    let f = Fixture::new();
    let s = &f.store;
    head(s, "k", "0");
    let a = open(s, 1);
    for _ in 0..3 {
        get(s, a, "k");
        get(s, a, "absent");
        keys(s, a, "k");
        put(s, a, "own", "x");
        get(s, a, "own");
    }
    assert_eq!(remembered(&f), 3);
}

#[test]
fn lists_are_read_in_parts_and_any_byte_is_a_key() {
    let f = Fixture::new();
    let s = &f.store;
    let all: Vec<Vec<u8>> = vec![
        vec![0],
        vec![0, 0],
        vec![0, 255],
        vec![9],
        vec![255],
        vec![255, 255],
        vec![255; 1024],
    ];
    for key in &all[..4] {
        s.kv_write_head(WORLD, key, Some(b""), None).unwrap();
    }
    let a = open(s, 1);
    for key in &all[3..] {
        s.kv_write(a, E0, key, Some(&[0, 159]), None).unwrap();
    }
    for limit in 1..9 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = s.kv_list(a, E0, b"", after.as_deref(), limit).unwrap();
            assert!(page.entries.len() <= limit as usize);
            found.extend(page.entries.into_iter().map(|e| e.key));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, all, "{limit}");
    }
    assert_eq!(
        s.kv_list(a, E0, &[255, 255], None, 9)
            .unwrap()
            .entries
            .len(),
        2
    );
    assert_eq!(
        s.kv_list_head(WORLD, &[0], None, 9).unwrap().entries.len(),
        3
    );
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let f = Fixture::new();
    let s = &f.store;
    let a = open(s, 1);
    let bounds = codes::BOUNDS.text;
    let big = vec![0; kv::MAX_VALUE + 1];
    for key in [&b""[..], &[1; kv::MAX_KEY + 1]] {
        assert_eq!(s.kv_get(a, E0, key).unwrap_err().code, bounds);
        assert_eq!(s.kv_write(a, E0, key, None, None).unwrap_err().code, bounds);
        assert_eq!(
            s.kv_write_head(WORLD, key, Some(b""), None)
                .unwrap_err()
                .code,
            bounds
        );
        assert_eq!(s.kv_get_head(WORLD, key).unwrap_err().code, bounds);
    }
    assert_eq!(
        s.kv_write(a, E0, b"k", Some(&big), None).unwrap_err().code,
        bounds
    );
    assert_eq!(
        s.kv_write_head(WORLD, b"k", Some(&big), None)
            .unwrap_err()
            .code,
        bounds
    );
    assert!(s.kv_write(a, E0, b"k", Some(&big[1..]), None).unwrap().done);
    // The bound of all of it, without writing a gigabyte.
    let conn = rusqlite::Connection::open(f.path().join("forkpoint.db")).unwrap();
    conn.execute(
        "UPDATE overlays SET bytes = ?",
        [kv::MAX_OVERLAY as i64 - 5],
    )
    .unwrap();
    assert_eq!(
        s.kv_write(a, E0, b"key", Some(b"val"), None)
            .unwrap_err()
            .code,
        codes::OVERLAY_FULL.text
    );
    assert!(s.kv_write(a, E0, b"ke", Some(b"val"), None).unwrap().done);
    assert_eq!(
        s.kv_get(a, E0, b"more").unwrap_err().code,
        codes::OVERLAY_FULL.text
    );
}

#[test]
fn nothing_is_written_outside_while_a_commit_is_under_way() {
    let f = Fixture::new();
    let s = &f.store;
    head(s, "k", "0");
    let a = open(s, 1);
    put(s, a, "k", "1");
    let sealed = s.transition(a, &BranchEvent::Sealed, 1).unwrap();
    assert_eq!(reserve(s, 100, &sealed), Race::Won(()));
    let refused = s.kv_write_head(WORLD, b"k", Some(b"2"), None).unwrap_err();
    assert_eq!(refused.code, codes::WORLD_BUSY.text);
    s.decide(&decision(100, true), 9).unwrap();
    assert_eq!(
        s.kv_write_head(WORLD, b"x", Some(b"2"), None)
            .unwrap_err()
            .code,
        codes::WORLD_BUSY.text
    );
    s.mark_applied(forkpoint_model::CommitId::from_bits(100), 10)
        .unwrap();
    head(s, "k", "2");
}
