//! Collecting what nobody needs any more.

use crate::branch::Branch;
use crate::codes;
use crate::engine::Engine;
use crate::files::GC_LOCK;
use crate::layers::is_sealed;
use crate::lock;
use crate::options::{GcOptions, GcReport};
use forkpoint_model::{CommitId, LayerId, Result};
use forkpoint_store::{BranchRecord, CommitState};
use std::collections::HashSet;
use std::path::PathBuf;

/// Retained deltas are kept this long by default, in seconds: two weeks.
pub const DEFAULT_MAX_AGE_S: u64 = 14 * 24 * 3600;
/// Retained deltas together may take this much by default: 20 GiB.
pub const DEFAULT_MAX_BYTES: u64 = 20 << 30;
/// This many of a world's latest commits can be undone.
const UNDO_KEPT: usize = 10;

impl Engine {
    /// Frees retained deltas beyond the bounds, layers nobody uses, undo layers of commits long
    /// overtaken, and what crashes left in the store's directories.
    ///
    /// # Errors
    /// `FP0406` while another process makes or collects layers; otherwise what cannot be removed is an
    /// error, and the rest is collected by the next run.
    pub fn gc(&self, options: &GcOptions) -> Result<GcReport> {
        // Whoever makes a layer holds this shared until the layer is referenced.
        let _guard = lock::file(&self.paths().store().join(GC_LOCK), || {
            codes::BUSY
                .error("another process is making or collecting layers")
                .hint("try again in a moment")
        })?;
        let mut report = GcReport::default();
        self.free_retained(options, &mut report)?;
        self.free_records(options, &mut report)?;
        self.free_layers(options, &mut report)?;
        self.free_undo(options, &mut report)?;
        self.free_orphans(options, &mut report)?;
        if !options.dry_run {
            let live: HashSet<_> = self.store().running()?.into_iter().map(|b| b.id).collect();
            forkpoint_sandbox::sweep(&|id| live.contains(&id))?;
        }
        Ok(report)
    }

    fn free_retained(&self, options: &GcOptions, report: &mut GcReport) -> Result<()> {
        let retained = self.store().retained()?;
        let max_bytes = options.max_bytes.unwrap_or(DEFAULT_MAX_BYTES);
        let oldest = self.oldest(options);
        let mut total: u64 = retained.iter().filter_map(|b| b.bytes).sum();
        // Oldest end first.
        for record in &retained {
            let bytes = record.bytes.unwrap_or(0);
            let aged = record.ended_ns.is_some_and(|ended| ended < oldest);
            if !aged && total <= max_bytes {
                continue;
            }
            total = total.saturating_sub(bytes);
            report.branches += 1;
            report.bytes += bytes;
            report.items.push(format!(
                "branch {}: its retained delta",
                crate::branch::name(record)
            ));
            if !options.dry_run {
                self.free_branch(record)?;
            }
        }
        Ok(())
    }

    fn free_branch(&self, record: &BranchRecord) -> Result<()> {
        let branch = Branch::new(self.clone(), record.id);
        let _lock = branch.lock()?;
        let disks = branch.disks(record)?;
        // The row first: what is deleted must not be promised.
        self.store()
            .modify_branch(record.id, |b| b.retained = false)?;
        for (disk, stack) in disks.iter().zip(&record.stacks) {
            let sealed = is_sealed(&self.store(), stack[0])?;
            if !sealed {
                self.remove_tree(&disk.upper)?;
            }
        }
        self.remove_branch_dir(record)
    }

    /// Branches and explorations that ended long ago and of which nothing is retained: their logs,
    /// what their attempts left in `FORKPOINT_OUT`, and their rows.
    fn free_records(&self, options: &GcOptions, report: &mut GcReport) -> Result<()> {
        let oldest = self.oldest(options);
        let old = |ended: Option<i64>| ended.is_some_and(|ended| ended < oldest);
        let branches = self.store().branches(None, true)?;
        for record in branches.iter().filter(|b| old(b.ended_ns) && !b.retained) {
            report.items.push(format!(
                "branch {}: its log and record",
                crate::branch::name(record)
            ));
            if options.dry_run {
                continue;
            }
            self.remove_branch_dir(record)?;
            if self.store().children(record.id)?.is_empty() {
                self.store().remove_branch(record.id)?;
            }
        }
        let explorations = self.store().explorations(false)?;
        for exploration in explorations.iter().filter(|x| old(x.ended_ns)) {
            report.items.push(format!(
                "exploration {}: its logs and record",
                exploration.id
            ));
            if options.dry_run {
                continue;
            }
            self.remove_tree(&self.paths().exploration(exploration.id))?;
            self.store().remove_exploration(exploration.id)?;
        }
        Ok(())
    }

