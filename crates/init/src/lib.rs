//! The executable inside a branch: pid 1, which mounts the views, starts commands and reaps; and
//! the worker, which owns an ordinary user's id mapping. [`spec`], [`protocol`] and [`conn`] are
//! what it shares with its starter.
//!
//! **Architecture invariant:** this program is single-threaded, and everything a process inside
//! could touch is looked up through descriptors. It knows nothing of SQLite or explorations.
#![forbid(unsafe_code)]

pub mod boot;
pub mod branch_socket;
pub mod bytes;
pub mod cgroup;
pub mod codes;
pub mod command;
pub mod conn;
pub mod freeze;
pub mod inner;
pub mod mounts;
pub mod procs;
pub mod protocol;
pub mod spec;
pub mod supervise;
pub mod tty;
pub mod view;
pub mod walk;
pub mod watch;
pub mod worker;

pub use spec::*;
pub use tty::{Modes, TerminalSpec};
