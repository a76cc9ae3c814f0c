//! What callers give to and get from applying.

use crate::conflict::PathConflict;
use crate::delta::ChangeSet;
use crate::stamp::Stamp;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What becomes of the owners a branch's files have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owners {
    /// Files keep user and group; one that cannot be set refuses the commit (for root).
    Keep,
    /// Files become the caller's; those that had another owner are listed in
    /// [`Staged::notes`] (for ordinary users).
    MapToCaller,
}

/// What to stage, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRequest {
    /// The stack's layers, topmost first, the base last. One alone is a plain copy of the tree.
    #[serde(with = "crate::bytes::list")]
    pub layers: Vec<PathBuf>,
    /// How many of them, from the top, hold the delta.
    pub top: usize,
    /// The delta, after selection: exactly this is applied.
    pub changes: ChangeSet,
    /// The directory to change.
    #[serde(with = "crate::bytes")]
    pub base: PathBuf,
    /// An empty directory from [`super::stage_dir`], on the base's file system.
    #[serde(with = "crate::bytes")]
    pub stage: PathBuf,
    /// When the branch was forked; what changed in the base since is a conflict.
    pub stamp: Stamp,
    /// The layers hold `user.overlay.*` marks.
    pub userxattr: bool,
    /// What becomes of owners.
    pub owners: Owners,
    /// What is known of files that get rewritten without a change.
    pub baseline: Option<crate::conflict::Baseline>,
}

/// A delta that is ready to be applied: durable, and invisible in the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// What to redo. It belongs into the deciding transaction.
    pub journal: super::Journal,
    /// Pins the journal.
    pub digest: forkpoint_model::Digest,
    /// Bytes of content that were written or shared.
    pub bytes: u64,
    /// What of the delta could not be carried over exactly, path by path (owners mapped to the
    /// caller, attributes the target's file system refuses). At most [`super::MAX_NOTES`].
    pub notes: Vec<PathConflict>,
    /// How many there were in all.
    pub notes_total: u64,
}

/// How a redo or an undo went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redo {
    /// Everything is in place and durable.
    Done,
    /// Something stands in the way. What was done so far is found again; calling again goes on.
    Blocked(Vec<PathConflict>),
}
