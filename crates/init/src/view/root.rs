//! The system root of a branch: the host's `/`, with every permitted write kept in ephemeral
//! uppers over the preparation's.
//!
//! Root has one overlay of `/` and one of each further real mount. An ordinary user cannot: a
//! directory with mounts below it that the user may not unmount is refused as a layer. There the
//! root is a file system in memory, with one overlay per directory that has no mount below it,
//! going deeper where one has.

use super::{Build, failed, layers::Layers, place};
use crate::codes::SETUP;
use crate::mounts::{Mount, OWN, any_below, entry_name};
use crate::spec::{Identity, SandboxSpec};
use forkpoint_fs::{MountOptions, view};
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, MountAttrFlags};
use forkpoint_sys::openat;
use rustix::fs::{Access, AtFlags, CWD, Mode};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The most entries a root is made of; a host with more has mounts deep in large directories.
const MAX_ENTRIES: usize = 400;

/// One piece of the root.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
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

/// Where every user may write, in a directory of root's. An ordinary user's overlay cannot copy
/// that directory up, since its owner has no id there (`EOVERFLOW`).
const TEMPORARY: &str = "/var/tmp";

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    kind: Kind,
}

/// The pieces, each after the one it lies in. For root the first is `/` itself.
#[derive(Debug)]
pub(super) struct Plan {
    entries: Vec<Entry>,
    /// What was left out, said plainly.
    warnings: Vec<String>,
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
            plan.below(mounts, Path::new("/"))?;
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
    fn below(&mut self, mounts: &[Mount], dir: &Path) -> Result<()> {
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
            self.piece(mounts, dir.join(name))?;
        }
        Ok(())
    }

    fn piece(&mut self, mounts: &[Mount], path: PathBuf) -> Result<()> {
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
                self.below(mounts, &path)?;
            } else if mounted.is_some_and(|mount| mount.read_only) {
                self.push(path, Kind::Bind);
            } else if OF_THE_SYSTEM.iter().any(|dir| Path::new(dir) == path)
                && writable_nowhere(&path)
            {
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

/// The work directory of the mount that puts the preparation's layer over the host's.
const PREPARED_WORK: &str = "prepared-work";

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
    layers: &mut Layers<'_>,
    warnings: &mut Vec<String>,
) -> Result<OwnedFd> {
    warnings.extend(plan.warnings.iter().cloned());
    if spec.identity.rootless() {
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        return mount::new_fs("tmpfs", &[("mode", Some("755"))], flags)
            .map_err(|e| failed("mount a root in memory", e));
    }
    let root = Path::new("/");
    overlay(spec, layers, warnings, root, shadow_cover()?)
}

