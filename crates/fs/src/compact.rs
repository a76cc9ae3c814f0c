//! Compaction: several adjacent sealed layers become one, which shows the same in every view.
//!
//! Nothing is copied: files of the new layer are further names of the old layers' files. For each
//! directory the walk keeps where the kernel would look for it: its _parts_ (the directories of the
//! merged layers that make it up, topmost first) and its place _below_ them, which an opaque
//! directory ends and a redirect moves. A name is then resolved by the kernel's own rules
//! (`ovl_lookup` in `fs/overlayfs/namei.c`): the topmost non-directory wins, directories merge
//! until one is opaque or something else is in the way.

pub(crate) mod lookup;

use crate::delta::DiffOptions;
use crate::tree::{self, CopyOptions};
use crate::{MountOptions, codes, view};
use forkpoint_model::Result;
use forkpoint_sys::{openat, xattr};
use lookup::{Found, Layers, Place};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a merge made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MergeReport {
    /// Files that are further names of files of the merged layers.
    pub linked: u64,
    /// Files that had to be copied, since a file cannot have more names.
    pub copied: u64,
    /// Directories made.
    pub dirs: u64,
    /// Whiteouts made.
    pub whiteouts: u64,
    /// Whiteouts left out, since there is nothing below that they would hide.
    pub whiteouts_dropped: u64,
}

/// Merges `layers` (adjacent, sealed, topmost first) into the new layer `out`, which must not exist
/// and lies on their file system. `below` are the layers under them, topmost first; at least the
/// base. When it fails, nothing is left at `out`. The caller syncs before it counts on the result.
pub fn merge(
    layers: &[PathBuf],
    below: &[PathBuf],
    out: &Path,
    options: &DiffOptions,
) -> Result<MergeReport> {
    if layers.is_empty() || below.is_empty() {
        return Err(codes::BAD_STACK.error("a merge without layers, or with nothing below them"));
    }
    let how = MountOptions {
        volatile: false,
        userxattr: options.userxattr,
    };
    let below = view::mount_readonly(below, &how)?;
    rustix::fs::mkdir(out, Mode::RWXU)
        .map_err(|e| codes::WRITE.io(format_args!("cannot make {}", out.display()), e))?;
    let merged = merge_into(layers, below, out, options);
    if merged.is_err()
        && let Err(left) = tree::remove(out)
    {
        return merged.map_err(|e| e.context(format_args!("and {} stays: {left}", out.display())));
    }
    merged
}

fn merge_into(
    layers: &[PathBuf],
    below: OwnedFd,
    out: &Path,
    options: &DiffOptions,
) -> Result<MergeReport> {
    let mut roots = Vec::with_capacity(layers.len());
    for layer in layers {
        let root = openat::directory_path(layer)
            .map_err(|e| codes::READ.io(format_args!("cannot open {}", layer.display()), e))?;
        roots.push(root);
    }
    let layers = Layers::new(roots, options.userxattr);
    let at = |e: io::Error| codes::WRITE.io(format_args!("cannot merge into {}", out.display()), e);
    let out = openat::directory_path(out).map_err(at)?;
    let mut merge = Merge {
        layers,
        below,
        out,
        report: MergeReport::default(),
        first: None,
    };
    merge.run().map_err(at)
}

/// A directory of the new layer.
struct Dir {
    /// Where it is in the new layer.
    path: PathBuf,
    place: Place,
    /// Where the kernel would look for it below without a redirect, given its parent.
    natural: Option<PathBuf>,
}

enum Step {
    Fill(Dir),
    Finish(Dir),
}

struct Merge {
    layers: Layers,
    below: OwnedFd,
    out: OwnedFd,
    report: MergeReport,
    /// The first whiteout made, which the others are names of.
    first: Option<PathBuf>,
}

impl Merge {
    fn run(&mut self) -> io::Result<MergeReport> {
        let place = self.layers.root()?;
        let natural = Some(PathBuf::new());
        let mut steps = vec![Step::Fill(Dir {
            path: PathBuf::new(),
            place,
            natural,
        })];
        while let Some(step) = steps.pop() {
            match step {
                Step::Fill(dir) => {
                    let inner = self.fill(&dir)?;
                    steps.push(Step::Finish(dir));
                    steps.extend(inner.into_iter().map(Step::Fill));
                }
                Step::Finish(dir) => self.finish(&dir)?,
            }
        }
        Ok(self.report)
    }

