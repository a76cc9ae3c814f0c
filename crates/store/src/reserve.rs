//! A reserve for the day the file system is full: a file of a megabyte that is given back when what
//! frees space (an abort, a collection) would otherwise find none to record that it did.

use crate::{Store, codes};
use forkpoint_model::Result;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, statvfs};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes kept: what SQLite's log grows to between checkpoints, and the few pages beside it.
const KEPT: u64 = 1 << 20;
/// With less free than this the reserve is given back.
const TIGHT: u64 = KEPT;
/// With less free than this none is made: it would be what fills the file system.
const ROOMY: u64 = 16 * KEPT;

fn place(dir: &Path) -> PathBuf {
    dir.join("reserve")
}

/// Bytes that this user may still write there.
fn free(dir: &Path) -> Result<u64, Errno> {
    let found = statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Makes the reserve where there is none and the space is there. A store works without one, so what
/// prevents it is no error.
pub(crate) fn keep(dir: &Path) {
    let path = place(dir);
    if path.exists() || free(dir).is_ok_and(|free| free < ROOMY) {
        return;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let Ok(fd) = open(&path, flags, Mode::RUSR | Mode::WUSR) else {
        return;
    };
    if fallocate(&fd, FallocateFlags::empty(), 0, KEPT).is_err() {
        // A file without blocks keeps nothing.
        fs::remove_file(&path).ok();
    }
}

/// Gives the reserve back where space is tight; says whether it did.
pub(crate) fn release(dir: &Path) -> Result<bool> {
    let path = place(dir);
    if !free(dir).is_ok_and(|free| free < TIGHT) {
        return Ok(false);
    }
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(codes::FULL.io(format!("cannot give back {}", path.display()), e)),
    }
}

impl Store {
    /// For what frees space: on a full file system the store's reserve is given back, so that what it
    /// does can be recorded. The reserve is made again when a store is opened and there is room.
    ///
    /// # Errors
    /// FP0105 when the reserve is there and cannot be removed.
    pub fn make_room(&self) -> Result<()> {
        release(&self.dir).map(drop)
    }
}
