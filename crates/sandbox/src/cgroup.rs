//! Cgroups of sandboxes, where this machine lets us make them: version 2 where its controllers are
//! delegated, version 1 controllers where the machine has those. Made only where a limit asks for
//! one: without, the pid namespace is as reliable a handle to kill by, and costs less.

use crate::codes::HOST_IO;
use forkpoint_init::Limits;
use forkpoint_init::protocol::CgroupKind;
use forkpoint_model::{BranchId, Result};
use forkpoint_sys::openat;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What our cgroups are called: this, the branch, and the pid of who made it.
const PREFIX: &str = "forkpoint-";

/// The cgroups of one sandbox; none where nothing could be made.
#[derive(Debug, Default)]
pub(crate) struct CgroupSet {
    dirs: Vec<Cgroup>,
}

#[derive(Debug)]
struct Cgroup {
    kind: CgroupKind,
    path: PathBuf,
    dir: OwnedFd,
}

/// A mounted hierarchy: where its cgroups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    kind: CgroupKind,
    /// Places to try, best first.
    parents: Vec<PathBuf>,
}

impl CgroupSet {
    /// Makes what the limits need, and says what cannot be held by the kernel.
    pub(crate) fn make(branch: BranchId, limits: &Limits, warnings: &mut Vec<String>) -> Self {
        let mut set = Self::default();
        if limits.memory_bytes.is_none() && limits.pids.is_none() && limits.cpu_ms.is_none() {
            return set;
        }
        let name = format!("{PREFIX}{branch}-{}", std::process::id());
        for hierarchy in hierarchies() {
            let wanted = match hierarchy.kind {
                CgroupKind::V2 => true,
                CgroupKind::V1Memory => limits.memory_bytes.is_some(),
                CgroupKind::V1Pids => limits.pids.is_some(),
                CgroupKind::V1Cpu => limits.cpu_ms.is_some(),
            };
            if wanted && let Some(made) = make_in(&hierarchy, &name, limits) {
                set.dirs.push(made);
            }
        }
        let has = |kind| {
            set.dirs
                .iter()
                .any(|made| made.kind == kind || made.kind == CgroupKind::V2)
        };
        if limits.memory_bytes.is_some() && !has(CgroupKind::V1Memory) {
            warnings.push(
                "the memory limit is watched, not held by the kernel: no cgroup can be made here"
                    .into(),
            );
        }
        set
    }

    /// The v2 cgroup to begin in.
    pub(crate) fn v2(&self) -> Option<BorrowedFd<'_>> {
        let v2 = self.dirs.iter().find(|made| made.kind == CgroupKind::V2)?;
        Some(v2.dir.as_fd())
    }

    /// Adds a process that does not run yet to the v1 cgroups.
    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        for made in self.dirs.iter().filter(|made| made.kind != CgroupKind::V2) {
            std::fs::write(made.path.join("cgroup.procs"), pid.to_string())
                .map_err(|e| HOST_IO.io(format!("cannot enter {}", made.path.display()), e))?;
        }
        Ok(())
    }

    pub(crate) fn kinds(&self) -> Vec<CgroupKind> {
        self.dirs.iter().map(|made| made.kind).collect()
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.dirs.iter().map(|made| made.dir.as_fd())
    }

    /// Kills everything in the v2 cgroup. That it cannot be done does not matter: killing the
    /// pid namespace follows.
    pub(crate) fn kill(&self) {
        for made in self.dirs.iter().filter(|made| made.kind == CgroupKind::V2) {
            std::fs::write(made.path.join("cgroup.kill"), "1").unwrap_or(());
        }
    }

    /// The most memory that was ever in use.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        self.dirs.iter().find_map(|made| {
            let file = match made.kind {
                CgroupKind::V2 => "memory.peak",
                CgroupKind::V1Memory => "memory.max_usage_in_bytes",
                _ => return None,
            };
            let text = std::fs::read_to_string(made.path.join(file)).ok()?;
            text.trim().parse().ok()
        })
    }

    /// Removes them. One that cannot be removed is left for [`sweep`], which knows it by name.
    pub(crate) fn remove(&self) {
        for made in &self.dirs {
            std::fs::remove_dir(&made.path).unwrap_or(());
        }
    }
}

fn make_in(hierarchy: &Hierarchy, name: &str, limits: &Limits) -> Option<Cgroup> {
    for parent in &hierarchy.parents {
        let path = parent.join(name);
        if std::fs::create_dir(&path).is_err() {
            continue;
        }
        match configure(hierarchy.kind, &path, limits) {
            Ok(dir) => {
                return Some(Cgroup {
                    kind: hierarchy.kind,
                    path,
                    dir,
                });
            }
            Err(_) => std::fs::remove_dir(&path).unwrap_or(()),
        }
    }
    None
}

fn configure(kind: CgroupKind, path: &Path, limits: &Limits) -> io::Result<OwnedFd> {
    let set = |file: &str, value: u64| std::fs::write(path.join(file), value.to_string());
    // Init is one more.
    let pids = limits.pids.map(|pids| pids.saturating_add(1));
    match kind {
        CgroupKind::V2 => {
            if let Some(bytes) = limits.memory_bytes {
                set("memory.max", bytes)?;
                set("memory.swap.max", 0).or_else(absent)?;
            }
            if let Some(pids) = pids {
                set("pids.max", pids)?;
            }
        }
        CgroupKind::V1Memory => {
            if let Some(bytes) = limits.memory_bytes {
                set("memory.limit_in_bytes", bytes)?;
                set("memory.memsw.limit_in_bytes", bytes).or_else(absent)?;
            }
        }
        CgroupKind::V1Pids => {
            if let Some(pids) = pids {
                set("pids.max", pids)?;
            }
        }
        CgroupKind::V1Cpu => {}
    }
    openat::directory(path)
}

