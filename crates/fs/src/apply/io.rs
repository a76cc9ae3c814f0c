//! Every call of staging, redo and undo that changes a file system, behind a hook, so that tests can
//! record them, fail any one of them, or stop as if the program or the machine had died there.

use crate::delta::FileTime;
use forkpoint_sys::{apply_io, ioctl, openat, xattr};
use rustix::fs::{self as rfs, AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// What kind of change a call makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// Makes an empty regular file.
    Create,
    /// Makes a directory.
    Mkdir,
    /// Makes a symbolic link.
    Symlink,
    /// Makes a FIFO or a device node.
    Node,
    /// Makes a hard link.
    Link,
    /// Writes bytes.
    Write,
    /// Sets a size.
    Resize,
    /// Shares another file's blocks.
    Clone,
    /// Sets an owner.
    Owner,
    /// Sets permission bits.
    Mode,
    /// Sets or removes an extended attribute.
    Xattr,
    /// Sets times.
    Times,
    /// Swaps two entries.
    Exchange,
    /// Moves an entry to a free name.
    Move,
    /// Waits until a file or directory is on the device.
    Sync,
    /// Starts or awaits the writing of data.
    Flush,
    /// Removes a tree of Forkpoint's own.
    RemoveTree,
}

/// Is told of each change before and after it is made.
pub trait Hook {
    /// Called before. An error becomes the call's own, which is then not made. `on` is the file or
    /// directory acted on; `name`, if not empty, the entry in it.
    fn before(&self, call: Call, on: BorrowedFd<'_>, name: &OsStr) -> io::Result<()>;
    /// Called after a call that succeeded.
    fn after(&self, _call: Call, _on: BorrowedFd<'_>, _name: &OsStr) {}
    /// Whether the program is to be taken for dead: nothing is cleaned up.
    fn dead(&self) -> bool {
        false
    }
}

/// Makes the calls.
#[derive(Clone, Copy, Default)]
pub struct Io<'h> {
    hook: Option<&'h dyn Hook>,
}

/// A directory and an entry of it.
pub type At<'f, 'n> = (BorrowedFd<'f>, &'n OsStr);

const SELF: &str = "";

impl<'h> Io<'h> {
    /// Calls that tell `hook`.
    pub fn hooked(hook: &'h dyn Hook) -> Self {
        Self { hook: Some(hook) }
    }

    /// Whether a hook says that the program is dead.
    pub fn dead(&self) -> bool {
        self.hook.is_some_and(Hook::dead)
    }

    fn call<T>(
        &self,
        call: Call,
        (on, name): At<'_, '_>,
        run: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(hook) = self.hook else {
            return run();
        };
        hook.before(call, on, name)?;
        let done = run()?;
        hook.after(call, on, name);
        Ok(done)
    }

    fn on<T>(
        &self,
        call: Call,
        fd: BorrowedFd<'_>,
        run: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.call(call, (fd, OsStr::new(SELF)), run)
    }

    /// Makes an empty regular file that only the caller can read, open for reading and writing.
    pub fn create(&self, at: At<'_, '_>) -> io::Result<OwnedFd> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.call(Call::Create, at, || {
            Ok(rfs::openat(at.0, at.1, flags, Mode::RUSR | Mode::WUSR)?)
        })
    }

