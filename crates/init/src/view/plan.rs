//! What the system root of a branch is made of: which directories of the host are overlays, which are
//! shown as they are.

use super::failed;
use crate::mounts::{Mount, OWN, any_below, entry_name};
use crate::spec::{Identity, SandboxSpec};
use forkpoint_model::Result;
use forkpoint_sys::openat;
use rustix::fs::{Access, AtFlags, CWD};
use std::io;
use std::path::{Path, PathBuf};

/// The most entries a root is made of; a host with more has mounts deep in large directories.
const MAX_ENTRIES: usize = 400;

/// One piece of the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An overlay over the host's directory.
    Overlay,
    /// The host's file or read-only file system, read-only.
    Bind,
    /// A directory in memory, with these permission bits.
    Directory(u32),
    /// A directory in memory that stays empty: the host's is, and the user may not write to it.
    /// An overlay would cost a mount and show the same.
    Empty(u32),
    /// An overlay without an upper, where the user may write nowhere. It refuses the host's sockets
    /// as any overlay does, and costs no operation on a disk to mount, which an upper does.
    Shown,
    /// A symbolic link.
    Link(PathBuf),
    /// A directory of its own for anybody's temporary files, kept as an overlay's upper is.
    Temporary,
}

/// Directories that belong to the system by convention (the Filesystem Hierarchy Standard), so that
/// a user who may write neither to them nor to what lies directly in them writes nowhere in them.
const OF_THE_SYSTEM: &[&str] = &[
    "/usr", "/etc", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];

/// How many entries are looked at to find out that a directory needs no upper: beyond, an upper
/// costs less than the looks.
const MAX_LOOKS: usize = 64;

/// Where every user may write, in a directory of root's. An ordinary user's overlay cannot copy
/// that directory up, since its owner has no id there (`EOVERFLOW`).
const TEMPORARY: &str = "/var/tmp";

#[derive(Debug)]
pub(super) struct Entry {
    /// Where, on the host and inside.
    pub(super) path: PathBuf,
    /// How.
    pub(super) kind: Kind,
}

/// The pieces, each after the one it lies in. For root the first is `/` itself.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) entries: Vec<Entry>,
    /// What was left out, said plainly.
    pub(super) warnings: Vec<String>,
}

/// Decides on the pieces.
pub(super) fn plan(spec: &SandboxSpec, mounts: &[Mount]) -> Result<Plan> {
    let mut plan = Plan {
        entries: Vec::new(),
        warnings: Vec::new(),
    };
    match spec.identity {
        Identity::Root { .. } => plan.for_root(mounts),
        Identity::User { .. } => {
            plan.below(spec, mounts, Path::new("/"))?;
            if Path::new(TEMPORARY).is_dir() {
                plan.push(TEMPORARY.into(), Kind::Temporary);
            }
        }
    }
    Ok(plan)
}

impl Plan {
    fn push(&mut self, path: PathBuf, kind: Kind) {
        self.entries.push(Entry { path, kind });
    }

    fn full(&self) -> bool {
        self.entries.len() >= MAX_ENTRIES
    }

    fn for_root(&mut self, mounts: &[Mount]) {
        self.push("/".into(), Kind::Overlay);
        for mount in mounts
            .iter()
            .filter(|m| m.real() && m.point != Path::new("/"))
        {
            if self.full() {
                self.warnings.push(format!(
                    "{} and what follows is not visible",
                    mount.point.display()
                ));
                return;
            }
            // What became of a mount whose point was covered or removed does not matter.
            let Ok(meta) = openat::stat(CWD, mount.point.as_os_str()) else {
                continue;
            };
            let overlay = meta.is_dir() && !mount.read_only;
            let kind = if overlay { Kind::Overlay } else { Kind::Bind };
            self.push(mount.point.clone(), kind);
        }
    }

    /// The pieces below a directory that has mounts below it.
    fn below(&mut self, spec: &SandboxSpec, mounts: &[Mount], dir: &Path) -> Result<()> {
        let fault = |e: io::Error| failed(format_args!("list {}", dir.display()), e);
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .map_err(fault)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<_>>()
            .map_err(fault)?;
        names.sort();
        for name in names {
            if dir == Path::new("/") && OWN.iter().any(|own| name == *own) {
                continue;
            }
            if self.full() {
                self.warnings.push(format!(
                    "{} holds more than can be shown beside the mounts below it",
                    dir.display()
                ));
                return Ok(());
            }
            self.piece(spec, mounts, dir.join(name))?;
        }
        Ok(())
    }

