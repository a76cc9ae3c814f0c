//! Mounting the kernel's overlay file system, by whichever interface the running kernel has.
//!
//! The interfaces, newest first, each tried once; the first that works is kept for the process:
//! descriptors (Linux 6.13); one text per layer (6.7); all layers in one text of less than 256
//! bytes; and `mount(2)`, whose options must fit a page. The texts name `/proc/self/fd/N`, so that
//! neither a path's length nor the characters in it matter.

use crate::mount::{Context, MountAttrFlags, MountError, clone_tree};
use crate::openat;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount as rm;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

/// The kernel's bound on lower layers.
pub const MAX_LOWERS: usize = 500;

/// The interface an overlay is mounted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `fsconfig` with a descriptor per layer.
    Descriptors,
    /// `fsconfig` with a text per layer.
    Texts,
    /// `fsconfig` with one text for all lower layers.
    OneText,
    /// `mount(2)` in a private mount namespace of a short-lived thread, then a detached clone.
    Mount2,
}

const METHODS: [Method; 4] = [
    Method::Descriptors,
    Method::Texts,
    Method::OneText,
    Method::Mount2,
];

/// Index of the method that is known to work, plus one; 0 while none is.
static KNOWN: AtomicU8 = AtomicU8::new(0);

/// An overlay to mount. Descriptors may be `O_PATH`.
#[derive(Debug, Clone, Copy)]
pub struct Overlay<'a> {
    /// Lower directories, topmost first.
    pub lowers: &'a [BorrowedFd<'a>],
    /// The upper directory and its work directory; none for a read-only view.
    pub upper: Option<(BorrowedFd<'a>, BorrowedFd<'a>)>,
    /// Make `fsync` do nothing.
    pub volatile: bool,
    /// Keep marks in `user.overlay.*`; needed in a user namespace.
    pub userxattr: bool,
    /// Use this interface and no other; for tests of the older ones.
    pub force: Option<Method>,
}

/// Mounts an overlay, detached. The caller checks whether it came up read-only, which the kernel
/// does without an error when it cannot use the work directory.
pub fn mount(overlay: &Overlay<'_>) -> Result<OwnedFd, MountError> {
    if let Some(method) = overlay.force {
        return by(overlay, method);
    }
    let known = usize::from(KNOWN.load(Ordering::Relaxed));
    let mut first_error = None;
    for (index, &method) in METHODS.iter().enumerate().skip(known.saturating_sub(1)) {
        match by(overlay, method) {
            Ok(fd) => {
                // Relaxed: the number stands for itself, and a lost race tries once more.
                if known == 0 && method != Method::Mount2 {
                    KNOWN.store(index as u8 + 1, Ordering::Relaxed);
                }
                return Ok(fd);
            }
            // Where the newest interface is known to work, its word is final. `OneText` alone can
            // fail for a reason of its own, a stack too long for it.
            Err(error) if known != 0 && method != Method::OneText => return Err(error),
            Err(error) if !may_be_missing(&error) => return Err(error),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| MountError::new("overlay", Errno::NOSYS)))
}

/// Whether an error may mean that the kernel lacks the interface.
fn may_be_missing(error: &MountError) -> bool {
    matches!(
        error.errno(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::E2BIG)
    )
}

fn by(overlay: &Overlay<'_>, method: Method) -> Result<OwnedFd, MountError> {
    if method == Method::Mount2 {
        return by_mount2(overlay);
    }
    let context = Context::open("overlay")?;
    match method {
        Method::Descriptors => {
            for lower in overlay.lowers {
                context.descriptor("lowerdir+", *lower)?;
            }
            if let Some((upper, work)) = overlay.upper {
                context.descriptor("upperdir", upper)?;
                context.descriptor("workdir", work)?;
            }
        }
        _ => {
            if method == Method::Texts {
                for lower in overlay.lowers {
                    context.text("lowerdir+", link(*lower))?;
                }
            } else {
                context.text("lowerdir", joined(overlay.lowers))?;
            }
            if let Some((upper, work)) = overlay.upper {
                context.text("upperdir", link(upper))?;
                context.text("workdir", link(work))?;
            }
        }
    }
    for (key, value) in options(overlay) {
        match value {
            Some(value) => context.text(key, value)?,
            None => context.flag(key)?,
        }
    }
    context.mount(MountAttrFlags::empty())
}

