//! The caller's descriptor 3: where a command of a branch at the reasoning layer says its proposal.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

static KEPT: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Keeps it, if the caller opened it. To be called before anything else is opened, since its number
/// is anybody's after that.
pub(crate) fn keep() {
    if let (Ok(fd), Ok(mut kept)) = (forkpoint_sys::clone::inherited(3), KEPT.lock()) {
        *kept = Some(fd);
    }
}

/// Takes it, once.
pub(crate) fn take() -> Option<OwnedFd> {
    KEPT.lock().ok()?.take()
}
