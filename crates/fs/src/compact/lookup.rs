//! Where the kernel's overlay would find a name in a list of layers.

use crate::tree;
use forkpoint_sys::openat::{self, Meta};
use forkpoint_sys::xattr;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the kernel looks for a merged directory.
pub(crate) struct Place {
    /// The layer's number and the path in it, topmost first.
    parts: Vec<(usize, PathBuf)>,
    /// The path in the layers below all of these; `None` when nothing from there is seen.
    pub(crate) below: Option<PathBuf>,
}

/// What is at a name.
pub(crate) enum Found {
    Nothing,
    Whiteout,
    /// Not a directory, in this part of the parent.
    Other(usize),
    Dir(Place),
}

/// What one layer holds at a name.
enum Held {
    Nothing,
    Whiteout,
    Other,
    Dir {
        opaque: bool,
        redirect: Option<PathBuf>,
    },
}

/// The layers that are merged.
pub(crate) struct Layers {
    roots: Vec<OwnedFd>,
    prefix: &'static str,
}

impl Layers {
    pub(crate) fn new(roots: Vec<OwnedFd>, userxattr: bool) -> Self {
        let prefix = if userxattr {
            "user.overlay."
        } else {
            "trusted.overlay."
        };
        Self { roots, prefix }
    }

    /// The full name of an overlay mark.
    pub(crate) fn key(&self, mark: &str) -> OsString {
        OsString::from(format!("{}{mark}", self.prefix))
    }

    /// The root of the merged layers. The kernel reads no marks of a layer's root.
    pub(crate) fn root(&self) -> io::Result<Place> {
        let parts = (0..self.roots.len())
            .map(|layer| (layer, PathBuf::new()))
            .collect();
        Ok(Place {
            parts,
            below: Some(PathBuf::new()),
        })
    }

    /// Opens the parts of a directory.
    pub(crate) fn open(&self, place: &Place) -> io::Result<Vec<OwnedFd>> {
        place
            .parts
            .iter()
            .map(|(layer, path)| self.open_at(*layer, path))
            .collect()
    }

    /// Opens the topmost part, whose attributes the view shows.
    pub(crate) fn open_top(&self, place: &Place) -> io::Result<OwnedFd> {
        match place.parts.first() {
            Some((layer, path)) => self.open_at(*layer, path),
            None => Err(io::Error::other("a directory in no layer")),
        }
    }

    fn open_at(&self, layer: usize, path: &Path) -> io::Result<OwnedFd> {
        tree::open_deep(self.roots[layer].as_fd(), path)
    }

    /// Finds `name` in the directory `parent`, whose parts are open as `parts`.
    pub(crate) fn lookup(
        &self,
        parent: &Place,
        parts: &[OwnedFd],
        name: &OsStr,
    ) -> io::Result<Found> {
        let mut found = Vec::new();
        let mut name = name.to_owned();
        for (index, (fd, (layer, path))) in parts.iter().zip(&parent.parts).enumerate() {
            let (opaque, redirect) = match self.held(fd.as_fd(), &name)? {
                Held::Nothing => continue,
                Held::Whiteout if found.is_empty() => return Ok(Found::Whiteout),
                Held::Other if found.is_empty() => return Ok(Found::Other(index)),
                Held::Whiteout | Held::Other => return Ok(dir(found, None)),
                Held::Dir { opaque, redirect } => (opaque, redirect),
            };
            found.push((*layer, path.join(&name)));
            if opaque {
                return Ok(dir(found, None));
            }
            match redirect {
                Some(path) if path.is_absolute() => {
                    let below = self.follow(&mut found, *layer + 1, path)?;
                    return Ok(dir(found, below));
                }
                Some(other) => name = other.into_os_string(),
                None => {}
            }
        }
        if found.is_empty() {
            return Ok(Found::Nothing);
        }
        Ok(dir(
            found,
            parent.below.as_ref().map(|below| below.join(&name)),
        ))
    }

    /// Goes on looking at `path`, from the root of each layer from number `from` on. Returns where
    /// to look below the last.
    fn follow(
        &self,
        found: &mut Vec<(usize, PathBuf)>,
        from: usize,
        path: PathBuf,
    ) -> io::Result<Option<PathBuf>> {
        let mut path = path.strip_prefix("/").map(Path::to_owned).unwrap_or(path);
        for layer in from..self.roots.len() {
            let step = self.walk(layer, &path)?;
            if step.there {
                found.push((layer, path));
            }
            if step.stop {
                return Ok(None);
            }
            path = step.next;
        }
        Ok(Some(path))
    }

    /// Walks `path` in one layer, component by component (`ovl_lookup_layer`).
    fn walk(&self, layer: usize, path: &Path) -> io::Result<Walked> {
        let mut dir = self.open_at(layer, Path::new(""))?;
        let mut next = PathBuf::new();
        let mut stop = false;
        for (done, name) in path.iter().enumerate() {
            let (opaque, redirect) = match self.held(dir.as_fd(), name)? {
                Held::Nothing => {
                    // The components before may have been redirected already.
                    next.extend(path.iter().skip(done));
                    return Ok(Walked {
                        there: false,
                        stop,
                        next,
                    });
                }
                Held::Whiteout | Held::Other => {
                    return Ok(Walked {
                        there: false,
                        stop: true,
                        next,
                    });
                }
                Held::Dir { opaque, redirect } => (opaque, redirect),
            };
            dir = tree::open_deep(dir.as_fd(), Path::new(name))?;
            match redirect {
                _ if opaque => {
                    stop = true;
                    next.push(name);
                }
                // An absolute redirect leads out of whatever an opaque directory above ended.
                Some(to) if to.is_absolute() => {
                    stop = false;
                    next = to.strip_prefix("/").map(Path::to_owned).unwrap_or_default();
                }
                Some(to) => next.push(to),
                None => next.push(name),
            }
        }
        Ok(Walked {
            there: true,
            stop,
            next,
        })
    }

    fn held(&self, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Held> {
        let Some(meta) = openat::stat_opt(dir, name)? else {
            return Ok(Held::Nothing);
        };
        if !meta.is_dir() {
            let whiteout = self.is_whiteout(dir, name, &meta)?;
            return Ok(if whiteout {
                Held::Whiteout
            } else {
                Held::Other
            });
        }
        let opaque = xattr::get(dir, name, &self.key("opaque"))?.is_some_and(|value| value == b"y");
        let redirect = xattr::get(dir, name, &self.key("redirect"))?;
        let redirect = redirect.map(|text| PathBuf::from(OsStr::from_bytes(&text)));
        Ok(Held::Dir { opaque, redirect })
    }

    /// A whiteout is a character device 0:0, or an empty file with a mark.
    fn is_whiteout(&self, dir: BorrowedFd<'_>, name: &OsStr, meta: &Meta) -> io::Result<bool> {
        if crate::delta::FileType::from_mode(meta.mode) == Some(crate::delta::FileType::CharDev) {
            return Ok(meta.rdev == (0, 0));
        }
        if !meta.is_file() || meta.size != 0 {
            return Ok(false);
        }
        Ok(xattr::get(dir, name, &self.key("whiteout"))?.is_some())
    }
}

struct Walked {
    /// The layer has the directory.
    there: bool,
    /// Nothing further down is seen.
    stop: bool,
    /// Where to look further down.
    next: PathBuf,
}

fn dir(parts: Vec<(usize, PathBuf)>, below: Option<PathBuf>) -> Found {
    Found::Dir(Place { parts, below })
}
