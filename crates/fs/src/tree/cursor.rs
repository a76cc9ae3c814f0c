//! A position in a directory tree that can go as deep as the tree does with a bounded number of
//! descriptors, and that follows no symbolic link.

use forkpoint_sys::openat;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// How many of the topmost directories above the position stay open. Those further down are
/// reopened through `..` on the way back, and must then be the same directories.
const KEPT: usize = 8;

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

type Identity = ((u32, u32), u64);

struct Above {
    identity: Identity,
    fd: Option<OwnedFd>,
}

/// A directory one is in, and the way back up.
pub(crate) struct Cursor {
    fd: OwnedFd,
    above: Vec<Above>,
}

impl Cursor {
    /// Begins at `root`, which may be an `O_PATH` descriptor.
    pub(crate) fn new(root: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = rustix::fs::openat(root, ".", OPEN, Mode::empty())?;
        Ok(Self {
            fd,
            above: Vec::new(),
        })
    }

    /// The directory one is in, open for reading.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Goes into the directory `name`.
    pub(crate) fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        let fd = rustix::fs::openat(&self.fd, name, OPEN, Mode::empty())?;
        self.step(fd)
    }

    /// As [`Cursor::enter`]; a directory that may not be read or searched is given to its owner
    /// first. For trees about to be removed.
    pub(crate) fn force_enter(&mut self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::openat(&self.fd, name, OPEN, Mode::empty()) {
            Ok(fd) => {
                let searchable = rustix::fs::accessat(
                    &fd,
                    ".",
                    rustix::fs::Access::EXEC_OK | rustix::fs::Access::WRITE_OK,
                    rustix::fs::AtFlags::EACCESS,
                );
                if searchable.is_err() {
                    rustix::fs::fchmod(&fd, Mode::RWXU)?;
                }
                self.step(fd)
            }
            Err(Errno::ACCESS) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let path = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
                rustix::fs::chmod(proc_link(path.as_fd()), Mode::RWXU)?;
                self.enter(name)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn step(&mut self, fd: OwnedFd) -> io::Result<()> {
        let meta = openat::stat_fd(self.fd.as_fd())?;
        let old = std::mem::replace(&mut self.fd, fd);
        let fd = (self.above.len() < KEPT).then_some(old);
        self.above.push(Above {
            identity: (meta.dev, meta.ino),
            fd,
        });
        Ok(())
    }

    /// Goes back to the directory one came from.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        let Some(above) = self.above.pop() else {
            return Err(io::Error::other("already at the top of the tree"));
        };
        if let Some(fd) = above.fd {
            self.fd = fd;
            return Ok(());
        }
        let fd = rustix::fs::openat(&self.fd, "..", OPEN, Mode::empty())?;
        let meta = openat::stat_fd(fd.as_fd())?;
        if (meta.dev, meta.ino) != above.identity {
            return Err(io::Error::other(
                "a directory was moved while it was walked",
            ));
        }
        self.fd = fd;
        Ok(())
    }

    /// The names in the directory, in no order.
    pub(crate) fn names(&self) -> io::Result<Vec<Entry>> {
        names(self.fd.as_fd())
    }
}

/// One name of a directory.
pub(crate) struct Entry {
    /// The name.
    pub(crate) name: OsString,
    /// Its type, where the file system says.
    pub(crate) kind: rustix::fs::FileType,
}

/// The names in a directory that is open for reading, from its beginning, in no order.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Entry>> {
    rustix::fs::seek(dir, SeekFrom::Start(0))?;
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 32 * 1024];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push(Entry {
                name: OsStr::from_bytes(name).to_owned(),
                kind: entry.file_type(),
            });
        }
    }
    Ok(found)
}

/// A path that leads to exactly what `fd` refers to, for calls that take no `O_PATH` descriptor.
pub(crate) fn proc_link(fd: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
