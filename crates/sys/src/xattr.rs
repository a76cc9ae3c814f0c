//! Extended attributes of an entry of a directory, given by descriptor and name, so that neither a
//! symbolic link at the name nor one on the way is followed.
//!
//! The kernel's `*xattrat` calls are too new (6.13), so the path is `/proc/self/fd/N/name`, on
//! which the `l*xattr` calls follow only the descriptor.

use crate::ids;
use rustix::fs as rfs;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

pub use rustix::fs::XattrFlags;

/// The kernel's bound on a list of names and on a value, in bytes.
const MAX: usize = 64 * 1024;

fn link(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn entry(dir: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    link(dir).join(name)
}

/// Runs a size-then-read call until the buffer was large enough.
fn grow(
    mut read: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut small = [0u8; 512];
    match read(&mut small) {
        Ok(len) => return Ok(small[..len].to_vec()),
        Err(Errno::RANGE) => {}
        Err(errno) => return Err(errno),
    }
    let mut large = vec![0u8; MAX];
    let len = read(&mut large)?;
    large.truncate(len);
    Ok(large)
}

fn split(list: &[u8]) -> Vec<OsString> {
    list.split(|&b| b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| OsString::from_vec(name.to_vec()))
        .collect()
}

fn no_support_is_empty<T: Default>(result: rustix::io::Result<T>) -> io::Result<T> {
    match result {
        Err(Errno::OPNOTSUPP) => Ok(T::default()),
        other => Ok(other?),
    }
}

/// The names of the attributes of the entry `name` of `dir`, sorted. A file system without
/// attributes has none.
pub fn list(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Vec<OsString>> {
    let path = entry(dir, name);
    let mut names = split(&no_support_is_empty(grow(|buf| {
        rfs::llistxattr(&path, buf)
    }))?);
    names.sort_unstable();
    Ok(names)
}

/// The value of attribute `key` of the entry `name` of `dir`, or `None` where it has none.
pub fn get(dir: BorrowedFd<'_>, name: &OsStr, key: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let path = entry(dir, name);
    match grow(|buf| rfs::lgetxattr(&path, key, buf)) {
        Ok(value) => Ok(Some(ids::shown_value(key, value))),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets attribute `key` of the entry `name` of `dir`.
pub fn set(dir: BorrowedFd<'_>, name: &OsStr, key: &OsStr, value: &[u8]) -> io::Result<()> {
    Ok(rfs::lsetxattr(
        entry(dir, name),
        key,
        value,
        XattrFlags::empty(),
    )?)
}

/// Removes attribute `key` of the entry `name` of `dir`; it is no error when it has none.
pub fn remove(dir: BorrowedFd<'_>, name: &OsStr, key: &OsStr) -> io::Result<()> {
    match rfs::lremovexattr(entry(dir, name), key) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// As [`list`], of an open file; an `O_PATH` descriptor, even of a symbolic link, will do.
pub fn list_fd(fd: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let path = link(fd);
    let mut names = split(&no_support_is_empty(grow(|buf| {
        rfs::listxattr(&path, buf)
    }))?);
    names.sort_unstable();
    Ok(names)
}

/// As [`get`], of an open file; an `O_PATH` descriptor will do.
pub fn get_fd(fd: BorrowedFd<'_>, key: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let path = link(fd);
    match grow(|buf| rfs::getxattr(&path, key, buf)) {
        Ok(value) => Ok(Some(ids::shown_value(key, value))),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// As [`set`], of an open file; an `O_PATH` descriptor will do.
pub fn set_fd(fd: BorrowedFd<'_>, key: &OsStr, value: &[u8]) -> io::Result<()> {
    Ok(rfs::setxattr(link(fd), key, value, XattrFlags::empty())?)
}

/// As [`remove`], of an open file; an `O_PATH` descriptor will do.
pub fn remove_fd(fd: BorrowedFd<'_>, key: &OsStr) -> io::Result<()> {
    match rfs::removexattr(link(fd), key) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Every attribute of the entry `name` of `dir` with its value, sorted by name. One that vanishes
/// meanwhile is left out.
pub fn all(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Vec<(OsString, Vec<u8>)>> {
    let mut found = Vec::new();
    for key in list(dir, name)? {
        if let Some(value) = get(dir, name, &key)? {
            found.push((key, value));
        }
    }
    Ok(found)
}

/// Whether `key` lives in `namespace` (such as `user`).
pub fn in_namespace(key: &OsStr, namespace: &str) -> bool {
    key.as_bytes()
        .strip_prefix(namespace.as_bytes())
        .is_some_and(|rest| rest.first() == Some(&b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn attributes_are_set_on_the_name_itself() {
        let dir = tempfile::tempdir().expect("tempdir");
        let fd = std::fs::File::open(dir.path()).expect("open");
        let fd = fd.as_fd();
        let (file, key) = (OsStr::new("f"), OsStr::new("user.k"));
        std::fs::write(dir.path().join("f"), "x").expect("write");
        std::os::unix::fs::symlink("f", dir.path().join("l")).expect("symlink");
        set(fd, file, key, &[7; 1000]).expect("set");
        assert_eq!(get(fd, file, key).expect("get"), Some(vec![7; 1000]));
        assert_eq!(list(fd, file).expect("list"), [key]);
        assert!(
            list(fd, OsStr::new("l")).expect("list").is_empty(),
            "the link was followed"
        );
        let link = rustix::fs::openat(
            fd,
            "l",
            rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW,
            rustix::fs::Mode::empty(),
        )
        .expect("open");
        assert!(
            list_fd(link.as_fd()).expect("list").is_empty(),
            "the link was followed"
        );
        remove(fd, file, key).expect("remove");
        remove(fd, file, key).expect("remove again");
        assert_eq!(get(fd, file, key).expect("get"), None);
        assert!(all(fd, OsStr::new("gone")).is_err());
    }
}
