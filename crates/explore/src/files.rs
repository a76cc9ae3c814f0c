//! Files in the directory that an attempt may leave reports in. What is in it is the attempt's to
//! choose: only a regular file is read, no link is followed, and never more than a bound.

use forkpoint_model::Result;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::codes;

fn open_dir(dir: &Path) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, dir, flags, Mode::empty())
}

/// Reads `name` in `dir`, at most `limit` bytes; nothing where it is missing or no regular file.
pub(crate) fn read_claim(dir: &Path, name: &str, limit: u64) -> Result<Vec<u8>> {
    let io = |e: std::io::Error| codes::LOG.io(format!("cannot read {name} of an attempt"), e);
    let dir = match open_dir(dir) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(e) => return Err(io(e.into())),
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(&dir, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        // Missing, a link, a socket, or made unreadable: it says nothing.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => return Ok(Vec::new()),
        Err(e) => return Err(io(e.into())),
    };
    if !file.metadata().map_err(io)?.is_file() {
        return Ok(Vec::new());
    }
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text).map_err(io)?;
    Ok(text)
}

/// Leaves a new file `name` in `dir`, which is made if it is missing.
pub(crate) fn leave(dir: &Path, name: &str, text: &[u8]) -> Result<()> {
    let io = |e: std::io::Error| codes::LOG.io(format!("cannot leave {name} for an attempt"), e);
    std::fs::create_dir_all(dir).map_err(io)?;
    let dir = open_dir(dir).map_err(|e| io(e.into()))?;
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let file = openat(&dir, name, flags, mode).map_err(|e| io(e.into()))?;
    File::from(file).write_all(text).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_read_and_only_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str| read_claim(dir.path(), name, 4).unwrap();
        assert_eq!(read("cost"), b"");
        leave(dir.path(), "cost", b"123456").unwrap();
        assert_eq!(read("cost"), b"1234");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        assert_eq!(read("link"), b"");
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        assert_eq!(read("dir"), b"");
        assert!(
            leave(dir.path(), "link", b"x").is_err(),
            "no link is followed"
        );
        assert_eq!(
            read_claim(&dir.path().join("none"), "cost", 4).unwrap(),
            b""
        );
    }
}
