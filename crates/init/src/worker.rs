//! The worker: works on an ordinary user's deltas inside the user's id mapping, where files that
//! the plain user cannot touch can be read and removed.
//!
//! It is pid 1 of its own pid namespace. Views are mounted at once; other work is done by a fork
//! for each request, so that a long one holds up none, and all of them end with the worker, which
//! ends as soon as its starter has gone.

use crate::codes::{PROTOCOL, SETUP};
use crate::conn::{self, Conn, MAX_WORKER};
use crate::protocol::{FromWorker, ToWorker};
use forkpoint_fs::{ops, stream, view};
use forkpoint_model::Result;
use forkpoint_sys::{clone, signal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Runs the worker. Returns the exit status.
pub fn run() -> i32 {
    let Ok(socket) = clone::inherited(crate::boot::SOCKET) else {
        return 125;
    };
    let mut starter = Conn::new(socket, MAX_WORKER);
    signal::ignore(signal::SIGCHLD);
    signal::ignore(signal::SIGPIPE);
    if crate::view::make_private().is_err() {
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

fn serve(request: ToWorker, mut fds: Vec<OwnedFd>, held: &mut Vec<OwnedFd>) {
    if fds.is_empty() {
        return;
    }
    let reply = fds.remove(0);
    let mut mounted = None;
    let message = match request {
        ToWorker::Files(request) => {
            let request = || ops::execute(request).map(FromWorker::Files);
            return work(request, &reply);
        }
        ToWorker::Stream(_) if fds.is_empty() => {
            FromWorker::Failed(PROTOCOL.error("nothing to write to"))
        }
        ToWorker::Stream(request) => {
            let output = fds.remove(0);
            let request = || stream::execute(request, output).map(FromWorker::Streamed);
            return work(request, &reply);
        }
        ToWorker::View { stack, options } => match view::mount(&stack, &options) {
            Ok(view) => {
                mounted = Some(view);
                FromWorker::View
            }
            Err(e) => FromWorker::Failed(e),
        },
        ToWorker::Hold if fds.is_empty() => FromWorker::Failed(PROTOCOL.error("nothing to hold")),
        ToWorker::Hold => {
            held.append(&mut fds);
            FromWorker::Done
        }
    };
    let mounted: Vec<_> = mounted.iter().map(AsFd::as_fd).collect();
    answer(&reply, &message, &mounted);
}

/// Whoever asked may have gone; then nobody is told.
fn answer(reply: &OwnedFd, message: &FromWorker, fds: &[BorrowedFd<'_>]) {
    conn::send(reply.as_fd(), message, fds).unwrap_or(());
}

/// Works in a process of its own, which is reaped by nobody: the worker ignores its children.
fn work(request: impl FnOnce() -> Result<FromWorker>, reply: &OwnedFd) {
    match clone::fork(0) {
        Ok(Some(_)) => {}
        Ok(None) => {
            let done = signal::reset(&[signal::SIGCHLD])
                .map_err(|e| SETUP.io("cannot reset signals", e))
                .and_then(|()| request());
            let message = done.unwrap_or_else(FromWorker::Failed);
            answer(reply, &message, &[]);
            clone::exit_now(0)
        }
        Err(e) => {
            let error = SETUP.io("the worker cannot fork", e);
            answer(reply, &FromWorker::Failed(error), &[]);
        }
    }
}
