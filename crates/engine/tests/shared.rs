//! Keys and events together: nested commits, what becomes of those who stand on a committed branch, and
//! what is collected.
#![forbid(unsafe_code)]

mod common;

use common::{Place, ok};
use forkpoint_engine::{
    AbortOptions, Branch, BranchState, CommitOptions, CommitOutcome, CommitReport, EffectState,
    ForkOptions, GcOptions,
};

fn get(branch: &Branch, key: &str) -> Option<String> {
    let entry = branch.kv().unwrap().get(key.as_bytes()).unwrap();
    entry.map(|e| String::from_utf8(e.value).expect("text"))
}

fn put(branch: &Branch, key: &str, value: &str) {
    let kv = branch.kv().unwrap();
    kv.put(key.as_bytes(), value.as_bytes()).unwrap();
}

fn publish(branch: &Branch, topics: &[&str]) {
    for topic in topics {
        branch.bus().unwrap().publish(topic, b"").unwrap();
    }
}

/// The topics of the events that a branch sees.
fn seen(branch: &Branch) -> Vec<String> {
    let events = branch.bus().unwrap().read(None, Default::default(), 100);
    events.unwrap().into_iter().map(|e| e.topic).collect()
}

/// The topics of what is committed.
fn outside(place: &Place) -> Vec<String> {
    let events = place.world().bus().read(None, Default::default(), 100);
    events.unwrap().into_iter().map(|e| e.topic).collect()
}

#[track_caller]
fn committed(branch: &Branch) -> CommitReport {
    let report = branch.commit(&CommitOptions::default()).unwrap();
    let done = matches!(report.outcome, CommitOutcome::Committed);
    assert!(done, "{:?}", report.outcome);
    report
}

fn nested(branch: &Branch) -> Branch {
    let forks = branch.fork(&ForkOptions::default()).unwrap();
    forks.into_iter().next().unwrap().unwrap()
}

fn states(branch: &Branch) -> Vec<EffectState> {
    let journal = branch.effects().unwrap();
    journal.iter().map(|e| e.state).collect()
}

#[test]
fn law_02_a_nested_commit_moves_keys_and_events_to_its_parent_and_no_further() {
    let place = Place::new();
    let parent = place.fork();
    publish(&parent, &["p1"]);
    parent.step("before").unwrap();
    let child = nested(&parent);
    publish(&child, &["c1", "c2"]);
    put(&child, "k", "1");
    publish(&parent, &["p2"]);
    assert_eq!(seen(&child), ["p1", "c1", "c2"]);
    let report = committed(&child);
    assert_eq!((report.keys, report.effects), (1, 2));
    assert_eq!(seen(&parent), ["p1", "p2", "c1", "c2"]);
    assert_eq!(get(&parent, "k").as_deref(), Some("1"));
    assert_eq!(
        (child.effects().unwrap().len(), states(&parent).len()),
        (0, 4)
    );
    publish(&parent, &["p3"]);
    assert_eq!(outside(&place), [""; 0]);
    // They are the parent's, also where it goes back.
    let (_, kept) = parent.rewind(None).unwrap();
    assert_eq!(
        (seen(&parent), get(&parent, "k")),
        (vec!["p1".into()], None)
    );
    parent.rewind(Some(kept)).unwrap();
    let report = committed(&parent);
    assert_eq!((report.keys, report.effects), (1, 5));
    assert_eq!(outside(&place), ["p1", "p2", "c1", "c2", "p3"]);
    assert_eq!(states(&parent), [EffectState::Released; 5]);
}

#[test]
fn law_05_what_came_of_a_nested_commit_is_rolled_back_with_the_parent() {
    let place = Place::new();
    let (parent, gone_back) = (place.fork(), place.fork());
    for (parent, back) in [(&parent, false), (&gone_back, true)] {
        parent.step("before").unwrap();
        let child = nested(parent);
        publish(&child, &["c1"]);
        put(&child, "k", "1");
        committed(&child);
        if back {
            parent.rewind(None).unwrap();
            put(parent, "other", "1");
            committed(parent);
        } else {
            let done = parent.abort(&AbortOptions::default()).unwrap();
            assert_eq!(done.state, BranchState::RolledBack);
        }
        assert_eq!(states(parent), [EffectState::NeverSent]);
    }
    assert_eq!(outside(&place), [""; 0]);
    assert!(place.world().kv().get(b"k").unwrap().is_none());
    assert!(place.world().kv().get(b"other").unwrap().is_some());
}

