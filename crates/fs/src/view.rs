//! Views: overlay mounts of stacks, as detached mount descriptors.
//!
//! A lower layer must never change while a view on it is mounted: the kernel then shows old files,
//! hides new ones, and brings deleted ones back. One exception is used on purpose: the upper of a
//! view that is still mounted may be the lower of a read-only view while nobody writes to the
//! first (its processes are frozen, or gone). The read-only view is dropped before they go on.

use crate::codes;
use crate::{MountOptions, Stack};
use forkpoint_model::{Code, Error, Result};
use forkpoint_sys::openat::{self, Meta};
use forkpoint_sys::overlay::{self, Overlay};
use forkpoint_sys::{mount, xattr};
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

pub use forkpoint_sys::overlay::Method;

/// Mounts a stack for reading and writing. The result is a detached mount: a directory descriptor
/// to work through or to attach somewhere.
pub fn mount(stack: &Stack, options: &MountOptions) -> Result<OwnedFd> {
    mount_by(stack, options, None)
}

/// As [`mount()`], by one given kernel interface and no other.
pub fn mount_by(stack: &Stack, options: &MountOptions, force: Option<Method>) -> Result<OwnedFd> {
    renew_volatile_work(&stack.work)?;
    let lowers = open_all(&stack.lowers)?;
    let upper = open(&stack.upper)?;
    let work = open(&stack.work)?;
    let lowers: Vec<BorrowedFd<'_>> = lowers.iter().map(AsFd::as_fd).collect();
    mount_fds_by(&lowers, Some((upper.as_fd(), work.as_fd())), options, force)
        .map_err(|error| error.context(format_args!("a view with upper {}", stack.upper.display())))
}

/// Mounts layers, topmost first, as one read-only tree. A single layer is no overlay but a
/// read-only clone of the directory, or, where that may not be made, the directory itself.
pub fn mount_readonly(layers: &[PathBuf], options: &MountOptions) -> Result<OwnedFd> {
    if let [only] = layers {
        return clone_of(only);
    }
    let fds = open_all(layers)?;
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    mount_fds(&fds, None, options)
}

/// As [`mount_readonly`], for a short look. Dropping it does not wait for the unmount, in which the
/// kernel waits for every processor to pass through the scheduler: milliseconds on a busy machine.
/// Nobody looks through the mount meanwhile, so what changes below it is seen by nobody.
pub(crate) fn glance(layers: &[PathBuf], options: &MountOptions) -> Result<Glance> {
    mount_readonly(layers, options).map(|fd| Glance(Some(fd)))
}

/// A read-only view that is unmounted in the background.
pub(crate) struct Glance(Option<OwnedFd>);

impl Glance {
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Some(fd) => fd.as_fd(),
            None => rustix::fs::CWD,
        }
    }
}

impl Drop for Glance {
    fn drop(&mut self) {
        let closing = Closing::new(self.0.take());
        crate::crew::give(move || drop(closing));
    }
}

/// How many unmounts are under way in the background, and who waits for none to be.
static CLOSING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// A view that is being closed, counted until it is.
struct Closing(Option<OwnedFd>);

impl Closing {
    fn new(fd: Option<OwnedFd>) -> Self {
        *CLOSING.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(fd)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        drop(self.0.take());
        *CLOSING.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        CLOSING.1.notify_all();
    }
}

/// Waits until every view of this process that was dropped is unmounted: before a layer that it showed
/// is changed, or its file system unmounted.
pub fn settle() {
    let mut open = CLOSING.0.lock().unwrap_or_else(PoisonError::into_inner);
    while *open > 0 {
        open = CLOSING.1.wait(open).unwrap_or_else(PoisonError::into_inner);
    }
}

