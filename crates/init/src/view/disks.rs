//! The world's disks at their own paths, the verifier's binds, and the directory for results.

use super::{Build, failed, place};
use crate::codes::BAD_SPEC;
use crate::spec::DiskMount;
use forkpoint_fs::{MountOptions, view};
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, Attributes, MountAttrFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Where [`crate::SandboxSpec::out_dir`] appears.
pub(super) const OUT: &str = "/run/forkpoint/out";

pub(super) fn mount_all(build: &mut Build<'_>) -> Result<()> {
    let spec = build.spec;
    for disk in &spec.disks {
        let mounted = mount_disk(build, disk)?;
        let target = place::directory(build.root.as_fd(), &disk.target, 0o755)?;
        place::on(mounted.as_fd(), target.as_fd(), &disk.target)?;
    }
    // A layer whose ids cannot be mapped would show, and keep, ids that mean nothing.
    if let Some(path) = build.layers.take_unmapped().first() {
        return Err(BAD_SPEC
            .error(format!(
                "the file system of {} cannot map ids, so that root's branch could not own its files",
                path.display()
            ))
            .hint("keep the base and the store on ext4, XFS, btrfs or tmpfs, or run as an ordinary user"));
    }
    for (source, target) in &spec.verify_mounts {
        let bound = build.layers.bind(source, true)?;
        let on = if source.is_dir() {
            place::directory(build.root.as_fd(), target, 0o755)?
        } else {
            place::file(build.root.as_fd(), target)?
        };
        place::on(bound.as_fd(), on.as_fd(), target)?;
    }
    for path in build.layers.take_unmapped() {
        build.warnings.push(format!(
            "the file system of {} cannot map ids: what lies there belongs to nobody inside",
            path.display()
        ));
    }
    if let Some(out) = &spec.out_dir {
        let bound = build.layers.bind_own(out)?;
        let target = place::directory(build.root.as_fd(), Path::new(OUT), 0o755)?;
        place::on(bound.as_fd(), target.as_fd(), Path::new(OUT))?;
    }
    Ok(())
}

fn mount_disk(build: &mut Build<'_>, disk: &DiskMount) -> Result<OwnedFd> {
    let mounted = if let Some(tree) = &disk.copy_tree {
        build.layers.bind_as_stored(tree)?
    } else {
        let stack = &disk.stack;
        let Some((base, sealed)) = stack.lowers.split_last() else {
            return Err(BAD_SPEC.error(format!("disk {} has no layer", disk.target.display())));
        };
        let mut lowers = Vec::with_capacity(stack.lowers.len());
        for layer in sealed {
            lowers.push(build.layers.stored(layer)?);
        }
        lowers.push(build.layers.lower(base)?);
        view::renew_volatile_work(&stack.work)?;
        let upper = build.layers.stored(&stack.upper)?;
        let work = build.layers.stored(&stack.work)?;
        let lowers: Vec<BorrowedFd<'_>> = lowers.iter().map(AsFd::as_fd).collect();
        let options = MountOptions {
            volatile: disk.volatile,
            userxattr: build.spec.identity.rootless(),
        };
        view::mount_fds(&lowers, Some((upper.as_fd(), work.as_fd())), &options)
            .map_err(|e| e.context(format_args!("disk {}", disk.target.display())))?
    };
    if disk.read_only {
        let change = Attributes {
            set: MountAttrFlags::MOUNT_ATTR_RDONLY,
            ..Attributes::default()
        };
        mount::set_attributes(mounted.as_fd(), &change)
            .map_err(|e| failed("make a disk read-only", e))?;
    }
    Ok(mounted)
}
