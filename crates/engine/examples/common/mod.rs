//! What the measuring programs share: an engine with a store of its own, bases of given sizes, and the lines that
//! `cargo xtask bench` reads.
//!
//! Each program is given a directory to work in. Bases that cost minutes to make lie beside it, for the next program.
#![allow(dead_code, reason = "each program uses a part")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forkpoint_engine::{AbortOptions, Branch, Engine, EngineOptions, ForkOptions, Result, World};
use forkpoint_model::{Code, Kind};

/// Errors of making the bases: a fault of the machine, not of Forkpoint.
pub(crate) const BENCH: Code = Code::new("FP0000", Kind::Io, "the measurement failed");

pub(crate) fn io<T>(what: &str, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| BENCH.error(format!("{what}: {e}")))
}

/// The directory given on the command line.
pub(crate) fn work() -> Result<PathBuf> {
    match std::env::args_os().nth(1) {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => Err(BENCH.error("usage: PROGRAM DIRECTORY")),
    }
}

pub(crate) fn engine(work: &Path) -> Result<Engine> {
    Engine::open(EngineOptions {
        store: work.join("store"),
        env: std::env::vars_os().collect(),
        ..EngineOptions::default()
    })
}

pub(crate) fn fork(world: &World, durable: bool) -> Result<Branch> {
    let forked = world.fork(&ForkOptions {
        durable,
        ..ForkOptions::default()
    })?;
    forked
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(BENCH.error("fork gave no branch")))
}

pub(crate) fn abort(branch: &Branch) -> Result<()> {
    branch
        .abort(&AbortOptions {
            reason: "measured".into(),
            retain: false,
        })
        .map(|_| ())
}

/// A directory of `count` empty files, 1000 to a directory. Made once a run.
pub(crate) fn files(dir: &Path, count: usize) -> Result<PathBuf> {
    let base = dir.join(format!("files-{count}"));
    if base.exists() {
        return Ok(base);
    }
    let making = dir.join("making");
    for first in (0..count).step_by(1000) {
        let sub = making.join(format!("dir-{:04}", first / 1000));
        io("mkdir", fs::create_dir_all(&sub))?;
        for i in first..count.min(first + 1000) {
            io("create", File::create(sub.join(format!("file-{i:07}"))))?;
        }
    }
    io("rename", fs::rename(&making, &base))?;
    Ok(base)
}

/// A directory with one file of `bytes`, allocated and not written: what is in it is never read.
pub(crate) fn big(dir: &Path, bytes: u64) -> Result<PathBuf> {
    let base = dir.join(format!("big-{bytes}"));
    if base.exists() {
        return Ok(base);
    }
    io("mkdir", fs::create_dir_all(&base))?;
    let file = io("create", File::create(base.join("big")))?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
        .map_err(|e| BENCH.error(format!("allocate {bytes} bytes: {e}")))?;
    Ok(base)
}

/// Runs the subjects in turn, each round beginning with another one; the first round is not counted.
pub(crate) fn interleave(
    rounds: usize,
    subjects: &mut [&mut dyn FnMut() -> Result<Duration>],
) -> Result<Vec<Vec<Duration>>> {
    let count = subjects.len();
    let mut samples = vec![Vec::with_capacity(rounds); count];
    for round in 0..=rounds {
        for turn in 0..count {
            let which = (round + turn) % count;
            let took = subjects[which]()?;
            if round > 0 {
                samples[which].push(took);
            }
        }
    }
    Ok(samples)
}

pub(crate) fn timed<T>(call: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let value = call()?;
    Ok((start.elapsed(), value))
}

/// What a figure is held to.
pub(crate) enum Bar {
    Ns(u64),
    Ratio(f64),
}

/// Prints one row for `cargo xtask bench`.
pub(crate) fn row(
    what: &str,
    samples: &[Duration],
    reference: Option<&[Duration]>,
    bar: Option<Bar>,
) {
    let mut value = serde_json::json!({ "what": what, "samples_ns": ns(samples) });
    if let Some(reference) = reference {
        value["reference_ns"] = ns(reference).into();
    }
    match bar {
        Some(Bar::Ns(n)) => value["bar_ns"] = n.into(),
        Some(Bar::Ratio(r)) => value["bar_ratio"] = r.into(),
        None => {}
    }
    println!("{value}");
}

pub(crate) fn note(text: &str) {
    println!("{}", serde_json::json!({ "note": text }));
}

fn ns(samples: &[Duration]) -> Vec<u64> {
    samples
        .iter()
        .map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
        .collect()
}
