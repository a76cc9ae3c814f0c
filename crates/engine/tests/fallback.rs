//! Where overlayfs cannot serve, branches are copies, and say so; worlds on a snapshot; bases that
//! are refused before anything starts.

mod common;

use common::{Mounted, Place, host, is_root, ok, skip, tree};
use forkpoint_engine::{
    AbortOptions, Branch, BranchState, ChangeKind, CommitOptions, CommitOutcome, ForkOptions,
    JudgeSpec, SealOptions, World, WorldOptions,
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

/// Mounts an overlay at `at` over `lower`, with its upper below `under`.
fn overlay(at: &Path, lower: &Path, under: &Path) -> Mounted {
    let dirs = ["upper", "work"].map(|name| under.join(name));
    for dir in &dirs {
        fs::create_dir_all(dir).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        dirs[0].display(),
        dirs[1].display()
    );
    let at_text = at.to_str().unwrap();
    host(
        "mount",
        &["-t", "overlay", "-o", &options, "overlay", at_text],
    );
    Mounted::at(at)
}

/// A place over which no overlay can be had, and what must be unmounted afterwards. For root the base
/// is an overlay over an overlay, as deep as the kernel goes. For others everything lies on an
/// overlay, where no upper can be, in a directory that somebody else has to make:
/// `FORKPOINT_TEST_OVERLAY`.
fn without_overlay() -> Option<(Place, Vec<Mounted>, tempfile::TempDir)> {
    let under = tempfile::tempdir().unwrap();
    if !is_root() {
        let Some(dir) = std::env::var_os("FORKPOINT_TEST_OVERLAY") else {
            skip("FORKPOINT_TEST_OVERLAY names no directory on an overlay");
            return None;
        };
        let dir = tempfile::tempdir_in(dir).unwrap();
        fs::create_dir(dir.path().join("base")).unwrap();
        return Some((Place::within(dir), Vec::new(), under));
    }
    let dir = tempfile::tempdir().unwrap();
    let (base, lower, middle) = (
        dir.path().join("base"),
        under.path().join("lower"),
        under.path().join("middle"),
    );
    for path in [&base, &lower, &middle] {
        fs::create_dir(path).unwrap();
    }
    let first = overlay(&middle, &lower, &under.path().join("1"));
    let second = overlay(&base, &middle, &under.path().join("2"));
    Some((Place::within(dir), vec![second, first], under))
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
fn a_store_on_an_overlay_is_refused_to_root_before_anything_starts() {
    if !is_root() {
        return skip("for an ordinary user it serves copies");
    }
    let under = tempfile::tempdir().unwrap();
    let over = tempfile::tempdir().unwrap();
    let lower = under.path().join("lower");
    fs::create_dir(&lower).unwrap();
    let _mounted = overlay(over.path(), &lower, under.path());
    fs::create_dir(over.path().join("base")).unwrap();
    let place = Place::within(over);
    let options = WorldOptions::default();
    let error = place.engine.world(&place.base(), options).err().unwrap();
    assert_eq!(error.kind, forkpoint_engine::Kind::Unavailable, "{error}");
    assert!(error.hint.contains("FORKPOINT_HOME"), "{error:?}");
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