/// Mounts the other pieces.
pub(super) fn mount_rest(build: &mut Build<'_>, plan: &Plan) -> Result<()> {
    for entry in &plan.entries {
        let path = entry.path.as_path();
        if path == Path::new("/") {
            continue;
        }
        let mounted = match &entry.kind {
            Kind::Overlay => overlay(
                build.spec,
                &mut build.layers,
                &mut build.warnings,
                path,
                None,
            )?,
            Kind::Bind => build.layers.bind(path, true)?,
            Kind::Shown => shown(build, path)?,
            Kind::Temporary => temporary(build.spec, &mut build.layers, path)?,
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

/// An overlay over the host's directory `path`, with the preparation's layers between, and
/// `cover` just above the host's.
fn overlay(
    spec: &SandboxSpec,
    layers: &mut Layers<'_>,
    warnings: &mut Vec<String>,
    path: &Path,
    cover: Option<OwnedFd>,
) -> Result<OwnedFd> {
    let name = entry_name(path);
    let options = MountOptions {
        volatile: true,
        userxattr: spec.identity.rootless(),
    };
    let mut lowers = Vec::from_iter(cover);
    lowers.push(layers.lower(path)?);
    for layer in spec.root_layers.iter().rev() {
        let prepared = layer.join(&name).join("upper");
        if prepared.is_dir() {
            let work = spec.root_upper.join(&name).join(PREPARED_WORK);
            lowers = vec![over_prepared(layers, &lowers, &prepared, &work, &options)?];
        }
    }
    let lowers: Vec<BorrowedFd<'_>> = lowers.iter().map(AsFd::as_fd).collect();
    let dir = spec.root_upper.join(&name);
    let upper = layers.stored(&dir.join("upper"))?;
    let work = layers.stored(&dir.join("work"))?;
    let pair = Some((upper.as_fd(), work.as_fd()));
    let first = match view::mount_fds(&lowers, pair, &options) {
        Ok(mounted) => return Ok(mounted),
        Err(e) => e,
    };
    // The store's file system may be one that cannot take an upper, such as an overlay.
    let (memory, upper, work) = memory_pair().map_err(|e| failed("make an upper in memory", e))?;
    let pair = Some((upper.as_fd(), work.as_fd()));
    let mounted = view::mount_fds(&lowers, pair, &options).map_err(|_| {
        first
            .clone()
            .context(format_args!("the view of {}", path.display()))
    })?;
    drop(memory);
    warnings.push(format!(
        "what is written below {} is kept in memory: {first}",
        path.display()
    ));
    Ok(mounted)
}

/// A directory of the branch's own: empty at first, or what the preparation left in its.
fn temporary(spec: &SandboxSpec, layers: &mut Layers<'_>, path: &Path) -> Result<OwnedFd> {
    let name = entry_name(path);
    let dir = spec.root_upper.join(&name);
    let mut prepared = Vec::new();
    for layer in &spec.root_layers {
        let layer = layer.join(&name).join("upper");
        if layer.is_dir() {
            prepared.push(layers.stored(&layer)?);
        }
    }
    if prepared.is_empty() {
        return layers.bind(&dir.join("upper"), false);
    }
    let lowers: Vec<BorrowedFd<'_>> = prepared.iter().map(AsFd::as_fd).collect();
    let upper = layers.stored(&dir.join("upper"))?;
    let work = layers.stored(&dir.join("work"))?;
    let options = MountOptions {
        volatile: true,
        userxattr: spec.identity.rootless(),
    };
    view::mount_fds(&lowers, Some((upper.as_fd(), work.as_fd())), &options)
        .map_err(|e| e.context(format_args!("the view of {}", path.display())))
}

/// The preparation's root layer over `lowers`, itself to serve as the only lower layer of an
/// attempt's view. It cannot be one lower layer among others: the store lies below the host's `/`,
/// and an overlay refuses lower layers of which one contains the other, though not an upper that
/// lies below a lower. Nothing can write through this mount: it is reached as a lower layer only.
fn over_prepared(
    layers: &mut Layers<'_>,
    lowers: &[OwnedFd],
    prepared: &Path,
    work: &Path,
    options: &MountOptions,
) -> Result<OwnedFd> {
    let (prepared, work) = layers.stored_pair(prepared, work)?;
    let lowers: Vec<BorrowedFd<'_>> = lowers.iter().map(AsFd::as_fd).collect();
    view::mount_fds(&lowers, Some((prepared.as_fd(), work.as_fd())), options)
        .map_err(|e| e.context("the preparation's layer of the system root"))
}

fn memory_pair() -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    let memory = mount::new_fs("tmpfs", &[("mode", Some("755"))], MountAttrFlags::empty())
        .map_err(|e| e.source)?;
    for name in ["upper", "work"] {
        rustix::fs::mkdirat(&memory, name, Mode::from_raw_mode(0o755))?;
    }
    let open = |name: &str| {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        openat::beneath(memory.as_fd(), Path::new(name), flags, Mode::empty())
    };
    let (upper, work) = (open("upper")?, open("work")?);
    Ok((memory, upper, work))
}

/// A layer in memory with copies of the password files that hold no passwords: root's branch may
/// read them, and programs that add users must find them writable.
fn shadow_cover() -> Result<Option<OwnedFd>> {
    make_shadow_cover().map_err(|e| SETUP.io("cannot cover the password files", e))
}

fn make_shadow_cover() -> io::Result<Option<OwnedFd>> {
    let mut memory = None;
    for file in ["shadow", "gshadow"] {
        let host = Path::new("/etc").join(file);
        let text = match std::fs::read(&host) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let meta = openat::stat(CWD, host.as_os_str())?;
        if !meta.is_file() {
            continue;
        }
        if memory.is_none() {
            memory = Some(cover_with_etc()?);
        }
        if let Some(memory) = &memory {
            write_file(
                memory.as_fd(),
                &format!("etc/{file}"),
                &without_passwords(&text),
                meta.permissions(),
            )?;
        }
    }
    Ok(memory)
}

/// A merged directory shows the topmost layer's mode and times: give it the host's.
fn cover_with_etc() -> io::Result<OwnedFd> {
    let options = [("mode", Some("755")), ("size", Some("4m"))];
    let memory = mount::new_fs("tmpfs", &options, MountAttrFlags::empty()).map_err(|e| e.source)?;
    let etc = openat::stat(CWD, OsStr::new("/etc"))?;
    rustix::fs::mkdirat(&memory, "etc", Mode::from_raw_mode(0o700))?;
    rustix::fs::chmodat(
        &memory,
        "etc",
        Mode::from_raw_mode(etc.permissions()),
        AtFlags::empty(),
    )?;
    Ok(memory)
}

fn write_file(dir: BorrowedFd<'_>, path: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    use rustix::fs::OFlags;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let fd = openat::beneath(dir, Path::new(path), flags, Mode::from_raw_mode(0o600))?;
    io::Write::write_all(&mut std::fs::File::from(fd), bytes)?;
    Ok(rustix::fs::chmodat(
        dir,
        path,
        Mode::from_raw_mode(mode),
        AtFlags::empty(),
    )?)
}

/// Each line with its second field, the password's hash, replaced by one that nothing matches.
fn without_passwords(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&b| b == b'\n') {
        let mut fields = line.splitn(3, |&b| b == b':');
        let (name, secret, rest) = (fields.next(), fields.next(), fields.next());
        if let (Some(name), Some(_), Some(rest)) = (name, secret, rest) {
            out.extend_from_slice(name);
            out.extend_from_slice(b":*:");
            out.extend_from_slice(rest);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hash_stays_in_a_password_file() {
        let text = b"root:$y$j9T$secret:19000:0:99999:7:::\nann:!:1::::::\nbroken\n";
        let covered = without_passwords(text);
        assert_eq!(
            String::from_utf8_lossy(&covered),
            "root:*:19000:0:99999:7:::\nann:*:1::::::\n"
        );
    }
}
