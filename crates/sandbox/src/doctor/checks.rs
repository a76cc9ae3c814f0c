//! The single tries of `doctor`.

use super::Check;
use crate::{Sandbox, SandboxSpec, Worker, cgroup, identity, image};
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_fs::probe;
use forkpoint_init::Identity;
use forkpoint_model::{BranchId, Error};
use std::path::{Path, PathBuf};

/// The oldest kernel with an overlay in user namespaces, and the oldest with what is used best.
const OLDEST: (u32, u32) = (5, 11);
const RECOMMENDED: (u32, u32) = (6, 7);

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

pub(super) fn kernel() -> Check {
    let name = "kernel";
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy().into_owned();
    let Some(version) = version(&release) else {
        return Check::degraded(name, format!("{release}: not a version this program knows"));
    };
    if version < OLDEST {
        return Check::missing(name, format!("{release}: too old"))
            .mend("install Linux 6.7 or newer");
    }
    if version < RECOMMENDED {
        let detail = format!("{release}: views are mounted by older, slower interfaces");
        return Check::degraded(name, detail).mend("install Linux 6.7 or newer");
    }
    Check::ok(name, release)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub(super) fn executable(store: &Path) -> Check {
    let name = "init executable";
    if read("/proc/sys/vm/memfd_noexec").as_deref() == Some("2") {
        return match image::program(Some(store)) {
            Ok(_) => Check::degraded(name, "executed from a file: vm.memfd_noexec is 2")
                .mend("sysctl vm.memfd_noexec=1"),
            Err(e) => Check::missing(name, e.message).mend("sysctl vm.memfd_noexec=1"),
        };
    }
    match image::program(Some(store)) {
        Ok(_) => Check::ok(name, "executed from sealed memory"),
        Err(e) => Check::missing(name, e.message).mend(e.hint),
    }
}

/// Starts a worker: user, mount and pid namespaces with the caller's map, as every branch needs.
pub(super) fn namespaces() -> Check {
    let name = "namespaces";
    let tried = identity().and_then(|identity| {
        let worker = Worker::start(&identity)?;
        let dir = PathBuf::from("/proc/self/ns");
        worker.call(FsRequest::Usage { dir })
    });
    match tried {
        Ok(_) => Check::ok(name, "user, mount and pid namespaces can be made"),
        Err(e) => Check::missing(name, e.message).mend(forbidden_by()),
    }
}

/// The setting that most likely forbids user namespaces here, as the command that mends it.
pub(crate) fn forbidden_by() -> String {
    let off = |path: &str| read(path).as_deref() == Some("0");
    if off("/proc/sys/kernel/unprivileged_userns_clone") {
        return "sysctl kernel.unprivileged_userns_clone=1".into();
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return "sysctl kernel.apparmor_restrict_unprivileged_userns=0".into();
    }
    if off("/proc/sys/user/max_user_namespaces") {
        return "sysctl user.max_user_namespaces=15000".into();
    }
    let status = read("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line == "Seccomp:\t2") {
        return "this container's system-call filter forbids it: run it with `--security-opt seccomp=unconfined`, or `--privileged`".into();
    }
    "run as a user who may make namespaces (`unshare -Ur true` must work)".into()
}

pub(super) fn ids() -> Vec<Check> {
    let name = "ids";
    let check = match identity() {
        Ok(Identity::Root { shift, len }) => {
            let detail = format!("root: ids {shift} to {} inside, by id-mapped mounts", shift + len - 1);
            Check::ok(name, detail)
        }
        Ok(Identity::User { sub, .. }) if sub.is_empty() => Check::degraded(
            name,
            "one id is mapped: files inside can belong to the user only, and chown fails",
        )
        .mend("install newuidmap (package uidmap), then `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER`"),
        Ok(Identity::User { sub, .. }) => {
            let count: u32 = sub.iter().map(|range| range.len).sum();
            Check::ok(name, format!("the user's and {count} subordinate ids are mapped"))
        }
        Err(e) => Check::missing(name, e.message),
    };
    vec![check]
}

pub(super) fn overlay(store: &Path, base: &Path) -> Check {
    let name = "overlay in the store";
    let rootless = !rustix::process::geteuid().is_root();
    let support = if rootless {
        identity().and_then(|identity| {
            let request = FsRequest::Probe {
                store: store.to_owned(),
                base: base.to_owned(),
                rootless,
            };
            match Worker::start(&identity)?.call(request)? {
                FsResponse::Support(support) => Ok(support),
                _ => Err(crate::codes::PROTOCOL.error("the worker answered something else")),
            }
        })
    } else {
        probe::support(store, base, rootless)
    };
    match support {
        Ok(support) if support.overlay => {
            let reflink = if support.reflink {
                "with reflinks"
            } else {
                "without reflinks: a changed block of a large file copies the file"
            };
            Check::ok(name, format!("{}, {reflink}", support.fs_type))
        }
        Ok(support) => Check::degraded(
            name,
            format!(
                "{}: {}; forks copy the whole base instead",
                support.fs_type,
                support.why_not.unwrap_or_else(|| "no overlay".into())
            ),
        )
        .mend("put the store on ext4, XFS or btrfs: set FORKPOINT_HOME"),
        Err(e) => Check::missing(name, e.message),
    }
}

pub(super) fn cgroups() -> Check {
    let name = "cgroups";
    let kinds = cgroup::available();
    if kinds.is_empty() {
        return Check::degraded(
            name,
            "none can be made: limits are kept by resource limits and a watcher that looks 50 times a second",
        )
        .mend("run below a delegated cgroup: `systemd-run --user --scope -p Delegate=yes …`");
    }
    Check::ok(name, kinds.join(", "))
}

/// Starts a whole sandbox: everything above together, with a fresh `/proc` and id-mapped mounts.
pub(super) fn sandbox(store: &Path) -> Check {
    let name = "a whole sandbox";
    let dir = store.join(format!("doctor-{}", std::process::id()));
    let tried = try_sandbox(&dir);
    // It holds empty directories, and perhaps what only the mapping may remove.
    let removed = forkpoint_fs::tree::remove(&dir);
    match (tried, removed) {
        (Ok(warnings), Ok(())) if warnings.is_empty() => Check::ok(name, "starts and ends"),
        (Ok(warnings), Ok(())) => Check::degraded(name, warnings.join("; ")),
        (Err(e), _) if e.hint.is_empty() => Check::missing(name, e.message),
        (Err(e), _) => Check::missing(name, e.message).mend(e.hint),
        (Ok(_), Err(e)) => Check::degraded(name, format!("leaves something behind: {}", e.message)),
    }
}

fn try_sandbox(dir: &Path) -> Result<Vec<String>, Error> {
    let root_upper = dir.join("root");
    std::fs::create_dir_all(&root_upper)
        .map_err(|e| crate::codes::HOST_IO.io(format!("cannot make {}", dir.display()), e))?;
    let branch = BranchId::from_bits(forkpoint_sys::rand::bits());
    let mut spec = SandboxSpec::new(branch, identity()?, root_upper);
    spec.lifeline = true;
    let sandbox = Sandbox::start(spec)?;
    let warnings = sandbox.warnings().to_vec();
    sandbox.kill()?;
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("5.4.0"), Some((5, 4)));
        assert_eq!(version("x"), None);
        assert!((5, 4) < OLDEST && (6, 18) > RECOMMENDED);
    }
}
