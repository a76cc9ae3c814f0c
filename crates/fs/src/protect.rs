//! Protected paths: before a verifier runs, they are made exactly what the base has.
//!
//! Works through a writable view over the sealed attempt. The attempt is hostile: it may have put
//! symbolic links or other types where directories were. Everything is resolved beneath the view's
//! root without following one.

use crate::apply::prepare::{self, Notes, Ownership, dot};
use crate::apply::{Owners, io::Io, walk};
use crate::conflict::look;
use crate::delta::{self, Change, ChangeKind, DiffOptions, FileType};
use crate::select::{globs, matches};
use crate::{MountOptions, codes, tree, view};
use forkpoint_model::{Error, Result};
use forkpoint_sys::ids::Shift;
use forkpoint_sys::openat::{self, Meta};
use globset::GlobSet;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How the layers are to be read, and files owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectOptions {
    /// The layers hold `user.overlay.*` marks.
    pub userxattr: bool,
    /// There are two layers, a whole copy of the tree and what it was copied from.
    pub copied: bool,
    /// What becomes of owners.
    pub owners: Owners,
    /// Owners are stored shifted in the view, as by [`crate::tree::CopyOptions::shift`].
    pub shift: Option<(u32, u32)>,
}

/// Makes every path that matches `globs`, and that the topmost `top` of `layers` changed, exactly
/// what the rest of the layers have, through the writable view `view` over all of them: edits
/// undone, additions removed, what was removed or renamed away brought back. Returns those paths.
///
/// A glob that matches a directory protects all below it. What now stands where a glob's literal
/// beginning needs a directory (such as a link `tests` for `tests/**`) is undone too.
pub fn restore(
    view: BorrowedFd<'_>,
    layers: &[PathBuf],
    top: usize,
    protect: &[String],
    options: &ProtectOptions,
) -> Result<Vec<PathBuf>> {
    let set = globs(protect)?;
    if protect.is_empty() {
        return Ok(Vec::new());
    }
    let below = layers
        .get(top..)
        .filter(|rest| !rest.is_empty())
        .ok_or_else(|| codes::BAD_STACK.error("the delta has no layer below it to restore from"))?;
    let changes = match (options.copied, layers) {
        (true, [copy, base]) => delta::diff_trees(copy, base)?,
        _ => delta::diff(
            layers,
            top,
            &DiffOptions {
                userxattr: options.userxattr,
            },
        )?,
    };
    let mount = MountOptions {
        userxattr: options.userxattr,
        volatile: false,
    };
    let base = view::mount_readonly(below, &mount)?;
    let mut owner = Ownership::new(options.owners).map_err(|e| failed(Path::new("."), &e))?;
    owner.shift = options.shift.map(|(first, len)| Shift { first, len });
    let restorer = Restorer {
        view,
        base,
        set,
        owner,
        io: Io::default(),
    };
    let mut targets = BTreeSet::new();
    for change in &changes.changes {
        restorer.targets(change, protect, &mut targets)?;
    }
    let mut dirs = BTreeSet::new();
    for path in &targets {
        restorer.make_same(path, &mut dirs)?;
    }
    for path in dirs.iter().rev() {
        restorer.dir_attributes(path)?;
    }
    Ok(targets.into_iter().collect())
}

struct Restorer<'v> {
    view: BorrowedFd<'v>,
    base: OwnedFd,
    set: GlobSet,
    owner: Ownership,
    io: Io<'v>,
}

/// The components of a glob before the first that is not plain text.
fn literal(glob: &str) -> PathBuf {
    let plain = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
    glob.trim_start_matches("./")
        .trim_end_matches('/')
        .split('/')
        .take_while(plain)
        .collect()
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let path = crate::bytes::escape(path.as_os_str().as_encoded_bytes());
    codes::PROTECT.io(format_args!("{path} cannot be restored"), error)
}

/// A path for calls that take one, of an entry of an open directory.
fn by_descriptor(dir: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name)
}

