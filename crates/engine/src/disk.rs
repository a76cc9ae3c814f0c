//! A disk as a participant of a commit.

use crate::apply::Then;
use crate::branch::Branch;
use crate::codes;
use crate::detail::Detail;
use crate::engine::Engine;
use crate::layers::{DiskLayers, is_sealed};
use crate::options::CommitOptions;
use forkpoint_fs::apply::{Journal, Redo};
use forkpoint_fs::conflict::{Drift, PathConflict};
use forkpoint_fs::delta::ChangeSet;
use forkpoint_fs::select::Rules;
use forkpoint_fs::stamp::Stamp;
use forkpoint_model::participant::{
    ApplyOutcome, ChangeSummary, Discarded, Participant, TxnStatus, Vote,
};
use forkpoint_model::{
    BranchId, CommitId, Conflict, Digest, Epoch, Error, Generation, ParticipantId, Result, Source,
};
use forkpoint_store::BranchRecord;
use std::path::PathBuf;

/// One disk of a world, for the length of one verb.
pub(crate) struct Disk {
    engine: Engine,
    index: usize,
    target: PathBuf,
    options: CommitOptions,
    /// What was selected by the last validation.
    pub(crate) selected: Option<Selection>,
    /// The validation just made stands for the protocol's own, which follows at once.
    kept: Option<Vec<Conflict>>,
    staged: Option<(CommitId, Journal, Digest)>,
    /// What could not be carried over exactly.
    pub(crate) notes: Vec<String>,
}

/// What of a delta is committed and what is not.
pub(crate) struct Selection {
    pub(crate) commit: ChangeSet,
    pub(crate) excluded: Vec<PathBuf>,
    pub(crate) withheld: Vec<PathBuf>,
    pub(crate) drift: Drift,
}

/// The name of a world's disk as a participant.
pub(crate) fn participant(index: usize) -> ParticipantId {
    ParticipantId(format!("disk:{index}"))
}

impl Disk {
    pub(crate) fn new(
        engine: &Engine,
        index: usize,
        target: PathBuf,
        options: CommitOptions,
    ) -> Self {
        Self {
            engine: engine.clone(),
            index,
            target,
            options,
            selected: None,
            kept: None,
            staged: None,
            notes: Vec::new(),
        }
    }

    fn layers(&self, branch: BranchId) -> Result<(DiskLayers, Then)> {
        let branch = Branch::new(self.engine.clone(), branch);
        let (record, disks) = branch.record_and_disks()?;
        let disk = disks
            .into_iter()
            .nth(self.index)
            .ok_or_else(|| self.missing(&record))?;
        Ok((disk, then(&record, self.index)?))
    }

    fn missing(&self, record: &BranchRecord) -> Error {
        codes::INTERNAL.error(format!("{} has no disk {}", record.id, self.index))
    }

    fn conflicts(&self, paths: Vec<PathConflict>) -> Vec<Conflict> {
        conflicts(self.index, paths)
    }

    /// The journal of a transaction that was staged here, for the deciding transaction.
    pub(crate) fn journal(&self, txn: CommitId) -> Result<Vec<u8>> {
        match &self.staged {
            Some((staged, journal, _)) if *staged == txn => journal.to_bytes(),
            _ => Err(codes::INTERNAL.error("decided before it was staged")),
        }
    }

    /// The journal: from this process's staging, or as the deciding transaction kept it.
    fn pinned(&self, txn: CommitId, digest: Digest) -> Result<Journal> {
        if let Some((staged, journal, own)) = &self.staged
            && *staged == txn
            && *own == digest
        {
            return Ok(journal.clone());
        }
        let bytes = self
            .engine
            .store()
            .journal(txn, &participant(self.index))?
            .ok_or_else(|| {
                codes::INTERNAL.error(format!(
                    "{txn} was decided without a journal of disk {}",
                    self.index
                ))
            })?;
        let journal = Journal::from_bytes(&bytes)?;
        if journal.digest()? != digest {
            return Err(codes::INTERNAL.error(format!(
                "the journal of {txn} is not the one that was decided"
            )));
        }
        Ok(journal)
    }

    /// Lets the protocol's validation, once, be the one that was just made.
    pub(crate) fn keep_validation(&mut self, conflicts: Vec<Conflict>) {
        self.kept = Some(conflicts);
    }

    /// Entries of a transaction's journal.
    pub(crate) fn journal_len(&self, txn: CommitId) -> Result<u64> {
        let journal = self.engine.store().journal(txn, &participant(self.index))?;
        match journal {
            Some(bytes) => Ok(Journal::from_bytes(&bytes)?.ops.len() as u64),
            None => Ok(0),
        }
    }

    /// What stands in the way of an undo. Changes nothing.
    pub(crate) fn check_undo(&self, txn: CommitId, digest: Digest) -> Result<Vec<Conflict>> {
        let journal = self.pinned(txn, digest)?;
        Ok(self.conflicts(self.engine.check_undo(&self.target, journal)?))
    }

    fn outcome(&self, redo: Redo) -> ApplyOutcome {
        match redo {
            Redo::Done => ApplyOutcome::Applied,
            Redo::Blocked(items) => ApplyOutcome::Blocked(self.conflicts(items)),
        }
    }
}

/// What is known of the base as it was when a branch was forked.
pub(crate) fn then(record: &BranchRecord, disk: usize) -> Result<Then> {
    let baseline = Detail::of(record)?
        .baselines
        .into_iter()
        .nth(disk)
        .flatten();
    Ok(Then {
        stamp: Stamp(record.stamp_ns),
        baseline,
    })
}

