//! Measures what another branch's reads and writes feel of a durable commit of 10 MiB: the time of each of its
//! operations while nothing else happens, during commits, and while the same bytes are written and synced plainly.
//!
//! The other branch writes and reads 16 KiB again and again in a file of its own and never syncs, through its view, as
//! an editor or a compiler does.

mod common;

use common::{Bar, engine, fork, io, note, open_in, row, work};
use forkpoint_engine::{CommitOptions, CommitOutcome, Engine, Result, WorldOptions};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: usize = 12;
const BYTES: usize = 10 << 20;
const PIECE: usize = 16 << 10;
/// Pieces of the file that is written to.
const PIECES: u64 = 512;
/// How long an undisturbed round is: about what a commit takes.
const QUIET: Duration = Duration::from_millis(50);

/// The times of each operation of the other branch, while `disturb` runs.
fn feel(view: BorrowedFd<'_>, disturb: impl FnOnce() -> Result<()>) -> Result<Vec<Duration>> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| operate(view, &done));
        let result = disturb();
        done.store(true, Ordering::Release);
        let felt = work
            .join()
            .unwrap_or_else(|_| Err(common::BENCH.error("the other branch's thread died")));
        result.and(felt)
    })
}

fn operate(view: BorrowedFd<'_>, done: &AtomicBool) -> Result<Vec<Duration>> {
    let file = open_in(view, "scratch", OFlags::RDWR | OFlags::CREATE)?;
    let mut buffer = vec![7u8; PIECE];
    let mut felt = Vec::new();
    while !done.load(Ordering::Acquire) {
        let at = (felt.len() as u64 * 37 % PIECES) * PIECE as u64;
        let start = Instant::now();
        io("write", file.write_all_at(&buffer, at))?;
        io("read", file.read_exact_at(&mut buffer, at))?;
        felt.push(start.elapsed());
    }
    Ok(felt)
}

fn commit(engine: &Engine, base: &Path, round: u8) -> Result<()> {
    let world = engine.world(base, WorldOptions::default())?;
    let branch = fork(&world, true)?;
    {
        let view = branch.view()?;
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CREATE;
        let written = open_in(view.dir(), "file", flags)?.write_all(&vec![round; BYTES]);
        io("write", written)?;
    }
    match branch.commit(&CommitOptions::default())?.outcome {
        CommitOutcome::Committed => Ok(()),
        other => Err(common::BENCH.error(format!("not committed: {other:?}"))),
    }
}

/// The same bytes, twice as a branch and its commit write them, and synced once.
fn plain(dir: &Path, round: u8) -> Result<()> {
    let data = vec![round; BYTES];
    io("write", fs::write(dir.join("draft"), &data))?;
    let mut file = io("create", File::create(dir.join("new")))?;
    io("write", file.write_all(&data))?;
    io("sync", file.sync_all())?;
    io("rename", fs::rename(dir.join("new"), dir.join("file")))?;
    io("sync", io("open", File::open(dir))?.sync_all())
}

fn quiet() -> Result<()> {
    let end = Instant::now() + QUIET;
    while Instant::now() < end {
        std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// The time that all but one in a hundred keep to, of each round; and the longest of each.
struct Felt {
    most: Vec<Duration>,
    worst: Vec<Duration>,
}

impl Felt {
    fn add(&mut self, mut felt: Vec<Duration>) {
        felt.sort_unstable();
        if let Some(&worst) = felt.last() {
            self.most.push(felt[(felt.len() - 1) * 99 / 100]);
            self.worst.push(worst);
        }
    }
}

fn main() -> Result<()> {
    let work = work()?;
    let engine = engine(&work)?;
    let (base, other, beside) = (work.join("base"), work.join("other"), work.join("beside"));
    for dir in [&base, &other, &beside] {
        io("mkdir", fs::create_dir_all(dir))?;
        io("write", fs::write(dir.join("file"), "old\n"))?;
    }
    let world = engine.world(&other, WorldOptions::default())?;
    let branch = fork(&world, false)?;
    let view = branch.view()?;
    let new = || Felt {
        most: Vec::new(),
        worst: Vec::new(),
    };
    let (mut alone, mut ours, mut theirs) = (new(), new(), new());
    for round in 0..=ROUNDS {
        let bytes = round as u8;
        let felt = [
            feel(view.dir(), quiet)?,
            feel(view.dir(), || commit(&engine, &base, bytes))?,
            feel(view.dir(), || plain(&beside, bytes))?,
        ];
        // The first round fills the caches.
        if round > 0 {
            for (series, felt) in [&mut alone, &mut ours, &mut theirs].into_iter().zip(felt) {
                series.add(felt);
            }
        }
    }
    let what = "another branch's write + read, 99 of 100, during a commit of 10 MiB";
    row(what, &ours.most, Some(&alone.most), None);
    row(
        "the same while the bytes are written plainly",
        &theirs.most,
        Some(&alone.most),
        None,
    );
    row(
        "the slowest of each commit, against plainly",
        &ours.worst,
        Some(&theirs.worst),
        Some(Bar::Ratio(1.5)),
    );
    row(
        "the slowest while nothing is written",
        &alone.worst,
        None,
        None,
    );
    note(&format!(
        "{ROUNDS} rounds. The first two: against the same while nothing else happens. The third: against the slowest \
         while the same bytes are written, fsynced and renamed without Forkpoint."
    ));
    drop(view);
    common::abort(&branch)
}
