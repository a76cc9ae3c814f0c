//! The process that works on an ordinary user's deltas, inside the user's id mapping.

use crate::codes::{GONE, HOST_IO, PROTOCOL};
use crate::{launch, process};
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_fs::stream::{StreamRequest, StreamResponse};
use forkpoint_fs::{MountOptions, Stack};
use forkpoint_init::Identity;
use forkpoint_init::conn::{self, Conn, MAX_WORKER};
use forkpoint_init::protocol::{FromWorker, ToWorker};
use forkpoint_model::Result;
use forkpoint_sys::clone;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// A running worker; any number of threads may call it at once. It ends, with all its work, when
/// this is dropped or this process ends.
#[derive(Debug)]
pub struct Worker {
    control: Mutex<OwnedFd>,
    pidfd: OwnedFd,
    rootless: bool,
}

impl Worker {
    /// Starts a worker with the mapping of `identity`.
    pub fn start(identity: &Identity) -> Result<Worker> {
        let started = launch::start("worker", identity, None, None)?;
        let mut launched = started.launched;
        launched
            .go()
            .map_err(|e| HOST_IO.io("cannot let the worker go", e))?;
        Ok(Worker {
            control: Mutex::new(started.socket),
            pidfd: launched.child.pidfd,
            rootless: identity.rootless(),
        })
    }

    /// Performs a request there, in a process of its own.
    pub fn call(&self, request: FsRequest) -> Result<FsResponse> {
        match self.ask(&ToWorker::Files(request), &[])? {
            (FromWorker::Files(response), _) => Ok(response),
            (FromWorker::Failed(error), _) => Err(error),
            _ => Err(unexpected()),
        }
    }

    /// Performs a request there whose result is written to `output`, of which no other copy should be
    /// kept by somebody who waits for its end.
    pub fn stream(&self, request: StreamRequest, output: BorrowedFd<'_>) -> Result<StreamResponse> {
        match self.ask(&ToWorker::Stream(request), &[output])? {
            (FromWorker::Streamed(response), _) => Ok(response),
            (FromWorker::Failed(error), _) => Err(error),
            _ => Err(unexpected()),
        }
    }

    /// Mounts a view of `stack` and returns its detached mount.
    pub fn mount_view(&self, stack: &Stack, volatile: bool) -> Result<OwnedFd> {
        let request = ToWorker::View {
            stack: stack.clone(),
            options: MountOptions {
                volatile,
                userxattr: self.rootless,
            },
        };
        match self.ask(&request, &[])? {
            (FromWorker::View, mut fds) if fds.len() == 1 => Ok(fds.remove(0)),
            (FromWorker::Failed(error), _) => Err(error),
            _ => Err(unexpected()),
        }
    }

    /// Keeps a copy of `lock` open for as long as the worker lives: a `flock` held through it ends
    /// only when no work can go on any more, even if this process is killed.
    pub fn hold(&self, lock: BorrowedFd<'_>) -> Result<()> {
        match self.ask(&ToWorker::Hold, &[lock])? {
            (FromWorker::Done, _) => Ok(()),
            (FromWorker::Failed(error), _) => Err(error),
            _ => Err(unexpected()),
        }
    }

    fn ask(
        &self,
        request: &ToWorker,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(FromWorker, Vec<OwnedFd>)> {
        let (ours, theirs) = launch::pair()?;
        let mut all = vec![theirs.as_fd()];
        all.extend(fds);
        let sent = {
            let control = self.control.lock().unwrap_or_else(|e| e.into_inner());
            conn::send(control.as_fd(), request, &all)
        };
        sent.map_err(|e| GONE.io("cannot reach the worker", e))?;
        drop(theirs);
        match Conn::new(ours, MAX_WORKER).receive::<FromWorker>() {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(GONE.error("the worker has ended")),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                Err(GONE.error("the worker has ended"))
            }
            Err(e) => Err(HOST_IO.io("cannot hear the worker's answer", e)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nobody can be told of a failure here; a process that was killed dies.
        if process::kill(self.pidfd.as_fd()).is_ok() {
            clone::reap(self.pidfd.as_fd()).unwrap_or(None);
        }
    }
}

fn unexpected() -> forkpoint_model::Error {
    PROTOCOL.error("the worker answered with something else")
}
