//! What the measuring programs share: an engine with a store of its own, bases of given sizes, and the lines that
//! `cargo xtask bench` reads.
//!
//! Each program is given a directory to work in, and one for the bases that cost minutes to make, where it finds those
//! of the program before.
#![allow(dead_code, reason = "each program uses a part")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forkpoint_engine::{AbortOptions, Branch, Engine, EngineOptions, ForkOptions, Result, World};
use forkpoint_model::{Code, Kind};
use rustix::fs::{Mode, OFlags};
use std::os::fd::BorrowedFd;

/// Errors of making the bases: a fault of the machine, not of Forkpoint.
pub(crate) const BENCH: Code = Code::new("FP0000", Kind::Io, "the measurement failed");

pub(crate) fn io<T>(what: &str, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| BENCH.error(format!("{what}: {e}")))
}

/// The directory given on the command line.
pub(crate) fn work() -> Result<PathBuf> {
    match std::env::args_os().nth(1) {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => Err(BENCH.error("usage: PROGRAM DIRECTORY [BASES]")),
    }
}

/// The directory of the bases: the second argument, else beside the first.
pub(crate) fn bases() -> Result<PathBuf> {
    let work = work()?;
    let beside = || work.parent().unwrap_or(&work).to_path_buf();
    Ok(std::env::args_os()
        .nth(2)
        .map_or_else(beside, PathBuf::from))
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

/// Directories at the top of a base of files, as many as a project has.
const TOPS: usize = 10;
/// Files in one directory at most.
const TOGETHER: usize = 1000;

/// A tree of `count` small files, three deep: ten directories at the top, whatever the size. Made once a run.
pub(crate) fn files(dir: &Path, count: usize) -> Result<PathBuf> {
    made(dir, &format!("files-{count}"), |making| {
        for top in 0..TOPS {
            for first in (0..count / TOPS).step_by(TOGETHER) {
                let sub = making.join(format!("top-{top}/dir-{:03}", first / TOGETHER));
                io("mkdir", fs::create_dir_all(&sub))?;
                for i in first..(count / TOPS).min(first + TOGETHER) {
                    io("create", File::create(sub.join(format!("file-{i:06}"))))?;
                }
            }
        }
        // The one that is looked at.
        io("write", fs::write(making.join(ONE_FILE), "some text\n"))
    })
}

/// A file that every base of [`files`] has.
pub(crate) const ONE_FILE: &str = "top-0/dir-000/file-000007";

/// A directory of `count` empty directories: what listing the top of a base costs.
pub(crate) fn wide(dir: &Path, count: usize) -> Result<PathBuf> {
    made(dir, &format!("wide-{count}"), |making| {
        (0..count).try_for_each(|i| io("mkdir", fs::create_dir(making.join(format!("d-{i:05}")))))
    })
}

fn made(dir: &Path, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let base = dir.join(name);
    if base.exists() {
        return Ok(base);
    }
    let making = dir.join(format!("{name}.making"));
    io("mkdir", fs::create_dir_all(&making))?;
    make(&making)?;
    io("rename", fs::rename(&making, &base))?;
    Ok(base)
}

/// A directory with one file of `bytes`, allocated and not written: what is in it is never read.
pub(crate) fn big(dir: &Path, bytes: u64) -> Result<PathBuf> {
    made(dir, &format!("big-{bytes}"), |making| {
        let file = io("create", File::create(making.join("big")))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
            .map_err(|e| BENCH.error(format!("allocate {bytes} bytes: {e}")))
    })
}

/// Opens something below a directory.
pub(crate) fn open_in(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<File> {
    rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::from(0o644))
        .map(File::from)
        .map_err(|e| BENCH.error(format!("{name}: {e}")))
}

/// Lists a directory, to its end; says how many entries it has.
pub(crate) fn list(dir: BorrowedFd<'_>) -> Result<usize> {
    let dir = open_in(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 32 << 10];
    let mut names = rustix::fs::RawDir::new(dir, &mut buffer);
    let mut count = 0;
    while let Some(name) = names.next() {
        name.map_err(|e| BENCH.error(format!("a listing: {e}")))?;
        count += 1;
    }
    Ok(count)
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
