//! A branch's files as git's blobs: their names, and their contents in the form that
//! `git fast-import` reads. Always the bytes as they are: no filter and no conversion of line ends.

use crate::codes;
use crate::delta::{DiffOptions, Sides};
use crate::patch::{BlobName, blob_name, git_mode, quoted};
use crate::tree::open_regular;
use forkpoint_model::Result;
use forkpoint_sys::openat;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A file or symbolic link as git has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// 100644, 100755 or 120000, in octal.
    pub mode: u32,
    /// Its object name.
    pub name: BlobName,
}

/// Paths of a stack's view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    /// Topmost first, the base last.
    #[serde(with = "crate::bytes::list")]
    pub layers: Vec<PathBuf>,
    /// How the layers are marked.
    pub options: DiffOptions,
    /// The paths.
    #[serde(with = "crate::bytes::list")]
    pub paths: Vec<PathBuf>,
}

impl Paths {
    fn view(&self) -> Result<OwnedFd> {
        let sides = Sides {
            old: self.layers.clone(),
            new: self.layers.clone(),
            options: self.options,
        };
        Ok(sides.views()?.0)
    }
}

enum Opened {
    File(File, u32, u64),
    Link(Vec<u8>),
}

fn open(view: BorrowedFd<'_>, path: &Path) -> io::Result<Option<Opened>> {
    let (dir, name) = match openat::parent(view, path) {
        Ok(found) => found,
        Err(e) => match Errno::from_io_error(&e) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            _ => return Err(e),
        },
    };
    let Some(meta) = openat::stat_opt(dir.as_fd(), &name)? else {
        return Ok(None);
    };
    if meta.is_symlink() {
        let target = rustix::fs::readlinkat(&dir, &name, Vec::new())?;
        return Ok(Some(Opened::Link(target.into_bytes())));
    }
    if !meta.is_file() {
        return Ok(None);
    }
    let (fd, meta) = open_regular(dir.as_fd(), &name)?;
    let mode = git_mode(meta.permissions());
    Ok(Some(Opened::File(File::from(fd), mode, meta.size)))
}

/// What each path is to git; `None` where it is neither a file nor a link.
pub fn names(paths: &Paths) -> Result<Vec<Option<Blob>>> {
    let view = paths.view()?;
    let name = |path: &Path| -> io::Result<Option<Blob>> {
        Ok(match open(view.as_fd(), path)? {
            None => None,
            Some(Opened::Link(target)) => Some(Blob {
                mode: 0o120_000,
                name: blob_name(&target[..], target.len() as u64)?,
            }),
            Some(Opened::File(file, mode, size)) => Some(Blob {
                mode,
                name: blob_name(file, size)?,
            }),
        })
    };
    let all = paths.paths.iter().map(|path| {
        name(path).map_err(|e| codes::READ.io(format_args!("cannot read {}", path.display()), e))
    });
    all.collect()
}

/// Writes the paths as `M` commands of `git fast-import`, each below `prefix`. Contents are streamed.
///
/// # Errors
/// Also where a path is neither a file nor a link (any more).
pub fn import(paths: &Paths, prefix: &Path, to: impl Write) -> Result<()> {
    let view = paths.view()?;
    let mut out = BufWriter::with_capacity(1 << 16, to);
    for path in &paths.paths {
        one(view.as_fd(), path, prefix, &mut out)
            .map_err(|e| codes::READ.io(format_args!("cannot carry over {}", path.display()), e))?;
    }
    out.flush()
        .map_err(|e| codes::WRITE.io("git fast-import reads no more", e))
}

fn one(view: BorrowedFd<'_>, path: &Path, prefix: &Path, out: &mut impl Write) -> io::Result<()> {
    let opened = open(view, path)?.ok_or_else(|| io::Error::other("it is no file any more"))?;
    let (mode, size) = match &opened {
        Opened::File(_, mode, size) => (*mode, *size),
        Opened::Link(target) => (0o120_000, target.len() as u64),
    };
    write!(out, "M {mode:06o} inline ")?;
    out.write_all(&quoted("", &prefix.join(path)))?;
    write!(out, "\ndata {size}\n")?;
    match opened {
        Opened::Link(target) => out.write_all(&target)?,
        Opened::File(file, _, size) => {
            if io::copy(&mut file.take(size), out)? != size {
                return Err(io::Error::other("it became shorter while it was read"));
            }
        }
    }
    out.write_all(b"\n")
}

/// A path as `git fast-import` and other line-based input of git take it.
pub fn git_quoted(path: &Path) -> Vec<u8> {
    quoted("", path)
}

/// Whether a path is git's own, which no tree holds; see the patch's rules.
pub fn is_gits_own(path: &Path) -> bool {
    crate::patch::is_git_own(path)
}
