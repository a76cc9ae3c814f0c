//! The diff of two branches equals the difference of their two trees, and costs what their deltas do.

mod common;

use common::ops::{self, Random};
use common::{Layers, everywhere, root_of};
use forkpoint_fs::delta::{self, ChangeKind, ChangeSet, Differs, Sides};
use std::collections::BTreeMap;
use std::path::PathBuf;

type Listed = BTreeMap<PathBuf, ChangeKind>;

/// Without names that differ in nothing but whom they are hard links of: those of a common layer are
/// seen only by a walk of everything.
fn by_path(set: ChangeSet) -> Listed {
    let only_links = Differs {
        links: true,
        ..Differs::default()
    };
    let changes = set.changes.into_iter();
    changes
        .filter(|c| c.differs != only_links)
        .map(|c| (c.path, c.kind))
        .collect()
}

fn listed(sides: &Sides) -> Listed {
    by_path(delta::between(sides).expect("between"))
}

/// The same by walking both trees whole.
fn walked(old: &std::os::fd::OwnedFd, new: &std::os::fd::OwnedFd) -> Listed {
    by_path(delta::diff_trees(&root_of(new), &root_of(old)).expect("walk"))
}

#[test]
fn two_branches_differ_as_their_trees_do() {
    everywhere("two_branches_differ_as_their_trees_do", |userxattr| {
        for seed in 0..40 {
            let mut random = Random::new(seed * 2 + u64::from(userxattr));
            let mut layers = Layers::new(userxattr);
            let base = layers.base().to_owned();
            for _ in 0..60 {
                ops::perform(&base, &ops::draw(&mut random)).unwrap_or(());
            }
            let change = |layers: &mut Layers, random: &mut Random| {
                layers.level(|view| {
                    for _ in 0..25 {
                        ops::perform(view, &ops::draw(random)).unwrap_or(());
                    }
                });
            };
            // A common layer, then one level in one branch and two in the other.
            change(&mut layers, &mut random);
            let common = layers.layers.clone();
            change(&mut layers, &mut random);
            let one = std::mem::replace(&mut layers.layers, common);
            change(&mut layers, &mut random);
            change(&mut layers, &mut random);
            let two = layers.layers.clone();
            let options = layers.diff_options();
            for (old, new) in [(&one, &two), (&two, &one), (&one, &one)] {
                let sides = Sides {
                    old: old.clone(),
                    new: new.clone(),
                    options,
                };
                let view = |stack: &Vec<PathBuf>| {
                    forkpoint_fs::view::mount_readonly(stack, &layers.options()).expect("mount")
                };
                assert_eq!(
                    listed(&sides),
                    walked(&view(old), &view(new)),
                    "seed {seed}"
                );
            }
        }
    });
}

#[test]
fn stacks_without_a_common_base_are_walked_whole() {
    everywhere(
        "stacks_without_a_common_base_are_walked_whole",
        |userxattr| {
            let (one, two) = (Layers::new(userxattr), Layers::new(userxattr));
            std::fs::write(one.base().join("x"), "1").expect("write");
            std::fs::write(two.base().join("y"), "2").expect("write");
            let sides = Sides {
                old: one.layers.clone(),
                new: two.layers.clone(),
                options: one.diff_options(),
            };
            let found = listed(&sides);
            assert_eq!(found[&PathBuf::from("x")], ChangeKind::Removed);
            assert_eq!(found[&PathBuf::from("y")], ChangeKind::Added);
        },
    );
}

#[test]
fn the_base_is_not_read() {
    everywhere("the_base_is_not_read", |userxattr| {
        let mut layers = Layers::new(userxattr);
        for n in 0..200 {
            std::fs::write(layers.base().join(format!("f{n}")), "x").expect("write");
        }
        let bottom = layers.layers.clone();
        layers.level(|view| std::fs::write(view.join("one"), "1").expect("write"));
        let one = std::mem::replace(&mut layers.layers, bottom);
        layers.level(|view| std::fs::write(view.join("two"), "2").expect("write"));
        let sides = Sides {
            old: one,
            new: layers.layers.clone(),
            options: layers.diff_options(),
        };
        let set = delta::between(&sides).expect("between");
        assert_eq!(set.changes.len(), 2);
        assert_eq!(
            set.skipped_noops, 0,
            "names outside both deltas were compared"
        );
    });
}
