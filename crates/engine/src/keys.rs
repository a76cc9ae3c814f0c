//! The keys of a world as a participant of a commit.
//!
//! They lie in the store, and the deciding transaction itself publishes them (`Store::decide`). So there
//! is nothing to stage and nothing to redo: the vote says that what the branch read and wrote still
//! holds, and pins what it makes of the keys. Since nobody writes keys of a reserved world, that is so
//! until the decision.

use crate::engine::Engine;
use forkpoint_model::participant::{
    ApplyOutcome, ChangeSummary, Discarded, Participant, TxnStatus, Vote,
};
use forkpoint_model::{
    BranchId, CommitId, Conflict, Digest, Epoch, Generation, ParticipantId, Result, Source,
};
use forkpoint_store::{KvConflict, kv::KV};

/// The keys, for the length of one verb.
pub(crate) struct Keys {
    engine: Engine,
    staged: Option<(CommitId, Digest)>,
}

impl Keys {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            staged: None,
        }
    }
}

/// Conflicts of keys as those of a participant; bytes that are not printable are escaped.
pub(crate) fn key_conflicts(found: Vec<KvConflict>) -> Vec<Conflict> {
    let conflict = |c: KvConflict| Conflict {
        participant: ParticipantId(KV.into()),
        item: c.key.escape_ascii().to_string(),
        why: c.why,
    };
    found.into_iter().map(conflict).collect()
}

impl Participant for Keys {
    fn id(&self) -> ParticipantId {
        ParticipantId(KV.into())
    }

    fn fork(&mut self, _source: Source, _child: BranchId) -> Result<()> {
        // The transaction that adds the branch's row does it.
        Ok(())
    }

    fn seal(&mut self, _branch: BranchId, _epoch: Epoch) -> Result<()> {
        // The branch's row does: whoever comes with an epoch that is over is refused.
        Ok(())
    }

    fn changes(&mut self, branch: BranchId) -> Result<ChangeSummary> {
        let (items, bytes, _) = self.engine.store().kv_write_set(branch)?;
        Ok(ChangeSummary { items, bytes })
    }

    fn validate(&mut self, branch: BranchId, _target: Generation) -> Result<Vec<Conflict>> {
        Ok(key_conflicts(self.engine.store().kv_conflicts(branch)?))
    }

    fn stage(&mut self, txn: CommitId, branch: BranchId, _target: Generation) -> Result<Vote> {
        let (_, _, digest) = self.engine.store().kv_write_set(branch)?;
        self.staged = Some((txn, digest));
        Ok(Vote {
            digest,
            in_place: false,
        })
    }

    fn commit(&mut self, _txn: CommitId, _digest: Digest) -> Result<ApplyOutcome> {
        Ok(ApplyOutcome::Applied)
    }

    fn abort(&mut self, _txn: CommitId) -> Result<()> {
        self.staged = None;
        Ok(())
    }

    fn undo(&mut self, _txn: CommitId, _digest: Digest) -> Result<ApplyOutcome> {
        // The transaction that records the undo does it.
        Ok(ApplyOutcome::Applied)
    }

    fn end(&mut self, _txn: CommitId) -> Result<()> {
        self.staged = None;
        Ok(())
    }

    fn status(&mut self, txn: CommitId) -> Result<TxnStatus> {
        let store = self.engine.store();
        let decided = match store.commit(txn) {
            Ok(commit) if commit.decided_ns.is_some() => commit.digest(&self.id()),
            _ => None,
        };
        Ok(match (decided, self.staged) {
            (Some(digest), _) => TxnStatus::Applied(digest),
            (None, Some((staged, digest))) if staged == txn => TxnStatus::Staged(digest),
            _ => TxnStatus::Unknown,
        })
    }

    fn in_doubt(&mut self) -> Result<Vec<CommitId>> {
        Ok(self.staged.iter().map(|(txn, _)| *txn).collect())
    }

    fn discard(&mut self, _branch: BranchId) -> Result<Discarded> {
        // Nobody stands on an ended branch's overlays any more; `gc` removes them.
        Ok(Discarded::Undone)
    }
}
