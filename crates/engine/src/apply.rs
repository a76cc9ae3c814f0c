//! Applying a delta to a base, by the operations of the file layer.

use crate::codes;
use crate::engine::Engine;
use crate::files::mismatch;
use crate::layers::DiskLayers;
use forkpoint_fs::apply::{Journal, Owners, Redo, StageRequest, Staged};
use forkpoint_fs::apply_ops::{ApplyRequest, ApplyResponse};
use forkpoint_fs::conflict::{Baseline, Budget, CheckOptions, Drift, PathConflict};
use forkpoint_fs::delta::ChangeSet;
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_fs::protect::ProtectOptions;
use forkpoint_fs::stamp::Stamp;
use forkpoint_model::{CommitId, Result, WorldId};
use std::path::{Path, PathBuf};

/// What is known of a disk's base as it was when its branch was forked.
#[derive(Debug, Clone)]
pub(crate) struct Then {
    pub(crate) stamp: Stamp,
    pub(crate) baseline: Option<Baseline>,
}

impl Engine {
    fn apply(&self, request: ApplyRequest) -> Result<ApplyResponse> {
        self.apply_on(false, request)
    }

    /// `copy`: what is read of the branch is a copy, with its owners as they are stored in one.
    pub(crate) fn apply_on(&self, copy: bool, request: ApplyRequest) -> Result<ApplyResponse> {
        match self.fs_on(copy, FsRequest::Apply(request))? {
            FsResponse::Apply(response) => Ok(response),
            _ => Err(mismatch("an apply operation")),
        }
    }

    /// What was changed underneath of what the delta would overwrite.
    pub(crate) fn check(
        &self,
        disk: &DiskLayers,
        changes: &ChangeSet,
        then: &Then,
    ) -> Result<Vec<PathConflict>> {
        let layers = disk.compared();
        let options = CheckOptions {
            top: layers.len() - 1,
            layers,
            userxattr: self.rootless(),
            baseline: then.baseline.clone(),
        };
        let request = ApplyRequest::Check {
            changes: changes.clone(),
            base: disk.target.clone(),
            stamp: then.stamp,
            options,
        };
        match self.apply_on(disk.copy, request)? {
            ApplyResponse::Conflicts(found) => Ok(found),
            _ => Err(mismatch("a check")),
        }
    }

    pub(crate) fn drift(
        &self,
        disk: &DiskLayers,
        changes: &ChangeSet,
        then: &Then,
        budget: Budget,
    ) -> Result<Drift> {
        let request = ApplyRequest::Drift {
            base: disk.target.clone(),
            stamp: then.stamp,
            ignore: changes.clone(),
            baseline: then.baseline.clone(),
            budget,
        };
        match self.apply(request)? {
            ApplyResponse::Drift(drift) => Ok(drift),
            _ => Err(mismatch("a scan for drift")),
        }
    }

    /// What was changed in a tree at or after a stamp, however long looking takes.
    pub(crate) fn changed_since(&self, tree: &Path, stamp: Stamp) -> Result<Drift> {
        let request = ApplyRequest::Drift {
            base: tree.to_owned(),
            stamp,
            ignore: ChangeSet::default(),
            baseline: None,
            budget: Budget {
                entries: u64::MAX,
                millis: u64::MAX,
            },
        };
        match self.apply(request)? {
            ApplyResponse::Drift(drift) => Ok(drift),
            _ => Err(mismatch("a scan for drift")),
        }
    }

    pub(crate) fn stage(
        &self,
        disk: &DiskLayers,
        changes: ChangeSet,
        then: &Then,
        txn: CommitId,
        index: usize,
    ) -> Result<Staged> {
        let layers = disk.compared();
        let request = StageRequest {
            top: layers.len() - 1,
            layers,
            changes,
            base: disk.target.clone(),
            stage: self.stage_place(txn, index),
            stamp: then.stamp,
            userxattr: self.rootless(),
            owners: self.owners(),
            baseline: then.baseline.clone(),
        };
        let request = ApplyRequest::Stage {
            request: Box::new(request),
            txn,
        };
        match self.apply_on(disk.copy, request)? {
            ApplyResponse::Staged(staged) => Ok(*staged),
            _ => Err(mismatch("staging")),
        }
    }