    fn piece(&mut self, spec: &SandboxSpec, mounts: &[Mount], path: PathBuf) -> Result<()> {
        // It may have gone since the directory was listed.
        let Ok(meta) = openat::stat(CWD, path.as_os_str()) else {
            return Ok(());
        };
        if meta.is_symlink() {
            let target = std::fs::read_link(&path)
                .map_err(|e| failed(format_args!("read {}", path.display()), e))?;
            self.push(path, Kind::Link(target));
        } else if meta.is_file() {
            self.push(path, Kind::Bind);
        } else if meta.is_dir() {
            let mounted = mounts.iter().find(|mount| mount.point == path);
            if mounted.is_some_and(|mount| !mount.real()) {
                self.push(path, Kind::Directory(0o555));
            } else if !allowed(&path, Access::READ_OK | Access::EXEC_OK) {
                self.push(path, Kind::Empty(0));
            } else if mounted.is_none() && !allowed(&path, Access::WRITE_OK) && is_empty(&path) {
                self.push(path, Kind::Empty(meta.permissions() & 0o555));
            } else if any_below(mounts, &path) {
                self.push(path.clone(), Kind::Directory(meta.permissions()));
                self.below(spec, mounts, &path)?;
            } else if mounted.is_some_and(|mount| mount.read_only) {
                self.push(path, Kind::Bind);
            } else if written_nowhere(spec, &path) {
                self.push(path, Kind::Shown);
            } else {
                self.push(path, Kind::Overlay);
            }
        }
        Ok(())
    }
}

fn allowed(dir: &Path, wanted: Access) -> bool {
    rustix::fs::accessat(CWD, dir, wanted, AtFlags::EACCESS).is_ok()
}

/// Whether the user can write to nothing in a directory, and no preparation has: by convention for
/// those of the system, by looking at all of it where there is little.
fn written_nowhere(spec: &SandboxSpec, dir: &Path) -> bool {
    let name = entry_name(dir);
    let prepared = |layer: &PathBuf| layer.join(&name).join("upper").is_dir();
    if spec.root_layers.iter().any(prepared) {
        return false;
    }
    if OF_THE_SYSTEM.iter().any(|own| Path::new(own) == dir) {
        return writable_nowhere(dir);
    }
    // With subordinate ids, a file of another owner may be the user's to change.
    let alone = matches!(&spec.identity, Identity::User { sub, .. } if sub.is_empty());
    alone && all_shut(dir)
}

/// Whether a directory holds at most [`MAX_LOOKS`] entries, at any depth, and the user owns none of
/// them and may write to none. What cannot be looked at is taken to be writable, but not what lies
/// in a directory that the user can neither enter nor change.
fn all_shut(dir: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let mut dirs = vec![dir.to_owned()];
    let mut looks = 0;
    while let Some(dir) = dirs.pop() {
        if allowed(&dir, Access::WRITE_OK) {
            return false;
        }
        if !allowed(&dir, Access::EXEC_OK) {
            continue;
        }
        let Ok(entries) = std::fs::read_dir(&dir) else {
            return false;
        };
        for entry in entries {
            looks += 1;
            let Some(entry) = entry.ok().filter(|_| looks <= MAX_LOOKS) else {
                return false;
            };
            let path = entry.path();
            let Ok(meta) = openat::stat(CWD, path.as_os_str()) else {
                return false;
            };
            if meta.uid == me {
                return false;
            }
            if meta.is_dir() {
                dirs.push(path);
            } else if meta.is_file() && allowed(&path, Access::WRITE_OK) {
                return false;
            }
        }
    }
    true
}

/// Whether the user may write neither to a directory nor to one directly in it (nor, since `/usr/local`
/// is for local use, in there).
fn writable_nowhere(dir: &Path) -> bool {
    let shut = |dir: &Path| !allowed(dir, Access::WRITE_OK);
    let all_shut = |dir: &Path| match std::fs::read_dir(dir) {
        Ok(entries) => entries.flatten().all(|entry| {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            !is_dir || shut(&entry.path())
        }),
        Err(_) => true,
    };
    shut(dir) && all_shut(dir) && all_shut(&dir.join("local"))
}

/// Whether a directory has no entry; one that cannot be listed is taken to have some.
fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;

    #[test]
    fn a_directory_with_something_to_write_to_is_not_shut() {
        // Every file made here is the caller's own.
        let own = tempfile::tempdir().expect("a directory");
        assert!(!all_shut(own.path()));
        let closed = own.path().join("closed");
        rustix::fs::mkdir(&closed, Mode::from_raw_mode(0o500)).expect("a directory");
        std::fs::write(own.path().join("file"), "").expect("a file");
        assert!(!all_shut(own.path()));
        // More than is looked at, whoever owns it.
        assert!(!all_shut(Path::new("/proc")));
    }

    #[test]
    fn a_small_directory_of_another_s_is_shut_to_an_ordinary_user() {
        if rustix::process::geteuid().is_root() {
            eprintln!("SKIP: root may write everywhere");
            return;
        }
        let small = [
            "/etc/alternatives",
            "/etc/security",
            "/etc/skel",
            "/etc/pam.d",
            "/media",
        ];
        let shut = |dir: &&str| Path::new(dir).is_dir() && all_shut(Path::new(dir));
        assert!(small.iter().any(shut), "none of {small:?}");
    }
}