impl Restorer<'_> {
    /// Adds what a change makes necessary to restore.
    fn targets(
        &self,
        change: &Change,
        protect: &[String],
        targets: &mut BTreeSet<PathBuf>,
    ) -> Result<()> {
        let path = &change.path;
        if matches(&self.set, path) {
            targets.insert(path.clone());
            return Ok(());
        }
        let gone = change.kind == ChangeKind::Removed;
        if change.old_type == Some(FileType::Dir) && (gone || change.file_type != FileType::Dir) {
            return self.matching_below(path, targets);
        }
        let stands_in_the_way = change.file_type != FileType::Dir && !gone;
        if stands_in_the_way && protect.iter().any(|glob| literal(glob).starts_with(path)) {
            targets.insert(path.clone());
        }
        Ok(())
    }

    /// What matches in a directory that the base has and the view no longer.
    fn matching_below(&self, path: &Path, targets: &mut BTreeSet<PathBuf>) -> Result<()> {
        let mut pending = vec![path.to_owned()];
        while let Some(path) = pending.pop() {
            let fail = |e: io::Error| failed(&path, &e);
            let dir = walk::readable_dir(self.base.as_fd(), &path).map_err(fail)?;
            for name in walk::names(dir.as_fd()).map_err(fail)? {
                let below = path.join(&name);
                if matches(&self.set, &below) {
                    targets.insert(below);
                } else if openat::stat(dir.as_fd(), &name).map_err(fail)?.is_dir() {
                    pending.push(below);
                }
            }
        }
        Ok(())
    }

    fn make_same(&self, path: &Path, dirs: &mut BTreeSet<PathBuf>) -> Result<()> {
        let fail = |e: io::Error| failed(path, &e);
        let wanted = look(self.base.as_fd(), path).map_err(fail)?;
        if wanted.is_some() {
            self.ancestors(path, dirs)?;
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        if matches(&self.set, parent) {
            dirs.insert(parent.to_owned());
        }
        let has = look(self.view, path).map_err(fail)?;
        let is_dir = |found: &Option<(OwnedFd, _, Meta)>| {
            found.as_ref().is_some_and(|(_, _, meta)| meta.is_dir())
        };
        if is_dir(&wanted) && is_dir(&has) {
            dirs.insert(path.to_owned());
            return Ok(());
        }
        if let Some((dir, name, _)) = &has {
            tree::remove(&by_descriptor(dir.as_fd(), name))?;
        }
        if wanted.is_some() {
            self.copy(path, dirs)
        } else {
            Ok(())
        }
    }

    /// Makes every directory above `path` one again.
    fn ancestors(&self, path: &Path, dirs: &mut BTreeSet<PathBuf>) -> Result<()> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.pop();
        for dir in above.into_iter().rev() {
            let fail = |e: io::Error| failed(dir, &e);
            let has = look(self.view, dir).map_err(fail)?;
            if let Some((_, _, meta)) = &has
                && meta.is_dir()
            {
                continue;
            }
            if let Some((parent, name, _)) = &has {
                tree::remove(&by_descriptor(parent.as_fd(), name))?;
            }
            self.one(dir)?;
            dirs.insert(dir.to_owned());
        }
        Ok(())
    }

    /// Copies `path` and all below it from the base, where the view has nothing.
    fn copy(&self, path: &Path, dirs: &mut BTreeSet<PathBuf>) -> Result<()> {
        let mut pending = vec![path.to_owned()];
        while let Some(path) = pending.pop() {
            let fail = |e: io::Error| failed(&path, &e);
            if self.one(&path)? {
                let dir = walk::readable_dir(self.base.as_fd(), &path).map_err(fail)?;
                pending.extend(
                    walk::names(dir.as_fd())
                        .map_err(fail)?
                        .into_iter()
                        .map(|n| path.join(n)),
                );
                dirs.insert(path);
            }
        }
        Ok(())
    }

    /// Copies one entry, without what is in it; says whether it is a directory, whose attributes
    /// come last.
    fn one(&self, path: &Path) -> Result<bool> {
        let fail = |e: io::Error| failed(path, &e);
        let missing = || failed(path, &io::ErrorKind::NotFound.into());
        let (from, name, meta) = look(self.base.as_fd(), path)
            .map_err(fail)?
            .ok_or_else(missing)?;
        let from = (from.as_fd(), name.as_os_str());
        let parent = walk::dir(self.view, path.parent().unwrap_or(Path::new(""))).map_err(fail)?;
        let to = (parent.as_fd(), name.as_os_str());
        if meta.is_dir() {
            self.io.mkdir(to).map_err(fail)?;
            return Ok(true);
        }
        let mut notes = Notes::default();
        let made = if meta.is_file() {
            let made = self.io.create(to).map_err(fail)?;
            let (source, _) = tree::open_regular(from.0, from.1).map_err(fail)?;
            prepare::content(self.io, source.as_fd(), made.as_fd(), meta.size).map_err(fail)?;
            made
        } else if FileType::from_mode(meta.mode) == Some(FileType::Socket) {
            return Ok(false);
        } else {
            prepare::special(self.io, from, &meta, to).map_err(fail)?;
            prepare::itself(to).map_err(fail)?
        };
        let made = made.as_fd();
        prepare::attributes(self.io, &self.owner, from, &meta, made, path, &mut notes)?;
        Ok(false)
    }

    fn dir_attributes(&self, path: &Path) -> Result<()> {
        let fail = |e: io::Error| failed(path, &e);
        let found = look(self.base.as_fd(), path).map_err(fail)?;
        let Some((from, name, meta)) = found.filter(|(_, _, meta)| meta.is_dir()) else {
            return Ok(());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = walk::open(self.view, path, flags).map_err(fail)?;
        let from = (from.as_fd(), dot(&name));
        let mut notes = Notes::default();
        prepare::attributes(
            self.io,
            &self.owner,
            from,
            &meta,
            dir.as_fd(),
            path,
            &mut notes,
        )
    }
}