    /// Disks of one commit stage apart from each other.
    fn stage_place(&self, txn: CommitId, index: usize) -> PathBuf {
        self.paths().stage(txn).join(format!("disk-{index}"))
    }

    /// Undo layers that had to be kept inside a base, for want of another place on its file system: a
    /// branch must not see them.
    pub(crate) fn staged_in(&self, world: WorldId, disks: &[DiskLayers]) -> Result<Vec<PathBuf>> {
        let commits = self.store().commits(world)?;
        let inside = commits
            .iter()
            .filter(|c| c.decided_ns.is_some())
            .flat_map(|commit| {
                disks
                    .iter()
                    .map(|d| d.target.join(forkpoint_fs::apply::own_name(commit.id)))
            });
        Ok(inside.filter(|path| path.is_dir()).collect())
    }

    fn owners(&self) -> Owners {
        if self.rootless() {
            Owners::MapToCaller
        } else {
            Owners::Keep
        }
    }

    pub(crate) fn redo_journal(&self, target: &Path, journal: Journal) -> Result<Redo> {
        self.redo(ApplyRequest::Redo {
            base: target.to_owned(),
            journal,
        })
    }

    pub(crate) fn undo_journal(&self, target: &Path, journal: Journal) -> Result<Redo> {
        self.redo(ApplyRequest::Undo {
            base: target.to_owned(),
            journal,
            dry: false,
        })
    }

    /// What would block an undo. Changes nothing.
    pub(crate) fn check_undo(&self, target: &Path, journal: Journal) -> Result<Vec<PathConflict>> {
        match self.redo(ApplyRequest::Undo {
            base: target.to_owned(),
            journal,
            dry: true,
        })? {
            Redo::Done => Ok(Vec::new()),
            Redo::Blocked(items) => Ok(items),
        }
    }

    fn redo(&self, request: ApplyRequest) -> Result<Redo> {
        match self.apply(request)? {
            ApplyResponse::Redo(redo) => Ok(redo),
            _ => Err(mismatch("a redo")),
        }
    }

    /// Removes what a commit staged for a disk, or kept to undo it.
    pub(crate) fn discard_stage(&self, target: &Path, txn: CommitId, index: usize) -> Result<()> {
        let preferred = self.stage_place(txn, index);
        self.apply(ApplyRequest::DiscardStage {
            base: target.to_owned(),
            preferred,
            txn,
        })?;
        let whole = self.paths().stage(txn);
        match std::fs::remove_dir(&whole) {
            // Another disk of the same commit still has its part, or there never was one.
            Ok(()) => Ok(()),
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Ok(())
            }
            Err(e) => Err(codes::IO.io(format!("cannot remove {}", whole.display()), e)),
        }
    }

    /// Makes protected paths what the base (with the preparation) has.
    pub(crate) fn protect(
        &self,
        disk: &DiskLayers,
        top: usize,
        globs: &[String],
        volatile: bool,
    ) -> Result<Vec<PathBuf>> {
        let options = ProtectOptions {
            userxattr: self.rootless(),
            copied: disk.copy,
            owners: self.owners(),
            shift: self.shift().filter(|_| disk.copy).map(|s| (s.first, s.len)),
        };
        let request = ApplyRequest::Protect {
            stack: disk.stack().into(),
            copied: disk.copy,
            top,
            globs: globs.to_vec(),
            options,
            volatile,
        };
        match self.apply_on(disk.copy, request)? {
            ApplyResponse::Restored(paths) => Ok(paths),
            _ => Err(mismatch("a protection")),
        }
    }
}
