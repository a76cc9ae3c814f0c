//! Where overlayfs cannot serve, branches are copies, and say so; worlds on a snapshot; bases that
//! are refused before anything starts.

mod common;

use common::{Mounted, Place, host, is_root, ok, overlay, skip, tree, without_overlay};
use forkpoint_engine::{
    AbortOptions, Branch, BranchState, Cancel, ChangeKind, CommitOptions, CommitOutcome,
    ForkOptions, JudgeSpec, Limits, Network, PrepareOptions, SealOptions, World, WorldOptions,
};
use std::fs;
use std::path::Path;

fn one(world: &World) -> Branch {
    let forks = world.fork(&ForkOptions::default()).unwrap();
    forks.into_iter().next().unwrap().unwrap()
}

fn nested(of: &Branch) -> Branch {
    let forks = of.fork(&ForkOptions::default()).unwrap();
    forks.into_iter().next().unwrap().unwrap()
}

#[track_caller]
fn commit(branch: &Branch) {
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
}

#[test]
fn where_overlays_cannot_serve_branches_are_copies_and_it_is_said() {
    let Some((place, _mounted, _under)) = without_overlay() else {
        return;
    };
    place.write("a", "a");
    place.write("d/b", "b");
    place.write("gone", "gone");
    let world = place.world();
    assert!(
        world.notes().iter().any(|n| n.contains("copies")),
        "{:?}",
        world.notes()
    );
    let branch = one(&world);
    assert_eq!(ok(&branch, "cat a d/b"), "ab");
    ok(
        &branch,
        "echo -n A > a; rm gone; mkdir new; echo -n x > new/x; ln -s a link; chmod 600 d/b",
    );
    assert_eq!(place.read("a"), "a");
    let diff = branch.diff().unwrap();
    let kind = |name: &str| diff.get(Path::new(name)).map(|c| c.kind);
    assert_eq!(kind("a"), Some(ChangeKind::Modified));
    assert_eq!(kind("gone"), Some(ChangeKind::Removed));
    assert_eq!(kind("link"), Some(ChangeKind::Added));
    assert_eq!(kind("d/b"), Some(ChangeKind::Metadata));
    assert_eq!(diff.changes.len(), 6, "{:?}", diff.changes);

    // A fork of it is a copy of the copy.
    let child = nested(&branch);
    assert_eq!(
        ok(&child, "cat a new/x; echo child > a; test ! -e gone"),
        "Ax"
    );
    assert_eq!(ok(&branch, "cat a"), "A");
    child.kill().unwrap();
    assert_eq!(
        child.abort(&AbortOptions::default()).unwrap().state,
        BranchState::RolledBack
    );

    // A fork of a running one too.
    ok(&branch, "sleep 1000 >/dev/null 2>&1 &");
    let child = nested(&branch);
    assert_eq!(ok(&child, "cat a"), "A");
    child.abort(&AbortOptions::default()).unwrap();

    branch.seal(&SealOptions::default()).unwrap();
    let spec = JudgeSpec::new("/bin/sh", ["-c", "test $(cat a) = A && echo judged > a"]).unwrap();
    assert!(branch.verify(&spec).unwrap().passed());
    assert!(
        branch.verify(&spec).unwrap().passed(),
        "what a judge writes is thrown away"
    );
    commit(&branch);
    assert_eq!(
        (place.read("a"), place.read("new/x")),
        ("A".into(), "x".into())
    );
    assert!(!place.file("gone").exists());
    assert_eq!(
        fs::read_dir(place.dir().join("store/layers"))
            .unwrap()
            .count(),
        0,
        "nothing is left"
    );
    place.engine.undo(None, &place.base()).unwrap();
    assert_eq!(
        (place.read("a"), place.read("gone")),
        ("a".into(), "gone".into())
    );
}

#[test]
fn copies_meet_conflicts_and_siblings_as_overlays_do() {
    let Some((place, _mounted, _under)) = without_overlay() else {
        return;
    };
    place.write("a", "a");
    let branch = one(&place.world());
    ok(&branch, "echo -n mine > a");
    place.write("a", "the user's own");
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Conflict(_)),
        "{:?}",
        report.outcome
    );
    assert_eq!(place.read("a"), "the user's own");
    let forks = place.forks(2);
    ok(&forks[0], "echo -n 0 > b");
    ok(&forks[1], "echo -n 1 > b");
    commit(&forks[1]);
    assert_eq!(place.read("b"), "1");
    assert_eq!(forks[0].state().unwrap(), BranchState::Invalidated);
}

