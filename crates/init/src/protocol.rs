//! The messages between init or the worker and who speaks to them.
//!
//! Every request carries, as its first descriptor, the socket its answer goes to: any number of
//! threads and processes can ask at once, and a closed answer socket means that init is gone.

use crate::bytes::Bytes;
use crate::spec::{ExitReport, Identity, Limit, SandboxSpec, Usage};
use crate::tty::TerminalSpec;
use forkpoint_fs::MountOptions;
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_fs::stream::{StreamRequest, StreamResponse};
use forkpoint_model::Error;
use serde::{Deserialize, Serialize};

/// The first message to init: whose branch it will be. With that it makes what does not depend on
/// the branch, while its starter may still be finding out what there is to build.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Whose it is.
    pub identity: Identity,
}

/// The second message to init, with the descriptors that [`Setup`] counts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// What to build.
    pub spec: SandboxSpec,
    /// The first descriptor is the listening control socket.
    pub listener: bool,
    /// The cgroup directories that follow, in this order.
    pub cgroups: Vec<CgroupKind>,
}

/// What a cgroup directory measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupKind {
    /// All of it, as far as its controllers are enabled.
    V2,
    /// The v1 memory controller.
    V1Memory,
    /// The v1 pids controller.
    V1Pids,
    /// The v1 cpuacct controller.
    V1Cpu,
}

/// Init's answer to [`Setup`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Ready {
    /// The views are mounted; these things could not be captured or limited.
    Started(Vec<String>),
    /// It could not be set up.
    Failed(Error),
}

/// A command, with its standard streams as descriptors 1 to 3 and its score's as 4.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExecMessage {
    /// The program and its arguments.
    pub argv: Vec<Bytes>,
    /// The whole environment.
    pub env: Vec<(Bytes, Bytes)>,
    /// The working directory.
    pub cwd: Bytes,
    /// Whether descriptor 4 is there.
    pub score: bool,
    /// Give it a session of its own.
    pub new_session: bool,
    /// Make it a terminal, in a session of its own; answered first by [`FromInit::Terminal`].
    pub terminal: Option<TerminalMessage>,
}

/// The terminal of a command.
#[derive(Debug, Serialize, Deserialize)]
pub struct TerminalMessage {
    /// What it is like at first.
    pub spec: TerminalSpec,
    /// Which of the three standard streams it replaces.
    pub streams: [bool; 3],
}

/// A request to a running init.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToInit {
    /// Start a command; answered by [`FromInit::Exited`] when it has ended.
    Exec(ExecMessage),
    /// Stop everything; answered by `Done`.
    Freeze,
    /// Let everything go on; answered by `Done`.
    Thaw,
    /// Answered by `Usage`.
    Usage {
        /// Measure what is on disk now, however long that takes.
        walk: bool,
    },
    /// Answered by `Warnings`.
    Warnings,
    /// Stop everything until `Resume`, whoever freezes and thaws meanwhile; answered by `Done`.
    Pause,
    /// Let everything go on; answered by `Done`.
    Resume,
    /// Answered by `Paused`.
    IsPaused,
    /// Connect to a port of the branch's loopback; answered by `Connected`.
    Connect {
        /// The port.
        port: u16,
        /// At `::1`, else at 127.0.0.1.
        ipv6: bool,
    },
    /// Hand over the listening end of the branch's socket; answered by `BranchSocket`.
    BranchSocket,
    /// As `Freeze`, until `Thaw` or until this connection closes, whichever comes first.
    Hold,
}

/// What can be sent on a command's answer socket.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToCommand {
    /// Send it a signal.
    Signal(i32),
    /// Send its process group a signal, or it alone where it does not lead one.
    SignalGroup(i32),
}

/// An answer of init.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromInit {
    /// It was done.
    Done,
    /// It was refused, or failed.
    Failed(Error),
    /// The command has ended.
    Exited(ExitReport),
    /// What the sandbox takes.
    Usage {
        /// So far.
        usage: Usage,
        /// The limit that was hit, where one was.
        limit: Option<Limit>,
    },
    /// What could not be captured or limited.
    Warnings(Vec<String>),
    /// The command runs; the controlling end of its terminal follows.
    Terminal,
    /// Whether the branch is paused.
    Paused(bool),
    /// The connection follows, which may still be in the making.
    Connected,
    /// The listening end of the branch's socket follows.
    BranchSocket {
        /// How long the branch may still run, where its wall time is limited.
        left_ms: Option<u64>,
    },
}

/// A request to the worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// Work on files.
    Files(FsRequest),
    /// Mount a view.
    View {
        /// Its layers.
        #[serde(with = "crate::bytes::stack")]
        stack: forkpoint_fs::Stack,
        /// How.
        options: MountOptions,
    },
    /// Keep the descriptor that follows (a lock) for as long as the worker lives.
    Hold,
    /// Write to the descriptor that follows.
    Stream(StreamRequest),
}

/// An answer of the worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// The result of the work.
    Files(FsResponse),
    /// What came of the writing.
    Streamed(StreamResponse),
    /// The view's detached mount follows.
    View,
    /// It was done.
    Done,
    /// It failed.
    Failed(Error),
}