    /// Makes a directory that only the caller can use, and opens it.
    pub fn mkdir(&self, at: At<'_, '_>) -> io::Result<OwnedFd> {
        self.call(Call::Mkdir, at, || {
            Ok(rfs::mkdirat(at.0, at.1, Mode::RWXU)?)
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rfs::openat(at.0, at.1, flags, Mode::empty())?)
    }

    /// Makes a symbolic link to `target`.
    pub fn symlink(&self, at: At<'_, '_>, target: &OsStr) -> io::Result<()> {
        self.call(Call::Symlink, at, || {
            Ok(rfs::symlinkat(target, at.0, at.1)?)
        })
    }

    /// Makes a FIFO or a device node.
    pub fn node(&self, at: At<'_, '_>, kind: rfs::FileType, rdev: (u32, u32)) -> io::Result<()> {
        let dev = rfs::makedev(rdev.0, rdev.1);
        self.call(Call::Node, at, || {
            Ok(rfs::mknodat(
                at.0,
                at.1,
                kind,
                Mode::RUSR | Mode::WUSR,
                dev,
            )?)
        })
    }

    /// Makes `at` another name of the file `existing`.
    pub fn link(&self, existing: At<'_, '_>, at: At<'_, '_>) -> io::Result<()> {
        self.call(Call::Link, at, || {
            Ok(rfs::linkat(
                existing.0,
                existing.1,
                at.0,
                at.1,
                AtFlags::empty(),
            )?)
        })
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write(&self, fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.on(Call::Write, fd, || {
            let mut done = 0;
            while done < bytes.len() {
                match rustix::io::pwrite(fd, &bytes[done..], offset + done as u64) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => done += n,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Ok(())
        })
    }

    /// Sets a file's size.
    pub fn resize(&self, fd: BorrowedFd<'_>, size: u64) -> io::Result<()> {
        self.on(Call::Resize, fd, || Ok(rfs::ftruncate(fd, size)?))
    }

    /// Makes `fd` share the blocks of `source`; see [`ioctl::clone_file`].
    pub fn clone_file(&self, fd: BorrowedFd<'_>, source: BorrowedFd<'_>) -> io::Result<()> {
        self.on(Call::Clone, fd, || ioctl::clone_file(fd, source))
    }

    /// Sets user and group of an open file (`O_PATH` will do, even of a symbolic link).
    pub fn owner(&self, fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        self.on(Call::Owner, fd, || {
            Ok(rfs::chownat(fd, SELF, uid, gid, AtFlags::EMPTY_PATH)?)
        })
    }

    /// Sets the permission bits of an open file (`O_PATH` will do, except of a symbolic link).
    pub fn mode(&self, fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
        self.on(Call::Mode, fd, || {
            Ok(rfs::chmod(itself(fd), Mode::from_raw_mode(mode & 0o7777))?)
        })
    }

    /// Sets an extended attribute of an open file, or removes it for `None`.
    pub fn xattr(&self, fd: BorrowedFd<'_>, key: &OsStr, value: Option<&[u8]>) -> io::Result<()> {
        self.on(Call::Xattr, fd, || match value {
            Some(value) => xattr::set_fd(fd, key, value),
            None => xattr::remove_fd(fd, key),
        })
    }

    /// Sets the times of an open file (`O_PATH` will do); a missing access time stays as it is.
    pub fn times(
        &self,
        fd: BorrowedFd<'_>,
        atime: Option<FileTime>,
        mtime: FileTime,
    ) -> io::Result<()> {
        let spec = |t: FileTime| Timespec {
            tv_sec: t.secs,
            tv_nsec: i64::from(t.nanos),
        };
        let omit = Timespec {
            tv_sec: 0,
            tv_nsec: rfs::UTIME_OMIT,
        };
        let times = Timestamps {
            last_access: atime.map_or(omit, spec),
            last_modification: spec(mtime),
        };
        self.on(Call::Times, fd, || {
            Ok(rfs::utimensat(CWD, itself(fd), &times, AtFlags::empty())?)
        })
    }

    /// Swaps two existing entries.
    pub fn exchange(&self, from: At<'_, '_>, to: At<'_, '_>) -> io::Result<()> {
        self.call(Call::Exchange, to, || openat::rename_exchange(from, to))
    }

    /// Moves an entry to where nothing is.
    pub fn relocate(&self, from: At<'_, '_>, to: At<'_, '_>) -> io::Result<()> {
        self.call(Call::Move, to, || openat::rename_noreplace(from, to))
    }

    /// Waits until an open file or directory, with all its attributes, is on the device.
    pub fn sync(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.on(Call::Sync, fd, || Ok(rfs::fsync(fd)?))
    }

    /// As [`Io::sync`] for many at once, each by itself and all at the same time: the file system
    /// then writes its journal once, and the device empties its cache a few times instead of once a
    /// file. On failure says which one.
    pub fn sync_many(&self, fds: &[BorrowedFd<'_>]) -> Result<(), (usize, io::Error)> {
        let itself = OsStr::new(SELF);
        if let Some(hook) = self.hook {
            for (at, fd) in fds.iter().enumerate() {
                hook.before(Call::Sync, *fd, itself).map_err(|e| (at, e))?;
            }
        }
        sync_in_parallel(fds)?;
        if let Some(hook) = self.hook {
            fds.iter()
                .for_each(|fd| hook.after(Call::Sync, *fd, itself));
        }
        Ok(())
    }

    /// Waits until the whole file system of `fd` is on the device.
    pub fn sync_all(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.on(Call::Sync, fd, || openat::syncfs(fd))
    }

    /// Starts to write a file's data to the device; with `wait`, also waits for that.
    pub fn flush(&self, fd: BorrowedFd<'_>, wait: bool) -> io::Result<()> {
        self.on(Call::Flush, fd, || apply_io::write_back(fd, wait))
    }

    /// Removes a tree of Forkpoint's own.
    pub fn remove_tree(&self, path: &std::path::Path) -> forkpoint_model::Result<()> {
        if let Some(hook) = self.hook {
            let root = rustix::fs::CWD;
            hook.before(Call::RemoveTree, root, path.as_os_str())
                .map_err(|e| crate::codes::STAGE.io(path.display(), e))?;
        }
        crate::tree::remove(path)
    }
}

/// How many share the syncing.
const SYNCERS: usize = 8;

fn sync_in_parallel(fds: &[BorrowedFd<'_>]) -> Result<(), (usize, io::Error)> {
    let [_, _, ..] = fds else {
        return fds.iter().try_for_each(|fd| sync_one(0, *fd));
    };
    let own = |(at, fd): (usize, &BorrowedFd<'_>)| match fd.try_clone_to_owned() {
        Ok(fd) => Ok(fd),
        Err(e) => Err((at, e)),
    };
    let fds: Vec<OwnedFd> = fds.iter().enumerate().map(own).collect::<Result<_, _>>()?;
    let helpers = fds.len().min(SYNCERS) - 1;
    let work = Arc::new(Syncing {
        fds,
        next: AtomicUsize::new(0),
    });
    let (tell, told) = mpsc::channel();
    for _ in 0..helpers {
        let (work, tell) = (Arc::clone(&work), tell.clone());
        crate::crew::give(move || {
            let found = work.share();
            // Let go before it is told: then nothing is held open any more.
            drop(work);
            // The receiver waits for every helper.
            drop(tell.send(found));
        });
    }
    drop(tell);
    let mine = work.share();
    // A helper that never told has died with its share of the work undone.
    let theirs = (0..helpers).map(|_| match told.recv() {
        Ok(found) => found,
        Err(_) => Err((0, io::Error::other("a thread that syncs died"))),
    });
    theirs.fold(mine, Result::and)
}

/// Files that several threads sync between them.
struct Syncing {
    fds: Vec<OwnedFd>,
    next: AtomicUsize,
}

impl Syncing {
    /// Syncs what no other thread has taken; the first failure is told, and the rest synced all the
    /// same.
    fn share(&self) -> Result<(), (usize, io::Error)> {
        let mut found = Ok(());
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(fd) = self.fds.get(at) else {
                return found;
            };
            found = found.and(sync_one(at, fd.as_fd()));
        }
    }
}

fn sync_one(at: usize, fd: BorrowedFd<'_>) -> Result<(), (usize, io::Error)> {
    rfs::fsync(fd).map_err(|errno| (at, errno.into()))
}

/// A path that means exactly this open file, whatever names it has.
fn itself(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