/// Accounting of swap is a choice of the kernel's builder.
fn absent(e: io::Error) -> io::Result<()> {
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(e),
    }
}

/// The hierarchies that this process could make cgroups in.
fn hierarchies() -> Vec<Hierarchy> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    find(
        &read("/proc/self/mountinfo"),
        &read("/proc/self/cgroup"),
        &delegated,
    )
}

/// Whether the children of a v2 cgroup have the controllers for our limits.
fn delegated(dir: &Path) -> bool {
    let enabled = std::fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    let has = |name: &str| enabled.split_ascii_whitespace().any(|word| word == name);
    has("memory") && has("pids")
}

fn find(mountinfo: &str, own: &str, delegated: &dyn Fn(&Path) -> bool) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        let Some((head, tail)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = head.split(' ').nth(4) else {
            continue;
        };
        let mut tail = tail.split(' ');
        let (fs_type, options) = (tail.next(), tail.nth(1).unwrap_or(""));
        if fs_type == Some("cgroup2") {
            // Beside our own cgroup: a cgroup with processes of its own has no controllers to give.
            let mine = own_path(own, "");
            let mut parents: Vec<PathBuf> = mine
                .parent()
                .map(|up| join(point, up))
                .into_iter()
                .collect();
            parents.push(join(point, &mine));
            parents.retain(|dir| delegated(dir));
            let kind = CgroupKind::V2;
            found.push(Hierarchy { kind, parents });
        } else if fs_type == Some("cgroup") {
            let kinds = [
                ("memory", CgroupKind::V1Memory),
                ("pids", CgroupKind::V1Pids),
                ("cpuacct", CgroupKind::V1Cpu),
            ];
            for (controller, kind) in kinds {
                if options.split(',').any(|option| option == controller) {
                    let parents = vec![join(point, &own_path(own, controller))];
                    found.push(Hierarchy { kind, parents });
                }
            }
        }
    }
    found
}

fn join(point: &str, below: &Path) -> PathBuf {
    Path::new(point).join(below.strip_prefix("/").unwrap_or(below))
}

/// Our own cgroup in the hierarchy of a controller; of version 2 for an empty name.
fn own_path(text: &str, controller: &str) -> PathBuf {
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let found = controllers.split(',').any(|name| name == controller);
        if found { fields.next() } else { None }
    });
    path.unwrap_or("/").into()
}

/// What can be made here, by really making it, named for people.
pub(crate) fn available() -> Vec<&'static str> {
    let name = format!("{PREFIX}doctor-{}", std::process::id());
    let limits = Limits::default();
    let mut kinds = Vec::new();
    for hierarchy in hierarchies() {
        if let Some(made) = make_in(&hierarchy, &name, &limits) {
            kinds.push(match made.kind {
                CgroupKind::V2 => "version 2",
                CgroupKind::V1Memory => "version 1 memory",
                CgroupKind::V1Pids => "version 1 pids",
                CgroupKind::V1Cpu => "version 1 cpuacct",
            });
            std::fs::remove_dir(&made.path).unwrap_or(());
        }
    }
    kinds
}

/// See [`crate::sweep`].
pub(crate) fn sweep(live: &dyn Fn(BranchId) -> bool) -> Result<u32> {
    let mut removed = 0;
    for parent in hierarchies().into_iter().flat_map(|h| h.parents) {
        let entries = match std::fs::read_dir(&parent) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(HOST_IO.io(format!("cannot list {}", parent.display()), e)),
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some((branch, maker)) = name.to_str().and_then(branch_of) else {
                continue;
            };
            // One that its maker has not entered yet looks like one that was left, and other stores
            // have branches too: it is the maker's as long as that lives. One that still holds
            // processes is not removed by the kernel.
            let left = !live(branch) && !Path::new("/proc").join(maker.to_string()).exists();
            if left && std::fs::remove_dir(entry.path()).is_ok() {
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// Of which branch a cgroup of this name is, and the process that made it.
fn branch_of(name: &str) -> Option<(BranchId, u32)> {
    let (branch, maker) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((branch.parse().ok()?, maker.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        39 31 0:36 / /sys/fs/cgroup/pids rw shared:3 - cgroup cgroup rw,pids\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const OWN: &str = "8:pids:/\n4:memory:/user/ann\n1:cpu,cpuacct:/x\n0::/app/run.scope\n";

    #[test]
    fn version_1_cgroups_lie_below_our_own() {
        let found = find(MOUNTS, OWN, &|_| false);
        let memory = found.iter().find(|h| h.kind == CgroupKind::V1Memory);
        let expected = vec![PathBuf::from("/sys/fs/cgroup/memory/user/ann")];
        assert_eq!(memory.expect("memory").parents, expected);
        let v2 = found.iter().find(|h| h.kind == CgroupKind::V2);
        assert!(v2.expect("v2").parents.is_empty(), "nothing is delegated");
    }

    #[test]
    fn a_version_2_cgroup_lies_beside_our_own() {
        let found = find(MOUNTS, OWN, &|dir| dir.ends_with("app"));
        let v2 = found.iter().find(|h| h.kind == CgroupKind::V2).expect("v2");
        assert_eq!(
            v2.parents,
            vec![PathBuf::from("/sys/fs/cgroup/unified/app")]
        );
        assert_eq!(own_path(OWN, "cpuacct"), PathBuf::from("/x"));
    }

    #[test]
    fn a_leftover_is_known_by_its_name() {
        let id = BranchId::from_bits(99);
        assert_eq!(branch_of(&format!("forkpoint-{id}-123")), Some((id, 123)));
        assert_eq!(branch_of("forkpoint-x-1"), None);
        assert_eq!(branch_of("session-1"), None);
    }
}
