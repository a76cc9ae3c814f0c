//! The files under a view: where blocks can be shared with the place that a view is copied to, they are
//! shared with the layer that holds them, since a file of an overlay is of no device that could.

use super::open_regular;
use crate::compact::lookup::{Found, Layers, Place};
use forkpoint_sys::openat::Meta;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where a directory is in the layers, and its parts, open.
type Directory = (Place, Vec<OwnedFd>);

/// The layers of a view, topmost first.
pub(crate) struct Beneath {
    layers: Layers,
    /// The directory that was looked into last, and its parts; `None`: it cannot be found there.
    last: Option<(PathBuf, Option<Directory>)>,
}

impl Beneath {
    /// Of these layers.
    pub(crate) fn new(roots: Vec<OwnedFd>, userxattr: bool) -> Self {
        Self {
            layers: Layers::new(roots, userxattr),
            last: None,
        }
    }

    /// The regular file that the view shows at `path` with the attributes `seen`, open for reading.
    /// `None`: it is not certain which that is, and the view has to be read.
    pub(crate) fn file(&mut self, path: &Path, seen: &Meta) -> Option<OwnedFd> {
        let (dir, name) = (path.parent()?, path.file_name()?);
        if self.last.as_ref().is_none_or(|(last, _)| last != dir) {
            self.last = Some((dir.to_owned(), self.find(dir).ok().flatten()));
        }
        let (place, parts) = self.last.as_ref()?.1.as_ref()?;
        let Ok(Found::Other(part)) = self.layers.lookup(place, parts, name) else {
            return None;
        };
        let (file, meta) = open_regular(parts.get(part)?.as_fd(), name).ok()?;
        let same = (meta.size, meta.mtime) == (seen.size, seen.mtime);
        same.then_some(file)
    }

    fn find(&self, dir: &Path) -> io::Result<Option<Directory>> {
        let mut place = self.layers.root()?;
        let mut parts = self.layers.open(&place)?;
        for name in dir {
            place = match self.layers.lookup(&place, &parts, OsStr::new(name))? {
                Found::Dir(place) => place,
                _ => return Ok(None),
            };
            parts = self.layers.open(&place)?;
        }
        Ok(Some((place, parts)))
    }
}
