//! Random operations done in a branch and committed leave what the same operations leave natively:
//! contents, modes, owners, times to the nanosecond, attributes, links, holes. And `undo` restores
//! what was there.
//!
//! `FORKPOINT_PROPERTY_SEED` runs one seed, `FORKPOINT_PROPERTY_RUNS` sets how many are tried.

mod common;

use common::drive::{Drive, here, in_branch, inside, twins};
use common::{Place, tree};
use forkpoint_engine::{Branch, CommitOptions, CommitOutcome, ForkOptions};

#[test]
#[ignore = "executed by the others inside a branch"]
fn driver() {
    inside();
}

fn seeds(default: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("FORKPOINT_PROPERTY_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("FORKPOINT_PROPERTY_RUNS").unwrap_or(default)).collect(),
    }
}

/// A commit that may also find that nothing changed.
#[track_caller]
fn commit(branch: &Branch) {
    let options = CommitOptions {
        allow_empty: true,
        // Set-user-id bits are withheld otherwise.
        allow_host_exec: true,
        ..CommitOptions::default()
    };
    let report = branch.commit(&options).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
}

#[test]
fn random_operations_committed_equal_the_same_done_natively_and_undo_restores() {
    for seed in seeds(12) {
        let place = Place::new();
        let native = twins(&place, seed);
        let old = tree::take(&place.base());
        let branch = place.fork();
        let drive = Drive {
            seed: seed + 1000,
            count: 150,
            links: true,
        };
        let results = in_branch(&branch, &drive);
        tree::same(&tree::take(&place.base()), &old, "before the commit");
        here(&drive, &native, Some(&results));
        commit(&branch);
        let new = tree::take(&native);
        tree::same(
            &tree::take(&place.base()),
            &new,
            &format!("seed {seed}, committed"),
        );
        place.engine.undo(None, &place.base()).unwrap();
        tree::same(
            &tree::take(&place.base()),
            &old,
            &format!("seed {seed}, undone"),
        );
    }
}

#[test]
fn the_same_through_two_nested_levels() {
    for seed in seeds(8) {
        let place = Place::new();
        let native = twins(&place, seed);
        let old = tree::take(&place.base());
        let outer = place.fork();
        let drive = |seed, links| Drive {
            seed,
            count: 80,
            links,
        };
        let mut all = Vec::new();
        let mut act = |branch: &Branch, drive: Drive| {
            let results = in_branch(branch, &drive);
            all.push((drive, results));
        };
        act(&outer, drive(seed + 2000, false));
        let fork = |of: &Branch| {
            of.fork(&ForkOptions::default())
                .unwrap()
                .pop()
                .unwrap()
                .unwrap()
        };
        let middle = fork(&outer);
        act(&middle, drive(seed + 3000, false));
        let inner = fork(&middle);
        act(&inner, drive(seed + 4000, true));
        for (drive, results) in &all {
            here(drive, &native, Some(results));
        }
        for branch in [&inner, &middle, &outer] {
            commit(branch);
        }
        let new = tree::take(&native);
        tree::same(
            &tree::take(&place.base()),
            &new,
            &format!("seed {seed}, committed"),
        );
        place.engine.undo(None, &place.base()).unwrap();
        tree::same(
            &tree::take(&place.base()),
            &old,
            &format!("seed {seed}, undone"),
        );
    }
}
