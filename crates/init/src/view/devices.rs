//! Devices of the host that were asked for by name, each under its own path.
//!
//! A user's branch has the host's own node, bound, which opens for whom it opens outside. Root's
//! commands are nobody to the host, so that most nodes would be shut for them: they get a node of
//! their own with the same number, where one can be made, and else the host's too.

use super::{Build, failed, host_path, place};
use crate::spec::SandboxSpec;
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, MountAttrFlags};
use forkpoint_sys::openat;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{UnmountFlags, unmount};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where nodes are made until they are bound to their paths.
const MADE: &str = "/run/forkpoint/devices";

/// A device, taken hold of before the new root covers it.
pub(super) struct Device {
    path: PathBuf,
    kind: FileType,
    number: (u32, u32),
    permissions: u32,
    host: OwnedFd,
}

/// Takes hold of all of them. What is no device any more is an error.
pub(super) fn collect(spec: &SandboxSpec) -> Result<Vec<Device>> {
    spec.devices.iter().map(|path| take(path)).collect()
}

fn take(path: &Path) -> Result<Device> {
    let fault = |e: io::Error| failed(format_args!("show the device {}", path.display()), e);
    let node = host_path(path).map_err(fault)?;
    let meta = openat::stat_fd(node.as_fd()).map_err(fault)?;
    let kind = FileType::from_raw_mode(meta.mode);
    if !matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
        return Err(fault(io::ErrorKind::InvalidInput.into()));
    }
    let host = mount::clone_tree(CWD, path, false).map_err(fault)?;
    Ok(Device {
        path: path.to_owned(),
        kind,
        number: meta.rdev,
        permissions: meta.mode & 0o666,
        host,
    })
}

/// Mounts them, above everything else.
pub(super) fn mount_all(build: &Build<'_>, devices: &[Device]) -> Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let made = match build.spec.identity.rootless() {
        true => None,
        false => Some(nodes(build, devices)?),
    };
    for (index, device) in devices.iter().enumerate() {
        let own = made.as_ref().and_then(|made| {
            mount::clone_tree(made.as_fd(), Path::new(&index.to_string()), false).ok()
        });
        let node = own.as_ref().unwrap_or(&device.host);
        let target = place::file(build.root.as_fd(), &device.path)?;
        place::on(node.as_fd(), target.as_fd(), &device.path)?;
    }
    if let Some(made) = made {
        // The clones stay; nothing inside may find the nodes by another name.
        rustix::process::fchdir(&made)
            .and_then(|()| unmount(".", UnmountFlags::DETACH))
            .map_err(|e| failed("let go of device nodes", e))?;
    }
    Ok(())
}

/// A directory in memory with a node for each, named by its number in the list. It is attached, since
/// before Linux 6.15 only an attached mount can be cloned. A container may forbid to make nodes.
fn nodes(build: &Build<'_>, devices: &[Device]) -> Result<OwnedFd> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options = [("mode", Some("755")), ("size", Some("64k"))];
    let dir = mount::new_fs("tmpfs", &options, flags).map_err(|e| failed("mount a tmpfs", e))?;
    let root = build.root.as_fd();
    let target = place::directory(root, Path::new(MADE), 0o700)?;
    place::on(dir.as_fd(), target.as_fd(), Path::new(MADE))?;
    for (index, device) in devices.iter().enumerate() {
        // Of the branch's root, as everything that is made here.
        let mode = Mode::from_raw_mode(device.permissions | 0o600);
        let number = rustix::fs::makedev(device.number.0, device.number.1);
        match mknodat(&dir, index.to_string(), device.kind, mode, number) {
            Ok(()) | Err(rustix::io::Errno::PERM) => {}
            Err(e) => return Err(failed("make a device node", e)),
        }
    }
    Ok(dir)
}
