//! Waiting for one of two descriptors.

use crate::codes;
use forkpoint_model::Result;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

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
