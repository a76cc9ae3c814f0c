//! Measures whether a fork costs the same beside many live branches: a store with none against one with 999, stopped
//! and with their views mounted. The two stores lie side by side and are measured in turn.

mod common;

use common::{Bar, abort, bases, engine, files, fork, interleave, list, note, row, timed, work};
use forkpoint_engine::{Branch, Engine, Result, View, World, WorldOptions};
use std::time::Duration;

const ROUNDS: usize = 60;
const LIVE: usize = 999;

/// A fork until its view was listed.
fn readable(world: &World) -> Result<Duration> {
    let (took, (branch, view)) = timed(|| {
        let branch = fork(world, false)?;
        let view = branch.view()?;
        list(view.dir())?;
        Ok((branch, view))
    })?;
    drop(view);
    abort(&branch)?;
    Ok(took)
}

fn call_alone(world: &World) -> Result<Duration> {
    let (took, branch) = timed(|| fork(world, false))?;
    abort(&branch)?;
    Ok(took)
}

/// Branches that were looked into, so that each has its directories.
fn live(world: &World, count: usize) -> Result<Vec<Branch>> {
    (0..count)
        .map(|_| {
            let branch = fork(world, false)?;
            list(branch.view()?.dir())?;
            Ok(branch)
        })
        .collect()
}

/// As many descriptors as the hard limit allows: a view is one, and its lock is another.
fn raise_descriptors() -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
        .map_err(|e| common::BENCH.error(format!("the limit of descriptors: {e}")))
}

fn main() -> Result<()> {
    raise_descriptors()?;
    let (work, bases) = (work()?, bases()?);
    let base = files(&bases, 100)?;
    let world = |name: &str| -> Result<(Engine, World)> {
        let engine = engine(&work.join(name))?;
        let world = engine.world(&base, WorldOptions::default())?;
        Ok((engine, world))
    };
    let (_one, alone) = world("alone")?;
    let (_many, beside) = world("beside")?;
    let branches = live(&beside, LIVE)?;
    let found = interleave(
        ROUNDS,
        &mut [
            &mut || readable(&alone),
            &mut || readable(&beside),
            &mut || call_alone(&alone),
            &mut || call_alone(&beside),
        ],
    )?;
    let bar = || Some(Bar::Ratio(1.5));
    let what = "thousandth live branch, fork until readable, against the first";
    row(what, &found[1], Some(&found[0]), bar());
    row(
        "the same, the fork call itself",
        &found[3],
        Some(&found[2]),
        bar(),
    );
    let views: Vec<View> = branches.iter().map(Branch::view).collect::<Result<_>>()?;
    let found = interleave(
        ROUNDS,
        &mut [&mut || readable(&alone), &mut || readable(&beside)],
    )?;
    let what = "the same with the views of all 999 mounted, until readable";
    row(what, &found[1], Some(&found[0]), bar());
    drop(views);
    note(&format!(
        "{ROUNDS} rounds; {LIVE} live branches, each with directories of its own, against a store without any."
    ));
    Ok(())
}