#[test]
fn a_nested_copy_is_committed_into_its_parent_unless_that_changed() {
    let Some((place, _mounted, _under)) = without_overlay() else {
        return;
    };
    place.write("a", "a");
    place.write("b", "b");
    let parent = one(&place.world());
    ok(&parent, "echo -n 1 > a");
    parent.kill().unwrap();
    let (child, late) = (nested(&parent), nested(&parent));
    ok(&child, "echo -n 2 > a; rm b; mkdir d; echo -n x > d/x");
    commit(&child);
    assert_eq!(child.state().unwrap(), BranchState::Committed);
    assert_eq!(ok(&parent, "cat a d/x; test ! -e b"), "2x");
    assert_eq!(place.read("a"), "a", "the base is as it was");

    // Its independent sibling was copied from trees that the parent no longer has.
    ok(&late, "echo -n late > late");
    let report = late.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Conflict(_)),
        "{:?}",
        report.outcome
    );
    // And an edit of the parent itself is not overwritten.
    parent.kill().unwrap();
    let child = nested(&parent);
    ok(&child, "echo -n 3 > a");
    ok(&parent, "echo -n mine > own");
    parent.kill().unwrap();
    let report = child.commit(&CommitOptions::default()).unwrap();
    let CommitOutcome::Conflict(items) = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    assert!(items.iter().any(|c| c.item == "own"), "{items:?}");
    assert_eq!(ok(&parent, "cat a own"), "2mine");
    parent.kill().unwrap();
    for branch in [&child, &late] {
        branch.kill().unwrap();
        branch.abort(&AbortOptions::default()).unwrap();
    }
    commit(&parent);
    assert_eq!(
        (place.read("a"), place.read("own"), place.read("d/x")),
        ("2".into(), "mine".into(), "x".into())
    );
    assert_eq!(
        fs::read_dir(place.dir().join("store/layers"))
            .unwrap()
            .count(),
        0,
        "nothing is left"
    );
}

#[test]
fn a_store_on_an_overlay_serves_copies_to_root_too() {
    if !is_root() {
        return skip("for an ordinary user the other tests are this");
    }
    let under = tempfile::tempdir().unwrap();
    let over = tempfile::tempdir().unwrap();
    let lower = under.path().join("lower");
    fs::create_dir(&lower).unwrap();
    let _mounted = overlay(over.path(), &lower, under.path());
    fs::create_dir(over.path().join("base")).unwrap();
    let place = Place::within(over);
    place.write("a", "a");
    place.write("owned", "o");
    std::os::unix::fs::chown(place.file("owned"), Some(1234), Some(99)).unwrap();
    let world = place.world();
    assert!(
        world.notes().iter().any(|n| n.contains("copies")),
        "{:?}",
        world.notes()
    );
    let branch = one(&world);
    // The ids inside are the true ones, what it writes is its own, and the system root takes writes.
    assert_eq!(
        ok(&branch, "stat -c %u:%g owned . | tr '\\n' ' '"),
        "1234:99 0:0 "
    );
    assert_eq!(
        ok(
            &branch,
            "echo x > /opt/fp-scratch && cat /opt/fp-scratch; id -u"
        ),
        "x\n0\n"
    );
    assert!(!Path::new("/opt/fp-scratch").exists());
    ok(
        &branch,
        "echo -n A > a; echo -n n > new; chown 55:66 new; echo r > $FORKPOINT_OUT/r",
    );
    branch.kill().unwrap();
    let diff = branch.diff().unwrap();
    let kinds: Vec<_> = diff
        .changes
        .iter()
        .map(|c| (c.path.to_str(), c.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            (Some("a"), ChangeKind::Modified),
            (Some("new"), ChangeKind::Added)
        ]
    );
    let added = diff.get(Path::new("new")).unwrap();
    assert_eq!((added.uid, added.gid), (55, 66));

    // A fork of it, a judge, protection, and the commit of the nested one.
    let child = nested(&branch);
    ok(&child, "echo -n C > c; echo -n cheat > owned");
    let protect = SealOptions {
        protect: vec!["owned".into()],
    };
    let restored = child.seal(&protect).unwrap().restored;
    assert_eq!(restored, [Path::new("owned")]);
    let spec = JudgeSpec::new(
        "/bin/sh",
        [
            "-c",
            "test $(cat a owned c) = AoC && stat -c %u owned | grep 1234",
        ],
    );
    assert!(child.verify(&spec.unwrap()).unwrap().passed());
    commit(&child);
    commit(&branch);
    use std::os::unix::fs::MetadataExt;
    let owner = |name: &str| {
        let meta = fs::metadata(place.file(name)).unwrap();
        (meta.uid(), meta.gid())
    };
    assert_eq!((place.read("a"), place.read("c")), ("A".into(), "C".into()));
    assert_eq!((owner("a"), owner("new")), ((0, 0), (55, 66)));
    assert_eq!(owner("owned"), (1234, 99));
    place.engine.undo(None, &place.base()).unwrap();
    assert_eq!(place.read("a"), "a");
    assert!(!place.file("new").exists());
}

