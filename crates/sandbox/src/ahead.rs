//! An init started ahead of its branch: a process that is about to start one branch lets the kernel
//! make init and its namespaces while it still reads the store.
//!
//! An init that is never told what to build holds nothing and ends when its starter does, or lets go
//! of it.

use crate::launch::{self, Started};
use crate::process;
use forkpoint_init::Identity;
use forkpoint_sys::clone;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The one that waits, and whose it is.
static AHEAD: Mutex<Option<(Identity, Started)>> = Mutex::new(None);

/// Starts an init for the next [`Sandbox::start`](crate::Sandbox::start) of this process that has no
/// use for a cgroup. `program_in` is where the executable is kept (as in
/// [`keep_program_in`](crate::keep_program_in)).
///
/// It is only ever a gain of time: what goes wrong here goes wrong again, and is told, when the
/// sandbox is started.
pub fn start_ahead(program_in: &Path) {
    let Ok(identity) = crate::identity() else {
        return;
    };
    crate::keep_program_in(program_in);
    let Ok(mut started) = launch::start("init", &identity, None, Some(program_in)) else {
        return;
    };
    if launch::begin(&mut started, &identity).is_err() {
        return end(started);
    }
    let before = lock().replace((identity, started));
    if let Some((_, before)) = before {
        end(before);
    }
}

/// Lets go of an init that was started ahead and has no branch.
pub fn stop_ahead() {
    if let Some((_, started)) = take() {
        end(started);
    }
}

/// The init that waits for a branch of `identity`, if there is one.
pub(crate) fn taken(identity: &Identity) -> Option<Started> {
    let (whose, started) = take()?;
    let over = process::ended(started.launched.child.pidfd.as_fd()).unwrap_or(true);
    if whose == *identity && !over {
        return Some(started);
    }
    end(started);
    None
}

fn lock() -> std::sync::MutexGuard<'static, Option<(Identity, Started)>> {
    AHEAD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take() -> Option<(Identity, Started)> {
    lock().take()
}

fn end(started: Started) {
    let pidfd = &started.launched.child.pidfd;
    // It holds nothing; one that cannot be killed ends at the end of its socket.
    if process::kill(pidfd.as_fd()).is_ok() {
        clone::reap(pidfd.as_fd()).unwrap_or(None);
    }
}
