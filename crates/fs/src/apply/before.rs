//! What was there before a commit, out of what its undo keeps, for a branch that looks at it again. The
//! base is not touched: the originals are copied into a view of it.

use super::ident::{FileId, name};
use super::io::Io;
use super::journal::{Journal, Op};
use super::{attrs, walk};
use crate::{codes, tree};
use forkpoint_model::{Error, Result};
use forkpoint_sys::openat;
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Makes everything that the commit of `journal` changed what it was before that, in the writable view
/// `view` of a base that is as the commit left it ([`super::check_undo`] says whether it is). Names
/// of one file that was removed or replaced become files of their own.
///
/// # Errors
/// `FP0258` when what the commit kept is gone, `FP0262` for a path that cannot be restored.
pub fn restore_before(view: BorrowedFd<'_>, journal: &Journal) -> Result<()> {
    let place = Path::new(OsStr::from_bytes(&journal.stage));
    let lost = |why: &dyn std::fmt::Display| {
        codes::STAGE_LOST.io(format!("{} cannot be used", place.display()), why)
    };
    let stage = openat::directory(place).map_err(|e| lost(&e))?;
    if FileId::at(stage.as_fd(), OsStr::new("")).map_err(|e| lost(&e))? != journal.stage_id {
        return Err(lost(
            &"it is another directory than the one that was staged in",
        ));
    }
    let io = Io::default();
    // Backwards, as an undo: what a later step changed was there when an earlier one was done.
    for op in journal.ops.iter().rev() {
        let (dir, entry) = op.place();
        let above = path(journal, dir);
        let whole = above.join(name(entry));
        let fail = |e: io::Error| failed(&whole, &e);
        let at = walk::dir(view, above).map_err(fail)?;
        match op {
            Op::Exchange { stage: kept, .. } | Op::Remove { stage: kept, .. } => {
                tree::remove(&by_descriptor(at.as_fd(), name(entry)))?;
                put((stage.as_fd(), name(kept)), (at.as_fd(), name(entry))).map_err(
                    |e| match e {
                        Put::Tree(e) => e,
                        Put::Entry(e) => fail(e),
                    },
                )?;
            }
            Op::Add { .. } => tree::remove(&by_descriptor(at.as_fd(), name(entry)))?,
            Op::Attrs { old, mtime, .. } => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW;
                let fd = walk::open(at.as_fd(), Path::new(name(entry)), flags).map_err(fail)?;
                let now = super::ident::Attrs::at(fd.as_fd(), OsStr::new("")).map_err(fail)?;
                attrs::set(io, fd.as_fd(), &now, old).map_err(fail)?;
                if let Some((before, _)) = mtime {
                    io.times(fd.as_fd(), None, *before).map_err(fail)?;
                }
            }
        }
    }
    for (index, dir) in journal.dirs.iter().enumerate().rev() {
        let path = path(journal, index as u32);
        let fail = |e: io::Error| failed(path, &e);
        let fd = walk::dir(view, path).map_err(fail)?;
        io.times(fd.as_fd(), None, dir.old_mtime).map_err(fail)?;
    }
    Ok(())
}

enum Put {
    Tree(Error),
    Entry(io::Error),
}

/// Copies what was kept to where it was.
fn put(from: (BorrowedFd<'_>, &OsStr), to: (BorrowedFd<'_>, &OsStr)) -> Result<(), Put> {
    let options = tree::CopyOptions::default();
    let meta = openat::stat(from.0, from.1).map_err(Put::Entry)?;
    if meta.is_dir() {
        let (from, to) = (by_descriptor(from.0, from.1), by_descriptor(to.0, to.1));
        return tree::copy(&from, &to, &options)
            .map(|_| ())
            .map_err(Put::Tree);
    }
    tree::copy_entry(from, to, &options).map_err(Put::Entry)
}

fn path(journal: &Journal, dir: u32) -> &Path {
    Path::new(OsStr::from_bytes(&journal.dirs[dir as usize].path))
}

/// A path for calls that take one, of an entry of an open directory.
fn by_descriptor(dir: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name)
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let path = crate::bytes::escape(path.as_os_str().as_encoded_bytes());
    codes::PROTECT.io(format_args!("{path} cannot be restored"), error)
}
