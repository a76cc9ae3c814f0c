//! Hiding paths: a directory is covered by an empty read-only directory, a file by an empty
//! read-only file. In the commands' mount namespace these covers are locked.

use super::{Build, failed, place};
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, Attributes, MountAttrFlags};
use rustix::fs::{FileType, Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Where the covers come from. It is visible inside, empty and read-only; before Linux 6.15 only an
/// attached mount can be cloned.
const COVERS: &str = "/run/forkpoint/empty";

struct Covers {
    tmpfs: OwnedFd,
}

pub(super) fn mount_all(build: &mut Build<'_>) -> Result<()> {
    let mut covers = None;
    let spec = build.spec;
    for path in &spec.masks {
        let fault = |e: std::io::Error| failed(format_args!("mask {}", path.display()), e);
        let Some(target) = place::existing(build.root.as_fd(), path).map_err(fault)? else {
            continue;
        };
        let cover = match place::kind(target.as_fd()).map_err(fault)? {
            FileType::Directory => "d",
            _ => "f",
        };
        if covers.is_none() {
            covers = Some(Covers::make(build.root.as_fd())?);
        }
        if let Some(covers) = &covers {
            let clone = covers.clone_of(cover).map_err(fault)?;
            place::on(clone.as_fd(), target.as_fd(), path)?;
        }
    }
    Ok(())
}

impl Covers {
    fn make(root: BorrowedFd<'_>) -> Result<Self> {
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let options = [("mode", Some("755")), ("size", Some("16k"))];
        let tmpfs =
            mount::new_fs("tmpfs", &options, flags).map_err(|e| failed("mount covers", e))?;
        let fault = |e: rustix::io::Errno| failed("make covers", e);
        rustix::fs::mkdirat(&tmpfs, "d", Mode::from_raw_mode(0o555)).map_err(fault)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&tmpfs, "f", flags, Mode::from_raw_mode(0o444)).map_err(fault)?;
        let change = Attributes {
            set: MountAttrFlags::MOUNT_ATTR_RDONLY,
            ..Attributes::default()
        };
        mount::set_attributes(tmpfs.as_fd(), &change).map_err(|e| failed("close covers", e))?;
        let target = place::directory(root, Path::new(COVERS), 0o555)?;
        place::on(tmpfs.as_fd(), target.as_fd(), Path::new(COVERS))?;
        Ok(Self { tmpfs })
    }

    fn clone_of(&self, name: &str) -> std::io::Result<OwnedFd> {
        let dir: BorrowedFd<'_> = self.tmpfs.as_fd();
        // A clone is read-only as its source is.
        mount::clone_tree(dir, Path::new(name), false)
    }
}
