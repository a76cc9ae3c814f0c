//! What is found out before anything is decided: whether the base can be changed as planned, whether
//! there is room, and whether it is still what it was.

use super::super::journal::Op;
use super::super::prepare::{self, failed};
use super::super::{place, walk};
use super::{Stager, changed, opens};
use crate::codes;
use crate::conflict::{self, CheckOptions, PathConflict};
use forkpoint_model::Result;
use rustix::fs::{Access, AtFlags};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Stager<'_> {
    /// Whether attributes that are to change are this user's to change. Root's may be anybody's.
    fn check_attributes(&self) -> Result<()> {
        let theirs = self.ops.iter().find_map(|op| match &op.attrs {
            Some(Op::Attrs { dir, name, old, .. }) if !self.owner.owns(old.uid) => {
                Some((*dir, name))
            }
            _ => None,
        });
        let Some((dir, name)) = theirs else {
            return Ok(());
        };
        let dir = Path::new(OsStr::from_bytes(&self.dirs[dir as usize].path));
        let path = dir.join(OsStr::from_bytes(name));
        let shown = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path.as_path()
        };
        Err(codes::CANNOT_APPLY
            .error(format!(
                "{} in the base belongs to somebody else: its attributes cannot be changed",
                shown.display()
            ))
            .hint("nothing was changed: commit into a copy of your own, or as its owner"))
    }

    /// Whether every directory that gets or loses a name can be written to, said before the
    /// decision and not after it.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_attributes()?;
        let mut checked = vec![false; self.dirs.len()];
        let opened = |dir: u32| {
            self.ops.iter().any(|op| {
                matches!(&op.attrs, Some(Op::Attrs { dir: d, name, new, .. })
                    if *d == dir && name.is_empty() && opens(new.mode))
            })
        };
        for op in self.ops.iter().filter(|op| op.attrs.is_none()) {
            if std::mem::replace(&mut checked[op.dir as usize], true) {
                continue;
            }
            let path = Path::new(OsStr::from_bytes(&self.dirs[op.dir as usize].path));
            let fd = walk::dir(self.base.as_fd(), path).map_err(|e| failed(path, &e))?;
            let access = Access::WRITE_OK | Access::EXEC_OK;
            if let Err(errno) = rustix::fs::accessat(fd.as_fd(), ".", access, AtFlags::EACCESS)
                && !opened(op.dir)
            {
                let shown = if path.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    path
                };
                return Err(codes::CANNOT_APPLY
                    .io(
                        format_args!("{} in the base cannot be changed", shown.display()),
                        place::why(&errno.into()),
                    )
                    .hint("make the directory writable and commit again; nothing was changed"));
            }
        }
        Ok(())
    }

    /// Refuses early what cannot fit; what is not seen here is found by the write that fails.
    pub(super) fn check_space(&self) -> Result<()> {
        let stat = rustix::fs::fstatvfs(&self.stage)
            .map_err(|e| failed(&self.request.stage, &e.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if self.request.changes.bytes <= free {
            return Ok(());
        }
        // Sizes overstate what sparse files need.
        let mut needed = 0u64;
        for planned in self.ops.iter().filter(|p| p.builds) {
            for change in &self.request.changes.changes[planned.root.all.clone()] {
                let found = conflict::look(self.view.as_fd(), &change.path)
                    .map_err(|e| failed(&change.path, &e))?;
                if let Some((_, _, meta)) = found.filter(|(_, _, meta)| meta.is_file()) {
                    needed = needed.saturating_add(meta.size.min(meta.blocks.saturating_mul(512)));
                }
            }
        }
        let reflinks = prepare::may_share(self.stage.as_fd());
        if needed <= free || reflinks {
            return Ok(());
        }
        Err(codes::NO_SPACE
            .error(format!(
                "the change needs {needed} bytes beside the base, and {free} are free"
            ))
            .hint("free space on the target's file system and commit again; nothing was changed"))
    }

    /// What changed in the base between the fork and the moment its state was recorded is found
    /// here; what changes later is found by redo.
    pub(super) fn changed_since(&self) -> Result<()> {
        let request = self.request;
        let options = CheckOptions {
            layers: request.layers.clone(),
            top: request.top,
            userxattr: request.userxattr,
            baseline: request.baseline.clone(),
        };
        let found = conflict::check(&request.changes, &request.base, request.stamp, &options)?;
        match found.first() {
            None => Ok(()),
            Some(PathConflict { path, why }) => {
                let more = match found.len() {
                    1 => String::new(),
                    n => format!(" (and {} more)", n - 1),
                };
                Err(changed(path, format!("{why}{more}")))
            }
        }
    }
}
