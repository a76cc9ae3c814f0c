//! A fork of the base as it was before a commit, for whoever wants to do again what was committed and
//! compare: out of what the commit keeps for its undo, copied into the fork. The base is not touched.

use crate::branch::Branch;
use crate::codes;
use crate::disk::participant;
use crate::engine::Engine;
use crate::files::mismatch;
use crate::options::{AbortOptions, ForkOptions};
use forkpoint_fs::apply::Journal;
use forkpoint_fs::apply_ops::{ApplyRequest, ApplyResponse};
use forkpoint_fs::delta::{ChangeKind, ChangeSet};
use forkpoint_model::{CommitId, Digest, Result};
use forkpoint_store::{CommitRecord, CommitState};

impl Engine {
    /// Forks a branch whose files, keys and events are what they were before a commit. That takes what
    /// an undo of it would take: it is the last one, and nothing that it wrote was edited since.
    ///
    /// # Errors
    /// `FP0410` where that is not so any more; `FP0108` when there is no such commit.
    pub fn fork_before(&self, txn: CommitId, options: &ForkOptions) -> Result<Branch> {
        let commit = self.store().commit(txn)?;
        let world = self.world_by_id(commit.world)?;
        self.check_last(&commit)?;
        let seen = match self.store().branch(commit.branch) {
            Ok(branch) => branch.shared.position,
            Err(e) if e.code == forkpoint_store::codes::NOT_FOUND.text => None,
            Err(e) => return Err(e),
        };
        let forked = world.fork(options)?;
        let branch = forked
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(codes::INTERNAL.error("nothing was forked")))?;
        let restored = self
            .check_last(&commit)
            .and_then(|()| self.restore(&branch, &commit, seen));
        match restored {
            Ok(()) => Ok(branch),
            Err(error) => {
                branch.abort(&AbortOptions::default())?;
                Err(error)
            }
        }
    }

    /// Whether the base is as the commit left it, and what was before is kept.
    fn check_last(&self, commit: &CommitRecord) -> Result<()> {
        let gone = |why: &str| {
            codes::UNDO
                .error(format!("{}: {why}", commit.id))
                .hint("only the last commit can be looked at again, while forkpoint undo could take it back")
        };
        if commit.decided_ns.is_none() || commit.state == CommitState::Undone {
            return Err(gone("it is in no base"));
        }
        if self.store().world(commit.world)?.head != commit.to {
            return Err(gone("a later commit stands"));
        }
        Ok(())
    }

    fn restore(&self, branch: &Branch, commit: &CommitRecord, seen: Option<u64>) -> Result<()> {
        let _lock = branch.lock()?;
        let record = branch.record()?;
        for (index, disk) in branch.disks(&record)?.iter().enumerate() {
            let id = participant(index);
            if commit.digest(&id).is_none() {
                continue;
            }
            let bytes = self.store().journal(commit.id, &id)?.ok_or_else(|| {
                codes::UNDO.error(format!("what {} replaced is not kept any more", commit.id))
            })?;
            let journal = Journal::from_bytes(&bytes)?;
            let edited = self.check_undo(&disk.target, journal.clone())?;
            if let Some(first) = edited.first() {
                return Err(codes::UNDO.error(format!(
                    "{}: {} ({} in all)",
                    first.path.display(),
                    first.why,
                    edited.len()
                )));
            }
            self.make_upper(disk)?;
            let request = ApplyRequest::Before {
                stack: disk.stack().into(),
                copied: disk.copy,
                userxattr: self.rootless(),
                journal,
            };
            match self.apply_on(disk.copy, request)? {
                ApplyResponse::Done => {}
                _ => return Err(mismatch("a restoration")),
            }
        }
        // Where nothing was forked off the world's keys before, there was nothing to see.
        if let Some(position) = seen {
            self.store()
                .modify_branch(branch.id, |b| b.shared.position = Some(position))?;
        }
        Ok(())
    }
}

impl Branch {
    /// How many of the world's keys it changes, and a digest of what it makes of them: what it votes
    /// for when it is committed.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn changed_keys(&self) -> Result<(u64, Digest)> {
        let (count, _, digest) = self.engine.store().kv_write_set(self.id)?;
        Ok((count, digest))
    }

    /// In what its files differ from the base as it now is, times aside.
    ///
    /// # Errors
    /// When its layers cannot be read.
    pub fn differences(&self) -> Result<ChangeSet> {
        let mut set = self.deltas()?.attempt;
        set.changes.retain(|change| {
            let mut differs = change.differs;
            differs.mtime = false;
            let same_path = matches!(change.kind, ChangeKind::Modified | ChangeKind::Metadata);
            !same_path || differs.any()
        });
        Ok(set)
    }
}
