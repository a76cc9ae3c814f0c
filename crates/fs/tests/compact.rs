//! A merged layer shows the same as the layers it was made of.

mod common;

use common::ops::{self, Random};
use common::snapshot::{self, Tree};
use common::{Layers, everywhere, root_of};
use forkpoint_fs::{compact, delta, view};
use std::path::PathBuf;

fn shown(layers: &Layers, stack: &[PathBuf]) -> Tree {
    let view = view::mount_readonly(stack, &layers.options()).expect("mount");
    snapshot::take(&root_of(&view))
}

fn random_merge(seed: u64, userxattr: bool) {
    let mut random = Random::new(seed);
    let mut layers = Layers::new(userxattr);
    let base = layers.base().to_owned();
    for _ in 0..40 {
        drop(ops::perform(&base, &ops::draw(&mut random)));
    }
    let levels = 2 + random.below(4) as usize;
    let mut log = Vec::new();
    for _ in 0..levels {
        layers.level(|view| {
            for _ in 0..1 + random.below(15) {
                let op = ops::draw(&mut random);
                if ops::perform(view, &op).is_ok() {
                    log.push(op);
                }
            }
        });
    }
    let before = shown(&layers, &layers.layers);
    let first = random.below(levels as u64) as usize;
    let last = first + 1 + random.below((levels - first) as u64) as usize;
    let out = layers.dir.path().join("merged");
    let (merged, below) = (&layers.layers[first..last], &layers.layers[last..]);
    compact::merge(merged, below, &out, &layers.diff_options()).expect("merge");
    let mut stack = layers.layers[..first].to_vec();
    stack.push(out);
    stack.extend_from_slice(below);
    let after = shown(&layers, &stack);
    for (path, node) in &before {
        assert_eq!(
            after.get(path),
            Some(node),
            "seed {seed}: {path:?} after {log:#?}"
        );
    }
    assert_eq!(before.len(), after.len(), "seed {seed}: {log:#?}");
    // And the layers above are still the same delta to it.
    let old = delta::diff(&layers.layers, last, &layers.diff_options()).expect("diff");
    let new = delta::diff(&stack, first + 1, &layers.diff_options()).expect("diff");
    let plain = |set: delta::ChangeSet| -> Vec<_> {
        set.changes
            .into_iter()
            .map(|change| (change.path, change.kind, change.file_type, change.differs))
            .collect()
    };
    assert_eq!(plain(old), plain(new), "seed {seed}: {log:#?}");
}

#[test]
fn a_merged_layer_shows_the_same() {
    everywhere("a_merged_layer_shows_the_same", |userxattr| {
        let number = |name| {
            std::env::var(name)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
        };
        let first = number("FORKPOINT_TEST_SEED").unwrap_or(0);
        for seed in first..first + number("FORKPOINT_TEST_ROUNDS").unwrap_or(80) {
            random_merge(seed, userxattr);
        }
    });
}