    /// Makes everything in a directory but what is in its directories, which are returned.
    fn fill(&mut self, dir: &Dir) -> io::Result<Vec<Dir>> {
        let out = tree::open_deep(self.out.as_fd(), &dir.path)?;
        let parts = self.layers.open(&dir.place)?;
        let mut names = BTreeSet::new();
        for part in &parts {
            names.extend(
                tree::names(part.as_fd())?
                    .into_iter()
                    .map(|entry| entry.name),
            );
        }
        let mut inner = Vec::new();
        for name in names {
            let natural = dir.place.below.as_ref().map(|below| below.join(&name));
            match self.layers.lookup(&dir.place, &parts, &name)? {
                Found::Nothing => {}
                Found::Whiteout => self.whiteout(out.as_fd(), dir, &name, natural)?,
                Found::Other(part) => self.file(parts[part].as_fd(), out.as_fd(), &name)?,
                Found::Dir(place) => {
                    rustix::fs::mkdirat(&out, &name, Mode::RWXU)?;
                    self.report.dirs += 1;
                    inner.push(Dir {
                        path: dir.path.join(&name),
                        place,
                        natural,
                    });
                }
            }
        }
        Ok(inner)
    }

    fn file(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        match rustix::fs::linkat(from, name, to, name, AtFlags::empty()) {
            Ok(()) => self.report.linked += 1,
            Err(Errno::MLINK) => {
                tree::copy_entry((from, name), (to, name), &tree::CopyOptions::RAW)?;
                self.report.copied += 1;
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Makes a whiteout, unless there is nothing below to hide.
    fn whiteout(
        &mut self,
        out: BorrowedFd<'_>,
        dir: &Dir,
        name: &OsStr,
        natural: Option<PathBuf>,
    ) -> io::Result<()> {
        let hides = match natural {
            Some(path) => exists(self.below.as_fd(), &path)?,
            None => false,
        };
        if !hides {
            self.report.whiteouts_dropped += 1;
            return Ok(());
        }
        self.report.whiteouts += 1;
        if let Some(first) = &self.first {
            let above = first.parent().unwrap_or(Path::new(""));
            let above = tree::open_deep(self.out.as_fd(), above)?;
            let old = first.file_name().unwrap_or_default();
            match rustix::fs::linkat(&above, old, out, name, AtFlags::empty()) {
                Ok(()) => return Ok(()),
                Err(Errno::MLINK) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        rustix::fs::mknodat(out, name, FileType::CharacterDevice, Mode::empty(), 0)?;
        self.first = Some(dir.path.join(name));
        Ok(())
    }

    /// Gives a filled directory the attributes of its topmost part, and the marks that make the
    /// kernel look for what is below it in the right place.
    fn finish(&self, dir: &Dir) -> io::Result<()> {
        let out = tree::open_deep(self.out.as_fd(), &dir.path)?;
        let top = self.layers.open_top(&dir.place)?;
        let own = OsStr::new("");
        let meta = openat::stat_fd(top.as_fd())?;
        let out = out.as_fd();
        if !tree::copy_attributes((top.as_fd(), own), &meta, (out, own), &CopyOptions::RAW)? {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let (opaque, redirect) = (self.layers.key("opaque"), self.layers.key("redirect"));
        xattr::remove_fd(out, &opaque)?;
        xattr::remove_fd(out, &redirect)?;
        match (&dir.place.below, &dir.natural) {
            (None, Some(_)) => xattr::set_fd(out, &opaque, b"y")?,
            (Some(below), natural) if Some(below) != natural.as_ref() => {
                xattr::set_fd(out, &redirect, &redirect_to(below, natural.as_deref()))?;
            }
            _ => {}
        }
        tree::set_times(out, &meta)
    }
}

/// The text of a redirect: a name where only the name differs, else a path from the root.
fn redirect_to(below: &Path, natural: Option<&Path>) -> Vec<u8> {
    let sibling = natural.is_some_and(|natural| natural.parent() == below.parent());
    match below.file_name() {
        Some(name) if sibling => name.as_bytes().to_vec(),
        _ => {
            let mut text = OsString::from("/");
            text.push(below);
            text.into_vec()
        }
    }
}

/// Whether the view below shows anything at `path`.
fn exists(below: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
    let missing = |e: &io::Error| {
        matches!(
            Errno::from_io_error(e),
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
        )
    };
    let above = match tree::open_deep(below, path.parent().unwrap_or(Path::new(""))) {
        Ok(above) => above,
        Err(e) if missing(&e) => return Ok(false),
        Err(e) => return Err(e),
    };
    Ok(openat::stat_opt(above.as_fd(), path.file_name().unwrap_or_default())?.is_some())
}
