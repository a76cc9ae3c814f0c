//! Preparing one entry in the stage: content, links and every attribute, as the view has them.

use super::api::Owners;
use super::ident::{carried, name as as_name};
use super::io::{At, Io};
use super::place::why;
use crate::codes;
use crate::conflict::PathConflict;
use crate::delta::FileTime;
use forkpoint_model::{Error, Result};
use forkpoint_sys::ids::Shift;
use forkpoint_sys::openat::{self, Meta};
use forkpoint_sys::{ioctl, xattr};
use rustix::fs::{Mode, OFlags, readlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Bytes written at once.
const CHUNK: usize = 256 << 10;
/// The most of what could not be carried over that is listed.
pub const MAX_NOTES: usize = 100;

/// What could not be carried over exactly.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) list: Vec<PathConflict>,
    pub(crate) total: u64,
}

impl Notes {
    pub(crate) fn add(&mut self, path: &Path, why: impl Into<String>) {
        self.total += 1;
        if self.list.len() < MAX_NOTES {
            self.list.push(PathConflict {
                path: path.to_owned(),
                why: why.into(),
            });
        }
    }
}

/// The error of a failed call of staging, which tells a full disk from the rest.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Error {
    let path = crate::bytes::escape(path.as_os_str().as_encoded_bytes());
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => codes::NO_SPACE
            .io(format_args!("{path} cannot be staged"), why(error))
            .hint("free space on the target's file system and commit again; nothing was changed"),
        _ => codes::STAGE.io(format_args!("{path} cannot be staged"), why(error)),
    }
}

/// Who the files become.
pub(crate) struct Ownership {
    owners: Owners,
    uid: u32,
    gids: Vec<u32>,
    /// Owners are stored shifted where they are written.
    pub(crate) shift: Option<Shift>,
}

impl Ownership {
    pub(crate) fn new(owners: Owners) -> io::Result<Self> {
        let mut gids: Vec<u32> = rustix::process::getgroups()?
            .into_iter()
            .map(|g| g.as_raw())
            .collect();
        gids.push(rustix::process::getegid().as_raw());
        Ok(Self {
            owners,
            uid: rustix::process::geteuid().as_raw(),
            gids,
            shift: None,
        })
    }

    /// The owner a file gets that has `wanted` in the view, when without asking it is `given`; and
    /// whether that differs from what was wanted.
    pub(crate) fn map(&self, wanted: (u32, u32), given: (u32, u32)) -> ((u32, u32), bool) {
        if self.owners == Owners::Keep {
            let stored = |id| self.shift.map_or(id, |shift| shift.stored(id));
            return ((stored(wanted.0), stored(wanted.1)), false);
        }
        let uid = if wanted.0 == self.uid {
            wanted.0
        } else {
            given.0
        };
        let gid = if self.gids.contains(&wanted.1) {
            wanted.1
        } else {
            given.1
        };
        ((uid, gid), (uid, gid) != wanted)
    }

    /// Whether this user may change the attributes of what belongs to `uid`.
    pub(crate) fn owns(&self, uid: u32) -> bool {
        self.keep() || uid == self.uid
    }

    fn keep(&self) -> bool {
        self.owners == Owners::Keep
    }
}

