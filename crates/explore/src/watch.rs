//! What the threads of an exploration share: the one who watches, and what can end it early.

use forkpoint_engine::Redactor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::Cancel;
use crate::observer::{Observer, Progress};
use crate::report::Span;

/// The observer, called by one thread at a time, and what it must not be shown.
pub(crate) struct Shared<'a> {
    observer: Mutex<&'a mut dyn Observer>,
    pub(crate) redactor: Redactor,
    begun: Instant,
    timeline: Mutex<Vec<Span>>,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(observer: &'a mut dyn Observer, redactor: Redactor) -> Self {
        Self {
            observer: Mutex::new(observer),
            redactor,
            begun: Instant::now(),
            timeline: Mutex::default(),
        }
    }

    /// Does `job` and notes when.
    pub(crate) fn timed<T>(&self, attempt: Option<u32>, phase: &str, job: impl FnOnce() -> T) -> T {
        let from_s = self.begun.elapsed().as_secs_f64();
        let done = job();
        let span = Span {
            attempt,
            phase: phase.to_owned(),
            from_s,
            to_s: self.begun.elapsed().as_secs_f64(),
        };
        self.timeline
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(span);
        done
    }

    /// What was noted so far.
    pub(crate) fn timeline(&self) -> Vec<Span> {
        std::mem::take(&mut self.timeline.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the observer wants to know what attempts use.
    pub(crate) fn wants_usage(&self) -> bool {
        self.observer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wants_usage()
    }

    pub(crate) fn tell(&self, progress: &Progress<'_>) {
        // An observer that panicked once has lost a line, not the exploration.
        self.observer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .on(progress);
    }
}

/// Quiet for a judge that must be alone: what runs shares it, the judge has it to itself. A judge that
/// waits goes before commands that have not begun.
#[derive(Default)]
pub(crate) struct Quiet(RwLock<()>);

impl Quiet {
    /// Runs `job` beside others.
    pub(crate) fn beside<T>(&self, job: impl FnOnce() -> T) -> T {
        let _guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        job()
    }

    /// Runs `job` once nothing else runs, and lets nothing begin meanwhile.
    pub(crate) fn alone<T>(&self, job: impl FnOnce() -> T) -> T {
        let _guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        job()
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

pub(crate) fn timespec(time: Duration) -> Timespec {
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
