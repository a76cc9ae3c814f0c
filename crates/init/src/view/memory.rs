//! Uppers in memory, for a store whose file system cannot hold any (such as an overlay).
//!
//! All of one branch lie in one file system, so that one bound holds for them together.

use forkpoint_sys::ids::Shift;
use forkpoint_sys::mount::{self, MountAttrFlags};
use forkpoint_sys::openat;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The file system, made when it is first needed.
#[derive(Debug)]
pub(super) struct Memory {
    /// Bytes it may hold; `None`: half of the machine's memory, as the kernel has it.
    size: Option<u64>,
    /// How owners of the host are stored for the branch; `None` where they are not given.
    shift: Option<Shift>,
    made: Option<OwnedFd>,
    pairs: u32,
}

impl Memory {
    pub(super) fn new(size: Option<u64>, shift: Option<Shift>) -> Self {
        Self {
            size,
            shift,
            made: None,
            pairs: 0,
        }
    }

    /// Whether anything was made.
    pub(super) fn used(&self) -> bool {
        self.made.is_some()
    }

    /// The file system's root, if it was made.
    pub(super) fn into_root(self) -> Option<OwnedFd> {
        self.made
    }

    /// A fresh upper and work directory for a view of `host`, whose root looks like the host's.
    pub(super) fn pair(&mut self, host: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
        let root = self.root()?;
        let place = self.pairs.to_string();
        rustix::fs::mkdirat(&root, &place, Mode::RWXU)?;
        let place = open(root.as_fd(), OsStr::new(&place))?;
        self.pairs += 1;
        for name in ["upper", "work"] {
            rustix::fs::mkdirat(&place, name, Mode::RWXU)?;
        }
        let upper = open(place.as_fd(), OsStr::new("upper"))?;
        self.like(upper.as_fd(), host)?;
        Ok((upper, open(place.as_fd(), OsStr::new("work"))?))
    }

    /// Makes the directories that lead from the view of `host` to `path`, with the owners that the
    /// branch sees: where the host's own belong to nobody inside, a closed one on the way (such as
    /// `/root`) would shut out its own user.
    pub(super) fn way(&self, upper: BorrowedFd<'_>, host: &Path, path: &Path) -> io::Result<()> {
        let Ok(below) = path.strip_prefix(host) else {
            return Ok(());
        };
        let mut at = rustix::io::fcntl_dupfd_cloexec(upper, 0)?;
        let mut here = host.to_owned();
        for part in below.components() {
            here.push(part);
            match openat::stat(CWD, here.as_os_str()) {
                Ok(meta) if meta.is_dir() => {}
                // A link is followed by nobody here, and what is missing is made by who needs it.
                _ => return Ok(()),
            }
            match rustix::fs::mkdirat(&at, part.as_os_str(), Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            at = open(at.as_fd(), part.as_os_str())?;
            self.like(at.as_fd(), &here)?;
        }
        Ok(())
    }

    fn root(&mut self) -> io::Result<OwnedFd> {
        if self.made.is_none() {
            let size = self.size.map(|bytes| bytes.to_string());
            let mut options = vec![("mode", Some("755"))];
            if let Some(size) = &size {
                options.push(("size", Some(size.as_str())));
            }
            let made = mount::new_fs("tmpfs", &options, MountAttrFlags::empty());
            self.made = Some(made.map_err(|e| e.source)?);
        }
        let made = self.made.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(rustix::io::fcntl_dupfd_cloexec(made, 0)?)
    }

    /// Gives a directory owner and mode of the host's.
    fn like(&self, dir: BorrowedFd<'_>, host: &Path) -> io::Result<()> {
        let meta = openat::stat(CWD, host.as_os_str())?;
        if let Some(shift) = self.shift {
            let uid = Uid::from_raw(shift.stored(meta.uid));
            let gid = Gid::from_raw(shift.stored(meta.gid));
            rustix::fs::chownat(dir, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        }
        let mode = Mode::from_raw_mode(meta.permissions());
        Ok(rustix::fs::chmodat(dir, ".", mode, AtFlags::empty())?)
    }
}

fn open(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    openat::beneath(dir, Path::new(name), flags, Mode::empty())
}
