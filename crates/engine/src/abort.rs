//! Rolling a branch back.

use crate::branch::{Branch, kill_recorded};
use crate::disk::Disk;
use crate::engine::Engine;
use crate::lock::Lock;
use crate::options::{AbortOptions, AbortReport, CommitOptions};
use crate::recover::list;
use forkpoint_model::participant::{Discarded, Participant};
use forkpoint_model::state::{BranchEvent, BranchState, step};
use forkpoint_model::{Conflict, Result};
use forkpoint_store::{BranchRecord, Durability, HistoryRecord};

impl Branch {
    /// Rolls it back: ends its processes and drops what it wrote. With `retain` its sealed delta and
    /// its log are kept for people to look at; they are out of every view all the same.
    ///
    /// # Errors
    /// `FP0406` when another process works on it, `FP00xx` when it has ended.
    pub fn abort(&self, options: &AbortOptions) -> Result<AbortReport> {
        let lock = self.lock()?;
        let record = self.record()?;
        step(&record.context(), &BranchEvent::AbortRequested)?;
        kill_recorded(&self.engine, &record)?;
        // A delta is deleted only after its outcome is durable (law 10). What a power loss may cost
        // anyway needs no sync.
        let durability = if record.durable {
            Durability::Full
        } else {
            Durability::Normal
        };
        let (now, reason) = (self.engine.now(), options.reason.clone());
        let store = self.engine.store();
        store.batch(durability, |store| {
            store.transition_with(self.id, &BranchEvent::AbortRequested, now, |b| {
                b.retained = options.retain;
                b.reason.get_or_insert(reason);
            })
        })?;
        drop(store);
        self.drain(&lock)
    }

    /// Drops what an aborting branch holds, and records how it ended. Can be done again.
    pub(crate) fn drain(&self, _lock: &Lock) -> Result<AbortReport> {
        let record = self.record()?;
        let left = self.engine.discard(&record, record.retained)?;
        let now = self.engine.now();
        let event = BranchEvent::Drained { left: left.clone() };
        let bytes = match record.retained {
            true => Some(self.engine.delta_usage(&record)?),
            false => None,
        };
        let ended = self.engine.store().batch(Durability::Full, |store| {
            let ended = store.transition_with(self.id, &event, now, |b| b.bytes = bytes)?;
            store.append_history(&HistoryRecord {
                seq: 0,
                at_ns: now,
                verb: "abort".into(),
                world: Some(record.world),
                branch: Some(self.id),
                commit: None,
                text: format!(
                    "{} is {}: {}",
                    crate::branch::name(&ended),
                    ended.state,
                    ended.reason.as_deref().unwrap_or("aborted")
                ),
                json: None,
            })?;
            Ok(ended)
        })?;
        // Only now, since the lock goes with it.
        if !leaves_transcript(&record) {
            self.engine.remove_branch_dir(&record)?;
        }
        Ok(AbortReport {
            state: ended.state,
            left,
        })
    }
}

impl Engine {
    /// Removes what a branch holds in the store; what is retained stays: its delta, log and output.
    fn discard(&self, record: &BranchRecord, retain: bool) -> Result<Vec<Conflict>> {
        let branch = Branch::new(self.clone(), record.id);
        let mut left = Vec::new();
        for (index, disk) in branch.disks(record)?.into_iter().enumerate() {
            self.remove_tree(&disk.work)?;
            if retain {
                continue;
            }
            let mut disk = Disk::new(self, index, disk.target, CommitOptions::default());
            match disk.discard(record.id)? {
                Discarded::Undone => {}
                Discarded::Left(items) => left.extend(items),
            }
        }
        self.remove_tree(&self.paths().root_upper(record.id))?;
        if !retain && !leaves_transcript(record) {
            self.empty_branch_dir(record)?;
        }
        Ok(left)
    }

    /// Removes what is in a branch's directory, but for the lock that is held on it: were that gone,
    /// another process could take a fresh one before the branch's end is recorded.
    fn empty_branch_dir(&self, record: &BranchRecord) -> Result<()> {
        let lock = self.paths().branch_lock(record.id);
        for path in list(&self.paths().branch(record.id))? {
            if path != lock {
                self.remove_tree(&path)?;
            }
        }
        Ok(())
    }

    /// Removes a branch's directory, with its lock: for one whose end is recorded.
    pub(crate) fn remove_branch_dir(&self, record: &BranchRecord) -> Result<()> {
        self.remove_tree(&self.paths().branch(record.id))
    }

    /// Drops the layers of a committed branch.
    pub(crate) fn release_layers(&self, record: &BranchRecord) -> Result<()> {
        debug_assert_eq!(record.state, BranchState::Committed);
        self.discard(record, false)?;
        match leaves_transcript(record) {
            true => Ok(()),
            false => self.remove_branch_dir(record),
        }
    }

    /// Bytes of a branch's own delta.
    fn delta_usage(&self, record: &BranchRecord) -> Result<u64> {
        let branch = Branch::new(self.clone(), record.id);
        let mut bytes = 0;
        for disk in branch.disks(record)? {
            if disk.upper.is_dir() {
                bytes += self.usage(&disk.upper)?;
            }
        }
        Ok(bytes)
    }
}

/// Whether log and output outlive the branch: those of an attempt are kept with its exploration,
/// also when it lost, and those of a retained branch are there to be looked at.
fn leaves_transcript(record: &BranchRecord) -> bool {
    record.retained || record.exploration.is_some()
}
