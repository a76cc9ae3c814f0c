//! The store's writer lock: one `flock`, waited for without polling and for a bounded time.

use crate::codes;
use forkpoint_model::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

/// A lock file that this process can take, again and again.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    fd: OwnedFd,
}

/// The lock, held; dropping it lets go.
#[derive(Debug)]
pub(crate) enum Guard<'a> {
    /// Held through the file's own descriptor.
    Own(&'a OwnedFd),
    /// Held through a descriptor that a waiting thread opened; closing it lets go.
    Waited(#[expect(dead_code, reason = "held for its lock, let go by closing it")] OwnedFd),
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Guard::Own(fd) = self {
            // Unlocking a descriptor that is valid and locked has no way to fail.
            let unlocked = flock(fd, FlockOperation::Unlock);
            debug_assert!(unlocked.is_ok());
        }
    }
}

fn open_lock(path: &Path) -> Result<OwnedFd> {
    open(
        path,
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::RUSR | Mode::WUSR,
    )
    .map_err(|e| failed(path, e))
}

fn failed(path: &Path, e: Errno) -> Error {
    codes::CANNOT_OPEN.io(format!("the store's lock {}", path.display()), e)
}

fn lock_fd(fd: &OwnedFd, how: FlockOperation) -> Result<(), Errno> {
    loop {
        match flock(fd, how) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

impl LockFile {
    pub(crate) fn new(path: PathBuf) -> Result<Self> {
        let fd = open_lock(&path)?;
        Ok(Self { path, fd })
    }

    /// Takes the lock, waiting for at most `patience`.
    ///
    /// The kernel has no `flock` with a time limit, and polling is neither fair nor fast. So a
    /// thread blocks in `flock` on a descriptor of its own and hands it over; if nobody waits any
    /// more when it gets the lock, the descriptor is closed, which lets go.
    pub(crate) fn take(&self, patience: Duration) -> Result<Guard<'_>> {
        match lock_fd(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Guard::Own(&self.fd)),
            Err(Errno::WOULDBLOCK) => {}
            Err(e) => return Err(failed(&self.path, e)),
        }
        let fd = open_lock(&self.path)?;
        let (sender, receiver) = sync_channel(1);
        let waiter = thread::Builder::new()
            .name("store-lock".into())
            .spawn(move || {
                let got = lock_fd(&fd, FlockOperation::LockExclusive).map(|()| fd);
                // Nobody waits any more: what was got is dropped with the message.
                drop(sender.send(got));
            });
        waiter.map_err(|e| codes::BUSY.io("cannot wait for the store's lock", e))?;
        match receiver.recv_timeout(patience) {
            Ok(Ok(fd)) => Ok(Guard::Waited(fd)),
            Ok(Err(e)) => Err(failed(&self.path, e)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(codes::BUSY
                .error(format!(
                    "another process has been writing to the store for more than {} s",
                    patience.as_secs_f32()
                ))
                .hint(format!(
                    "see who holds {} (lslocks), then try again",
                    self.path.display()
                ))),
        }
    }
}