    /// What ended before this is old.
    fn oldest(&self, options: &GcOptions) -> i64 {
        let max_age = options.max_age_s.unwrap_or(DEFAULT_MAX_AGE_S);
        self.now()
            .saturating_sub_unsigned(max_age.saturating_mul(1_000_000_000))
    }

    fn free_layers(&self, options: &GcOptions, report: &mut GcReport) -> Result<()> {
        let unused = self.store().unreferenced_layers()?;
        let ids: Vec<LayerId> = unused.iter().map(|l| l.id).collect();
        let free = match options.dry_run {
            true => ids,
            false => self.store().remove_layers(&ids)?,
        };
        for id in free {
            let dir = self.paths().layer(id);
            report.layers += 1;
            if dir.is_dir() {
                report.bytes += self.usage(&dir)?;
            }
            report.items.push(format!("layer {id}"));
            if !options.dry_run {
                self.remove_tree(&dir)?;
                self.drop_work(id)?;
            }
        }
        Ok(())
    }

    fn free_undo(&self, options: &GcOptions, report: &mut GcReport) -> Result<()> {
        let worlds = self.store().worlds()?;
        for world in worlds {
            let commits = self.store().commits(world.id)?;
            let over = commits
                .iter()
                .filter(|c| c.ended_ns.is_some() && c.decided_ns.is_some())
                .skip(UNDO_KEPT)
                .chain(
                    commits
                        .iter()
                        .filter(|c| c.ended_ns.is_some() && c.state == CommitState::Undone),
                );
            for commit in over {
                if !self.has_undo(&world, commit.id)? {
                    continue;
                }
                report.undo_layers += 1;
                report
                    .items
                    .push(format!("undo layer of commit {}", commit.id));
                if !options.dry_run {
                    self.store().drop_undo(commit.id)?;
                    for (index, disk) in world.disks.iter().enumerate() {
                        self.discard_stage(&disk.path, commit.id, index)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn has_undo(&self, world: &forkpoint_store::WorldRecord, txn: CommitId) -> Result<bool> {
        let store = self.store();
        for index in 0..world.disks.len() {
            if store
                .journal(txn, &crate::disk::participant(index))?
                .is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Directories in `layers/` and `branches/` that no row knows.
    fn free_orphans(&self, options: &GcOptions, report: &mut GcReport) -> Result<()> {
        // Listed before the rows are read: what appears meanwhile is not looked at.
        let layers = self.names("layers")?;
        let branches = self.names("branches")?;
        let store = self.store();
        let mut known: HashSet<String> = store.layers()?.iter().map(|l| l.id.to_string()).collect();
        let mut dirs = HashSet::new();
        for record in store.branches(None, true)? {
            if record.ended_ns.is_none() || record.retained {
                known.extend(record.stacks.iter().flatten().map(LayerId::to_string));
            }
            dirs.insert(record.id.to_string());
        }
        drop(store);
        let layer = |n: &str| n.strip_suffix(crate::paths::WORK).unwrap_or(n).to_owned();
        let lost = layers
            .iter()
            .filter(|n| !known.contains(&layer(n)))
            .map(|n| ("layers", n));
        let gone = branches
            .iter()
            .filter(|n| !dirs.contains(&**n))
            .map(|n| ("branches", n));
        for (place, orphan) in lost.chain(gone) {
            let path: PathBuf = self.paths().store().join(place).join(orphan);
            report.bytes += self.usage(&path)?;
            report
                .items
                .push(format!("{place}/{orphan}: left by a crash"));
            if !options.dry_run {
                self.remove_tree(&path)?;
            }
        }
        Ok(())
    }

    fn names(&self, place: &str) -> Result<Vec<String>> {
        let dir = self.paths().store().join(place);
        let io = |e| codes::IO.io(format!("cannot list {}", dir.display()), e);
        std::fs::read_dir(&dir)
            .map_err(io)?
            .map(|e| {
                e.map(|e| e.file_name().to_string_lossy().into_owned())
                    .map_err(io)
            })
            .collect()
    }
}