/// As [`mount()`] and [`mount_readonly`], from directory descriptors, which may be detached and
/// id-mapped clones. Upper and work directory must be of the same mount.
pub fn mount_fds(
    lowers: &[BorrowedFd<'_>],
    upper_work: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>,
    options: &MountOptions,
) -> Result<OwnedFd> {
    mount_fds_by(lowers, upper_work, options, None)
}

fn mount_fds_by(
    lowers: &[BorrowedFd<'_>],
    upper: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>,
    options: &MountOptions,
    force: Option<Method>,
) -> Result<OwnedFd> {
    if lowers.is_empty() || lowers.len() > overlay::MAX_LOWERS {
        return Err(codes::BAD_STACK.error(format!(
            "a view of {} layers; the kernel takes 1 to {}",
            lowers.len(),
            overlay::MAX_LOWERS
        )));
    }
    let wanted = Overlay {
        lowers,
        upper,
        volatile: options.volatile,
        userxattr: options.userxattr,
        force,
    };
    let view = overlay::mount(&wanted).map_err(|error| explain(&error, options))?;
    if upper.is_some() {
        // The kernel falls back to read-only, with no error, when it cannot use the work
        // directory (for example when the ids of the mounter do not map).
        let read_only = mount::is_read_only(view.as_fd())
            .map_err(|e| codes::MOUNT.io("cannot look at a new view", e))?;
        if read_only {
            return Err(codes::MOUNTED_READ_ONLY
                .error("the kernel mounted a writable view read-only")
                .hint("see the kernel log; the work directory must be writable by who mounts"));
        }
    }
    Ok(view)
}

fn explain(error: &mount::MountError, options: &MountOptions) -> Error {
    let said = codes::MOUNT.io("the kernel refuses an overlay", error);
    match error.errno() {
        Some(libc_errno::EPERM) => said.hint("run as root, or in a user namespace of your own"),
        Some(libc_errno::ENODEV) => said.hint("load the kernel's overlay module"),
        Some(libc_errno::ELOOP) => said.hint("a layer is itself an overlay, one too deep"),
        Some(libc_errno::EINVAL) if options.userxattr => {
            said.hint("`forkpoint doctor` tries what this machine can do")
        }
        _ => said,
    }
}

/// Error numbers by name, without a dependency on libc.
mod libc_errno {
    use rustix::io::Errno;
    pub(super) const EPERM: i32 = Errno::PERM.raw_os_error();
    pub(super) const ENODEV: i32 = Errno::NODEV.raw_os_error();
    pub(super) const ELOOP: i32 = Errno::LOOP.raw_os_error();
    pub(super) const EINVAL: i32 = Errno::INVAL.raw_os_error();
}

fn open(path: &Path) -> Result<OwnedFd> {
    openat::directory_path(path)
        .map_err(|e| codes::READ.io(format_args!("cannot open {}", path.display()), e))
}

fn open_all(paths: &[PathBuf]) -> Result<Vec<OwnedFd>> {
    paths.iter().map(|path| open(path)).collect()
}

fn clone_of(path: &Path) -> Result<OwnedFd> {
    let dir = open(path)?;
    match mount::read_only_clone(dir.as_fd()) {
        Ok(clone) => Ok(clone),
        // Not permitted, an old kernel, or locked mounts below: the directory itself is the same
        // tree to a reader, only not protected from one that writes.
        Err(_) => Ok(dir),
    }
}

/// Whether the kernel marked the work directory as one of a volatile mount.
const VOLATILE_MARK: &str = "work/incompat/volatile";

/// A work directory that served a volatile mount is refused by the kernel for ever, since after a
/// crash its upper may be torn. Whoever mounts it again knows better (no power was lost since, or
/// the upper was synced): give it a new one.
pub fn renew_volatile_work(work: &Path) -> Result<()> {
    let fault = |e: io::Error| {
        codes::WRITE.io(
            format_args!("cannot renew the work directory {}", work.display()),
            e,
        )
    };
    // What a mount that ended well leaves. The kernel removes the rest itself when it mounts again:
    // it refuses only a mark, not the directory the mark was in.
    let mark = work.join(VOLATILE_MARK);
    let renewed = rustix::fs::unlink(mark.join("dirty")).and_then(|()| rustix::fs::rmdir(&mark));
    if renewed.is_ok() {
        return Ok(());
    }
    let inner = work.join("work");
    match std::fs::symlink_metadata(inner.join("incompat")) {
        Ok(_) => {}
        // Nothing there, or a directory that only its owner may enter: an ordinary mount's.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
        Err(e) => return Err(fault(e)),
    }
    if std::fs::symlink_metadata(&mark).is_err() {
        return Ok(());
    }
    crate::tree::remove(&inner).map_err(|e| e.context("an old work directory"))
}

/// Makes the upper and work directories of a stack over `base` (the base itself, or the topmost
/// layer below). The view's root takes mode, owner, attributes and times from its upper, so these
/// are copied from `base`.
pub fn prepare_pair(upper: &Path, work: &Path, base: &Path) -> Result<()> {
    for dir in [upper, work] {
        rustix::fs::mkdir(dir, Mode::RWXU)
            .map_err(|e| codes::WRITE.io(format_args!("cannot make {}", dir.display()), e))?;
    }
    let from = open(base)?;
    let to = open(upper)?;
    copy_root(from.as_fd(), to.as_fd())
        .map_err(|(code, e)| code.io(format_args!("cannot prepare {}", upper.display()), e))
}

/// Copies what belongs to a directory itself. Attributes first and times last; the owner before
/// the mode, since a change of owner clears set-id bits.
fn copy_root(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), (Code, io::Error)> {
    let read = |e: io::Error| (codes::READ, e);
    let write = |e: io::Error| (codes::WRITE, e);
    let meta = openat::stat_fd(from).map_err(read)?;
    let mine = openat::stat_fd(to).map_err(write)?;
    for key in xattr::list_fd(from).map_err(read)? {
        if !belongs_to_root(&key) {
            continue;
        }
        if let Some(value) = xattr::get_fd(from, &key).map_err(read)? {
            xattr::set_fd(to, &key, &value).map_err(write)?;
        }
    }
    if (meta.uid, meta.gid) != (mine.uid, mine.gid) {
        set_owner(to, &meta).map_err(write)?;
    }
    set_mode_and_times(to, &meta).map_err(write)
}

fn belongs_to_root(key: &OsStr) -> bool {
    let overlay = key.as_encoded_bytes().starts_with(b"user.overlay.");
    (xattr::in_namespace(key, "user") && !overlay)
        || key == "system.posix_acl_access"
        || key == "system.posix_acl_default"
}

/// An owner that the caller's id mapping does not know cannot be given; the view's root then
/// belongs to the caller, who is the only one to work in it.
fn set_owner(to: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
    use rustix::fs::{Gid, Uid};
    let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
    match rustix::fs::chownat(to, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
        Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => Ok(()),
        other => Ok(other?),
    }
}

fn set_mode_and_times(to: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
    let time = |t: openat::FileTime| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    let times = Timestamps {
        last_access: time(meta.atime),
        last_modification: time(meta.mtime),
    };
    rustix::fs::chmodat(
        to,
        ".",
        Mode::from_raw_mode(meta.permissions()),
        AtFlags::empty(),
    )?;
    Ok(rustix::fs::utimensat(to, ".", &times, AtFlags::empty())?)
}
