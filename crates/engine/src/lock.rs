//! Locks between processes: flock on a file or directory, and one byte each of a file for things of
//! which there are many. The kernel releases them when their holder dies, so a lock that can be taken
//! proves that nobody is at work.

use crate::codes;
use forkpoint_model::{Code, Error, Result};
use forkpoint_sys::range_lock;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    fd: OwnedFd,
    /// The byte that is held, where it is not the whole file.
    byte: Option<u64>,
}

impl Lock {
    /// The locked description, for whoever must hold it as long as this process does.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Not left to the closing of the descriptor: a child that another thread is just starting
        // holds a copy until it executes, and would keep the lock that long. If it fails, closing
        // still releases it.
        match self.byte {
            None => drop(flock(&self.fd, FlockOperation::Unlock)),
            Some(byte) => drop(range_lock::unlock(self.fd.as_fd(), byte)),
        }
    }
}

/// Takes the lock of `file`, making the file and its directory if need be, or says `busy` when
/// another process holds it.
pub(crate) fn file(file: &Path, busy: impl FnOnce() -> Error) -> Result<Lock> {
    take(open_file(file)?, file, codes::IO, busy)
}

/// Takes the lock of one byte of `file`, making the file if need be: a lock without a file of its
/// own. Says `busy` when somebody else holds it.
pub(crate) fn byte(file: &Path, byte: u64, busy: impl FnOnce() -> Error) -> Result<Lock> {
    let fd = open_file(file)?;
    match range_lock::try_lock(fd.as_fd(), byte) {
        Ok(true) => Ok(Lock {
            fd,
            byte: Some(byte),
        }),
        Ok(false) => Err(busy()),
        Err(e) => Err(codes::IO.io(format!("cannot lock {}", file.display()), e)),
    }
}

/// As [`byte`], but waits while somebody else holds it. Only where that is never for long.
pub(crate) fn byte_waiting(file: &Path, byte: u64) -> Result<Lock> {
    let fd = open_file(file)?;
    range_lock::lock(fd.as_fd(), byte)
        .map_err(|e| codes::IO.io(format!("cannot lock {}", file.display()), e))?;
    Ok(Lock {
        fd,
        byte: Some(byte),
    })
}

fn open_file(file: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    match open(file, flags, mode) {
        Err(rustix::io::Errno::NOENT) => {
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent)
                    .map_err(|e| codes::IO.io(format!("cannot make {}", parent.display()), e))?;
            }
            open(file, flags, mode)
        }
        other => other,
    }
    .map_err(|e| codes::IO.io(format!("cannot open {}", file.display()), e))
}

/// Takes the lock of `file` together with others who share it, waiting for one who does not.
pub(crate) fn shared(file: &Path) -> Result<Lock> {
    wait(file, FlockOperation::LockShared)
}

/// Takes the lock of `file` alone, waiting for all who share it. Only where those hold it briefly.
pub(crate) fn alone(file: &Path) -> Result<Lock> {
    wait(file, FlockOperation::LockExclusive)
}

fn wait(file: &Path, operation: FlockOperation) -> Result<Lock> {
    let fd = open_file(file)?;
    loop {
        match flock(&fd, operation) {
            Ok(()) => return Ok(Lock { fd, byte: None }),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(codes::IO.io(format!("cannot lock {}", file.display()), e)),
        }
    }
}

/// Takes the lock of a directory, across stores and users.
pub(crate) fn directory(dir: &Path, busy: impl FnOnce() -> Error) -> Result<Lock> {
    let fd = open(
        dir,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| codes::BASE.io(format!("cannot open {}", dir.display()), e))?;
    take(fd, dir, codes::BASE, busy)
}

fn take(fd: OwnedFd, path: &Path, code: Code, busy: impl FnOnce() -> Error) -> Result<Lock> {
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock { fd, byte: None }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(busy()),
        Err(e) => Err(code.io(format!("cannot lock {}", path.display()), e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_refuses_and_a_dropped_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/lock");
        let busy = || codes::BUSY.error("busy");
        let held = file(&path, busy).unwrap();
        assert_eq!(file(&path, busy).unwrap_err().code, "FP0406");
        drop(held);
        let (first, second) = (shared(&path).unwrap(), shared(&path).unwrap());
        assert_eq!(file(&path, busy).unwrap_err().code, "FP0406");
        drop((first, second));
        file(&path, busy).unwrap();
    }

    #[test]
    fn bytes_of_one_file_are_locks_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/locks");
        let busy = || codes::BUSY.error("busy");
        let held = byte(&path, 3, busy).unwrap();
        assert_eq!(byte(&path, 3, busy).unwrap_err().code, "FP0406");
        let other = byte(&path, 4, busy).unwrap();
        drop(held);
        byte(&path, 3, busy).unwrap();
        assert_eq!(byte(&path, 4, busy).unwrap_err().code, "FP0406");
        drop(other);
        byte(&path, 4, busy).unwrap();
    }
}
