//! The worker: works on an ordinary user's deltas inside the user's id mapping, where files that
//! the plain user cannot touch can be read and removed.
//!
//! It is pid 1 of its own pid namespace. Views are mounted at once; other work is done by a fork
//! for each request, so that a long one holds up none, and all of them end with the worker, which
//! ends as soon as its starter has gone.

use crate::codes::PROTOCOL;
use crate::conn::{self, Conn, MAX_WORKER};
use crate::protocol::{FromWorker, ToWorker};
use forkpoint_fs::view;
use forkpoint_model::Result;
use forkpoint_sys::clone;
use std::os::fd::{AsFd, OwnedFd};

/// Runs the worker. Returns the exit status.
pub fn run() -> i32 {
    let Ok(socket) = clone::inherited(crate::boot::SOCKET) else {
        return 125;
    };
    let mut starter = Conn::new(socket, MAX_WORKER);
    // Undone by no one: its mounts are detached ones, which never propagate.
    if view_setup().is_err() {
        return 125;
    }
    let mut held = Vec::new();
    loop {
        match starter.receive::<ToWorker>() {
            Ok(Some((request, fds))) => serve(request, fds, &mut held),
            Ok(None) => return 0,
            Err(_) => return 125,
        }
    }
}

fn view_setup() -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::empty());
    crate::view::make_private()
}

fn serve(request: ToWorker, mut fds: Vec<OwnedFd>, held: &mut Vec<OwnedFd>) {
    if fds.is_empty() {
        return;
    }
    let reply = fds.remove(0);
    let (message, mounted) = match request {
        ToWorker::View { stack, options } => match view::mount(&stack, &options) {
            Ok(mounted) => (FromWorker::View, Some(mounted)),
            Err(e) => (FromWorker::Failed(e), None),
        },
        ToWorker::Hold if fds.is_empty() => {
            (FromWorker::Failed(PROTOCOL.error("nothing to hold")), None)
        }
        ToWorker::Hold => {
            held.append(&mut fds);
            (FromWorker::Done, None)
        }
    };
    let mounted: Vec<_> = mounted.iter().map(AsFd::as_fd).collect();
    // Whoever asked may have gone; then nobody is told.
    conn::send(reply.as_fd(), &message, &mounted).unwrap_or(());
}
