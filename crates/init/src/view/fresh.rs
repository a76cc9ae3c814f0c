//! What a branch has of its own: `/tmp`, `/run`, `/dev`, `/proc`; and `/sys`, read-only.

use super::{Build, failed, place};
use crate::spec::{Identity, Network, SandboxSpec};
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, Attributes, MountAttrFlags};
use rustix::fs::{CWD, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The device nodes a branch has; they are the host's own, bound.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

const LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Where a name server's address can lie outside of `/etc`.
const RESOLVER: &str = "/etc/resolv.conf";

/// What must be taken from the host before the new root covers it.
pub(super) struct Fresh {
    sys: Option<OwnedFd>,
    devices: Vec<(&'static str, OwnedFd)>,
    resolver: Option<(PathBuf, Vec<u8>)>,
}

pub(super) fn collect(spec: &SandboxSpec) -> Result<Fresh> {
    let sys = read_only_sys().map_err(|e| failed("clone /sys", e))?;
    let mut devices = Vec::with_capacity(DEVICES.len());
    for name in DEVICES {
        let clone = mount::clone_tree(CWD, &Path::new("/dev").join(name), false)
            .map_err(|e| failed(format_args!("clone /dev/{name}"), e))?;
        devices.push((*name, clone));
    }
    let resolver = match spec.network {
        Network::Loopback => None,
        Network::Host => resolver_in_run().map_err(|e| failed("read resolv.conf", e))?,
    };
    Ok(Fresh {
        sys,
        devices,
        resolver,
    })
}

fn read_only_sys() -> io::Result<Option<OwnedFd>> {
    let clone = match mount::clone_tree(CWD, Path::new("/sys"), true) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let change = Attributes {
        set: MountAttrFlags::MOUNT_ATTR_RDONLY,
        recursive: true,
        ..Attributes::default()
    };
    mount::set_attributes(clone.as_fd(), &change)?;
    Ok(Some(clone))
}

/// Where `resolv.conf` leads into `/run`, which the branch has its own of: the file and its bytes.
fn resolver_in_run() -> io::Result<Option<(PathBuf, Vec<u8>)>> {
    let path = match std::fs::canonicalize(RESOLVER) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if !path.starts_with("/run") {
        return Ok(None);
    }
    let bytes = std::fs::read(&path)?;
    Ok(Some((path, bytes)))
}

/// Mounts all of it; returns the root of `/dev/pts`.
pub(super) fn mount_all(
    build: &mut Build<'_>,
    fresh: Fresh,
    proc: BorrowedFd<'_>,
) -> Result<OwnedFd> {
    let root = rustix::io::fcntl_dupfd_cloexec(&build.root, 0)
        .map_err(|e| failed("copy a descriptor", e))?;
    let root = root.as_fd();
    let at = |mounted: BorrowedFd<'_>, path: &str| -> Result<()> {
        let path = Path::new(path);
        let target = place::directory(root, path, 0o755)?;
        place::on(mounted, target.as_fd(), path)
    };
    at(proc, "/proc")?;
    if let Some(sys) = &fresh.sys {
        at(sys.as_fd(), "/sys")?;
    }
    let size = build
        .spec
        .limits
        .memory_bytes
        .map(|bytes| bytes.to_string());
    let tmp = in_memory(build, "1777", size.as_deref())?;
    at(tmp.as_fd(), "/tmp")?;
    let run = in_memory(build, "755", size.as_deref())?;
    fill_run(run.as_fd(), build.spec.identity.inside().0).map_err(|e| failed("fill /run", e))?;
    at(run.as_fd(), "/run")?;
    let dev = in_memory(build, "755", size.as_deref())?;
    fill_dev(dev.as_fd()).map_err(|e| failed("fill /dev", e))?;
    at(dev.as_fd(), "/dev")?;
    for (name, device) in &fresh.devices {
        let path = Path::new("/dev").join(name);
        let target = place::file(root, &path)?;
        place::on(device.as_fd(), target.as_fd(), &path)?;
    }
    let pts = terminals(&build.spec.identity)?;
    at(pts.as_fd(), "/dev/pts")?;
    if let Some((path, bytes)) = &fresh.resolver {
        let file = place::file(root, path)?;
        write(file.as_fd(), bytes).map_err(|e| failed("write resolv.conf inside", e))?;
    }
    build.in_memory.extend([tmp, run, dev]);
    Ok(pts)
}

fn in_memory(build: &Build<'_>, mode: &str, size: Option<&str>) -> Result<OwnedFd> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    // Root's commands are not this file system's root: give them its root directory.
    let owner = match build.spec.identity {
        Identity::Root { shift, .. } => shift.to_string(),
        Identity::User { .. } => "0".into(),
    };
    let mut options = vec![
        ("mode", Some(mode)),
        ("uid", Some(owner.as_str())),
        ("gid", Some(owner.as_str())),
    ];
    if let Some(size) = size {
        options.push(("size", Some(size)));
    }
    mount::new_fs("tmpfs", &options, flags).map_err(|e| failed("mount a tmpfs", e))
}

fn fill_run(run: BorrowedFd<'_>, uid: u32) -> io::Result<()> {
    let make = |name: &str, mode: u32| -> io::Result<()> {
        rustix::fs::mkdirat(run, name, Mode::from_raw_mode(mode))?;
        Ok(())
    };
    make("forkpoint", 0o755)?;
    make("lock", 0o1777)?;
    make("user", 0o755)?;
    make(&format!("user/{uid}"), 0o700)
}

fn fill_dev(dev: BorrowedFd<'_>) -> io::Result<()> {
    for (name, target) in LINKS {
        rustix::fs::symlinkat(*target, dev, *name)?;
    }
    rustix::fs::mkdirat(dev, "pts", Mode::from_raw_mode(0o755))?;
    rustix::fs::mkdirat(dev, "shm", Mode::from_raw_mode(0o1777))?;
    Ok(())
}

fn terminals(identity: &Identity) -> Result<OwnedFd> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    // The group of terminals, where it is mapped.
    let group = match identity {
        Identity::Root { shift, .. } => Some((shift + 5).to_string()),
        Identity::User { .. } => None,
    };
    let mut options = vec![
        ("newinstance", None),
        ("ptmxmode", Some("0666")),
        ("mode", Some("620")),
    ];
    if let Some(group) = &group {
        options.push(("gid", Some(group)));
    }
    mount::new_fs("devpts", &options, flags).map_err(|e| failed("mount devpts", e))
}

fn write(file: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // Opened as a path only: open it for writing by its descriptor's own link.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let fd = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    io::Write::write_all(&mut std::fs::File::from(fd), bytes)
}
