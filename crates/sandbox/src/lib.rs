//! Namespaces, cgroups, limits and the life of a branch's processes.
//!
//! A [`Sandbox`] is the host-side handle of one running init, pid 1 of a branch. Nothing of the
//! calling process ever changes namespace, so a multi-threaded program can start any number.
//! `docs/design-sandbox.md` gives the order of system calls and the reason of each.
//!
//! **Architecture invariant:** this crate knows nothing of worlds, commits or SQLite: it is given
//! directories and starts processes over them.
#![forbid(unsafe_code)]

mod ahead;
mod cgroup;
pub mod codes;
mod doctor;
mod door;
mod environment;
mod exec;
mod handle;
mod image;
mod launch;
mod process;
mod worker;

pub use ahead::{start_ahead, stop_ahead};
pub use doctor::{Check, CheckState, doctor};
pub use door::{Asked, Door};
pub use environment::{default_masks, identity, is_secret_env};
pub use exec::{ExecRequest, Running, Terminal};
pub use forkpoint_init::{
    DiskMount, ExitKind, ExitReport, FinalUsage, IdRange, Identity, Limit, Limits, Modes, Network,
    ProcessIdentity, SandboxSpec, TerminalSpec, Usage,
};
pub use handle::{Sandbox, sweep};
pub use image::keep_program_in;
pub use process::{is_alive, kill_process, process_end};
pub use worker::Worker;
