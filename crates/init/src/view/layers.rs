//! Directories of the host as layers of overlays: as they are for an ordinary user; for root as
//! clones whose ids are mapped by U2, so that ids on disk stay true.

use super::{failed, host_path};
use crate::spec::Identity;
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, Attributes, MountAttrFlags};
use forkpoint_sys::{caps, openat};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Opens layers, keeping one clone per parent directory: a stack's upper and work directory must
/// be of one mount, and a clone costs more than an open.
pub(super) struct Layers<'a> {
    map: Option<BorrowedFd<'a>>,
    clones: HashMap<PathBuf, OwnedFd>,
    unmapped: Vec<PathBuf>,
    lowers: Vec<OwnedFd>,
}

impl<'a> Layers<'a> {
    pub(super) fn new(identity: &Identity, user: BorrowedFd<'a>) -> Self {
        Self {
            map: (!identity.rootless()).then_some(user),
            clones: HashMap::new(),
            unmapped: Vec::new(),
            lowers: Vec::new(),
        }
    }

    /// Whether the file system of `path`, which was opened as a lower layer, cannot map ids.
    pub(super) fn is_unmapped(&self, path: &Path) -> bool {
        self.unmapped.iter().any(|other| other == path)
    }

    /// Paths whose file system cannot map ids: files of root are read-only there.
    pub(super) fn take_unmapped(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.unmapped)
    }

    /// A directory of the store, by its parent's clone.
    pub(super) fn stored(&mut self, path: &Path) -> Result<OwnedFd> {
        let fault = |e: io::Error| failed(format_args!("open {}", path.display()), e);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(fault(io::ErrorKind::InvalidInput.into()));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        if self.map.is_none() {
            return openat::directory_path(path).map_err(fault);
        }
        self.keep_clone(parent)?;
        let clone = self.clones.get(parent).ok_or(io::ErrorKind::NotFound);
        let clone = clone.map_err(|e| fault(e.into()))?;
        openat::beneath(clone.as_fd(), Path::new(name), flags, Mode::empty()).map_err(fault)
    }

    /// Two directories of the store, reached through one mount.
    pub(super) fn stored_pair(&mut self, a: &Path, b: &Path) -> Result<(OwnedFd, OwnedFd)> {
        let fault =
            |e: io::Error| failed(format_args!("open {} and {}", a.display(), b.display()), e);
        if self.map.is_none() {
            let open = |path| openat::directory_path(path).map_err(fault);
            return Ok((open(a)?, open(b)?));
        }
        let common: PathBuf = (a.components().zip(b.components()))
            .take_while(|(a, b)| a == b)
            .map(|(a, _)| a)
            .collect();
        // Kept: a detached mount is dissolved with its last descriptor, and what was opened beneath
        // it could not become a layer any more.
        self.keep_clone(&common)?;
        let clone = self.clones.get(&common).ok_or(io::ErrorKind::NotFound);
        let clone = clone.map_err(|e| fault(e.into()))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let open = |path: &Path| {
            let below = path.strip_prefix(&common).unwrap_or(path);
            openat::beneath(clone.as_fd(), below, flags, Mode::empty()).map_err(fault)
        };
        Ok((open(a)?, open(b)?))
    }

    /// Clones a directory of the store. One that cannot map ids is of no use to root's branch: its
    /// files would belong to nobody.
    fn keep_clone(&mut self, dir: &Path) -> Result<()> {
        if self.clones.contains_key(dir) {
            return Ok(());
        }
        let before = self.unmapped.len();
        let clone = self.clone(dir, false)?;
        if self.unmapped.len() > before {
            self.unmapped.truncate(before);
            return Err(failed(
                format_args!("map the ids of {}", dir.display()),
                "its file system cannot",
            ));
        }
        self.clones.insert(dir.to_owned(), clone);
        Ok(())
    }

    /// A base or another directory of the host, as a lower layer.
    pub(super) fn lower(&mut self, path: &Path) -> Result<OwnedFd> {
        match self.map {
            None => host_path(path).map_err(|e| failed(format_args!("open {}", path.display()), e)),
            Some(_) => {
                let clone = self.clone(path, false)?;
                let copy = clone.try_clone();
                self.lowers.push(clone);
                copy.map_err(|e| failed(format_args!("open {}", path.display()), e))
            }
        }
    }

    /// The clones, which nothing needs any more. Letting go of one waits for every processor (its
    /// mount is dissolved), so that is for when nobody else waits.
    pub(super) fn into_spent(self) -> Vec<OwnedFd> {
        self.clones.into_values().chain(self.lowers).collect()
    }

    /// A detached bind mount of a directory of the store whose owners are stored as the branch has
    /// them: nothing is to be mapped.
    pub(super) fn bind_as_stored(&self, path: &Path) -> Result<OwnedFd> {
        mount::clone_tree(CWD, path, false)
            .map_err(|e| failed(format_args!("clone {}", path.display()), e))
    }

    /// A detached bind mount of a directory for the branch to write into, which is empty or was
    /// filled by it. Where ids cannot be mapped it is given to the branch's user.
    pub(super) fn bind_own(&mut self, path: &Path) -> Result<OwnedFd> {
        let before = self.unmapped.len();
        let bound = self.clone(path, false)?;
        if self.unmapped.len() > before {
            self.unmapped.truncate(before);
            let (uid, gid) = caps::fs_ids();
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chown(path, Some(uid), Some(gid))
                .map_err(|e| failed(format_args!("give away {}", path.display()), e))?;
        }
        Ok(bound)
    }

    /// A detached bind mount of a path of the host.
    pub(super) fn bind(&mut self, path: &Path, read_only: bool) -> Result<OwnedFd> {
        self.clone(path, read_only)
    }

    fn clone(&mut self, path: &Path, read_only: bool) -> Result<OwnedFd> {
        let fault = |e: io::Error| failed(format_args!("clone {}", path.display()), e);
        let mut change = Attributes {
            idmap: self.map,
            ..Attributes::default()
        };
        if read_only {
            change.set = MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        let fd = mount::clone_tree(CWD, path, false).map_err(fault)?;
        if change.idmap.is_none() && !read_only {
            return Ok(fd);
        }
        match mount::set_attributes(fd.as_fd(), &change) {
            Ok(()) => return Ok(fd),
            Err(e) if change.idmap.is_none() => return Err(fault(e)),
            // A file system that cannot map ids says EINVAL.
            Err(e) if e.raw_os_error() != Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                return Err(fault(e));
            }
            Err(_) => {}
        }
        self.unmapped.push(path.to_owned());
        change.idmap = None;
        if read_only {
            mount::set_attributes(fd.as_fd(), &change).map_err(fault)?;
        }
        Ok(fd)
    }
}
