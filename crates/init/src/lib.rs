//! The executable inside a branch: pid 1, which mounts the views, starts commands and reaps; and
//! the worker, which owns an ordinary user's id mapping. This library is what it shares with its
//! starter: the description of a sandbox and the messages between them.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod spec;

pub use spec::*;
