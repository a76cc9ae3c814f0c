//! The mount interface: new file systems, detached clones, attributes and id maps. Mounts are
//! descriptors here; a detached mount goes away with its last descriptor.

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount as rm;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

pub use rustix::mount::{MountAttrFlags, MountPropagationFlags};

/// How many messages of one failed mount are kept.
const MESSAGES: usize = 16;

/// Why a mount failed, with what the file system itself said about it.
#[derive(Debug)]
pub struct MountError {
    /// The step that failed, such as `fsconfig upperdir`.
    pub step: String,
    /// The system's error.
    pub source: io::Error,
    /// The file system's own messages, without their level.
    pub messages: Vec<String>,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.source)?;
        self.messages
            .iter()
            .try_for_each(|message| write!(f, "; {message}"))
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl MountError {
    pub(crate) fn new(step: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self {
            step: step.into(),
            source: source.into(),
            messages: Vec::new(),
        }
    }

    /// The system's error number.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

/// A file system that is being configured.
pub struct Context {
    fd: OwnedFd,
    name: String,
}

impl Context {
    /// Begins a new file system of type `name`.
    pub fn open(name: &str) -> Result<Self, MountError> {
        match rm::fsopen(name, rm::FsOpenFlags::FSOPEN_CLOEXEC) {
            Ok(fd) => Ok(Self {
                fd,
                name: name.to_owned(),
            }),
            Err(errno) => Err(MountError::new(format!("fsopen {name}"), errno)),
        }
    }

    /// Sets an option that takes a text. The kernel refuses 256 bytes and more.
    pub fn text(&self, key: &str, value: impl rustix::path::Arg) -> Result<(), MountError> {
        self.check(key, rm::fsconfig_set_string(&self.fd, key, value))
    }

    /// Sets an option that takes a descriptor.
    pub fn descriptor(&self, key: &str, value: BorrowedFd<'_>) -> Result<(), MountError> {
        self.check(key, rm::fsconfig_set_fd(&self.fd, key, value))
    }

    /// Sets an option that takes nothing.
    pub fn flag(&self, key: &str) -> Result<(), MountError> {
        self.check(key, rm::fsconfig_set_flag(&self.fd, key))
    }

    /// Makes the file system and mounts it, detached.
    pub fn mount(self, attributes: MountAttrFlags) -> Result<OwnedFd, MountError> {
        self.check("create", rm::fsconfig_create(&self.fd))?;
        let mounted = rm::fsmount(&self.fd, rm::FsMountFlags::FSMOUNT_CLOEXEC, attributes);
        mounted.map_err(|errno| self.error("mount", errno))
    }

    fn check(&self, step: &str, result: rustix::io::Result<()>) -> Result<(), MountError> {
        result.map_err(|errno| self.error(step, errno))
    }

    fn error(&self, step: &str, errno: Errno) -> MountError {
        let mut error = MountError::new(format!("{} {step}", self.name), errno);
        error.messages = self.messages();
        error
    }

    /// What the file system said so far: each read gives one message, `ENODATA` ends them.
    pub fn messages(&self) -> Vec<String> {
        let mut messages = Vec::new();
        let mut buffer = [0u8; 1024];
        while messages.len() < MESSAGES {
            let Ok(len) = rustix::io::read(&self.fd, &mut buffer) else {
                break;
            };
            let text = String::from_utf8_lossy(&buffer[..len]);
            let text = text.trim_end();
            let text = text
                .strip_prefix(['e', 'w', 'i'])
                .map_or(text, str::trim_start);
            messages.push(text.to_owned());
        }
        messages
    }
}

/// Mounts a new file system of type `name`, detached. An option without a value is a flag.
pub fn new_fs(
    name: &str,
    options: &[(&str, Option<&str>)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, MountError> {
    let context = Context::open(name)?;
    for (key, value) in options {
        match value {
            Some(value) => context.text(key, *value)?,
            None => context.flag(key)?,
        }
    }
    context.mount(attributes)
}

/// A detached clone of the mount at `path` below `dir` (an empty path: of `dir` itself), beginning
/// at that directory or file; with everything mounted below it if `recursive`.
pub fn clone_tree(dir: BorrowedFd<'_>, path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = rm::OpenTreeFlags::OPEN_TREE_CLONE | rm::OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if path.as_os_str().is_empty() {
        flags |= rm::OpenTreeFlags::AT_EMPTY_PATH;
    }
    if recursive {
        flags |= rm::OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(rm::open_tree(dir, path, flags)?)
}

/// Attaches a detached mount at `path` below `dir` (an empty path: at `dir` itself).
pub fn attach(mount: BorrowedFd<'_>, dir: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut flags = rm::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.as_os_str().is_empty() {
        flags |= rm::MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    Ok(rm::move_mount(mount, "", dir, path, flags)?)
}

/// Attaches a detached mount at a path the caller trusts.
pub fn attach_at(mount: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    attach(mount, CWD, path)
}

/// Detaches what is mounted at `path`; it goes away when its last user has gone.
pub fn detach(path: &Path) -> io::Result<()> {
    let flags = rm::UnmountFlags::DETACH | rm::UnmountFlags::NOFOLLOW;
    Ok(rm::unmount(path, flags)?)
}

/// What [`set_attributes`] changes.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// Attributes to set.
    pub set: MountAttrFlags,
    /// Attributes to clear.
    pub clear: MountAttrFlags,
    /// How mount events propagate from now on.
    pub propagation: Option<MountPropagationFlags>,
    /// Map the mount's ids by this user namespace.
    pub idmap: Option<BorrowedFd<'a>>,
    /// Change every mount below, too.
    pub recursive: bool,
}

impl Default for Attributes<'_> {
    fn default() -> Self {
        Self {
            set: MountAttrFlags::empty(),
            clear: MountAttrFlags::empty(),
            propagation: None,
            idmap: None,
            recursive: false,
        }
    }
}

#[repr(C)]
struct RawAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Changes a mount's attributes (`mount_setattr`, Linux 5.12).
pub fn set_attributes(mount: BorrowedFd<'_>, change: &Attributes<'_>) -> io::Result<()> {
    const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
    let raw = RawAttributes {
        set: u64::from(change.set.bits())
            | if change.idmap.is_some() {
                MOUNT_ATTR_IDMAP
            } else {
                0
            },
        clear: u64::from(change.clear.bits()),
        propagation: change
            .propagation
            .map_or(0, |flags| u64::from(flags.bits())),
        userns_fd: change.idmap.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let flags = libc::AT_EMPTY_PATH
        | if change.recursive {
            libc::AT_RECURSIVE
        } else {
            0
        };
    // SAFETY: the path is a NUL-terminated literal; `raw` has the layout of `struct mount_attr`
    // version 0, whose size is passed along, and outlives the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const raw,
            size_of::<RawAttributes>(),
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A detached clone of a directory, or of what is mounted there, whose ids are mapped by `userns`.
pub fn idmapped_clone(
    dir: BorrowedFd<'_>,
    path: &Path,
    userns: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let mount = clone_tree(dir, path, false)?;
    set_attributes(
        mount.as_fd(),
        &Attributes {
            idmap: Some(userns),
            ..Attributes::default()
        },
    )?;
    Ok(mount)
}

/// A detached, read-only clone of the directory `dir`, without what is mounted below it.
pub fn read_only_clone(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mount = clone_tree(dir, Path::new(""), false)?;
    let set = MountAttrFlags::MOUNT_ATTR_RDONLY;
    set_attributes(
        mount.as_fd(),
        &Attributes {
            set,
            ..Attributes::default()
        },
    )?;
    Ok(mount)
}

/// Whether writes through `fd` would be refused because the mount or its file system is read-only.
pub fn is_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let found = rustix::fs::fstatvfs(fd)?;
    Ok(found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}
