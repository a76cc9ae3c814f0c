//! Measures a durable commit into an in-place directory against the fsync floor of the same bytes, interleaved.
//!
//! The floor writes each file beside its place, fsyncs it, renames it over the old one, and fsyncs the directory: the
//! least that a durable change of these files can cost without a journal.

mod common;

use common::{Bar, engine, fork, interleave, io, note, row, timed, work};
use forkpoint_engine::{CommitOptions, CommitOutcome, Engine, Result, WorldOptions};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 20;
/// (what, files, bytes each)
const CASES: &[(&str, usize, usize)] = &[
    ("1 file of 1 KiB", 1, 1024),
    ("100 files of 1 KiB", 100, 1024),
    ("10 MiB", 1, 10 << 20),
];

fn floor(dir: &Path, files: usize, bytes: usize) -> Result<Duration> {
    let data = vec![b'f'; bytes];
    let (took, ()) = timed(|| {
        for i in 0..files {
            let mut file = io("create", File::create(dir.join(format!("new-{i}"))))?;
            io("write", file.write_all(&data))?;
            io("fsync", file.sync_all())?;
        }
        for i in 0..files {
            let (from, to) = (dir.join(format!("new-{i}")), dir.join(format!("file-{i}")));
            io("rename", fs::rename(from, to))?;
        }
        io("fsync", io("open", File::open(dir))?.sync_all())
    })?;
    Ok(took)
}

/// Forks, writes, and measures the commit alone.
fn commit(engine: &Engine, base: &Path, files: usize, bytes: usize, round: u8) -> Result<Duration> {
    use rustix::fs::{Mode, OFlags, openat};
    let world = engine.world(base, WorldOptions::default())?;
    let branch = fork(&world, true)?;
    {
        let view = branch.view()?;
        let data = vec![round; bytes];
        for i in 0..files {
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CREATE | OFlags::CLOEXEC;
            let fd = openat(view.dir(), format!("file-{i}"), flags, Mode::from(0o644))
                .map_err(|e| common::BENCH.error(format!("file-{i}: {e}")))?;
            io("write", File::from(fd).write_all(&data))?;
        }
    }
    let (took, report) = timed(|| branch.commit(&CommitOptions::default()))?;
    match report.outcome {
        CommitOutcome::Committed => Ok(took),
        other => Err(common::BENCH.error(format!("not committed: {other:?}"))),
    }
}

fn main() -> Result<()> {
    let work = work()?;
    let engine = engine(&work)?;
    for (index, &(what, files, bytes)) in CASES.iter().enumerate() {
        let (base, beside) = (
            work.join(format!("base-{index}")),
            work.join(format!("floor-{index}")),
        );
        for dir in [&base, &beside] {
            io("mkdir", fs::create_dir_all(dir))?;
            floor(dir, files, bytes)?;
        }
        let mut round = 0u8;
        let mut ours = || {
            round = round.wrapping_add(1);
            commit(&engine, &base, files, bytes, round)
        };
        let found = interleave(
            ROUNDS,
            &mut [&mut ours, &mut || floor(&beside, files, bytes)],
        )?;
        row(
            &format!("commit, {what}"),
            &found[0],
            Some(&found[1]),
            Some(Bar::Ratio(2.0)),
        );
    }
    note(&format!(
        "{ROUNDS} rounds; the reference is the fsync floor of the same bytes."
    ));
    Ok(())
}
