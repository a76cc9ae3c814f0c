//! The diff of a delta equals the difference of the two trees, found by walking both.

mod common;

use common::ops::{self, Random};
use common::snapshot::{self, Node, Tree};
use common::{Layers, everywhere, root_of};
use forkpoint_fs::delta::{self, Change, ChangeKind, ChangeSet, FileType};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn letter(kind: FileType) -> char {
    match kind {
        FileType::File => 'f',
        FileType::Dir => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDev | FileType::BlockDev => 'c',
    }
}

/// What the change of one path must be, links aside; `None` where it is unchanged.
fn expected(now: Option<&Node>, before: Option<&Node>) -> Option<ChangeKind> {
    match (now, before) {
        (None, None) => None,
        (Some(_), None) => Some(ChangeKind::Added),
        (None, Some(_)) => Some(ChangeKind::Removed),
        (Some(now), Some(before)) if now.kind != before.kind => Some(ChangeKind::TypeChanged),
        (Some(now), Some(before)) if now.content != before.content => Some(ChangeKind::Modified),
        (Some(now), Some(before)) => {
            let same = now.mode == before.mode
                && now.owner == before.owner
                && now.xattrs == before.xattrs
                && (now.kind == 'd' || now.mtime == before.mtime);
            (!same).then_some(ChangeKind::Metadata)
        }
    }
}

/// Whether a directory above `path` went as a whole.
fn hidden(path: &Path, now: &Tree, before: &Tree) -> bool {
    path.ancestors()
        .skip(1)
        .filter(|above| !above.as_os_str().is_empty())
        .any(|above| {
            before.get(above).is_some_and(|node| node.kind == 'd')
                && now.get(above).is_none_or(|node| node.kind != 'd')
        })
}

fn check(set: &ChangeSet, now: &Tree, before: &Tree) {
    let found: BTreeMap<&Path, &Change> = set
        .changes
        .iter()
        .map(|change| (change.path.as_path(), change))
        .collect();
    assert_eq!(found.len(), set.changes.len(), "a path is listed twice");
    assert!(
        set.changes
            .is_sorted_by(|a, b| delta::order(&a.path, &b.path).is_lt())
    );
    let paths: BTreeSet<&PathBuf> = now.keys().chain(before.keys()).collect();
    for path in paths {
        let (new, old) = (now.get(path), before.get(path));
        let mut wanted = expected(new, old);
        if new.is_none() && hidden(path, now, before) {
            wanted = None;
        }
        let change = found.get(path.as_path()).copied();
        if wanted.is_none() && change.is_some_and(|change| change.link_group.is_some()) {
            continue; // listed because of its links, checked below
        }
        assert_eq!(
            change.map(|change| change.kind),
            wanted,
            "{path:?}\n{new:?}\n{old:?}"
        );
        if let (Some(change), Some(node)) = (change, new.or(old)) {
            assert_eq!(letter(change.file_type), node.kind, "{path:?}");
            assert_eq!(change.mode, node.mode, "{path:?}");
            assert_eq!(
                change.old_type.map(letter),
                old.map(|old| old.kind),
                "{path:?}"
            );
            let gone = old.is_some_and(|old| old.kind == 'd') && new.is_none_or(|n| n.kind != 'd');
            assert_eq!(change.subtree, gone, "{path:?}");
        }
        let timed = set
            .dir_times
            .iter()
            .find(|(dir, _)| dir == path)
            .map(|(_, time)| *time);
        match (new, old) {
            (Some(new), Some(old)) if new.kind == 'd' && old.kind == 'd' => {
                let time = timed.map(|time| (time.secs, i64::from(time.nanos)));
                assert_eq!(
                    time,
                    (new.mtime != old.mtime).then_some(new.mtime),
                    "{path:?}"
                );
            }
            _ => assert_eq!(timed, None, "{path:?}"),
        }
    }
    check_links(&found, now, before);
}

/// Names that are one file now and were not before are all listed, with one number.
fn check_links(found: &BTreeMap<&Path, &Change>, now: &Tree, before: &Tree) {
    for (path, node) in now.iter().filter(|(_, node)| !node.links.is_empty()) {
        let before_links = before.get(path).map(|old| &old.links);
        let changed = node
            .links
            .iter()
            .any(|name| expected(now.get(name), before.get(name)).is_some());
        if before_links == Some(&node.links) && !changed {
            continue;
        }
        // All of them are in the delta: a file of a lower layer loses its links when written.
        let group = found
            .get(path.as_path())
            .and_then(|change| change.link_group);
        assert!(
            group.is_some(),
            "{path:?} is not listed with its links {:?}",
            node.links
        );
        for other in &node.links {
            let other = found
                .get(other.as_path())
                .and_then(|change| change.link_group);
            assert_eq!(other, group, "{path:?}");
        }
    }
}

fn random_levels(seed: u64, userxattr: bool) {
    let mut random = Random::new(seed);
    let mut layers = Layers::new(userxattr);
    let native = layers.dir.path().join("native");
    let base = layers.base().to_owned();
    let mut linked_below = seed % 3 == 2;
    for _ in 0..60 {
        let op = ops::draw(&mut random);
        // Links within a base break on the first write: with them the view is not what is done
        // natively, but the diff is still the difference of what the views show.
        if linked_below || !matches!(op, ops::Op::Link(..)) {
            drop(ops::perform(&base, &op));
        }
    }
    forkpoint_fs::tree::copy(&base, &native, &Default::default()).expect("copy");
    let mut log = Vec::new();
    let levels = 1 + random.below(4) as usize;
    for _ in 0..levels {
        let count = 1 + random.below(25) as usize;
        linked_below |= log.iter().any(|op| matches!(op, ops::Op::Link(..)));
        layers.level(|view| ops::both(&mut random, count, view, &native, &mut log));
    }
    let whole = layers.view(0);
    let now = snapshot::take(&root_of(&whole));
    drop(whole);
    // The kernel breaks links of a sealed layer on the next write: its own exception.
    if !linked_below {
        assert_eq!(
            snapshot::comparable(&now),
            snapshot::comparable(&snapshot::take(&native)),
            "seed {seed}: the view is not what was done in it: {log:?}"
        );
    }
    for top in 1..=levels {
        let below = layers.view(top);
        let before = snapshot::take(&root_of(&below));
        drop(below);
        let set = delta::diff(&layers.layers, top, &layers.diff_options()).expect("diff");
        let outcome = std::panic::catch_unwind(|| check(&set, &now, &before));
        assert!(
            outcome.is_ok(),
            "seed {seed}, top {top} of {levels}: {log:#?}\n{set:#?}"
        );
    }
    let set = delta::diff_trees(&native, &base).expect("diff trees");
    check(&set, &snapshot::take(&native), &snapshot::take(&base));
}

#[test]
fn a_diff_is_the_difference_of_the_trees() {
    everywhere("a_diff_is_the_difference_of_the_trees", |userxattr| {
        let rounds = std::env::var("FORKPOINT_TEST_ROUNDS")
            .ok()
            .and_then(|r| r.parse().ok());
        let first = std::env::var("FORKPOINT_TEST_SEED")
            .ok()
            .and_then(|r| r.parse().ok());
        let first = first.unwrap_or(0);
        for seed in first..first + rounds.unwrap_or(60) {
            random_levels(seed, userxattr);
        }
    });
}
