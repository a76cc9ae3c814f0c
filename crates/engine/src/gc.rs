//! Collecting what nobody needs any more.

use crate::branch::{Branch, identity};
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

/// Retained deltas are kept this long by default, in seconds: one week.
pub const DEFAULT_MAX_AGE_S: u64 = 7 * 24 * 3600;
/// Retained deltas together may take this much by default: 5 GiB.
pub const DEFAULT_MAX_BYTES: u64 = 5 << 30;
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
        self.store().make_room()?;
        let mut report = GcReport::default();
        self.free_retained(options, &mut report)?;
        self.free_records(options, &mut report)?;
        self.free_steps(options, &mut report)?;
        self.free_layers(options, &mut report)?;
        self.free_undo(options, &mut report)?;
        self.free_shared(options, &mut report)?;
        self.free_orphans(options, &mut report)?;
        if !options.dry_run {
            let left = crate::recover::sweep_scratch(self)?;
            if let Some(first) = left.first() {
                return Err(codes::IO.error(first));
            }
            let mut live = HashSet::new();
            let recorded = self.store().running()?;
            for branch in recorded {
                let process = branch.process.as_ref().map(identity);
                if process.is_some_and(|p| forkpoint_sandbox::is_alive(&p).unwrap_or(true)) {
                    live.insert(branch.id);
                }
            }
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
            if report.branches >= options.at_most.map_or(u64::MAX, |n| n as u64) {
                break;
            }
            let bytes = record.bytes.unwrap_or(0);
            let aged = record.ended_ns.is_some_and(|ended| ended < oldest);
            if !aged && total <= max_bytes {
                continue;
            }
            total = total.saturating_sub(bytes);
            report.branches += 1;
            let name = crate::branch::name(record);
            report.add(
                "retained",
                bytes,
                format!("branch {name}: its retained delta"),
            );
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
        let most = options.at_most.unwrap_or(usize::MAX);
        let ended = branches.iter().filter(|b| old(b.ended_ns) && !b.retained);
        for record in ended.take(most) {
            let bytes = self.usage_of(&self.paths().branch(record.id))?;
            let name = crate::branch::name(record);
            report.add(
                "records",
                bytes,
                format!("branch {name}: its log and record"),
            );
            if options.dry_run {
                continue;
            }
            self.remove_branch_dir(record)?;
            if self.store().children(record.id)?.is_empty() {
                self.store().remove_branch(record.id)?;
            }
        }
        let explorations = self.store().explorations(false)?;
        let ended = explorations.iter().filter(|x| old(x.ended_ns));
        for exploration in ended.take(most) {
            let id = exploration.id;
            let bytes = self.usage_of(&self.paths().exploration(id))?;
            report.add(
                "records",
                bytes,
                format!("exploration {id}: its logs and record"),
            );
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
        // What an origin's next children will stand on is kept by its lock alone.
        let kept = self.paths().kept();
        let free =
            |id: &LayerId| lock::byte(&kept, id.bits(), || codes::BUSY.error("kept")).is_ok();
        let ids: Vec<LayerId> = unused.iter().map(|l| l.id).filter(free).collect();
        let free = match options.dry_run {
            true => ids,
            false => self.store().remove_layers(&ids)?,
        };
        for id in free {
            let dir = self.paths().layer(id);
            report.layers += 1;
            let bytes = self.usage_of(&dir)?;
            report.add("layers", bytes, format!("layer {id}"));
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
                let bytes = self.usage_of(&self.paths().stage(commit.id))?;
                report.add("undo", bytes, format!("undo layer of commit {}", commit.id));
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

    /// Overlays of keys that nobody stands on, versions that nobody sees, events that nobody has yet to
    /// see, and what the journal says of branches that are forgotten. After the undo of commits,
    /// which needs what was before them.
    fn free_shared(&self, options: &GcOptions, report: &mut GcReport) -> Result<()> {
        let freed = self.store().kv_collect(options.dry_run)?;
        if freed.overlays + freed.versions > 0 {
            let text = format!(
                "keys: {} overlays and {} old versions",
                freed.overlays, freed.versions
            );
            report.add("keys", freed.bytes, text);
        }
        // After the overlays, which rows of the journal belong to.
        let old = (self.store()).shared_collect(self.oldest(options), options.dry_run)?;
        if old.events + old.effects > 0 {
            let text = format!(
                "events: {} that all have seen, and {} rows of the effect journal",
                old.events, old.effects
            );
            report.add("events", old.bytes, text);
        }
        for (more, what) in [(freed.more, "keys"), (old.more, "events")] {
            if more {
                let text = format!("{what}: more is left for the next run");
                report.items.push(text);
            }
        }
        Ok(())
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
            let bytes = self.usage_of(&path)?;
            report.add(
                "crashed",
                bytes,
                format!("{place}/{orphan}: left by a crash"),
            );
            if !options.dry_run {
                self.remove_tree(&path)?;
            }
        }
        Ok(())
    }

    /// Bytes of a directory; none where there is none.
    fn usage_of(&self, dir: &std::path::Path) -> Result<u64> {
        match dir.is_dir() {
            true => self.usage(dir),
            false => Ok(0),
        }
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