/// Path conflicts as conflicts of a disk.
pub(crate) fn conflicts(index: usize, paths: Vec<PathConflict>) -> Vec<Conflict> {
    paths
        .into_iter()
        .map(|c| Conflict {
            participant: participant(index),
            item: c
                .path
                .as_os_str()
                .as_encoded_bytes()
                .escape_ascii()
                .to_string(),
            why: c.why,
        })
        .collect()
}

impl Participant for Disk {
    fn id(&self) -> ParticipantId {
        participant(self.index)
    }

    /// Forking a disk is recording its stack, which the engine does for all disks in one row.
    fn fork(&mut self, _source: Source, _child: BranchId) -> Result<()> {
        Ok(())
    }

    fn seal(&mut self, _branch: BranchId, _epoch: Epoch) -> Result<()> {
        // Files are fenced by killing processes: an epoch stops no open descriptor. The engine has
        // done that for the whole branch, and an upper without a mount is written by nobody.
        Ok(())
    }

    fn changes(&mut self, branch: BranchId) -> Result<ChangeSummary> {
        let (disk, _) = self.layers(branch)?;
        Ok(summary(&self.engine.diff(&disk, None)?))
    }

    fn validate(&mut self, branch: BranchId, _target: Generation) -> Result<Vec<Conflict>> {
        if let Some(kept) = self.kept.take() {
            return Ok(kept);
        }
        let (disk, stamp) = self.layers(branch)?;
        let record = self.engine.store().branch(branch)?;
        let prepared = crate::detail::Detail::of(&record)?.prepared;
        let below = prepared.get(self.index).copied().unwrap_or(0);
        let changes = match self.options.include_prepared {
            true => self.engine.diff(&disk, None)?,
            false => self.engine.diff_parts(&disk, below)?.0,
        };
        let rules = Rules {
            exclude: self.options.exclude.clone(),
            allow_host_exec: self.options.allow_host_exec,
            is_git_dir: self.index > 0,
            ..Rules::default()
        };
        let selected = forkpoint_fs::select::partition(changes, &rules)?;
        let found = self.engine.check(&disk, &selected.commit, &stamp)?;
        let budget = self.options.drift_budget;
        let drift = self.engine.drift(&disk, &selected.commit, &stamp, budget)?;
        self.selected = Some(Selection {
            commit: selected.commit,
            excluded: selected.excluded,
            withheld: selected.withheld,
            drift,
        });
        Ok(self.conflicts(found))
    }

    fn stage(&mut self, txn: CommitId, branch: BranchId, _target: Generation) -> Result<Vote> {
        let (disk, stamp) = self.layers(branch)?;
        let changes = match &self.selected {
            Some(selection) => selection.commit.clone(),
            None => return Err(codes::INTERNAL.error("staged before it was validated")),
        };
        let staged = self.engine.stage(&disk, changes, &stamp, txn, self.index)?;
        self.notes.extend(
            staged
                .notes
                .iter()
                .map(|n| format!("{}: {}", n.path.display(), n.why)),
        );
        let digest = staged.digest;
        self.staged = Some((txn, staged.journal, digest));
        Ok(Vote {
            digest,
            in_place: true,
        })
    }

    fn commit(&mut self, txn: CommitId, digest: Digest) -> Result<ApplyOutcome> {
        let journal = self.pinned(txn, digest)?;
        Ok(self.outcome(self.engine.redo_journal(&self.target, journal)?))
    }

    fn abort(&mut self, txn: CommitId) -> Result<()> {
        self.staged = None;
        self.engine.discard_stage(&self.target, txn, self.index)
    }

    fn undo(&mut self, txn: CommitId, digest: Digest) -> Result<ApplyOutcome> {
        let journal = self.pinned(txn, digest)?;
        Ok(self.outcome(self.engine.undo_journal(&self.target, journal)?))
    }

    fn end(&mut self, _txn: CommitId) -> Result<()> {
        // What was staged has become the undo layer, which is kept until it is collected.
        Ok(())
    }

    fn status(&mut self, txn: CommitId) -> Result<TxnStatus> {
        Ok(match &self.staged {
            Some((staged, _, digest)) if *staged == txn => TxnStatus::Staged(*digest),
            _ => TxnStatus::Unknown,
        })
    }

    fn in_doubt(&mut self) -> Result<Vec<CommitId>> {
        Ok(self.staged.iter().map(|(txn, _, _)| *txn).collect())
    }

    fn discard(&mut self, branch: BranchId) -> Result<Discarded> {
        let branch = Branch::new(self.engine.clone(), branch);
        let (record, disks) = branch.record_and_disks()?;
        let (Some(disk), Some(upper)) = (
            disks.get(self.index),
            record
                .stacks
                .get(self.index)
                .and_then(|stack| stack.first()),
        ) else {
            return Err(self.missing(&record));
        };
        self.engine.remove_tree(&disk.work)?;
        // An upper that was sealed for others has a row of its own; collection frees it when the last
        // of them goes.
        let shared = is_sealed(&self.engine.store(), *upper)?;
        if !shared {
            self.engine.remove_tree(&disk.upper)?;
        }
        Ok(Discarded::Undone)
    }
}

/// The size of a delta.
pub(crate) fn summary(changes: &ChangeSet) -> ChangeSummary {
    ChangeSummary {
        items: changes.changes.len() as u64,
        bytes: changes.bytes,
    }
}
