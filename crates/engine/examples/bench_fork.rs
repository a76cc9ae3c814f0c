//! Measures a fork: the call alone, and until the view can be read, on bases of very different sizes.

mod common;

use common::{Bar, abort, big, engine, files, fork, interleave, note, row, timed, work};
use forkpoint_engine::{Engine, Result, World, WorldOptions};
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 50;
const US: u64 = 1000;

/// A fork and a first look into its view.
fn until_readable(world: &World, durable: bool) -> Result<Duration> {
    let (took, (branch, view)) = timed(|| {
        let branch = fork(world, durable)?;
        let view = branch.view()?;
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 4096];
        let mut names = rustix::fs::RawDir::new(open(&view)?, &mut buffer);
        if names.next().is_none() {
            return Err(common::BENCH.error("the view is empty"));
        }
        Ok((branch, view))
    })?;
    drop(view);
    abort(&branch)?;
    Ok(took)
}

fn open(view: &forkpoint_engine::View) -> Result<rustix::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags, openat};
    openat(
        view.dir(),
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| common::BENCH.error(format!("the view cannot be opened: {e}")))
}

fn call_alone(world: &World) -> Result<Duration> {
    let (took, branch) = timed(|| fork(world, false))?;
    abort(&branch)?;
    Ok(took)
}

fn world(engine: &Engine, base: &Path) -> Result<World> {
    engine.world(base, WorldOptions::default())
}

fn main() -> Result<()> {
    let work = work()?;
    let shared = work.parent().unwrap_or(&work).to_path_buf();
    let engine = engine(&work)?;
    let few = world(&engine, &files(&shared, 100)?)?;
    let many = world(&engine, &files(&shared, 1_000_000)?)?;
    let small = world(&engine, &big(&shared, 1 << 20)?)?;
    let large = world(&engine, &big(&shared, 10 << 30)?)?;
    let found = interleave(
        ROUNDS,
        &mut [
            &mut || until_readable(&few, false),
            &mut || until_readable(&many, false),
            &mut || until_readable(&small, false),
            &mut || until_readable(&large, false),
            &mut || call_alone(&few),
            &mut || until_readable(&few, true),
        ],
    )?;
    let limit = || Some(Bar::Ns(350 * US));
    row("fork until readable, 100 files", &found[0], None, limit());
    row("the same, 1,000,000 files", &found[1], None, limit());
    row(
        "1,000,000 files against 100",
        &found[1],
        Some(&found[0]),
        Some(Bar::Ratio(1.2)),
    );
    row("fork until readable, 1 MiB", &found[2], None, limit());
    row("the same, 10 GiB", &found[3], None, limit());
    row(
        "10 GiB against 1 MiB",
        &found[3],
        Some(&found[2]),
        Some(Bar::Ratio(1.2)),
    );
    row(
        "the fork call itself",
        &found[4],
        None,
        Some(Bar::Ns(100 * US)),
    );
    row("fork until readable, durable branch", &found[5], None, None);
    note(&format!(
        "{ROUNDS} rounds; volatile branches, as an exploration's are, unless said."
    ));
    Ok(())
}
