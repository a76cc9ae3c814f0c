//! Directories of the host as layers of overlays: as they are for an ordinary user; for root as
//! clones whose ids are mapped by U2, so that ids on disk stay true.

use super::{failed, host_path};
use crate::spec::Identity;
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, Attributes, MountAttrFlags};
use forkpoint_sys::openat;
use rustix::fs::{CWD, Mode, OFlags};
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
        if !self.clones.contains_key(parent) {
            let clone = self.clone(parent, false)?;
            self.clones.insert(parent.to_owned(), clone);
        }
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
        if !self.clones.contains_key(&common) {
            let clone = self.clone(&common, false)?;
            self.clones.insert(common.clone(), clone);
        }
        let clone = self.clones.get(&common).ok_or(io::ErrorKind::NotFound);
        let clone = clone.map_err(|e| fault(e.into()))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let open = |path: &Path| {
            let below = path.strip_prefix(&common).unwrap_or(path);
            openat::beneath(clone.as_fd(), below, flags, Mode::empty()).map_err(fault)
        };
        Ok((open(a)?, open(b)?))
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
