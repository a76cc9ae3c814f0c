//! How many bytes a tree has allocated.

use forkpoint_sys::openat;
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The deepest directory that is looked into: deeper ones would need more descriptors than a
/// process has.
const MAX_DEPTH: usize = 256;

/// The bytes allocated to everything below `dir`. What vanishes meanwhile, or may not be read,
/// does not count.
pub fn allocated_bytes(dir: BorrowedFd<'_>) -> io::Result<u64> {
    let mut total = 0u64;
    let mut open: Vec<(OwnedFd, Dir)> = vec![start(dir, Path::new(""))?];
    while let Some((fd, entries)) = open.last_mut() {
        let Some(entry) = entries.read() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let Ok(meta) = openat::stat(fd.as_fd(), name) else {
            continue;
        };
        total = total.saturating_add(meta.blocks.saturating_mul(512));
        if !meta.is_dir() || open.len() >= MAX_DEPTH {
            continue;
        }
        let Some((fd, _)) = open.last() else { break };
        match start(fd.as_fd(), Path::new(name)) {
            Ok(below) => open.push(below),
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
                _ => return Err(e),
            },
        }
    }
    Ok(total)
}

fn start(dir: BorrowedFd<'_>, name: &Path) -> io::Result<(OwnedFd, Dir)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = openat::beneath(dir, name, flags, Mode::empty())?;
    let entries = Dir::read_from(&fd)?;
    Ok((fd, entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_counts_and_holes_do_not() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(dir.path().join("a/b")).expect("mkdir");
        std::fs::write(dir.path().join("a/b/full"), vec![1u8; 1 << 20]).expect("write");
        let hole = std::fs::File::create(dir.path().join("a/hole")).expect("create");
        hole.set_len(1 << 30).expect("set_len");
        std::os::unix::fs::symlink("/", dir.path().join("out")).expect("symlink");
        let fd = openat::directory(dir.path()).expect("open");
        let bytes = allocated_bytes(fd.as_fd()).expect("walk");
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
    }
}
