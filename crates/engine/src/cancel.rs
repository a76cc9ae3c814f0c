//! A flag that can be waited for: raised once, from any thread or a signal handler's pipe.

use forkpoint_model::Result;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::codes;

/// Cancels what is under way: commands inside are killed, and the call returns.
#[derive(Clone)]
pub struct Cancel {
    inner: Arc<Inner>,
}

struct Inner {
    raised: AtomicBool,
    event: OwnedFd,
}

impl Cancel {
    /// A flag that is not raised.
    ///
    /// # Errors
    /// `FP0420` when the process has no descriptor left.
    pub fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| codes::IO.io("cannot make an event descriptor", e))?;
        Ok(Self {
            inner: Arc::new(Inner {
                raised: AtomicBool::new(false),
                event,
            }),
        })
    }

    /// Raises the flag. Raising it again changes nothing.
    pub fn cancel(&self) {
        self.inner.raised.store(true, Ordering::SeqCst);
        // The only failure is a counter at its maximum, which is already readable.
        rustix::io::write(&self.inner.event, &1u64.to_ne_bytes()).ok();
    }

    /// Whether it is raised.
    pub fn is_cancelled(&self) -> bool {
        self.inner.raised.load(Ordering::SeqCst)
    }

    /// Readable once raised, and from then on: nobody reads it away.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(cancel: &Cancel) -> bool {
        let mut fds = [PollFd::new(&cancel.inner.event, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn a_raised_flag_stays_readable_in_every_clone() {
        let cancel = Cancel::new().unwrap();
        let other = cancel.clone();
        assert!(!readable(&other) && !other.is_cancelled());
        cancel.cancel();
        cancel.cancel();
        assert!(readable(&other) && readable(&other) && other.is_cancelled());
    }
}
