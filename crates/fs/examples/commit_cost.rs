//! What a durable commit costs beside the fsync floor of the same bytes.
//!
//! `cargo run --release -p forkpoint-fs --example commit_cost [ROUNDS] [DIR]`
//!
//! The floor is the plainest way to replace the same files durably: write each to a temporary name,
//! sync it, rename it, sync the directory; for many files the data of all is written first, so that
//! the syncs share one commit of the file system's journal (the fastest plain way we know). A commit
//! is stage and redo, without the deciding transaction. Medians of interleaved rounds; needs root,
//! or `unshare -Urm`.

use forkpoint_fs::apply::io::{Call, Hook, Io};
use forkpoint_fs::apply::{self, Owners, Redo, StageRequest};
use forkpoint_fs::{MountOptions, Stack, delta, stamp, tree, view};
use forkpoint_sys::{apply_io, clock};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

type Failure = Box<dyn std::error::Error>;

/// Counts syncs.
#[derive(Default)]
struct Syncs(Cell<u32>);

impl Hook for Syncs {
    fn before(&self, call: Call, _: BorrowedFd<'_>, _: &OsStr) -> std::io::Result<()> {
        if call == Call::Sync {
            self.0.set(self.0.get() + 1);
        }
        Ok(())
    }
}

fn fill(dir: &Path, files: usize, size: usize, byte: u8) -> Result<(), Failure> {
    for n in 0..files {
        fs::write(dir.join(format!("f{n}")), vec![byte; size])?;
    }
    Ok(())
}

/// Replaces the files durably and plainly; milliseconds.
fn floor(dir: &Path, files: usize, size: usize, byte: u8) -> Result<f64, Failure> {
    let content = vec![byte; size];
    let start = clock::monotonic_ns();
    let mut open = Vec::new();
    for n in 0..files {
        use std::io::Write;
        let mut file = File::create_new(dir.join(format!("t{n}")))?;
        file.write_all(&content)?;
        open.push(file);
    }
    if files > 1 {
        for file in &open {
            apply_io::write_back(file.as_fd(), false)?;
        }
        for file in &open {
            apply_io::write_back(file.as_fd(), true)?;
        }
    }
    for file in &open {
        file.sync_all()?;
    }
    for n in 0..files {
        fs::rename(dir.join(format!("t{n}")), dir.join(format!("f{n}")))?;
    }
    File::open(dir)?.sync_all()?;
    Ok((clock::monotonic_ns() - start) as f64 / 1e6)
}

/// The same with one `syncfs`, which is fastest where nobody else has anything to write, and waits
/// for all of it where somebody has; milliseconds.
fn floor_syncfs(dir: &Path, files: usize, size: usize, byte: u8) -> Result<f64, Failure> {
    let content = vec![byte; size];
    let start = clock::monotonic_ns();
    for n in 0..files {
        fs::write(dir.join(format!("t{n}")), &content)?;
    }
    let open = File::open(dir)?;
    rustix::fs::syncfs(&open)?;
    for n in 0..files {
        fs::rename(dir.join(format!("t{n}")), dir.join(format!("f{n}")))?;
    }
    open.sync_all()?;
    Ok((clock::monotonic_ns() - start) as f64 / 1e6)
}

/// Stages and applies a branch that rewrote the files; milliseconds of each, and syncs.
fn commit(top: &Path, files: usize, size: usize, byte: u8) -> Result<(f64, f64, u32), Failure> {
    let base = top.join("base");
    let userxattr = std::env::var_os("FORKPOINT_USERXATTR").is_some();
    let options = MountOptions {
        volatile: true,
        userxattr,
    };
    let (upper, work) = (top.join("upper"), top.join("work"));
    view::prepare_pair(&upper, &work, &base)?;
    let stack = Stack {
        lowers: vec![base.clone()],
        upper: upper.clone(),
        work: work.clone(),
    };
    let rw = view::mount(&stack, &options)?;
    fill(
        Path::new(&format!("/proc/self/fd/{}", rw.as_raw_fd())),
        files,
        size,
        byte,
    )?;
    drop(rw);
    let layers = vec![upper.clone(), base.clone()];
    let changes = delta::diff(&layers, 1, &delta::DiffOptions { userxattr })?;
    let stage = top.join("stage");
    fs::create_dir(&stage)?;
    let stamp = stamp::take(top)?;
    let request = StageRequest {
        layers,
        top: 1,
        changes,
        base: base.clone(),
        stage: stage.clone(),
        stamp,
        userxattr,
        owners: if userxattr {
            Owners::MapToCaller
        } else {
            Owners::Keep
        },
        baseline: None,
    };
    // What the branch wrote is not part of the commit's cost, nor is its writing back.
    File::open(top)?.sync_all()?;
    let syncs = Syncs::default();
    let start = clock::monotonic_ns();
    let staged = apply::stage_with(Io::hooked(&syncs), &request)?;
    let middle = clock::monotonic_ns();
    let outcome = apply::redo_with(Io::hooked(&syncs), &base, &staged.journal)?;
    let end = clock::monotonic_ns();
    if outcome != Redo::Done {
        return Err(format!("{outcome:?}").into());
    }
    for path in [&stage, &upper, &work] {
        tree::remove(path)?;
    }
    let ms = |from: u64, to: u64| (to - from) as f64 / 1e6;
    Ok((ms(start, middle), ms(middle, end), syncs.0.get()))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let rounds: usize = args.next().map_or(Ok(9), |text| text.parse())?;
    let parent = args
        .next()
        .unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let dir = tempfile::tempdir_in(parent)?;
    println!(
        "{:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6}",
        "", "floor", "syncfs", "commit", "stage", "redo", "ratio", "syncs"
    );
    for (name, files, size) in [
        ("1 x 1 KB", 1, 1 << 10),
        ("100 x 1 KB", 100, 1 << 10),
        ("1 x 10 MB", 1, 10 << 20),
        ("1000 x 1 KB", 1000, 1 << 10),
    ] {
        let top = dir.path().join(format!("{files}-{size}"));
        let (base, plain) = (top.join("base"), top.join("plain"));
        for path in [&base, &plain] {
            fs::create_dir_all(path)?;
            fill(path, files, size, 0)?;
        }
        rustix::fs::syncfs(File::open(&top)?)?;
        let (mut floors, mut alls, mut stages, mut redos, mut syncs) =
            (vec![], vec![], vec![], vec![], 0);
        for round in 0..rounds {
            let byte = round as u8 + 1;
            floors.push(floor(&plain, files, size, byte)?);
            alls.push(floor_syncfs(&plain, files, size, byte)?);
            let (stage, redo, count) = commit(&top, files, size, byte)?;
            stages.push(stage);
            redos.push(redo);
            syncs = count;
        }
        let (floor, all) = (median(floors), median(alls));
        let (stage, redo) = (median(stages), median(redos));
        let commit = stage + redo;
        let ratio = commit / floor;
        println!(
            "{name:>12} {floor:>9.2} {all:>9.2} {commit:>9.2} {stage:>9.2} {redo:>9.2} \
             {ratio:>6.2} {syncs:>6}"
        );
    }
    Ok(())
}
