//! What a view is made of.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The layers of one disk of one branch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stack {
    /// The lower directories, topmost first; the last is the base. They never change while any
    /// view on them is mounted.
    #[serde(with = "crate::bytes::list")]
    pub lowers: Vec<PathBuf>,
    /// The directory that takes every write. No two live mounts share one.
    #[serde(with = "crate::bytes")]
    pub upper: PathBuf,
    /// The overlay's own work directory, beside the upper and on the same file system.
    #[serde(with = "crate::bytes")]
    pub work: PathBuf,
}

/// How a view is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct MountOptions {
    /// Make `fsync` inside do nothing and unmount cheap. Only for what is thrown away, or synced
    /// before it is published.
    pub volatile: bool,
    /// Keep the overlay's marks in `user.overlay.*` instead of `trusted.overlay.*`: for mounts in a
    /// user namespace. Such views cannot rename directories of a lower layer (`EXDEV`).
    pub userxattr: bool,
}
