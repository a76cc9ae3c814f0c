//! Building what a branch sees: a new root, in init's own mount namespace, and moving into it.
//!
//! Everything is opened and mounted through descriptors. Paths of the host (layers, bases, the
//! store) come from the starter and are trusted; paths inside the new root are not, since a
//! preparation may have left anything there: they are resolved within it.

mod devices;
mod disks;
mod fresh;
mod layers;
mod masks;
mod memory;
mod place;
mod plan;
mod root;
mod shadow;
mod stacking;

use crate::codes::SETUP;
use crate::spec::{Identity, SandboxSpec};
use forkpoint_model::Result;
use forkpoint_sys::ids::Shift;
use forkpoint_sys::{caps, mount};
use layers::Layers;
use memory::Memory;
use rustix::fs::CWD;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount};
use stacking::Stacking;
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A finished root.
#[derive(Debug)]
pub struct View {
    /// What could not be captured, said plainly.
    pub warnings: Vec<String>,
    /// File systems in memory whose bytes count as written: descriptors of their roots.
    pub in_memory: Vec<OwnedFd>,
    /// Mounts that were needed to build it: to be let go of when nobody waits.
    pub spent: Vec<OwnedFd>,
    /// The root of its `/dev/pts`.
    pub terminals: OwnedFd,
}

/// What the parts of the construction share.
struct Build<'a> {
    spec: &'a SandboxSpec,
    layers: Layers<'a>,
    root: OwnedFd,
    warnings: Vec<String>,
    memory: Memory,
    in_memory: Vec<OwnedFd>,
    nothing: Option<OwnedFd>,
}

impl<'a> Build<'a> {
    fn stacking(&mut self) -> Stacking<'_, 'a> {
        Stacking {
            layers: &mut self.layers,
            memory: &mut self.memory,
            warnings: &mut self.warnings,
        }
    }

    /// An empty directory in memory, as a second layer where one alone would not make an overlay.
    fn nothing(&mut self) -> Result<BorrowedFd<'_>> {
        let made = match self.nothing.take() {
            Some(made) => made,
            None => mount::new_fs("tmpfs", &[("mode", Some("755"))], MountAttrFlags::empty())
                .map_err(|e| failed("make an empty directory", e.source))?,
        };
        let made: &OwnedFd = self.nothing.insert(made);
        Ok(made.as_fd())
    }
}

fn failed(what: impl Display, e: impl Display) -> forkpoint_model::Error {
    SETUP.io(format!("cannot {what}"), e)
}

/// Detaches this mount namespace from the host's: nothing mounted on either side propagates.
pub fn make_private() -> Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|e| failed("make mounts private", e))
}

/// Mounts a fresh `/proc` of this pid namespace, detached.
pub fn mount_proc() -> Result<OwnedFd> {
    let flags = mount::MountAttrFlags::MOUNT_ATTR_NOSUID
        | mount::MountAttrFlags::MOUNT_ATTR_NODEV
        | mount::MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mount::new_fs("proc", &[], flags).map_err(|e| {
        crate::codes::NO_NAMESPACES
            .io("the kernel refuses a fresh /proc", e)
            .hint("a container that masks parts of /proc prevents it: run it with `--security-opt systempaths=unconfined`")
    })
}

/// Builds the whole view and makes it this process's root. `user` is U2, `proc` the fresh `/proc`.
pub fn build(spec: &SandboxSpec, user: BorrowedFd<'_>, proc: BorrowedFd<'_>) -> Result<View> {
    let mounts = crate::mounts::list()?;
    let plan = plan::plan(spec, &mounts)?;
    // Directories of the store are made with the true ids; what is mounted, with those of U2.
    root::prepare_uppers(spec, &plan)?;
    let construct = || construct(spec, user, proc, plan);
    let (root, view) = match spec.identity {
        Identity::Root { shift, .. } => caps::with_fs_ids(shift, shift, construct)
            .map_err(|e| failed("take the branch's ids", e))?,
        Identity::User { .. } => construct(),
    }?;
    enter(root.as_fd())?;
    Ok(view)
}

fn construct(
    spec: &SandboxSpec,
    user: BorrowedFd<'_>,
    proc: BorrowedFd<'_>,
    plan: plan::Plan,
) -> Result<(OwnedFd, View)> {
    let mut layers = Layers::new(&spec.identity, user);
    let mut warnings = Vec::new();
    let fresh = fresh::collect(spec)?;
    let devices = devices::collect(spec)?;
    let limits = &spec.limits;
    let shift = match spec.identity {
        Identity::Root { shift, len } => Some(Shift { first: shift, len }),
        Identity::User { .. } => None,
    };
    let mut memory = Memory::new(limits.disk_bytes.or(limits.memory_bytes), shift);
    let mut stacking = Stacking {
        layers: &mut layers,
        memory: &mut memory,
        warnings: &mut warnings,
    };
    let root = root::mount_root(spec, &plan, &mut stacking)?;
    // Stacked on the old root: nothing of the host that is still needed is covered by it.
    mount::attach_at(root.as_fd(), Path::new("/")).map_err(|e| failed("attach the new root", e))?;
    let mut build = Build {
        spec,
        layers,
        root,
        warnings,
        memory,
        in_memory: Vec::new(),
        nothing: None,
    };
    root::mount_rest(&mut build, &plan)?;
    let terminals = fresh::mount_all(&mut build, fresh, proc)?;
    disks::mount_all(&mut build)?;
    masks::mount_all(&mut build)?;
    devices::mount_all(&build, &devices)?;
    build.in_memory.extend(build.memory.into_root());
    let view = View {
        warnings: build.warnings,
        in_memory: build.in_memory,
        spent: build.layers.into_spent(),
        terminals,
    };
    Ok((build.root, view))
}

/// Makes `root` the root of this namespace and lets go of the old one, and with it of every mount
/// of the host.
fn enter(root: BorrowedFd<'_>) -> Result<()> {
    rustix::process::fchdir(root).map_err(|e| failed("enter the new root", e))?;
    rustix::process::pivot_root(".", ".").map_err(|e| failed("change the root", e))?;
    // The old root is now stacked on the new one.
    unmount(".", UnmountFlags::DETACH).map_err(|e| failed("let go of the old root", e))?;
    rustix::process::chdir("/").map_err(|e| failed("enter the new root", e))
}

/// Opens a path of the host with `O_PATH`.
fn host_path(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::openat(
        CWD,
        path,
        flags,
        rustix::fs::Mode::empty(),
    )?)
}