#[test]
fn who_stands_on_a_committed_branch_sees_each_event_once_and_goes_on() {
    let place = Place::new();
    let parent = place.fork();
    publish(&parent, &["p1"]);
    put(&parent, "k", "1");
    ok(&parent, "echo 1 > by-parent");
    let (fits, stale) = (nested(&parent), nested(&parent));
    ok(&fits, "echo 1 > by-child");
    publish(&fits, &["f1"]);
    put(&fits, "mine", "1");
    publish(&stale, &["s1"]);
    assert_eq!(get(&stale, "late"), None);
    publish(&parent, &["p2"]);
    put(&parent, "late", "1");
    place.world().bus().publish("out", b"").unwrap();
    committed(&parent);
    assert_eq!(outside(&place), ["out", "p1", "p2"]);
    assert_eq!(seen(&fits), ["out", "p1", "p2", "f1"]);
    assert_eq!(get(&fits, "late").as_deref(), Some("1"));
    // What one that is stale has seen does not go away under it.
    assert!(stale.record().unwrap().stale);
    assert_eq!(seen(&stale), ["p1", "s1"]);
    assert_eq!(get(&stale, "late"), None);
    assert_eq!(get(&stale, "k").as_deref(), Some("1"));
    stale.abort(&AbortOptions::default()).unwrap();
    let report = committed(&fits);
    assert_eq!((report.keys, report.effects), (1, 1));
    assert_eq!(report.changed.items, 1, "not what is in the base already");
    assert_eq!(outside(&place), ["out", "p1", "p2", "f1"]);
    assert_eq!(place.read("by-child"), "1\n");
}

#[test]
fn what_cannot_move_onto_the_new_generation_keeps_all_it_sees() {
    if !common::is_root() {
        return common::skip("only as root does a renamed directory stand in the way");
    }
    let place = Place::new();
    place.write("dir/f", "0");
    let parent = place.fork();
    ok(&parent, "mv dir other");
    publish(&parent, &["p1"]);
    let child = nested(&parent);
    place.world().kv().put(b"k", b"1").unwrap();
    committed(&parent);
    assert!(child.record().unwrap().stale);
    assert_eq!(
        (get(&child, "k"), seen(&child)),
        (None, vec!["p1".to_owned()])
    );
}

#[test]
fn a_collection_frees_what_nobody_can_see_any_more_and_nothing_else() {
    let place = Place::new();
    let world = place.world();
    let gc = |max_age_s| {
        let options = GcOptions {
            max_age_s,
            ..GcOptions::default()
        };
        let report = place.engine.gc(&options).unwrap();
        let count = |kind: &str| report.kinds.get(kind).map_or(0, |k| k.count);
        (count("keys"), count("events"))
    };
    let (done, undone, live) = (place.fork(), place.fork(), place.fork());
    publish(&done, &["done"]);
    put(&done, "k", "1");
    publish(&undone, &["never"]);
    put(&undone, "k", "2");
    publish(&live, &["mine"]);
    put(&live, "mine", "1");
    committed(&done);
    undone.abort(&AbortOptions::default()).unwrap();
    world.kv().put(b"k", b"3").unwrap();
    assert_eq!(
        gc(None),
        (1, 0),
        "overlays go at once, events when they are old"
    );
    // The branches that have ended are forgotten, and their journals with them.
    gc(Some(0));
    assert_eq!(
        (seen(&live), get(&live, "mine").as_deref()),
        (vec!["mine".into()], Some("1"))
    );
    assert_eq!((states(&live).len(), outside(&place).len()), (1, 0));
    assert!(place.engine.branch(&done.id().to_string()).is_err());
    let value = world.kv().get(b"k").unwrap().unwrap().value;
    assert_eq!(value, b"3");
    live.rebase().unwrap();
    committed(&live);
    assert_eq!(outside(&place), ["mine"]);
    assert_eq!(gc(Some(0)), (1, 1));
    assert_eq!(outside(&place), [""; 0]);
    assert_eq!(world.kv().get(b"mine").unwrap().unwrap().value, b"1");
}

