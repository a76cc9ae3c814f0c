//! What the threads of an exploration share: the one who watches, and what can end it early.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::Cancel;
use crate::observer::{Observer, Progress};

/// The observer, called by one thread at a time.
pub(crate) struct Shared<'a>(Mutex<&'a mut dyn Observer>);

impl<'a> Shared<'a> {
    pub(crate) fn new(observer: &'a mut dyn Observer) -> Self {
        Self(Mutex::new(observer))
    }

    pub(crate) fn tell(&self, progress: &Progress<'_>) {
        // An observer that panicked once has lost a line, not the exploration.
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .on(progress);
    }
}

/// Why an exploration ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Someone interrupted it.
    Interrupted,
    /// Its total time is over.
    Deadline,
}

/// Raised by the caller's flag or by the deadline, whichever comes first.
pub(crate) struct Watch {
    /// Raised when the exploration is to end early.
    pub(crate) stop: Cancel,
    why: OnceLock<Stop>,
}

impl Watch {
    pub(crate) fn new() -> forkpoint_model::Result<Self> {
        Ok(Self {
            stop: Cancel::new()?,
            why: OnceLock::new(),
        })
    }

    /// Why it is to end early, if it is.
    pub(crate) fn why(&self) -> Option<Stop> {
        self.why.get().copied()
    }

    /// Waits for the caller's flag, the deadline, or `over`; runs `tell` if it was not `over`.
    pub(crate) fn wait(
        &self,
        caller: &Cancel,
        over: &Cancel,
        deadline: Option<Instant>,
        tell: impl FnOnce(Stop),
    ) {
        let why = loop {
            let mut fds = [
                PollFd::from_borrowed_fd(caller.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(over.fd(), PollFlags::IN),
            ];
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match poll(&mut fds, left.map(timespec).as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                // Nothing can be waited for any more: end it, rather than run without limits.
                Err(_) => break Stop::Interrupted,
                Ok(_) => {}
            }
            if over.is_cancelled() {
                return;
            }
            if caller.is_cancelled() {
                break Stop::Interrupted;
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                break Stop::Deadline;
            }
        };
        let why = *self.why.get_or_init(|| why);
        self.stop.cancel();
        tell(why);
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// Raises a flag when it goes out of scope, so that a thread that waits for it always ends.
pub(crate) struct RaiseOnDrop<'a>(pub(crate) &'a Cancel);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
