//! Measures the diff of one changed file in a base of a million files, and of a hundred.

mod common;

use common::{
    Bar, ONE_FILE, abort, bases, engine, files, fork, interleave, note, row, timed, work,
};
use forkpoint_engine::{Branch, Result, WorldOptions};
use std::time::Duration;

const ROUNDS: usize = 50;

fn change_one(branch: &Branch) -> Result<()> {
    use rustix::fs::{Mode, OFlags, openat};
    let view = branch.view()?;
    let name = ONE_FILE;
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = openat(view.dir(), name, flags, Mode::empty())
        .map_err(|e| common::BENCH.error(format!("{name}: {e}")))?;
    rustix::io::write(&file, b"changed\n")
        .map_err(|e| common::BENCH.error(format!("{name}: {e}")))?;
    Ok(())
}

fn diff(branch: &Branch) -> Result<Duration> {
    let (took, set) = timed(|| branch.diff())?;
    if set.changes.len() != 1 {
        return Err(common::BENCH.error(format!("{} changes, not 1", set.changes.len())));
    }
    Ok(took)
}

fn main() -> Result<()> {
    let (work, bases) = (work()?, bases()?);
    let engine = engine(&work)?;
    let mut branches = Vec::new();
    for count in [100, 1_000_000] {
        let world = engine.world(&files(&bases, count)?, WorldOptions::default())?;
        let branch = fork(&world, true)?;
        change_one(&branch)?;
        branches.push(branch);
    }
    let found = interleave(
        ROUNDS,
        &mut [&mut || diff(&branches[0]), &mut || diff(&branches[1])],
    )?;
    row(
        "diff of 1 file in 1,000,000",
        &found[1],
        Some(&found[0]),
        Some(Bar::Ns(2_000_000)),
    );
    note(&format!(
        "{ROUNDS} rounds; the reference is the same in 100 files."
    ));
    for branch in &branches {
        abort(branch)?;
    }
    Ok(())
}
