//! Changing attributes in place: of a directory, or of a file with one link.

use super::ident::{Attrs, FileId, name};
use super::io::Io;
use super::place::why;
use super::walk;
use crate::delta::FileTime;
use forkpoint_sys::openat;
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// From which attributes to which.
pub(crate) struct Change<'j> {
    pub(crate) id: &'j FileId,
    pub(crate) from: &'j Attrs,
    pub(crate) to: &'j Attrs,
    /// A file's times, in the same order.
    pub(crate) mtime: Option<(FileTime, FileTime)>,
    pub(crate) size: u64,
}

/// Makes the entry's attributes `to`; without an `io` only looks whether that can go on. Any state
/// between the two is taken for a change that was stopped half way, any other for somebody's edit.
/// Says whether it is durable already; if not, the whole file system has to be synced.
pub(crate) fn apply(
    io: Option<Io<'_>>,
    dir: BorrowedFd<'_>,
    entry: &[u8],
    change: &Change<'_>,
) -> Result<bool, String> {
    let os = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => "removed since".to_owned(),
        _ => why(&e),
    };
    let fd =
        walk::open(dir, Path::new(name(entry)), OFlags::PATH | OFlags::NOFOLLOW).map_err(os)?;
    let fd = fd.as_fd();
    if FileId::at(fd, OsStr::new("")).map_err(os)? != *change.id {
        return Err("replaced since".into());
    }
    let now = Attrs::at(fd, OsStr::new("")).map_err(os)?;
    let meta = openat::stat_fd(fd).map_err(os)?;
    if !change.from.between(change.to, &now) {
        return Err("its mode, owner or attributes were changed since".into());
    }
    if let Some((from, to)) = change.mtime {
        let time = FileTime::from(meta.mtime);
        if meta.size != change.size || (time != from && time != to) {
            return Err("edited since".into());
        }
    }
    let Some(io) = io else {
        return Ok(true);
    };
    set(io, fd, &now, change.to).map_err(os)?;
    if let Some((_, to)) = change.mtime
        && FileTime::from(openat::stat_fd(fd).map_err(os)?.mtime) != to
    {
        io.times(fd, None, to).map_err(os)?;
    }
    // A directory is synced with the others at the end.
    if meta.is_dir() {
        Ok(true)
    } else {
        sync_file(io, fd).map_err(os)
    }
}

/// Owner first, which clears set-id bits and capabilities; then attributes, of which an access list
/// sets permission bits; the mode last.
pub(crate) fn set(io: Io<'_>, fd: BorrowedFd<'_>, now: &Attrs, to: &Attrs) -> io::Result<()> {
    let owner = (now.uid, now.gid) != (to.uid, to.gid);
    if owner {
        let changed = |now, to| (now != to).then_some(to);
        io.owner(fd, changed(now.uid, to.uid), changed(now.gid, to.gid))?;
    }
    for (key, _) in &now.xattrs {
        if !to.xattrs.iter().any(|(k, _)| k == key) {
            io.xattr(fd, name(key), None)?;
        }
    }
    for (key, value) in &to.xattrs {
        let same = now.xattrs.iter().any(|(k, v)| (k, v) == (key, value));
        if owner || !same {
            io.xattr(fd, name(key), Some(value))?;
        }
    }
    if openat::stat_fd(fd)?.permissions() != to.mode {
        io.mode(fd, to.mode)?;
    }
    Ok(())
}

/// Makes a file's attributes durable, if it can be opened for that.
fn sync_file(io: Io<'_>, fd: BorrowedFd<'_>) -> io::Result<bool> {
    if !openat::stat_fd(fd)?.is_file() {
        return Ok(false);
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(file) => io.sync(file.as_fd()).map(|()| true),
        Err(rustix::io::Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
