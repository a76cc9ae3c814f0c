//! Reading a branch through a directory descriptor, without starting anything in it.

use crate::branch::{Branch, name};
use crate::codes;
use crate::layers::DiskLayers;
use crate::lock::Lock;
use forkpoint_fs::MountOptions;
use forkpoint_model::Result;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A branch's first disk, mounted for this process alone. While it is held, nothing can be run in
/// the branch, and it cannot be sealed: an upper is never part of two live views.
#[derive(Debug)]
pub struct View {
    dir: OwnedFd,
    _lock: Lock,
}

impl View {
    /// The view's root directory. Open files relative to it.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Branch {
    /// Mounts its first disk for reading and writing by this process.
    ///
    /// # Errors
    /// `FP0405` when it runs or is not open, `FP0406` when it is busy, `FP02xx` when the view cannot
    /// be mounted.
    pub fn view(&self) -> Result<View> {
        let lock = self.lock()?;
        let (record, disks) = self.record_and_disks()?;
        let open = record.state == forkpoint_model::state::BranchState::Open;
        if !open || self.engine.is_running(&record)? {
            return Err(codes::STATE
                .error(format!(
                    "{} is {} or running: it has no view of its own",
                    name(&record),
                    record.state
                ))
                .hint("stop it first, or fork it"));
        }
        let disk = disks
            .first()
            .ok_or_else(|| codes::INTERNAL.error("a branch without a disk"))?;
        let dir = if disk.copy {
            rustix::fs::open(
                &disk.upper,
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(|e| codes::IO.io("cannot open the branch's tree", e))?
        } else {
            self.mounted(disk, !record.durable)?
        };
        Ok(View { dir, _lock: lock })
    }

    fn mounted(&self, disk: &DiskLayers, volatile: bool) -> Result<OwnedFd> {
        let engine = &self.engine;
        let spares = &engine.inner.spares;
        let by_spare = volatile && disk.sealed.is_empty() && !engine.rootless();
        if by_spare && !disk.upper.exists() {
            let taken = spares.take(disk);
            spares.want(&disk.bottom);
            if let Some(view) = taken {
                return Ok(view);
            }
        }
        engine.make_upper(disk)?;
        if engine.rootless() {
            return engine.worker()?.mount_view(&disk.stack(), volatile);
        }
        forkpoint_fs::view::mount(
            &disk.stack(),
            &MountOptions {
                volatile,
                userxattr: false,
            },
        )
    }
}
