//! The process that works on an ordinary user's deltas, inside the user's id mapping.

use crate::codes::GONE;
use forkpoint_fs::Stack;
use forkpoint_init::Identity;
use forkpoint_model::Result;
use std::os::fd::OwnedFd;

/// A running worker. It ends when this is dropped.
#[derive(Debug)]
pub struct Worker;

impl Worker {
    /// Starts a worker with the mapping of `identity`.
    pub fn start(_identity: &Identity) -> Result<Worker> {
        Err(GONE.error("not yet implemented"))
    }

    /// Mounts a view of `stack` and returns its detached mount.
    pub fn mount_view(&self, _stack: &Stack, _volatile: bool) -> Result<OwnedFd> {
        Err(GONE.error("not yet implemented"))
    }
}
