//! What an all-knowing observer remembers, to compare with what the fakes do.

use crate::disk::{Content, Txn, Writes};
use forkpoint_model::{BranchId, CommitId, Digest, Generation, WorldId};
use std::collections::{BTreeMap, BTreeSet};

/// Who wrote a value. Every value is written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    Initial,
    User,
    Branch(BranchId),
}

/// A participant of a world, by its place.
pub(crate) type Place = usize;

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) writers: BTreeMap<u64, Writer>,
    /// What each participant must show at a generation.
    pub(crate) contents: BTreeMap<(WorldId, Generation), Vec<Content>>,
    /// What each branch was forked or rebased on.
    pub(crate) forked_on: BTreeMap<(BranchId, Place), Content>,
    /// What each branch wrote while it was allowed to.
    pub(crate) written: BTreeMap<(BranchId, Place), Writes>,
    pub(crate) verified: BTreeMap<BranchId, Vec<Digest>>,
    /// What was staged, at the first vote.
    pub(crate) pinned: BTreeMap<(CommitId, Place), Txn>,
    /// The user's last edit of each key of an in-place base, until a commit was made on top of it.
    pub(crate) edits: BTreeMap<(WorldId, Place, u8), Option<u64>>,
    pub(crate) released: BTreeSet<CommitId>,
    /// How many decisions were taken in.
    pub(crate) decisions: usize,
    pub(crate) undone: BTreeSet<CommitId>,
}

impl Oracle {
    /// A value that nobody wrote before.
    pub(crate) fn value(&mut self, writer: Writer) -> u64 {
        let value = self.writers.len() as u64 + 1;
        self.writers.insert(value, writer);
        value
    }
}