#[test]
fn what_was_forked_off_a_nested_branch_that_was_committed_goes_where_that_one_went() {
    let place = Place::new();
    let parent = place.fork();
    put(&parent, "p", "0");
    let child = nested(&parent);
    publish(&child, &["c1"]);
    put(&child, "k", "1");
    let below = nested(&child);
    publish(&below, &["b1"]);
    put(&below, "mine", "1");
    put(&below, "k", "2");
    put(&parent, "late", "1");
    publish(&child, &["c2"]);
    committed(&child);
    // What both have of the child is no difference between them.
    let report = committed(&below);
    assert_eq!((report.keys, report.effects), (2, 1));
    assert_eq!(get(&parent, "k").as_deref(), Some("2"));
    assert_eq!(get(&parent, "late").as_deref(), Some("1"));
    assert_eq!(seen(&parent), ["c1", "c2", "b1"]);
    committed(&parent);
    assert_eq!(outside(&place), ["c1", "c2", "b1"]);
}

#[test]
fn what_a_branch_wrote_after_a_fork_and_committed_is_not_taken_back_by_the_fork() {
    let place = Place::new();
    place.write("twice", "0");
    let parent = place.fork();
    ok(&parent, "echo 1 > twice; echo 1 > gone; echo 1 > kept");
    let child = nested(&parent);
    ok(&child, "echo 1 > own");
    ok(&parent, "echo 2 > twice; rm gone; echo 1 > late");
    committed(&parent);
    let outcome = match child.commit(&CommitOptions::default()) {
        Ok(report) => format!("{:?}", report.outcome),
        Err(e) => e.code,
    };
    eprintln!("{outcome}");
    assert_eq!(place.read("twice"), "2\n");
    assert!(!place.file("gone").exists());
    assert_eq!(
        (place.read("late"), place.read("kept")),
        ("1\n".into(), "1\n".into())
    );
}

#[test]
fn what_both_wrote_after_a_fork_is_a_conflict_for_the_one_that_is_left() {
    let place = Place::new();
    place.write("base", "0");
    let parent = place.fork();
    ok(&parent, "echo 1 > before");
    let (both, fits) = (nested(&parent), nested(&parent));
    ok(&both, "echo child > late; echo child > base");
    ok(&fits, "echo child > before; echo child > own");
    ok(&parent, "echo parent > late; echo parent > base");
    committed(&parent);
    let error = both.commit(&CommitOptions::default()).unwrap_err();
    assert_eq!(error.code, "FP0082", "stale");
    let conflicts = both.rebase().unwrap().conflicts;
    assert!(conflicts.iter().any(|c| c.item == "late"), "{conflicts:?}");
    // What it wrote over something of the parent's from before the fork is no conflict.
    assert_eq!(committed(&fits).changed.items, 2);
    for (name, text) in [
        ("late", "parent\n"),
        ("base", "parent\n"),
        ("before", "child\n"),
    ] {
        assert_eq!(place.read(name), text);
    }
}

#[test]
fn what_stands_on_a_commit_that_was_undone_does_not_bring_it_back() {
    let place = Place::new();
    let parent = place.fork();
    ok(&parent, "echo 1 > undone");
    put(&parent, "k", "1");
    let child = nested(&parent);
    ok(&child, "echo 1 > own");
    committed(&parent);
    assert!(!child.record().unwrap().stale);
    place.engine.undo(None, &place.base()).unwrap();
    child.rebase().ok();
    let error = child.commit(&CommitOptions::default()).unwrap_err();
    assert!(
        ["FP0405", "FP0082"].contains(&error.code.as_str()),
        "{error}"
    );
    assert!(!place.file("undone").exists() && !place.file("own").exists());
}
