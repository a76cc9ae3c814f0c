//! Copying one file: its content by the cheapest way there is, and all its attributes.

use super::CopyOptions;
use super::cursor::proc_link;
use forkpoint_sys::ids::Shift;
use forkpoint_sys::openat::{self, Meta};
use forkpoint_sys::{ioctl, xattr};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of one read where the kernel cannot copy by itself.
const CHUNK: usize = 128 * 1024;

/// Fills the new, empty file `to` with the first `size` bytes of `from`: by sharing blocks where
/// `reflink` allows it and the file system can, else stretch by stretch, leaving holes where
/// `from` has them. `reflink` is set to false when it turns out that these two cannot share.
/// Returns whether blocks are shared.
pub(crate) fn copy_content(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    size: u64,
    reflink: &mut bool,
) -> io::Result<bool> {
    if size == 0 {
        return Ok(false);
    }
    if *reflink {
        match ioctl::clone_file(to, from) {
            Ok(()) => return Ok(true),
            Err(e) if ioctl::no_reflink(&e) => *reflink = false,
            Err(e) => return Err(e),
        }
    }
    let mut offset = 0;
    while let Some(data) = ioctl::next_data(from, offset, size)? {
        copy_stretch(from, to, data.start, data.end)?;
        offset = data.end;
    }
    rustix::fs::ftruncate(to, size)?;
    Ok(false)
}

fn copy_stretch(from: BorrowedFd<'_>, to: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
    let (mut source, mut target) = (start, start);
    while source < end {
        let want = usize::try_from(end - source)
            .unwrap_or(usize::MAX)
            .min(1 << 30);
        match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), want) {
            // It became shorter meanwhile: the rest is a hole.
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(
                Errno::XDEV
                | Errno::INVAL
                | Errno::NOSYS
                | Errno::OPNOTSUPP
                | Errno::PERM
                | Errno::BADF,
            ) => return copy_by_hand(from, to, source, end),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    mut offset: u64,
    end: u64,
) -> io::Result<()> {
    let mut buffer = vec![0u8; CHUNK];
    while offset < end {
        let want = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
        let got = match rustix::io::pread(from, &mut buffer[..want], offset) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let mut done = 0;
        while done < got {
            match rustix::io::pwrite(to, &buffer[done..got], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        offset += got as u64;
    }
    Ok(())
}

/// Which extended attributes a copy takes along.
fn carried(key: &OsStr, raw: bool) -> bool {
    let bytes = key.as_encoded_bytes();
    xattr::in_namespace(key, "user")
        || bytes == b"security.capability"
        || bytes.starts_with(b"system.posix_acl_")
        || (xattr::in_namespace(key, "trusted") && (raw || !bytes.starts_with(b"trusted.overlay.")))
}

/// Gives the entry `name` of `dir` all attributes of the entry `from`: extended attributes, owner,
/// mode, times. Returns false where the owner could not be given.
pub(crate) fn copy_attributes(
    from: (BorrowedFd<'_>, &OsStr),
    meta: &Meta,
    to: (BorrowedFd<'_>, &OsStr),
    options: &CopyOptions,
) -> io::Result<bool> {
    let (dir, name) = to;
    let shift = options.shift.map(|(first, len)| Shift { first, len });
    let stored = |id| shift.map_or(id, |shift| shift.stored(id));
    let owner = (stored(meta.uid), stored(meta.gid));
    let mine = openat::stat(dir, name)?;
    let mut owned = true;
    if (mine.uid, mine.gid) != owner {
        let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(dir, dot(name), Some(uid), Some(gid), flags) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::INVAL) => owned = false,
            Err(errno) => return Err(errno.into()),
        }
    }
    // After the owner, which clears set-id bits and capabilities; before access control lists,
    // whose mask would be changed by a later change of mode.
    if !meta.is_symlink() {
        chmod(dir, name, &mine, meta)?;
    }
    for (key, value) in xattr::all(from.0, dot(from.1))? {
        if carried(&key, options.raw) {
            let value = shift.map_or_else(|| value.clone(), |s| s.stored_value(&key, &value));
            xattr::set(dir, dot(name), &key, &value)?;
        }
    }
    let time = |t: openat::FileTime| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    let times = Timestamps {
        last_access: time(meta.atime),
        last_modification: time(meta.mtime),
    };
    rustix::fs::utimensat(dir, dot(name), &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(owned)
}

/// Gives the directory `dir` the access and modification time of `meta`.
pub(crate) fn set_times(dir: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
    let time = |t: openat::FileTime| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    let times = Timestamps {
        last_access: time(meta.atime),
        last_modification: time(meta.mtime),
    };
    Ok(rustix::fs::futimens(dir, &times)?)
}

/// The name of a directory itself for calls that do not take an empty one.
fn dot(name: &OsStr) -> &OsStr {
    if name.is_empty() {
        OsStr::new(".")
    } else {
        name
    }
}

/// `fchmodat` follows links, so go through a descriptor of the very entry.
fn chmod(dir: BorrowedFd<'_>, name: &OsStr, mine: &Meta, wanted: &Meta) -> io::Result<()> {
    if mine.permissions() == wanted.permissions() {
        return Ok(());
    }
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW;
    let flags = flags | rustix::fs::OFlags::CLOEXEC;
    let entry = rustix::fs::openat(dir, dot(name), flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(wanted.permissions());
    Ok(rustix::fs::chmod(proc_link(entry.as_fd()), mode)?)
}

/// Makes a symbolic link, FIFO or device node `to` like `from`, without its attributes.
pub(crate) fn create_other(
    from: (BorrowedFd<'_>, &OsStr),
    meta: &Meta,
    to: (BorrowedFd<'_>, &OsStr),
) -> io::Result<()> {
    if meta.is_symlink() {
        let target = rustix::fs::readlinkat(from.0, from.1, Vec::new())?;
        return Ok(rustix::fs::symlinkat(target, to.0, to.1)?);
    }
    let kind = rustix::fs::FileType::from_raw_mode(meta.mode);
    let device = rustix::fs::makedev(meta.rdev.0, meta.rdev.1);
    Ok(rustix::fs::mknodat(
        to.0,
        to.1,
        kind,
        Mode::RUSR | Mode::WUSR,
        device,
    )?)
}

/// Opens the entry `name` of `dir` to read it; what is not a regular file (any more) is refused.
pub(crate) fn open_regular(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<(OwnedFd, Meta)> {
    use rustix::fs::OFlags;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags | OFlags::NOCTTY, Mode::empty())?;
    let meta = openat::stat_fd(fd.as_fd())?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file any more"));
    }
    Ok((fd, meta))
}
