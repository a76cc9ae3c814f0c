//! What a sandbox is made of, as its starter says it and as init receives it. Paths are bytes on
//! the wire: a name that is not UTF-8 is as good as any other.

use forkpoint_fs::Stack;
use forkpoint_model::BranchId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A range of subordinate ids of an ordinary user, as in `/etc/subuid` and `/etc/subgid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IdRange {
    /// The first user id of the range, in the caller's namespace.
    pub uid: u32,
    /// The first group id of the range.
    pub gid: u32,
    /// How many ids it holds; the smaller of both where the files differ.
    pub len: u32,
}

/// Whose branch it is, and so how its ids are mapped.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Identity {
    /// Root: inside, ids 0 to `len - 1` are the host's `shift` onwards; files keep their true ids
    /// by idmapped mounts.
    Root {
        /// The host id that is 0 inside.
        shift: u32,
        /// How many ids are mapped.
        len: u32,
    },
    /// An ordinary user: inside, the caller's own ids are again the caller's.
    User {
        /// The caller's user id.
        uid: u32,
        /// The caller's group id.
        gid: u32,
        /// Ranges that `newuidmap` and `newgidmap` let the caller map; often none.
        sub: Vec<IdRange>,
    },
}

impl Identity {
    /// Whether it is an ordinary user's, so that the overlay keeps its marks in `user.overlay.*`.
    pub fn rootless(&self) -> bool {
        matches!(self, Identity::User { .. })
    }

    /// The user and group id of commands, as seen inside.
    pub fn inside(&self) -> (u32, u32) {
        match self {
            Identity::Root { .. } => (0, 0),
            Identity::User { uid, gid, .. } => (*uid, *gid),
        }
    }
}

/// One disk of the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskMount {
    /// Where it appears: the base's own absolute path.
    #[serde(with = "crate::bytes::path")]
    pub target: PathBuf,
    /// Its layers.
    #[serde(with = "crate::bytes::stack")]
    pub stack: Stack,
    /// `fsync` inside does nothing: for attempts, which are synced before they are published.
    pub volatile: bool,
    /// The whole copy to bind in place of an overlay, where overlay cannot serve.
    #[serde(with = "crate::bytes::option_path")]
    pub copy_tree: Option<PathBuf>,
    /// Nothing inside may write to it.
    pub read_only: bool,
}

/// What commands can reach over a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Network {
    /// A network of its own with only a loopback interface.
    #[default]
    Loopback,
    /// The host's network, which nothing captures.
    Host,
}

/// What ends a branch that takes too much. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Milliseconds from the start of the sandbox.
    pub wall_ms: Option<u64>,
    /// Milliseconds of processor time of all processes together.
    pub cpu_ms: Option<u64>,
    /// Bytes of memory of all processes together, with what they keep in `/tmp` and the like.
    pub memory_bytes: Option<u64>,
    /// Processes (threads, where a cgroup counts them) at one time.
    pub pids: Option<u64>,
    /// Bytes written to the disks, to the system root's upper layers and to `/tmp` and the like.
    pub disk_bytes: Option<u64>,
}

/// Which limit was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// [`Limits::wall_ms`].
    Wall,
    /// [`Limits::cpu_ms`].
    Cpu,
    /// [`Limits::memory_bytes`].
    Memory,
    /// [`Limits::pids`].
    Pids,
    /// [`Limits::disk_bytes`].
    Disk,
}

/// Everything a sandbox is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The branch, which names its cgroup and answers on its socket.
    pub branch: BranchId,
    /// Whose it is.
    pub identity: Identity,
    /// The world's disks.
    pub disks: Vec<DiskMount>,
    /// Where what is written to the host's `/` goes: `<escaped entry>/{upper,work}` for each
    /// overlay. Ephemeral: its mounts are volatile.
    #[serde(with = "crate::bytes::path")]
    pub root_upper: PathBuf,
    /// The preparation's root layers, topmost first, each laid out as `root_upper` is.
    #[serde(with = "crate::bytes::paths")]
    pub root_layers: Vec<PathBuf>,
    /// Paths to hide: a directory becomes empty, a file becomes empty, both read-only; what does
    /// not exist is skipped.
    #[serde(with = "crate::bytes::paths")]
    pub masks: Vec<PathBuf>,
    /// Devices of the host to show, each under its own path.
    #[serde(with = "crate::bytes::paths")]
    pub devices: Vec<PathBuf>,
    /// A directory to appear at `/run/forkpoint/out`.
    #[serde(with = "crate::bytes::option_path")]
    pub out_dir: Option<PathBuf>,
    /// Read-only binds, from source to destination.
    #[serde(with = "crate::bytes::path_pairs")]
    pub verify_mounts: Vec<(PathBuf, PathBuf)>,
    /// What commands can reach.
    pub network: Network,
    /// What ends it.
    pub limits: Limits,
    /// The host name inside.
    pub hostname: String,
    /// Where other processes of the same user can attach, on the host's side; bound by the
    /// starter. `None`: only the starter speaks to it.
    #[serde(with = "crate::bytes::option_path")]
    pub control_socket: Option<PathBuf>,
    /// Offer `/run/forkpoint/sock` inside.
    pub branch_socket: bool,
    /// End everything when the starter's handle goes, however it goes.
    pub lifeline: bool,
}

impl SandboxSpec {
    /// A sandbox of `branch` with no disk, no limit, loopback network and nothing masked, whose
    /// root's writes go below `root_upper`.
    pub fn new(branch: BranchId, identity: Identity, root_upper: impl Into<PathBuf>) -> Self {
        Self {
            branch,
            identity,
            disks: Vec::new(),
            root_upper: root_upper.into(),
            root_layers: Vec::new(),
            masks: Vec::new(),
            devices: Vec::new(),
            out_dir: None,
            verify_mounts: Vec::new(),
            network: Network::Loopback,
            limits: Limits::default(),
            hostname: branch.to_string(),
            control_socket: None,
            branch_socket: false,
            lifeline: false,
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitKind {
    /// It exited with this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// A limit was hit, and everything inside was killed.
    LimitHit(Limit),
    /// It never started.
    StartFailed {
        /// The error number, such as `ENOENT`.
        errno: i32,
        /// What was tried.
        what: String,
    },
}

/// How a command ended and what it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// How it ended.
    pub status: ExitKind,
    /// From its start to its end.
    pub wall_ns: u64,
    /// Processor time of the command and of the children it waited for.
    pub cpu_ns: u64,
    /// The most memory in use: of the whole sandbox where a cgroup or the watcher measures it,
    /// else the largest resident size of any one process.
    pub peak_memory_bytes: u64,
    /// Processes that still ran inside when it ended, other commands' included.
    pub left_running: u32,
}

/// What a sandbox takes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time so far, of the living and of the dead.
    pub cpu_ns: u64,
    /// Memory in use.
    pub memory_bytes: u64,
    /// The most memory that was in use at any time it was looked at (always, with a cgroup).
    pub peak_memory_bytes: u64,
    /// Processes.
    pub pids: u32,
    /// Bytes written to its upper layers and in-memory file systems.
    pub disk_bytes: u64,
}

/// What a sandbox took until its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FinalUsage {
    /// What it took.
    pub usage: Usage,
    /// The limit that ended it, where one did.
    pub limit: Option<Limit>,
}

/// Names a process for ever, also after its pid was used again and after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The boot it lives in.
    pub boot_id: String,
    /// Its pid in the host's namespace.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}