/// Fills the new file `to` with what `from` holds, holes left out.
pub(crate) fn content(
    io: Io<'_>,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    size: u64,
) -> io::Result<()> {
    let mut buffer = vec![0u8; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
    let (mut offset, mut written) = (0, 0);
    while let Some(data) = ioctl::next_data(from, offset, size)? {
        let mut at = data.start;
        while at < data.end {
            let want = usize::try_from(data.end - at)
                .unwrap_or(CHUNK)
                .min(buffer.len());
            let got = match rustix::io::pread(from, &mut buffer[..want], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => got,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            io.write(to, &buffer[..got], at)?;
            at += got as u64;
            written = at;
        }
        offset = data.end;
    }
    // A hole at the end.
    if written < size {
        io.resize(to, size)
    } else {
        Ok(())
    }
}

/// Makes a symbolic link, FIFO or device like `from`.
pub(crate) fn special(io: Io<'_>, from: At<'_, '_>, meta: &Meta, to: At<'_, '_>) -> io::Result<()> {
    if meta.is_symlink() {
        let target = readlinkat(from.0, from.1, Vec::new())?;
        return io.symlink(to, as_name(target.as_bytes()));
    }
    io.node(
        to,
        rustix::fs::FileType::from_raw_mode(meta.mode),
        meta.rdev,
    )
}

/// Opens an entry of the stage itself, whatever it is.
pub(crate) fn itself(at: At<'_, '_>) -> io::Result<OwnedFd> {
    openat::beneath(
        at.0,
        Path::new(at.1),
        OFlags::PATH | OFlags::NOFOLLOW,
        Mode::empty(),
    )
}

/// Gives the new file `to` every attribute of `from`, times last.
pub(crate) fn attributes(
    io: Io<'_>,
    owner: &Ownership,
    from: At<'_, '_>,
    meta: &Meta,
    to: BorrowedFd<'_>,
    path: &Path,
    notes: &mut Notes,
) -> Result<()> {
    let fail = |e: io::Error| failed(path, &e);
    let mine = openat::stat_fd(to).map_err(fail)?;
    let ((uid, gid), mapped) = owner.map((meta.uid, meta.gid), (mine.uid, mine.gid));
    if mapped {
        notes.add(
            path,
            format!("owner {}:{} becomes {uid}:{gid}", meta.uid, meta.gid),
        );
    }
    if (mine.uid, mine.gid) != (uid, gid) {
        let part = |now, to| (now != to).then_some(to);
        let given = io.owner(to, part(mine.uid, uid), part(mine.gid, gid));
        owner_given(given, owner, (uid, gid), path, notes)?;
    }
    attributes_extended(io, owner, from, to, path, notes)?;
    if !meta.is_symlink() {
        let now = openat::stat_fd(to).map_err(fail)?;
        if now.permissions() != meta.permissions() {
            io.mode(to, meta.permissions()).map_err(fail)?;
        }
    }
    let (atime, mtime) = (FileTime::from(meta.atime), FileTime::from(meta.mtime));
    io.times(to, Some(atime), mtime).map_err(fail)
}

/// What a failure to give an owner means: for an ordinary user a note (a group that the user
/// namespace does not map, say), else a refusal.
fn owner_given(
    given: io::Result<()>,
    owner: &Ownership,
    (uid, gid): (u32, u32),
    path: &Path,
    notes: &mut Notes,
) -> Result<()> {
    let Err(error) = given else {
        return Ok(());
    };
    if !matches!(
        Errno::from_io_error(&error),
        Some(Errno::PERM | Errno::INVAL)
    ) {
        return Err(failed(path, &error));
    }
    if !owner.keep() {
        notes.add(path, format!("owner {uid}:{gid} cannot be given"));
        return Ok(());
    }
    let path = crate::bytes::escape(path.as_os_str().as_encoded_bytes());
    Err(codes::OWNER
        .io(
            format_args!("{path} cannot be given owner {uid}:{gid}"),
            why(&error),
        )
        .hint("let owners be mapped to the caller"))
}

fn attributes_extended(
    io: Io<'_>,
    owner: &Ownership,
    from: At<'_, '_>,
    to: BorrowedFd<'_>,
    path: &Path,
    notes: &mut Notes,
) -> Result<()> {
    let fail = |e: io::Error| failed(path, &e);
    let wanted = xattr::all(from.0, dot(from.1)).map_err(fail)?;
    // The stage's directory may have handed down a default access list.
    for key in xattr::list_fd(to).map_err(fail)? {
        if carried(&key) && !wanted.iter().any(|(k, _)| *k == key) {
            io.xattr(to, &key, None).map_err(fail)?;
        }
    }
    for (key, value) in wanted.iter().filter(|(key, _)| carried(key)) {
        let stored = owner.shift.map(|shift| shift.stored_value(key, value));
        match io.xattr(to, key, Some(stored.as_ref().unwrap_or(value))) {
            Ok(()) => {}
            Err(e) => {
                let refused = match Errno::from_io_error(&e) {
                    Some(Errno::OPNOTSUPP) => true,
                    Some(Errno::PERM | Errno::INVAL) => !owner.keep(),
                    _ => false,
                };
                if !refused {
                    return Err(fail(e));
                }
                notes.add(
                    path,
                    format!("attribute {} is dropped: {}", key.display(), why(&e)),
                );
            }
        }
    }
    Ok(())
}

/// The name of a directory itself for calls that do not take an empty one.
pub(crate) fn dot(name: &OsStr) -> &OsStr {
    if name.is_empty() {
        OsStr::new(".")
    } else {
        name
    }
}

/// A clone of the source's blocks, if the two files can share any.
pub(crate) fn shared(io: Io<'_>, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<bool> {
    match io.clone_file(to.as_fd(), from) {
        Ok(()) => Ok(true),
        Err(e) if ioctl::no_reflink(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether files of this file system may be able to share blocks (XFS, btrfs, bcachefs); tells only
/// whether trying is worth a call a file.
pub(crate) fn may_share(fd: BorrowedFd<'_>) -> bool {
    const SHARING: [u32; 3] = [0x5846_5342, 0x9123_683e, 0xca45_1a4e];
    rustix::fs::fstatfs(fd).is_ok_and(|stat| SHARING.contains(&(stat.f_type as u32)))
}
