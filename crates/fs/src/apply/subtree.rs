//! A digest of everything below a directory, by which a change anywhere in it is seen.

use super::walk;
use forkpoint_sys::openat::{self, Meta};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Pins what lies below the directory `name` of `dir`, at any depth: names, inodes, types, modes,
/// owners, sizes, and times of last change. Renaming the directory itself does not alter it;
/// nothing else that alters the tree leaves it as it is. Files with several links are pinned
/// without ctime, which a rename of another link sets. Cost: one `stat` an entry.
pub(crate) fn digest(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<[u8; 32]> {
    let top = walk::readable_dir(dir, Path::new(name))?;
    let mut hash = blake3::Hasher::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        let opened;
        let at = if path.as_os_str().is_empty() {
            top.as_fd()
        } else {
            opened = walk::readable_dir(top.as_fd(), &path)?;
            opened.as_fd()
        };
        text(&mut hash, path.as_os_str().as_bytes());
        let mut below = Vec::new();
        for name in walk::names(at)? {
            let meta = openat::stat(at, &name)?;
            text(&mut hash, name.as_bytes());
            entry(&mut hash, &meta);
            if meta.is_dir() {
                below.push(path.join(name));
            }
        }
        hash.update(&[0xff]);
        pending.extend(below.into_iter().rev());
    }
    Ok(*hash.finalize().as_bytes())
}

fn text(hash: &mut blake3::Hasher, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

fn entry(hash: &mut blake3::Hasher, meta: &Meta) {
    let file = !meta.is_dir();
    let alone = !file || meta.nlink == 1;
    let mut put = |number: u64| {
        hash.update(&number.to_le_bytes());
    };
    put(meta.ino);
    put(u64::from(meta.mode));
    put(u64::from(meta.uid) << 32 | u64::from(meta.gid));
    put(u64::from(meta.rdev.0) << 32 | u64::from(meta.rdev.1));
    put(if file { meta.size } else { 0 });
    put(meta.mtime.secs as u64);
    put(u64::from(meta.mtime.nanos));
    if alone {
        put(meta.ctime.secs as u64);
        put(u64::from(meta.ctime.nanos));
    }
}
