//! Commands inside a sandbox.

use crate::codes::{GONE, HOST_IO, PROTOCOL};
use forkpoint_init::conn::{self, Conn, MAX_CONTROL};
use forkpoint_init::protocol::{ExecMessage, FromInit, TerminalMessage, ToCommand, ToInit};
use forkpoint_init::{ExitKind, ExitReport, TerminalSpec};
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
    /// Where its score, or its proposal, is read from: appears as descriptor 3.
    pub score_fd: Option<OwnedFd>,
    /// Give it a session of its own, without a controlling terminal. Without, it shares the
    /// terminal of whoever started the sandbox.
    pub new_session: bool,
    /// A terminal of the branch's own in place of some of the streams; what is given for those is
    /// not used. The command leads a session and has it as its controlling terminal.
    pub terminal: Option<Terminal>,
}

/// A terminal for a command.
#[derive(Debug)]
pub struct Terminal {
    /// What it is like at first.
    pub spec: TerminalSpec,
    /// Which of standard input, output and error it is.
    pub streams: [bool; 3],
}

/// A command that runs inside. Dropping it lets the command run on.
#[derive(Debug)]
pub struct Running {
    reply: Conn,
    began_ns: u64,
    terminal: Option<OwnedFd>,
    /// How it ended, where that was learned in place of its terminal.
    early: Option<ExitReport>,
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
        terminal: request.terminal.map(|terminal| TerminalMessage {
            spec: terminal.spec,
            streams: terminal.streams,
        }),
    };
    (ToInit::Exec(message), streams)
}

impl Running {
    pub(crate) fn new(reply: OwnedFd) -> Self {
        Self {
            reply: Conn::new(reply, MAX_CONTROL),
            began_ns: clock::monotonic_ns(),
            terminal: None,
            early: None,
        }
    }

    /// Waits for the terminal, or for the word that there will be none.
    pub(crate) fn expect_terminal(&mut self) -> Result<()> {
        match self.reply.receive::<FromInit>() {
            Ok(Some((FromInit::Terminal, mut fds))) => self.terminal = fds.pop(),
            Ok(Some((FromInit::Exited(report), _))) => self.early = Some(report),
            Ok(Some((FromInit::Failed(error), _))) => return Err(error),
            Ok(Some(_)) => {
                return Err(PROTOCOL.error("init answered a command with something else"));
            }
            // Killed meanwhile, which `wait` tells.
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
            Err(e) => return Err(HOST_IO.io("cannot hear of the command's terminal", e)),
        }
        Ok(())
    }

    /// The controlling end of its terminal, where it has one: once. Closing it hangs the terminal
    /// up.
    pub fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
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
        if let Some(report) = self.early {
            return Ok(report);
        }
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
        self.tell(&ToCommand::Signal(sig))
    }

    /// Sends a signal to its process group, as a key on a terminal does; to it alone where it leads
    /// none. Nothing happens where it has ended.
    pub fn signal_group(&self, sig: i32) -> Result<()> {
        self.tell(&ToCommand::SignalGroup(sig))
    }

    fn tell(&self, message: &ToCommand) -> Result<()> {
        match conn::send(self.reply.as_fd(), message, &[]) {
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
