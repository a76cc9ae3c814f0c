//! The least a durable change of some files can cost: write beside, fsync each, rename each, fsync the directory.
//!
//! The measurement of commits does the same interleaved with the commits themselves; this one stands alone, to know a
//! disk by.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Setting;
use super::measure::{Bar, Row, Subject, Table, interleave};

const ROUNDS: usize = 30;
/// (what, files, bytes each); the same changes as the bars on commits are about.
const CASES: &[(&str, usize, usize)] = &[
    ("1 file of 1 KiB", 1, 1024),
    ("100 files of 1 KiB", 100, 1024),
    ("10 MiB", 1, 10 << 20),
];

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let dir = setting.work.join("floor");
    fs::create_dir_all(&dir)?;
    let mut subjects: Vec<Subject<'_>> = Vec::new();
    for &(_, files, bytes) in CASES {
        let dir = &dir;
        subjects.push(Box::new(move || replace(dir, files, bytes)));
    }
    let found = interleave(ROUNDS, &mut subjects)?;
    let rows = CASES.iter().zip(found).map(|(&(what, ..), series)| Row {
        what: what.to_owned(),
        ours: series,
        reference: None,
        bar: Bar::None,
    });
    Ok(Table {
        ours: "floor".into(),
        reference: "–".into(),
        rows: rows.collect(),
        notes: vec![format!(
            "{ROUNDS} rounds. Write, fsync each, rename each, fsync the directory."
        )],
    })
}

fn replace(dir: &Path, files: usize, bytes: usize) -> Result<Duration> {
    let data = vec![b'x'; bytes];
    let start = Instant::now();
    for i in 0..files {
        let mut file = File::create(dir.join(format!("new-{i}")))?;
        file.write_all(&data)?;
        file.sync_all()?;
    }
    for i in 0..files {
        fs::rename(dir.join(format!("new-{i}")), dir.join(format!("file-{i}")))?;
    }
    File::open(dir)?.sync_all()?;
    Ok(start.elapsed())
}
