//! Rolling a branch back.

use crate::branch::{Branch, kill_recorded};
use crate::disk::Disk;
use crate::engine::Engine;
use crate::lock::Lock;
use crate::options::{AbortOptions, AbortReport, CommitOptions};
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
        self.engine.store().make_room()?;
        kill_recorded(&self.engine, &record)?;
        // A delta is deleted only after its outcome is durable (law 10). What a power loss may cost
        // anyway is fenced against crashes of processes alone, and synced with its end.
        let durability = match record.durable {
            true => Durability::Full,
            false => Durability::Normal,
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
    ///
    /// One sync an abort: a durable branch's came before its delta was touched, and recovery finds the
    /// same end again for one that is found aborting. A volatile branch's is that of its end, so that
    /// what was said to be rolled back is not found open after a power loss.
    pub(crate) fn drain(&self, _lock: &Lock) -> Result<AbortReport> {
        let record = self.record()?;
        self.end_children()?;
        self.engine.store().make_room()?;
        let undone = self.drain_effects()?;
        let dropped = self.engine.discard(&record, record.retained)?;
        let now = self.engine.now();
        let bytes = match record.retained {
            true => Some(self.engine.delta_usage(&record)?),
            false => None,
        };
        let durability = match record.durable {
            true => Durability::Normal,
            false => Durability::Full,
        };
        let (ended, left) = self.engine.store().batch(durability, |store| {
            // Law 5: looked at once more in the transaction that says so. What the drain said of a row
            // says more than its state.
            let mut left: Vec<Conflict> = dropped;
            for item in self.effects_left(store)? {
                let known = undone.iter().find(|u| u.item == item.item);
                left.push(known.cloned().unwrap_or(item));
            }
            let event = BranchEvent::Drained { left: left.clone() };
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
            Ok((ended, left))
        })?;
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
            if retain {
                self.remove_tree(&disk.work)?;
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
            self.remove_branch_dir(record)?;
        }
        Ok(left)
    }

    /// Removes a branch's directory.
    pub(crate) fn remove_branch_dir(&self, record: &BranchRecord) -> Result<()> {
        self.remove_tree(&self.paths().branch(record.id))
    }

    /// Drops the layers of a committed branch.
    pub(crate) fn release_layers(&self, record: &BranchRecord) -> Result<()> {
        debug_assert_eq!(record.state, BranchState::Committed);
        self.discard(record, false).map(drop)
    }

    /// Bytes of a branch's own delta.
    pub(crate) fn delta_usage(&self, record: &BranchRecord) -> Result<u64> {
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
