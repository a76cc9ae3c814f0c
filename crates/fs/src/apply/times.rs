//! The end of a redo or an undo: directory times, then durability.

use super::ident::Ident;
use super::io::{At, Io};
use super::journal::Dir;
use super::place::{Blocked, Place, blocked, why};
use crate::delta::FileTime;
use forkpoint_sys::openat;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Directories that are open at the same time.
const AT_ONCE: usize = 256;

/// A directory that moved may have got a new time (XFS does that in an exchange): it gets its own
/// again. Does nothing for anything else.
pub(crate) fn after_move(io: Io<'_>, at: At<'_, '_>, known: &Ident) -> io::Result<()> {
    if !known.is_dir() {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY;
    let fd = openat::beneath_same_mount(at.0, Path::new(at.1), flags, Mode::empty())?;
    set(io, fd.as_fd(), known.mtime)
}

fn set(io: Io<'_>, fd: BorrowedFd<'_>, time: FileTime) -> io::Result<()> {
    let now: FileTime = openat::stat_fd(fd)?.mtime.into();
    if now == time {
        return Ok(());
    }
    io.times(fd, None, time)
}

/// Gives every directory of the journal its time and makes all of it durable. Each directory is
/// synced by itself: on journaling file systems the first sync writes all the renames and the rest
/// have nothing left to do, whereas one `syncfs` would wait for everybody else's data. It is used
/// (`all`) only when something cannot be opened to be synced. `left` says which directories may be
/// passed over where they are not what they were.
pub(crate) fn finish(
    place: &Place<'_>,
    io: Io<'_>,
    mut all: bool,
    left: impl Fn(u32) -> bool,
    time: impl Fn(&Dir) -> FileTime,
) -> Result<(), Blocked> {
    let mut all_dirs = Vec::with_capacity(place.journal.dirs.len());
    for (index, dir) in (0u32..).zip(&place.journal.dirs) {
        let path = Path::new(OsStr::from_bytes(&dir.path));
        let fd = match place.dir(index) {
            Ok(fd) => fd,
            Err(_) if left(index) => continue,
            Err(item) => return Err(item),
        };
        set(io, fd.as_fd(), time(dir)).map_err(|e| blocked(path, why(&e)))?;
        all_dirs.push((index, dir));
    }
    let stage = place.stage.as_fd();
    let fail = |path: &Path, e: &io::Error| blocked(path, why(e));
    if all_dirs.is_empty() {
        io.sync(stage).map_err(|e| fail(Path::new(""), &e))?;
    }
    for (round, dirs) in all_dirs.chunks(AT_ONCE).enumerate() {
        let mut open = Vec::with_capacity(dirs.len());
        for (index, dir) in dirs {
            let path = Path::new(OsStr::from_bytes(&dir.path));
            match readable(place.dir(*index)?.as_fd()) {
                Ok(fd) => open.push((fd, path)),
                Err(e) if Errno::from_io_error(&e) == Some(Errno::ACCESS) => all = true,
                Err(e) => return Err(fail(path, &e)),
            }
        }
        let mut fds: Vec<_> = open.iter().map(|(fd, _)| fd.as_fd()).collect();
        if round == 0 {
            fds.push(stage);
        }
        let path_of = |at: usize| open.get(at).map_or(Path::new(""), |(_, path)| path);
        io.sync_many(&fds)
            .map_err(|(at, e)| fail(path_of(at), &e))?;
    }
    if all {
        io.sync_all(stage).map_err(|e| fail(Path::new(""), &e))?;
    }
    Ok(())
}

fn readable(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    openat::beneath(dir, Path::new(""), flags, Mode::empty())
}
