//! The system root of a branch: the host's `/`, with every permitted write kept in ephemeral
//! uppers over the preparation's.
//!
//! Root has one overlay of `/` and one of each further real mount. An ordinary user cannot: a
//! directory with mounts below it that the user may not unmount is refused as a layer. There the
//! root is a file system in memory, with one overlay per directory that has no mount below it,
//! going deeper where one has.

use super::plan::{Kind, Plan};
use super::stacking::{PREPARED_WORK, Stacking};
use super::{Build, failed, place, shadow};
use crate::mounts::entry_name;
use crate::spec::SandboxSpec;
use forkpoint_fs::{MountOptions, view};
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, MountAttrFlags};
use rustix::fs::Mode;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Makes the upper and work directories of every overlay, with the caller's own ids.
pub(super) fn prepare_uppers(spec: &SandboxSpec, plan: &Plan) -> Result<()> {
    for entry in &plan.entries {
        let dir = spec.root_upper.join(entry_name(&entry.path));
        let (upper, work) = (dir.join("upper"), dir.join("work"));
        let fault = |e| failed(format_args!("make {}", dir.display()), e);
        let make = || match rustix::fs::mkdir(&dir, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(e) => Err(fault(e)),
        };
        match entry.kind {
            Kind::Overlay => {
                match make()? {
                    true => view::prepare_pair(&upper, &work, &entry.path)?,
                    false => view::renew_volatile_work(&work)?,
                }
                if !spec.root_layers.is_empty() {
                    let work = dir.join(PREPARED_WORK);
                    match rustix::fs::mkdir(&work, Mode::RWXU) {
                        Ok(()) => {}
                        Err(rustix::io::Errno::EXIST) => view::renew_volatile_work(&work)?,
                        Err(e) => return Err(fault(e)),
                    }
                }
            }
            Kind::Temporary => {
                if make()? {
                    rustix::fs::mkdir(&upper, Mode::from_raw_mode(0o1777)).map_err(fault)?;
                    rustix::fs::mkdir(&work, Mode::RWXU).map_err(fault)?;
                } else {
                    view::renew_volatile_work(&work)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Mounts the first piece: root's overlay of `/`, or a user's root in memory.
pub(super) fn mount_root(
    spec: &SandboxSpec,
    plan: &Plan,
    stacking: &mut Stacking<'_, '_>,
) -> Result<OwnedFd> {
    stacking.warnings.extend(plan.warnings.iter().cloned());
    if spec.identity.rootless() {
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        return mount::new_fs("tmpfs", &[("mode", Some("755"))], flags)
            .map_err(|e| failed("mount a root in memory", e));
    }
    stacking.overlay(spec, Path::new("/"), shadow::cover()?)
}

/// Mounts the other pieces.
pub(super) fn mount_rest(build: &mut Build<'_>, plan: &Plan) -> Result<()> {
    for entry in &plan.entries {
        let path = entry.path.as_path();
        if path == Path::new("/") {
            continue;
        }
        let mounted = match &entry.kind {
            Kind::Overlay => {
                let spec = build.spec;
                build.stacking().overlay(spec, path, None)?
            }
            Kind::Bind => build.layers.bind(path, true)?,
            Kind::Shown => shown(build, path)?,
            Kind::Temporary => temporary(build, path)?,
            Kind::Directory(mode) => {
                // Open to its owner, so that what lies in it can be made.
                place::directory(build.root.as_fd(), path, *mode | 0o700)?;
                continue;
            }
            Kind::Empty(mode) => {
                place::directory(build.root.as_fd(), path, *mode)?;
                continue;
            }
            Kind::Link(target) => {
                make_link(build.root.as_fd(), path, target)?;
                continue;
            }
        };
        let directory = place_kind(mounted.as_fd(), path)?;
        let target = if directory {
            place::directory(build.root.as_fd(), path, 0o755)?
        } else {
            place::file(build.root.as_fd(), path)?
        };
        place::on(mounted.as_fd(), target.as_fd(), path)?;
    }
    for path in build.layers.take_unmapped() {
        build.warnings.push(format!(
            "the file system of {} cannot map ids: files of root there belong to nobody inside, and cannot be changed",
            path.display()
        ));
    }
    Ok(())
}

/// A directory of the host as an overlay that nothing can be written to.
fn shown(build: &mut Build<'_>, path: &Path) -> Result<OwnedFd> {
    let host = build.layers.lower(path)?;
    let options = MountOptions {
        volatile: false,
        userxattr: build.spec.identity.rootless(),
    };
    let lowers = [build.nothing()?, host.as_fd()];
    view::mount_fds(&lowers, None, &options)
        .map_err(|e| e.context(format_args!("the view of {}", path.display())))
}

fn place_kind(fd: BorrowedFd<'_>, path: &Path) -> Result<bool> {
    let kind =
        place::kind(fd).map_err(|e| failed(format_args!("look at {}", path.display()), e))?;
    Ok(kind.is_dir())
}

fn make_link(root: BorrowedFd<'_>, path: &Path, target: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let dir = place::directory(root, parent, 0o755)?;
    let name = path.file_name().unwrap_or(OsStr::new(""));
    rustix::fs::symlinkat(target, &dir, name)
        .map_err(|e| failed(format_args!("make the link {}", path.display()), e))
}

/// A directory of the branch's own: empty at first, or what the preparation left in its.
fn temporary(build: &mut Build<'_>, path: &Path) -> Result<OwnedFd> {
    let spec = build.spec;
    let name = entry_name(path);
    let dir = spec.root_upper.join(&name);
    let mut prepared = Vec::new();
    for layer in &spec.root_layers {
        let layer = layer.join(&name).join("upper");
        if layer.is_dir() {
            prepared.push(build.layers.stored(&layer)?);
        }
    }
    if prepared.is_empty() {
        return build.layers.bind(&dir.join("upper"), false);
    }
    let lowers: Vec<BorrowedFd<'_>> = prepared.iter().map(AsFd::as_fd).collect();
    let options = MountOptions {
        volatile: true,
        userxattr: spec.identity.rootless(),
    };
    build
        .stacking()
        .own_over(&dir, path, &lowers, &options)
        .map_err(|e| e.context(format_args!("the view of {}", path.display())))
}
