//! Moving a stale branch onto the present head.

use crate::branch::{Branch, name};
use crate::codes;
use crate::disk::{conflicts as conflicts_of, then};
use crate::keys::key_conflicts;
use crate::options::RebaseReport;
use forkpoint_model::Result;
use forkpoint_model::state::{BranchEvent, step};
use forkpoint_store::Durability;

impl Branch {
    /// Makes a stale branch fresh: checks that nothing it changed, and no key it read, was changed
    /// underneath too, and moves it to the present head. With conflicts it stays as it is.
    ///
    /// # Errors
    /// `FP0405` when it is running, `FP00xx` when it has ended.
    pub fn rebase(&self) -> Result<RebaseReport> {
        let _lock = self.lock()?;
        let record = self.record()?;
        if self.is_running()? {
            return Err(codes::STATE
                .error(format!(
                    "{} is running: its base cannot change under it",
                    name(&record)
                ))
                .hint("stop it first"));
        }
        step(&record.context(), &BranchEvent::Rebased)?;
        let stamp = forkpoint_fs::stamp::take(&self.engine.paths().tmp())?;
        let mut conflicts = Vec::new();
        for (index, disk) in self.disks(&record)?.iter().enumerate() {
            let changes = self.engine.diff(disk, None)?;
            let found = self.engine.check(disk, &changes, &then(&record, index)?)?;
            conflicts.extend(conflicts_of(index, found));
        }
        let now = self.engine.now();
        let store = self.engine.store();
        let moved = store.batch(Durability::Normal, |store| {
            // Once more, in the transaction that moves it: others write keys meanwhile.
            let keys = store.kv_conflicts(self.id)?;
            if !conflicts.is_empty() || !keys.is_empty() {
                return Ok(Err(keys));
            }
            let position = store.position(record.world)?;
            let moved = store.transition_with(self.id, &BranchEvent::Rebased, now, |b| {
                b.stamp_ns = stamp.0;
                b.shared.position = Some(position);
            })?;
            Ok(Ok(moved))
        })?;
        let generation = match moved {
            Ok(fresh) => fresh.generation,
            Err(keys) => {
                conflicts.extend(key_conflicts(keys));
                record.generation
            }
        };
        Ok(RebaseReport {
            conflicts,
            generation,
        })
    }
}
