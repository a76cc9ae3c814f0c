//! Measures abort and delete of a branch with a small delta.

mod common;

use common::{Bar, abort, bases, engine, files, fork, interleave, io, note, row, timed, work};
use forkpoint_engine::{Result, World, WorldOptions};
use std::fs::File;
use std::io::Write;
use std::time::Duration;

const ROUNDS: usize = 50;

fn once(world: &World, changed: usize) -> Result<Duration> {
    use rustix::fs::{Mode, OFlags, openat};
    let branch = fork(world, false)?;
    {
        let view = branch.view()?;
        for i in 0..changed {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            let fd = openat(view.dir(), format!("new-{i}"), flags, Mode::from(0o644))
                .map_err(|e| common::BENCH.error(format!("new-{i}: {e}")))?;
            io("write", File::from(fd).write_all(b"some bytes\n"))?;
        }
    }
    Ok(timed(|| abort(&branch))?.0)
}

/// A branch that holds events, and nothing else.
fn drained(world: &World, events: usize) -> Result<Duration> {
    let branch = fork(world, false)?;
    let bus = branch.bus()?;
    for n in 0..events {
        bus.publish("topic", n.to_string().as_bytes())?;
    }
    Ok(timed(|| abort(&branch))?.0)
}

fn main() -> Result<()> {
    let (work, bases) = (work()?, bases()?);
    let engine = engine(&work)?;
    let world = engine.world(&files(&bases, 100)?, WorldOptions::default())?;
    let found = interleave(
        ROUNDS,
        &mut [&mut || once(&world, 1), &mut || once(&world, 10)],
    )?;
    row(
        "abort and delete, 1 changed file",
        &found[0],
        None,
        Some(Bar::Ns(1_000_000)),
    );
    row(
        "abort and delete, 10 changed files",
        &found[1],
        None,
        Some(Bar::Ns(1_000_000)),
    );
    let found = interleave(5, &mut [&mut || drained(&world, 1000)])?;
    row(
        "abort of a branch with 1,000 journal rows",
        &found[0],
        None,
        Some(Bar::Ns(100_000_000)),
    );
    note(&format!(
        "{ROUNDS} rounds; volatile branches, nothing retained."
    ));
    Ok(())
}
