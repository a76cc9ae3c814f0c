//! Whether two entries are the same to a program that reads them (times aside).

use super::index;
use forkpoint_sys::openat::{self, Meta};
use forkpoint_sys::xattr;
use rustix::fs::{Mode, OFlags, readlinkat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

type At<'f, 'n> = (BorrowedFd<'f>, &'n OsStr);

/// Compares type, mode, owner, attributes and content; of directories not what is in them. Git's
/// index counts as the same when it lists the same entries, whatever it remembers of the files.
pub(crate) fn entries(a: At<'_, '_>, b: At<'_, '_>) -> io::Result<bool> {
    let (x, y) = (openat::stat(a.0, a.1)?, openat::stat(b.0, b.1)?);
    if (x.mode, x.uid, x.gid) != (y.mode, y.uid, y.gid) {
        return Ok(false);
    }
    if xattr_all(a)? != xattr_all(b)? {
        return Ok(false);
    }
    if x.is_file() {
        return files(a, &x, b, &y);
    }
    if x.is_symlink() {
        let target = |at: At<'_, '_>| readlinkat(at.0, at.1, Vec::new());
        return Ok(target(a)? == target(b)?);
    }
    Ok(x.is_dir() || x.rdev == y.rdev)
}

fn xattr_all(at: At<'_, '_>) -> io::Result<Vec<(std::ffi::OsString, Vec<u8>)>> {
    let fd = open(at, OFlags::PATH)?;
    let mut all = Vec::new();
    for key in xattr::list_fd(fd.as_fd())? {
        if let Some(value) = xattr::get_fd(fd.as_fd(), &key)? {
            all.push((key, value));
        }
    }
    Ok(all)
}

fn open((dir, name): At<'_, '_>, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW;
    openat::beneath(dir, Path::new(name), flags, Mode::empty())
}

/// Without waiting for a writer, should it have become a FIFO.
fn read(at: At<'_, '_>) -> io::Result<OwnedFd> {
    open(at, OFlags::RDONLY | OFlags::NONBLOCK)
}

fn files(a: At<'_, '_>, x: &Meta, b: At<'_, '_>, y: &Meta) -> io::Result<bool> {
    let (first, second) = (read(a)?, read(b)?);
    if a.1 == "index" {
        let digest = |fd: &OwnedFd| index::digest(fd.as_fd());
        if let (Some(one), Some(two)) = (digest(&first)?, digest(&second)?) {
            return Ok(one == two);
        }
    }
    if x.size != y.size {
        return Ok(false);
    }
    let (mut one, mut two) = (vec![0u8; 128 << 10], vec![0u8; 128 << 10]);
    let mut offset = 0;
    while offset < x.size {
        let read = read_full(first.as_fd(), &mut one, offset)?;
        if read != read_full(second.as_fd(), &mut two, offset)? || one[..read] != two[..read] {
            return Ok(false);
        }
        if read == 0 {
            break;
        }
        offset += read as u64;
    }
    Ok(true)
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}
