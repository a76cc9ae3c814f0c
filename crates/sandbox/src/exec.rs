//! Commands inside a sandbox.

use crate::codes::{GONE, HOST_IO, PROTOCOL};
use forkpoint_init::conn::{self, Conn, MAX_CONTROL};
use forkpoint_init::protocol::{ExecMessage, FromInit, ToCommand, ToInit};
use forkpoint_init::{ExitKind, ExitReport};
use forkpoint_model::Result;
use forkpoint_sys::{clock, signal};
use std::ffi::OsString;
use std::io;
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

/// A command that runs inside. Dropping it lets the command run on.
#[derive(Debug)]
pub struct Running {
    reply: Conn,
    began_ns: u64,
}

/// The message and the descriptors of a request.
pub(crate) fn message(request: ExecRequest) -> (ToInit, Vec<OwnedFd>) {
    let mut streams = vec![request.stdin, request.stdout, request.stderr];
    let score = request.score_fd.is_some();
    streams.extend(request.score_fd);
    let message = ExecMessage {
        argv: request
            .argv
            .iter()
            .map(|arg| arg.as_os_str().into())
            .collect(),
        env: request
            .env
            .iter()
            .map(|(name, value)| (name.as_os_str().into(), value.as_os_str().into()))
            .collect(),
        cwd: request.cwd.as_path().into(),
        score,
        new_session: request.new_session,
    };
    (ToInit::Exec(message), streams)
}

impl Running {
    pub(crate) fn new(reply: OwnedFd) -> Self {
        Self {
            reply: Conn::new(reply, MAX_CONTROL),
            began_ns: clock::monotonic_ns(),
        }
    }

    /// Waits until it ends. A command whose sandbox is killed ends by SIGKILL.
    pub fn wait(mut self) -> Result<ExitReport> {
        let killed = |began: u64| ExitReport {
            status: ExitKind::Signal(signal::SIGKILL),
            wall_ns: clock::monotonic_ns().saturating_sub(began),
            cpu_ns: 0,
            peak_memory_bytes: 0,
            left_running: 0,
        };
        match self.reply.receive::<FromInit>() {
            Ok(Some((FromInit::Exited(report), _))) => Ok(report),
            Ok(Some((FromInit::Failed(error), _))) => Err(error),
            Ok(Some(_)) => Err(PROTOCOL.error("init answered a command with something else")),
            Ok(None) => Ok(killed(self.began_ns)),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(killed(self.began_ns)),
            Err(e) => Err(HOST_IO.io("cannot hear of the command's end", e)),
        }
    }

    /// Sends it a signal; nothing happens where it has ended.
    pub fn signal(&self, sig: i32) -> Result<()> {
        match conn::send(self.reply.as_fd(), &ToCommand::Signal(sig), &[]) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(e) => Err(GONE.io("cannot reach the command", e)),
        }
    }

    /// Becomes readable when it has ended.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.reply.as_fd()
    }
}
