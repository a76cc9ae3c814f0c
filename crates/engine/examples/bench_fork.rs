//! Measures a fork: the call alone, and until the view can be read, on bases of very different sizes.
//!
//! A view counts as readable when its top directory was listed and a file in it was read.

mod common;

use common::{
    Bar, ONE_FILE, abort, bases, big, engine, files, fork, interleave, io, list, note, open_in,
    row, timed, wide, work,
};
use forkpoint_engine::{Branch, Engine, Result, View, World, WorldOptions};
use rustix::fs::OFlags;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 60;
const US: u64 = 1000;
/// Entries of a top directory that is wider than a project's.
const WIDE: usize = 1000;

/// A fork, and what `first` looks at in its view.
fn until(
    world: &World,
    durable: bool,
    first: impl FnOnce(&View) -> Result<()>,
) -> Result<Duration> {
    let (took, (branch, view)) = timed(|| {
        let branch = fork(world, durable)?;
        let view = branch.view()?;
        first(&view)?;
        Ok((branch, view))
    })?;
    end(&branch, view)?;
    Ok(took)
}

fn end(branch: &Branch, view: View) -> Result<()> {
    drop(view);
    abort(branch)
}

fn readable(world: &World, durable: bool, file: &str) -> Result<Duration> {
    until(world, durable, |view| {
        if list(view.dir())? == 0 {
            return Err(common::BENCH.error("the view is empty"));
        }
        let mut bytes = [0; 64];
        let read = open_in(view.dir(), file, OFlags::RDONLY)?.read(&mut bytes);
        io("read", read).map(drop)
    })
}

fn call_alone(world: &World) -> Result<Duration> {
    let (took, branch) = timed(|| fork(world, false))?;
    abort(&branch)?;
    Ok(took)
}

/// The listing of a wide directory alone, in a view that was just made.
fn listed(world: &World) -> Result<Duration> {
    let branch = fork(world, false)?;
    let view = branch.view()?;
    let took = timed(|| list(view.dir()))?.0;
    end(&branch, view)?;
    Ok(took)
}

fn listed_natively(base: &Path) -> Result<Duration> {
    let dir = io("open", std::fs::File::open(base))?;
    Ok(timed(|| list(dir.as_fd()))?.0)
}

fn world(engine: &Engine, base: &Path) -> Result<World> {
    engine.world(base, WorldOptions::default())
}

fn main() -> Result<()> {
    let (work, bases) = (work()?, bases()?);
    let engine = engine(&work)?;
    let few = world(&engine, &files(&bases, 100)?)?;
    let many = world(&engine, &files(&bases, 1_000_000)?)?;
    let small = world(&engine, &big(&bases, 1 << 20)?)?;
    let large = world(&engine, &big(&bases, 10 << 30)?)?;
    let wide_dir = wide(&bases, WIDE)?;
    let wide = world(&engine, &wide_dir)?;
    let found = interleave(
        ROUNDS,
        &mut [
            &mut || readable(&few, false, ONE_FILE),
            &mut || readable(&many, false, ONE_FILE),
            &mut || readable(&small, false, "big"),
            &mut || readable(&large, false, "big"),
            &mut || call_alone(&few),
            &mut || readable(&few, true, ONE_FILE),
            &mut || listed(&wide),
            &mut || listed_natively(&wide_dir),
        ],
    )?;
    let limit = || Some(Bar::Ns(350 * US));
    let ratio = || Some(Bar::Ratio(1.2));
    row("fork until readable, 100 files", &found[0], None, limit());
    row("the same, 1,000,000 files", &found[1], None, limit());
    row(
        "1,000,000 files against 100",
        &found[1],
        Some(&found[0]),
        ratio(),
    );
    row("fork until readable, 1 MiB", &found[2], None, limit());
    row("the same, 10 GiB", &found[3], None, limit());
    row("10 GiB against 1 MiB", &found[3], Some(&found[2]), ratio());
    let call = Some(Bar::Ns(100 * US));
    row("the fork call itself", &found[4], None, call);
    row("fork until readable, durable branch", &found[5], None, None);
    let what = format!("first listing of a directory of {WIDE} entries, against native");
    row(&what, &found[6], Some(&found[7]), None);
    note(&format!(
        "{ROUNDS} rounds; volatile branches, as an exploration's are, unless said. Readable: the top directory listed \
         and a file read. Bases of files have ten directories at the top, and up to 1000 files in a directory. As root \
         the next volatile view is made ahead, beside the caller, while one branch is looked into after the other; a \
         durable branch's is not, nor those of several that are looked into at once: these cost what it costs."
    ));
    Ok(())
}