fn link(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn joined(lowers: &[BorrowedFd<'_>]) -> String {
    let links: Vec<String> = lowers.iter().map(|lower| link(*lower)).collect();
    links.join(":")
}

/// The options besides the layers. An index would make a changed list of layers `ESTALE`; a
/// metacopy would leave an upper without its own data.
fn options(overlay: &Overlay<'_>) -> Vec<(&'static str, Option<&'static str>)> {
    let mut options = vec![("xino", Some("auto"))];
    if overlay.userxattr {
        options.push(("userxattr", None));
    } else {
        let redirect = if overlay.upper.is_some() {
            "on"
        } else {
            "follow"
        };
        options.push(("redirect_dir", Some(redirect)));
        options.push(("metacopy", Some("off")));
    }
    if overlay.upper.is_some() {
        options.push(("index", Some("off")));
        if overlay.volatile {
            options.push(("volatile", None));
        }
    }
    options
}

/// A thread of its own leaves the caller's mount namespace, mounts there, and gives back a detached
/// clone: nobody else ever sees the mount, and nothing of the caller changes.
fn by_mount2(overlay: &Overlay<'_>) -> Result<OwnedFd, MountError> {
    std::thread::scope(|scope| {
        let made = std::thread::Builder::new().spawn_scoped(scope, || private_mount(overlay));
        match made.map_err(|e| MountError::new("thread", e))?.join() {
            Ok(result) => result,
            Err(_) => Err(MountError::new("thread", Errno::INTR)),
        }
    })
}

fn private_mount(overlay: &Overlay<'_>) -> Result<OwnedFd, MountError> {
    // SAFETY: a new mount namespace (and with it a working directory of its own) for this thread
    // alone, which shares no other state through it and ends right after.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(|errno| MountError::new("unshare", errno))?;
    let private = rm::MountPropagationFlags::PRIVATE | rm::MountPropagationFlags::REC;
    rm::mount_change("/", private).map_err(|errno| MountError::new("make private", errno))?;
    // The kernel takes layers of the mounter's own namespace only, so each is opened again here.
    let again = |fd: BorrowedFd<'_>| reopen(fd).map_err(|e| MountError::new("reopen a layer", e));
    let lowers: Vec<OwnedFd> = overlay
        .lowers
        .iter()
        .map(|fd| again(*fd))
        .collect::<Result<_, _>>()?;
    let lowers: Vec<BorrowedFd<'_>> = lowers.iter().map(AsFd::as_fd).collect();
    let upper = match overlay.upper {
        Some((upper, work)) => Some((again(upper)?, again(work)?)),
        None => None,
    };
    let mut text = format!("lowerdir={}", joined(&lowers));
    if let Some((upper, work)) = &upper {
        text.push_str(&format!(
            ",upperdir={},workdir={}",
            link(upper.as_fd()),
            link(work.as_fd())
        ));
    }
    for (key, value) in options(overlay) {
        text.push(',');
        text.push_str(key);
        if let Some(value) = value {
            text.push('=');
            text.push_str(value);
        }
    }
    if text.len() >= 4096 {
        return Err(MountError::new(
            "mount(2): the options do not fit a page",
            Errno::TOOBIG,
        ));
    }
    let text = CString::new(text).map_err(|_| MountError::new("mount(2)", Errno::INVAL))?;
    // Any directory will do as the place, and this one exists: the texts above are read in it.
    let target = Path::new("/proc");
    rm::mount(
        "overlay",
        target,
        "overlay",
        rm::MountFlags::empty(),
        text.as_c_str(),
    )
    .map_err(|errno| MountError::new("mount(2)", errno))?;
    clone_tree(rustix::fs::CWD, target, false).map_err(|e| MountError::new("open_tree", e))
}

/// Opens the same directory by its path, in this thread's mount namespace.
fn reopen(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = rustix::fs::readlink(link(fd), Vec::new())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let again = rustix::fs::open(path, flags, Mode::empty())?;
    let (old, new) = (openat::stat_fd(fd)?, openat::stat_fd(again.as_fd())?);
    if (old.dev, old.ino) != (new.dev, new.ino) {
        return Err(Errno::STALE.into());
    }
    Ok(again)
}
