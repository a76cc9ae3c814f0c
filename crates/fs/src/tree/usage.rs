//! How much a tree takes.

use super::cursor::Cursor;
use crate::codes;
use forkpoint_model::Result;
use forkpoint_sys::openat;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// What a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Entries that are not directories, a file with several names once.
    pub files: u64,
    /// Directories, without the tree's own.
    pub dirs: u64,
    /// Bytes allocated on the device, directories included.
    pub bytes: u64,
}

/// Measures the tree at `dir` by walking it.
pub fn usage(dir: &Path) -> Result<Usage> {
    walk(dir).map_err(|e| codes::READ.io(format_args!("cannot measure {}", dir.display()), e))
}

fn walk(dir: &Path) -> io::Result<Usage> {
    let root = openat::directory(dir)?;
    let mut cursor = Cursor::new(root.as_fd())?;
    let mut seen = HashSet::new();
    let mut sum = Usage::default();
    let mut open: Vec<Vec<OsString>> = vec![measure(&cursor, &mut sum, &mut seen)?];
    while let Some(pending) = open.last_mut() {
        if let Some(next) = pending.pop() {
            cursor.enter(&next)?;
            open.push(measure(&cursor, &mut sum, &mut seen)?);
        } else {
            open.pop();
            if !open.is_empty() {
                cursor.leave()?;
            }
        }
    }
    Ok(sum)
}

/// Adds what is in the directory where `cursor` is, and returns its directories.
fn measure(
    cursor: &Cursor,
    sum: &mut Usage,
    seen: &mut HashSet<((u32, u32), u64)>,
) -> io::Result<Vec<OsString>> {
    let mut directories = Vec::new();
    for entry in cursor.names()? {
        // A tree that is written to while it is measured: what vanished takes nothing.
        let Some(meta) = openat::stat_opt(cursor.fd(), &entry.name)? else {
            continue;
        };
        if meta.is_dir() {
            sum.dirs += 1;
            directories.push(entry.name);
        } else if meta.nlink > 1 && !seen.insert((meta.dev, meta.ino)) {
            continue;
        } else {
            sum.files += 1;
        }
        sum.bytes += meta.blocks * 512;
    }
    Ok(directories)
}
