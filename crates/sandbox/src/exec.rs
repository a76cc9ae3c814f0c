//! Commands inside a sandbox.

use crate::codes::GONE;
use forkpoint_init::ExitReport;
use forkpoint_model::Result;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// A command to run inside.
#[derive(Debug)]
pub struct ExecRequest {
    /// The program and its arguments. A program without a slash is looked for in `PATH` of `env`.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory, inside.
    pub cwd: PathBuf,
    /// Its standard input.
    pub stdin: OwnedFd,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
    /// Where its score is read from: appears as descriptor 3.
    pub score_fd: Option<OwnedFd>,
    /// Give it a session of its own, without a controlling terminal. Without, it shares the
    /// terminal of whoever started the sandbox.
    pub new_session: bool,
}

/// A command that runs inside.
#[derive(Debug)]
pub struct Running {
    reply: OwnedFd,
}

impl Running {
    /// Waits until it ends.
    pub fn wait(self) -> Result<ExitReport> {
        Err(GONE.error("not yet implemented"))
    }

    /// Sends it a signal; nothing happens where it has ended.
    pub fn signal(&self, _sig: i32) -> Result<()> {
        Err(GONE.error("not yet implemented"))
    }

    /// Becomes readable when it has ended.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.reply.as_fd()
    }
}
