//! The keys of a world: forked, committed and rolled back with the files.

mod common;

use common::{Place, ok};
use forkpoint_engine::{
    AbortOptions, Branch, BranchState, CommitOptions, CommitOutcome, CommitReport, ForkOptions,
    GcOptions, KvEntry, SealOptions,
};

fn text(entry: Option<KvEntry>) -> Option<String> {
    entry.map(|e| String::from_utf8(e.value).expect("text"))
}

fn get(branch: &Branch, key: &str) -> Option<String> {
    text(branch.kv().unwrap().get(key.as_bytes()).unwrap())
}

fn put(branch: &Branch, key: &str, value: &str) {
    branch
        .kv()
        .unwrap()
        .put(key.as_bytes(), value.as_bytes())
        .unwrap();
}

fn head(place: &Place, key: &str) -> Option<String> {
    text(place.world().kv().get(key.as_bytes()).unwrap())
}

fn set(place: &Place, key: &str, value: &str) {
    place
        .world()
        .kv()
        .put(key.as_bytes(), value.as_bytes())
        .unwrap();
}

#[track_caller]
fn committed(branch: &Branch) -> CommitReport {
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    report
}

#[track_caller]
fn refused(branch: &Branch) -> Vec<(String, String)> {
    match branch.commit(&CommitOptions::default()).unwrap().outcome {
        CommitOutcome::Conflict(items) => items
            .into_iter()
            .map(|c| (c.participant.0, c.item))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn nested(branch: &Branch) -> Branch {
    let forks = branch.fork(&ForkOptions::default()).unwrap();
    forks.into_iter().next().unwrap().unwrap()
}

fn kv(key: &str) -> (String, String) {
    ("kv".to_owned(), key.to_owned())
}

#[test]
fn law_02_and_03_keys_are_nobodys_until_the_commit_and_keys_alone_are_a_change() {
    let place = Place::new();
    set(&place, "k", "0");
    let (a, b) = (place.fork(), place.fork());
    put(&a, "k", "1");
    put(&a, "new", "1");
    assert_eq!((get(&b, "k").as_deref(), get(&b, "new")), (Some("0"), None));
    assert_eq!(head(&place, "new"), None);
    let report = committed(&a);
    assert_eq!((report.changed.items, report.keys), (0, 2));
    assert_eq!(head(&place, "k").as_deref(), Some("1"));
    assert_eq!(get(&b, "k").as_deref(), Some("0"), "a snapshot stays");
    assert!(place.world().head().unwrap().0 == 1);
    // What was only read is no change.
    let c = place.fork();
    get(&c, "k");
    let report = c.commit(&CommitOptions::default()).unwrap();
    assert!(matches!(report.outcome, CommitOutcome::Empty));
}

#[test]
fn law_05_a_rollback_leaves_no_key() {
    let place = Place::new();
    let a = place.fork();
    put(&a, "k", "1");
    let done = a.abort(&AbortOptions::default()).unwrap();
    assert_eq!(done.state, BranchState::RolledBack);
    assert_eq!(head(&place, "k"), None);
    let report = place.engine.gc(&GcOptions::default()).unwrap();
    assert_eq!(report.kinds["keys"].bytes, 2, "{report:?}");
    let report = place.engine.gc(&GcOptions::default()).unwrap();
    assert!(!report.kinds.contains_key("keys"), "{report:?}");
}

#[test]
fn law_07_of_siblings_one_is_committed_and_the_others_are_fenced() {
    let place = Place::new();
    let forks = place.forks(2);
    let loser = forks[1].kv().unwrap();
    forks[0].kv().unwrap().put(b"k", b"winner").unwrap();
    loser.put(b"k", b"loser").unwrap();
    let report = committed(&forks[0]);
    assert_eq!(report.losers, [forks[1].id()]);
    assert_eq!(loser.get(b"k").unwrap_err().code, "FP0112");
    assert_eq!(loser.put(b"k", b"late").unwrap_err().code, "FP0112");
    assert_eq!(head(&place, "k").as_deref(), Some("winner"));
    let looked = forks[1].kv_view().unwrap().get(b"k").unwrap();
    assert_eq!(text(looked).as_deref(), Some("loser"));
}

#[test]
fn law_08_a_stale_key_is_a_conflict_and_nothing_is_committed() {
    let place = Place::new();
    place.write("f", "0");
    set(&place, "read", "0");
    let (a, b) = (place.fork(), place.fork());
    ok(&a, "echo 1 > f");
    assert_eq!(get(&a, "read").as_deref(), Some("0"));
    a.kv().unwrap().list(b"dir/", None, 10).unwrap();
    put(&b, "read", "1");
    put(&b, "dir/new", "1");
    put(&b, "unrelated", "1");
    committed(&b);
    assert!(a.commit(&CommitOptions::default()).is_err(), "stale");
    let report = a.rebase().unwrap();
    let found: Vec<_> = report.conflicts.iter().map(|c| c.item.clone()).collect();
    assert_eq!(found, ["dir/new", "read"]);
    assert!(a.record().unwrap().stale);
    // Where only the outside wrote, the head did not move: it is the commit that is refused.
    let (c, d) = (place.fork(), place.fork());
    ok(&c, "echo 2 > f");
    get(&c, "read");
    put(&d, "mine", "1");
    set(&place, "read", "2");
    assert_eq!(refused(&c), [kv("read")]);
    assert_eq!(place.read("f"), "0");
    assert_eq!(c.state().unwrap(), BranchState::Sealed);
    committed(&d);
    assert_eq!(head(&place, "mine").as_deref(), Some("1"));
}

#[test]
fn a_rebase_moves_what_is_seen_where_nothing_read_was_changed() {
    let place = Place::new();
    set(&place, "k", "0");
    let (a, b) = (place.fork(), place.fork());
    put(&a, "mine", "1");
    put(&b, "k", "1");
    committed(&b);
    assert_eq!(get(&a, "other"), None);
    let report = a.rebase().unwrap();
    assert!(report.conflicts.is_empty(), "{report:?}");
    assert_eq!(get(&a, "k").as_deref(), Some("1"));
    committed(&a);
}

#[test]
fn a_seal_ends_what_was_handed_out_and_files_and_keys_are_decided_together() {
    let place = Place::new();
    place.write("f", "0");
    let a = place.fork();
    let handed = a.kv().unwrap();
    handed.put(b"k", b"1").unwrap();
    ok(&a, "echo 1 > f");
    a.seal(&SealOptions::default()).unwrap();
    for done in [handed.put(b"k", b"2").map(drop), handed.get(b"k").map(drop)] {
        assert_eq!(done.unwrap_err().code, "FP0112");
    }
    let report = committed(&a);
    assert_eq!((report.changed.items, report.keys), (1, 1));
    let commit = place.engine.store().commit(report.commit).unwrap();
    let names: Vec<_> = commit.participants.iter().map(|p| p.0.as_str()).collect();
    assert_eq!(names, ["disk:0", "kv"]);
    assert!(!commit.votes[1].1.in_place);
    // A branch that has nothing to do with keys is committed without them.
    let b = place.fork();
    ok(&b, "echo 2 > f");
    let report = committed(&b);
    let commit = place.engine.store().commit(report.commit).unwrap();
    assert_eq!(commit.participants.len(), 1);
}

#[test]
fn a_nested_commit_brings_the_keys_into_the_parent() {
    let place = Place::new();
    let parent = place.fork();
    put(&parent, "k", "0");
    let (child, reader, other) = (nested(&parent), nested(&parent), nested(&parent));
    put(&child, "k", "1");
    assert_eq!(get(&reader, "k").as_deref(), Some("0"));
    put(&reader, "mine", "1");
    put(&other, "unrelated", "1");
    let report = committed(&child);
    assert_eq!(report.keys, 1);
    assert_eq!(get(&parent, "k").as_deref(), Some("1"));
    assert_eq!(head(&place, "k"), None, "law 2");
    assert_eq!(refused(&reader), [kv("k")]);
    committed(&other);
    committed(&parent);
    assert_eq!(head(&place, "k").as_deref(), Some("1"));
    assert_eq!(head(&place, "unrelated").as_deref(), Some("1"));
}

#[test]
fn who_was_forked_off_a_committed_branch_goes_on() {
    let place = Place::new();
    let parent = place.fork();
    put(&parent, "k", "0");
    let (fresh, reader) = (nested(&parent), nested(&parent));
    let below = nested(&fresh);
    put(&fresh, "k", "1");
    assert_eq!(get(&reader, "late"), None);
    put(&parent, "late", "1");
    committed(&parent);
    let stale = |branch: &Branch| branch.record().unwrap().stale;
    assert_eq!(
        (stale(&fresh), stale(&below), stale(&reader)),
        (false, false, true)
    );
    assert_eq!(get(&fresh, "k").as_deref(), Some("1"));
    assert_eq!(get(&below, "late").as_deref(), Some("1"));
    assert_eq!(reader.rebase().unwrap().conflicts.len(), 2, "k and late");
}

#[test]
fn a_rewind_takes_keys_back_with_the_files() {
    let place = Place::new();
    let a = place.fork();
    put(&a, "k", "1");
    a.step("before").unwrap();
    put(&a, "k", "2");
    put(&a, "new", "2");
    let (_, kept) = a.rewind(None).unwrap();
    assert_eq!((get(&a, "k").as_deref(), get(&a, "new")), (Some("1"), None));
    a.rewind(Some(kept)).unwrap();
    assert_eq!(get(&a, "k").as_deref(), Some("2"));
    assert_eq!(committed(&a).keys, 2);
}

#[test]
fn an_undo_takes_keys_back_and_is_refused_where_one_was_changed_since() {
    let place = Place::new();
    place.write("f", "0");
    set(&place, "k", "0");
    let a = place.fork();
    ok(&a, "echo 1 > f");
    put(&a, "k", "1");
    put(&a, "new", "1");
    committed(&a);
    let before = place.world().kv().get(b"k").unwrap().unwrap();
    set(&place, "k", "2");
    let error = place.engine.undo(None, &place.base()).unwrap_err();
    assert_eq!(error.code, "FP0111", "{error}");
    assert_eq!(place.read("f"), "1\n", "nothing began");
    assert_eq!(before.value, b"1");
    let place = Place::new();
    place.write("f", "0");
    set(&place, "k", "0");
    let a = place.fork();
    ok(&a, "echo 1 > f");
    put(&a, "k", "1");
    put(&a, "new", "1");
    committed(&a);
    let report = place.engine.undo(None, &place.base()).unwrap();
    assert_eq!((report.restored, report.keys), (1, 2));
    assert_eq!(place.read("f"), "0");
    assert_eq!(
        (head(&place, "k").as_deref(), head(&place, "new")),
        (Some("0"), None)
    );
}

#[test]
fn a_branch_that_ran_when_the_power_went_counts_as_having_read_everything() {
    let place = Place::new();
    let a = place.fork();
    let mut process = forkpoint_engine::process_identity().unwrap();
    process.boot_id = "11111111-2222-3333-4444-555555555555".into();
    place.engine.store().set_process(a.id(), &process).unwrap();
    let id = a.id().to_string();
    drop(a);
    let engine = place.again();
    assert!(engine.recovered()[0].contains("went down"));
    let a = engine.branch(&id).unwrap();
    put(&a, "mine", "1");
    set(&place, "anything", "1");
    assert_eq!(refused(&a), [kv("anything")]);
}
