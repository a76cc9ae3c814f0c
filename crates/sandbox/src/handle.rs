//! The host-side handle of one running sandbox.

use crate::codes::GONE;
use crate::exec::{ExecRequest, Running};
use forkpoint_init::{FinalUsage, ProcessIdentity, SandboxSpec, Usage};
use forkpoint_model::{BranchId, Result};
use std::path::Path;

/// One running sandbox. Dropping it lets the sandbox run on until its last process ends, unless
/// it was started with `lifeline`: then everything inside is killed.
#[derive(Debug)]
pub struct Sandbox {
    process: ProcessIdentity,
    warnings: Vec<String>,
}

impl Sandbox {
    /// Starts a sandbox; returns when its views are mounted.
    pub fn start(_spec: SandboxSpec) -> Result<Sandbox> {
        Err(GONE.error("not yet implemented"))
    }

    /// Takes hold of a sandbox that another process started. `None`: it is gone.
    pub fn attach(_process: &ProcessIdentity, _control_socket: &Path) -> Result<Option<Sandbox>> {
        Err(GONE.error("not yet implemented"))
    }

    /// Its init.
    pub fn process(&self) -> &ProcessIdentity {
        &self.process
    }

    /// What could not be captured or limited, said plainly.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Starts a command inside.
    pub fn exec(&self, _request: ExecRequest) -> Result<Running> {
        Err(GONE.error("not yet implemented"))
    }

    /// Stops every process inside; returns when none can make progress.
    pub fn freeze(&self) -> Result<()> {
        Err(GONE.error("not yet implemented"))
    }

    /// Lets what [`Sandbox::freeze`] stopped go on.
    pub fn thaw(&self) -> Result<()> {
        Err(GONE.error("not yet implemented"))
    }

    /// What it takes now.
    pub fn usage(&self) -> Result<Usage> {
        Err(GONE.error("not yet implemented"))
    }

    /// Kills everything inside; returns when nothing lives. Can be called again.
    pub fn kill(&self) -> Result<FinalUsage> {
        Err(GONE.error("not yet implemented"))
    }
}

/// Whether that very process lives.
pub fn is_alive(_process: &ProcessIdentity) -> Result<bool> {
    Err(GONE.error("not yet implemented"))
}

/// Kills that very process, an init and with it everything inside, and waits until it is dead.
/// `false`: it was gone already.
pub fn kill_process(_process: &ProcessIdentity) -> Result<bool> {
    Err(GONE.error("not yet implemented"))
}

/// Removes the cgroups that dead runs left, except those of branches that `live` says yes to.
/// Returns how many were removed.
pub fn sweep(_live: &dyn Fn(BranchId) -> bool) -> Result<u32> {
    Ok(0)
}
