//! Stamps: points in time that every later change of a file system is known to reach or exceed.
//!
//! Kernels with fine-grained times (Linux 6.13) hand out a fresh, fine time for a change of a file
//! whose time was looked at since its last change, and from then on no file gets an earlier one.
//! So the stamp is the ctime of a directory that was changed, looked at, and changed again. On
//! older kernels the time is that of the last timer tick: still no later change has an earlier
//! one, but changes of the same tick _before_ the stamp have an equal one and count as later.
//!
//! What a stamp cannot see: a wall clock set back, a file system whose times come from another
//! machine, and stores to a memory-mapped page that was already dirty when the stamp was taken
//! (sync the file system first where that matters).

use crate::codes;
use forkpoint_model::Result;
use forkpoint_sys::openat;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// A ctime, in nanoseconds since 1970, that every later change of the file system reaches or
/// exceeds. A path is changed underneath when its ctime is at or after the stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp(pub i64);

/// Takes a stamp by touching the directory `probe_dir`, which the caller owns: its ctime changes
/// and nothing else. For changes on the same file system as `probe_dir`, or one with times as fine.
pub fn take(probe_dir: &Path) -> Result<Stamp> {
    let at = |e: io::Error| {
        codes::WRITE.io(
            format_args!("cannot take a time stamp at {}", probe_dir.display()),
            e,
        )
    };
    let dir = openat::directory(probe_dir).map_err(at)?;
    touch(dir.as_fd()).map_err(at)
}

fn touch(dir: BorrowedFd<'_>) -> io::Result<Stamp> {
    let mode = Mode::from_raw_mode(openat::stat_fd(dir)?.permissions());
    // The first change may be given the time of the last timer tick, which an earlier change
    // elsewhere has, too. The second finds that time looked at and not yet passed: a fine one.
    rustix::fs::fchmod(dir, mode)?;
    openat::stat_fd(dir)?;
    rustix::fs::fchmod(dir, mode)?;
    Ok(Stamp(openat::stat_fd(dir)?.ctime.as_ns()))
}

/// As [`take`], for changes of `base`, which may lie on another file system with coarser times:
/// the stamp is rounded down to what `base` shows.
pub fn take_for(probe_dir: &Path, base: &Path) -> Result<Stamp> {
    let at = |e: io::Error| codes::READ.io(format_args!("cannot look at {}", base.display()), e);
    let base = openat::directory(base).map_err(at)?;
    let coarse = whole_seconds(base.as_fd()).map_err(at)?;
    let stamp = take(probe_dir)?;
    // Two seconds are the coarsest times there are (FAT).
    Ok(if coarse {
        Stamp(stamp.0 - stamp.0.rem_euclid(2_000_000_000))
    } else {
        stamp
    })
}

/// Whether nothing at the top of a tree has a time with a fraction of a second, which is what file
/// systems with coarse times look like. A wrong yes only makes the stamp earlier.
fn whole_seconds(base: BorrowedFd<'_>) -> io::Result<bool> {
    /// How many entries are looked at.
    const SAMPLE: usize = 16;
    if openat::stat_fd(base)?.ctime.nanos != 0 {
        return Ok(false);
    }
    for entry in crate::tree::names(base)?.into_iter().take(SAMPLE) {
        let found = openat::stat_opt(base, OsStr::new(&entry.name))?;
        if found.is_some_and(|meta| meta.ctime.nanos != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether this kernel hands out fine-grained times at `probe_dir`: two stamps in a row differ.
pub fn fine_grained(probe_dir: &Path) -> Result<bool> {
    let first = take(probe_dir)?;
    Ok(take(probe_dir)? > first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    fn ctime(path: &Path) -> i64 {
        let meta = fs::symlink_metadata(path).expect("stat");
        meta.ctime() * 1_000_000_000 + meta.ctime_nsec()
    }

    /// Law 1's base: an edit after the fork is always seen, one before it never is.
    #[test]
    fn no_edit_after_a_stamp_is_missed() {
        let dir = tempfile::tempdir().expect("tempdir");
        let base = dir.path().join("base");
        fs::create_dir(&base).expect("mkdir");
        let fine = fine_grained(dir.path()).expect("stamp");
        let file = base.join("f");
        let mut open = fs::File::create(&file).expect("create");
        for round in 0..2000 {
            match round % 4 {
                0 => open.write_all(b"x").expect("write"),
                1 => fs::write(base.join("g"), [round as u8]).expect("write"),
                2 => {
                    rustix::fs::chmod(&file, Mode::from_raw_mode(0o600 | round & 7)).expect("chmod")
                }
                _ => drop(ctime(&file)),
            }
            let before = ctime(&file).max(ctime(&base));
            let stamp = take_for(dir.path(), &base).expect("stamp").0;
            if fine {
                assert!(
                    before < stamp,
                    "round {round}: an earlier edit counts as later"
                );
            }
            open.write_all(b"y").expect("write");
            assert!(ctime(&file) >= stamp, "round {round}: an edit was missed");
            fs::write(base.join("new"), "").expect("write");
            assert!(
                ctime(&base.join("new")) >= stamp,
                "round {round}: a creation was missed"
            );
            fs::remove_file(base.join("new")).expect("remove");
            assert!(ctime(&base) >= stamp, "round {round}: a removal was missed");
        }
    }

    #[test]
    fn a_stamp_changes_nothing_but_the_ctime() {
        let dir = tempfile::tempdir().expect("tempdir");
        let before = fs::metadata(dir.path()).expect("stat");
        take(dir.path()).expect("stamp");
        let after = fs::metadata(dir.path()).expect("stat");
        assert_eq!(before.mode(), after.mode());
        assert_eq!(
            before.modified().expect("mtime"),
            after.modified().expect("mtime")
        );
        assert!(take(&dir.path().join("missing")).is_err());
    }
}