#[test]
fn copies_lie_over_what_their_preparation_made() {
    let Some((place, _mounted, _under)) = without_overlay() else {
        return;
    };
    place.write("a", "a");
    let world = place.world();
    let script = "echo -n built > built";
    let prepare = PrepareOptions {
        argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: Vec::new(),
        network: Network::Loopback,
        limits: Limits::default(),
        inputs: Vec::new(),
        log: None,
        redactor: Default::default(),
        cancel: Cancel::new().unwrap(),
    };
    let prepared = world.prepare(&prepare).unwrap();
    let options = ForkOptions {
        over: Some(prepared.layers.clone()),
        ..ForkOptions::default()
    };
    let forks = world.fork(&options).unwrap();
    let branch = forks.into_iter().next().unwrap().unwrap();
    assert_eq!(ok(&branch, "cat a built; echo -n x > x"), "abuilt");
    branch.kill().unwrap();
    let deltas = branch.deltas().unwrap();
    let paths = |set: &forkpoint_engine::ChangeSet| -> Vec<_> {
        set.changes.iter().map(|c| c.path.clone()).collect()
    };
    assert_eq!(paths(&deltas.attempt), [Path::new("x")]);
    assert_eq!(paths(&deltas.prepared), [Path::new("built")]);
    commit(&branch);
    assert_eq!(
        (place.read("x"), place.read("built")),
        ("x".into(), "built".into())
    );
}

#[test]
fn a_snapshot_is_not_touched_by_edits_of_the_base_and_conflicts_by_path() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.write(name, name);
    }
    let options = WorldOptions { snapshot: true };
    let world = place.engine.world(&place.base(), options).unwrap();
    let (branch, other) = (one(&world), one(&world));
    place.write("a", "edited");
    place.write("fresh", "fresh");
    fs::remove_file(place.file("c")).unwrap();
    assert_eq!(ok(&branch, "cat a b c; test ! -e fresh"), "abc");
    ok(
        &branch,
        "echo -n B > b; echo -n n > new; mkdir d; echo -n x > d/x",
    );
    assert_eq!(branch.diff().unwrap().changes.len(), 4);
    ok(&other, "echo -n mine > a");
    other.kill().unwrap();
    commit(&branch);
    assert_eq!(
        (
            place.read("a"),
            place.read("b"),
            place.read("new"),
            place.read("d/x")
        ),
        ("edited".into(), "B".into(), "n".into(), "x".into())
    );
    assert!(
        !place.file("c").exists(),
        "what the user removed stays removed"
    );
    let conflicts = other.rebase().unwrap().conflicts;
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(conflicts[0].item, "a");
    let nested = nested(&other);
    assert_eq!(ok(&nested, "cat a b"), "mineb");
}

#[test]
fn a_base_with_a_mount_below_is_refused_by_name() {
    if !is_root() {
        return skip("mounting below a base needs root");
    }
    let place = Place::new();
    place.write("below/f", "f");
    let _mounted = common::mount_tmpfs(&place.file("below"), "1m");
    let error = place
        .engine
        .world(&place.base(), WorldOptions::default())
        .err()
        .unwrap();
    assert_eq!(error.code, "FP0402", "{error}");
    assert!(error.message.contains("below"), "{error}");
}

#[test]
fn a_base_that_was_replaced_is_refused_while_branches_of_the_old_one_live() {
    let place = Place::new();
    place.write("f", "old");
    let branch = place.fork();
    ok(&branch, "echo mine > g");
    branch.kill().unwrap();
    fs::rename(place.file(""), place.dir().join("moved")).unwrap();
    fs::create_dir(place.dir().join("base")).unwrap();
    place.write("f", "new");
    let before = tree::take(&place.base());
    let error = place
        .engine
        .world(&place.base(), WorldOptions::default())
        .err()
        .unwrap();
    assert_eq!(error.code, "FP0401", "{error}");
    // Nothing of the old one is committed into the new one.
    match branch.commit(&CommitOptions::default()) {
        Ok(report) => assert!(
            matches!(report.outcome, CommitOutcome::Conflict(_)),
            "{:?}",
            report.outcome
        ),
        Err(error) => eprintln!("refused: {error}"),
    }
    tree::same(&tree::take(&place.base()), &before, "the new base");
    branch.abort(&AbortOptions::default()).unwrap();
    let fresh = place.fork();
    assert_eq!(ok(&fresh, "cat f"), "new");
}

#[test]
fn a_base_on_a_read_only_file_system_is_refused() {
    if !is_root() {
        return skip("mounting read-only needs root");
    }
    let place = Place::new();
    place.write("f", "f");
    let base = place.base();
    let at = base.to_str().unwrap();
    host("mount", &["--bind", at, at]);
    let _mounted = Mounted::at(&base);
    host("mount", &["-o", "remount,ro,bind", at]);
    let error = place
        .engine
        .world(&base, WorldOptions::default())
        .err()
        .unwrap();
    assert!(error.message.contains("read-only"), "{error}");
    assert!(error.code.starts_with("FP04"), "{error}");
    assert!(!error.hint.is_empty());
}

#[test]
fn a_branch_of_a_vanished_base_says_so() {
    let place = Place::new();
    place.write("f", "f");
    let branch = place.fork();
    ok(&branch, "echo 1 > f");
    branch.kill().unwrap();
    fs::remove_dir_all(place.base()).unwrap();
    assert!(branch.commit(&CommitOptions::default()).is_err());
    let mut command = branch.command("/bin/true");
    assert!(command.status().is_err());
    branch.abort(&AbortOptions::default()).unwrap();
    assert_eq!(branch.state().unwrap(), BranchState::RolledBack);
}
