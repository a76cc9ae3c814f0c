//! The interface of everything with state that a branch must own: a disk today; key-value stores,
//! buses, databases and outgoing requests by the same verbs.
//!
//! The verbs of a commit follow two-phase commit with presumed abort (Mohan, Lindsay and Obermarck,
//! "Transaction Management in the R* Distributed Database Management System", 1986): `stage` is the
//! vote, durable and invisible; a transaction without a decision row is aborted; `commit` is an
//! idempotent redo of exactly what was staged, pinned by its digest.

use crate::{BranchId, CommitId, Digest, Epoch, Generation, ParticipantId, Result};
use serde::{Deserialize, Serialize};

/// Where a branch's overlay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Source {
    /// The head of the world at this generation.
    Head(Generation),
    /// Another branch, as it now is.
    Branch(BranchId),
    /// A checkpoint.
    Checkpoint(crate::CheckpointId),
}

/// One thing that stands in the way of a commit, or that a commit would overwrite.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conflict {
    /// Whose conflict it is.
    pub participant: ParticipantId,
    /// The path, key or row, readable by a person (bytes that are not UTF-8 are escaped).
    pub item: String,
    /// Why it conflicts.
    pub why: String,
}

/// The size of what a branch changed at one participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
pub struct ChangeSummary {
    /// Items added, modified or removed (files, keys, messages).
    pub items: u64,
    /// Bytes that would be written to make the change.
    pub bytes: u64,
}

/// A participant's promise that it can commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Vote {
    /// Pins exactly what was staged.
    pub digest: Digest,
    /// Whether the participant needs a redo after the decision (an in-place disk does).
    pub in_place: bool,
}

/// How a redo went.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ApplyOutcome {
    /// Everything staged is visible and durable.
    Applied,
    /// Something blocks it (disk full, a permission, an edit made since). What was done so far
    /// stays recorded, and applying again goes on from there.
    Blocked(Vec<Conflict>),
}

/// What a participant knows of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TxnStatus {
    /// Nothing: never staged, or aborted, or ended.
    Unknown,
    /// Staged and voted, outcome unknown to it.
    Staged(Digest),
    /// Applied.
    Applied(Digest),
}

/// What became of a discarded overlay.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Discarded {
    /// The branch's overlay is gone or unreachable, and nothing of it was ever visible.
    Undone,
    /// Some effect is left, item by item: the branch is `RollbackIncomplete`.
    Left(Vec<Conflict>),
}

/// A participant of a world. Every verb can be called again after a crash, at any point, and then
/// has the effect of having been called once.
pub trait Participant {
    /// Its name within the world.
    fn id(&self) -> ParticipantId;
    /// Gives `child` an overlay over `source`, isolated from every other branch.
    fn fork(&mut self, source: Source, child: BranchId) -> Result<()>;
    /// Makes the overlay immutable. Called when no process of the branch lives; a write that
    /// carries an epoch below `epoch` is refused from now on.
    fn seal(&mut self, branch: BranchId, epoch: Epoch) -> Result<()>;
    /// Sums up what the branch changed.
    fn changes(&mut self, branch: BranchId) -> Result<ChangeSummary>;
    /// Compares what the branch read and wrote with the target generation.
    fn validate(&mut self, branch: BranchId, target: Generation) -> Result<Vec<Conflict>>;
    /// Stages the branch's changes, durable and invisible, and votes.
    fn stage(&mut self, txn: CommitId, branch: BranchId, target: Generation) -> Result<Vote>;
    /// Makes exactly what was staged under `digest` visible. Called only after the decision.
    fn commit(&mut self, txn: CommitId, digest: Digest) -> Result<ApplyOutcome>;
    /// Forgets a staged set that was not decided.
    fn abort(&mut self, txn: CommitId) -> Result<()>;
    /// Takes back what `commit` made visible (all of it, or the part that was done before it was
    /// blocked). Edits made since block it. A participant whose visibility is the generation
    /// pointer itself has nothing to do.
    fn undo(&mut self, txn: CommitId, digest: Digest) -> Result<ApplyOutcome>;
    /// Ends a committed transaction: its staging may be collected, its undo is kept.
    fn end(&mut self, txn: CommitId) -> Result<()>;
    /// What it knows of a transaction.
    fn status(&mut self, txn: CommitId) -> Result<TxnStatus>;
    /// Every transaction it has staged and knows no outcome of.
    fn in_doubt(&mut self) -> Result<Vec<CommitId>>;
    /// Rolls a branch back: drops its overlay.
    fn discard(&mut self, branch: BranchId) -> Result<Discarded>;
}
