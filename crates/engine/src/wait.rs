//! Waiting: for one of two descriptors, and between two looks at what another process does.

use crate::codes;
use forkpoint_model::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Waits until one of both is readable; says whether `second` is.
pub(crate) fn either(first: BorrowedFd<'_>, second: BorrowedFd<'_>) -> Result<bool> {
    loop {
        let mut fds = [
            PollFd::new(&first, PollFlags::IN),
            PollFd::new(&second, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) => return Ok(!fds[1].revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(codes::IO.io("cannot wait", e)),
        }
    }
}

/// Lets a moment pass before something is tried again that another process holds.
pub(crate) fn pause(time: Duration) -> Result<()> {
    let time = Timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(&mut [], Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(codes::IO.io("cannot wait", e)),
    }
}
