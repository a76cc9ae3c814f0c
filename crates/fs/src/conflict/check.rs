//! Conflicts of a delta with a base that its user may have edited meanwhile.

use super::ancestors::{self, Origin};
use super::equal;
use super::index::Baseline;
use crate::apply::walk;
use crate::codes;
use crate::delta::{Change, ChangeKind, ChangeSet, FileTime, FileType};
use crate::stamp::Stamp;
use crate::{MountOptions, view};
use forkpoint_model::Result;
use forkpoint_sys::openat::{self, Meta};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A path, and why it cannot be changed (or was not carried over exactly).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PathConflict {
    /// Relative to the base; empty for the base itself.
    #[serde(with = "crate::bytes")]
    pub path: PathBuf,
    /// Why, for a person.
    pub why: String,
}

/// What a check may look at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckOptions {
    /// The stack's layers, topmost first, the base last.
    #[serde(with = "crate::bytes::list")]
    pub layers: Vec<PathBuf>,
    /// How many of them, from the top, hold the delta.
    pub top: usize,
    /// The layers hold `user.overlay.*` marks.
    pub userxattr: bool,
    /// What is known of files that get rewritten without a change.
    pub baseline: Option<Baseline>,
}

/// Every path of the delta that was changed in the base at or after `stamp`, and that the branch
/// would overwrite. What was rewritten with the same content is no conflict. Cost: one `stat` for
/// each change and each of its ancestors, and a scan of directories the delta removes.
pub fn check(
    changes: &ChangeSet,
    base: &Path,
    stamp: Stamp,
    options: &CheckOptions,
) -> Result<Vec<PathConflict>> {
    let root = openat::directory_path(base)
        .map_err(|e| codes::READ.io(format_args!("cannot open {}", base.display()), e))?;
    let mut check = Check {
        root,
        stamp,
        options,
        view: None,
        changes,
        found: Vec::new(),
    };
    for change in changes.changes.iter().filter(|c| !is_below_new(changes, c)) {
        if let Some(why) = check.one(change)? {
            check.found.push(PathConflict {
                path: change.path.clone(),
                why,
            });
        }
    }
    let swapped = ancestors::swapped(check.root.as_fd(), changes, stamp, options)?;
    check.found.extend(swapped);
    check
        .found
        .sort_by(|a, b| crate::delta::order(&a.path, &b.path));
    check.found.dedup();
    Ok(check.found)
}

/// Whether the change lies below a directory that the delta itself adds: nothing of the base can
/// be there but what the check of that directory sees.
fn is_below_new(changes: &ChangeSet, change: &Change) -> bool {
    change.kind == ChangeKind::Added
        && change
            .path
            .parent()
            .and_then(|p| changes.get(p))
            .is_some_and(|p| matches!(p.kind, ChangeKind::Added | ChangeKind::TypeChanged))
}

struct Check<'c> {
    root: OwnedFd,
    stamp: Stamp,
    options: &'c CheckOptions,
    changes: &'c ChangeSet,
    view: Option<view::Glance>,
    found: Vec<PathConflict>,
}

/// A time as a stamp.
pub(crate) fn stamp_of(time: openat::FileTime) -> Stamp {
    Stamp(
        time.secs
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(time.nanos)),
    )
}

/// The entry at `path`, if its parent is reachable without a symbolic link and it exists.
pub(crate) fn look(
    root: BorrowedFd<'_>,
    path: &Path,
) -> io::Result<Option<(OwnedFd, OsString, Meta)>> {
    let (dir, name) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => (walk::dir(root, parent), name.to_owned()),
        _ => (walk::dir(root, Path::new("")), OsString::new()),
    };
    let dir = match dir {
        Ok(dir) => dir,
        Err(e) if absent(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    let meta = match openat::stat(dir.as_fd(), &name) {
        Ok(meta) => meta,
        Err(e) if absent(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(Some((dir, name, meta)))
}

/// Errors that say that a path leads to nothing within the base.
pub(crate) fn absent(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
    )
}

impl Check<'_> {
    fn read(&self, path: &Path, error: &io::Error) -> forkpoint_model::Error {
        let path = crate::bytes::escape(path.as_os_str().as_encoded_bytes());
        codes::READ.io(format_args!("cannot look at {path} in the base"), error)
    }

    fn late(&self, meta: &Meta) -> bool {
        stamp_of(meta.ctime) >= self.stamp
    }

    fn one(&mut self, change: &Change) -> Result<Option<String>> {
        let path = &change.path;
        let Some((dir, name, meta)) =
            look(self.root.as_fd(), path).map_err(|e| self.read(path, &e))?
        else {
            return self.missing(change);
        };
        let removes_dir = meta.is_dir()
            && (change.kind == ChangeKind::Removed || change.file_type != FileType::Dir);
        if removes_dir {
            let late = self
                .late_below(dir.as_fd(), &name)
                .map_err(|e| self.read(path, &e))?;
            return Ok(late.map(|late| {
                let late = crate::bytes::escape(late.as_os_str().as_encoded_bytes());
                format!("the branch removes this directory, and {late:?} in it changed since")
            }));
        }
        if !self.late(&meta) || self.same_index(path)? {
            return Ok(None);
        }
        if change.kind == ChangeKind::Removed {
            return Ok(Some("changed since, and the branch removes it".into()));
        }
        if self.equal(dir.as_fd(), &name, change)? {
            return Ok(None);
        }
        if meta.is_dir() {
            // A new or removed name sets both times alike; a new mode or owner only the ctime.
            let only_names = meta.ctime == meta.mtime;
            return Ok((!only_names).then(|| {
                "the directory's mode, owner or attributes changed since, and the branch's too"
                    .into()
            }));
        }
        Ok(Some(match change.kind {
            ChangeKind::Added => "added since, and differently by the branch".into(),
            _ => "changed since, and differently by the branch".into(),
        }))
    }

    /// The base has nothing there. That is right for what the branch added, and a removal since
    /// for what it only changed.
    fn missing(&self, change: &Change) -> Result<Option<String>> {
        if change.kind == ChangeKind::Removed {
            return Ok(None);
        }
        if change.kind != ChangeKind::Added {
            return Ok(Some("removed since, and the branch changed it".into()));
        }
        if change.had_lower != Some(true) {
            return Ok(None);
        }
        let path = &change.path;
        let fail = |e: io::Error| self.read(path, &e);
        if !ancestors::names_changed(self.root.as_fd(), path, self.stamp).map_err(fail)? {
            return Ok(None);
        }
        // A file that was renamed in the branch also comes from a lower layer: then that lower file
        // is still there, among what the branch removes.
        let renamed = match ancestors::origin(path, self.options).map_err(fail)? {
            Origin::None => Ok(true),
            Origin::Handle(then) => self.removes(|at, name, _| {
                Ok(forkpoint_sys::handle::at(at, name).is_ok_and(|now| now == then))
            }),
            Origin::Unknown => self.removes(|_, _, meta| {
                Ok(FileType::from_mode(meta.mode) == Some(change.file_type)
                    && FileTime::from(meta.mtime) == change.mtime
                    && (!meta.is_file() || meta.size == change.size))
            }),
        }
        .map_err(fail)?;
        Ok((!renamed).then(|| "removed since, and the branch changed it".into()))
    }

    /// Whether the branch removes an entry of the base for which `is` holds.
    fn removes(
        &self,
        is: impl Fn(BorrowedFd<'_>, &OsStr, &Meta) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let removed = self
            .changes
            .changes
            .iter()
            .filter(|c| c.subtree || c.kind == ChangeKind::Removed);
        let mut pending = Vec::new();
        for change in removed {
            let Some((dir, name, meta)) = look(self.root.as_fd(), &change.path)? else {
                continue;
            };
            if is(dir.as_fd(), &name, &meta)? {
                return Ok(true);
            }
            if meta.is_dir() {
                pending.push(change.path.clone());
            }
            while let Some(path) = pending.pop() {
                let dir = walk::readable_dir(self.root.as_fd(), &path)?;
                for name in walk::names(dir.as_fd())? {
                    let meta = openat::stat(dir.as_fd(), &name)?;
                    if is(dir.as_fd(), &name, &meta)? {
                        return Ok(true);
                    }
                    if meta.is_dir() {
                        pending.push(path.join(name));
                    }
                }
            }
        }
        Ok(false)
    }

    /// The first entry at or below a directory that changed since, relative to it.
    fn late_below(&self, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<PathBuf>> {
        let top = walk::readable_dir(dir, Path::new(name))?;
        if self.late(&openat::stat_fd(top.as_fd())?) {
            return Ok(Some(PathBuf::from(".")));
        }
        let mut pending = vec![PathBuf::new()];
        while let Some(path) = pending.pop() {
            let at = walk::readable_dir(top.as_fd(), &path)?;
            for name in walk::names(at.as_fd())? {
                let meta = openat::stat(at.as_fd(), &name)?;
                let below = path.join(name);
                if self.late(&meta) {
                    return Ok(Some(below));
                }
                if meta.is_dir() {
                    pending.push(below);
                }
            }
        }
        Ok(None)
    }

    fn same_index(&self, path: &Path) -> Result<bool> {
        let Some(baseline) = &self.options.baseline else {
            return Ok(false);
        };
        baseline
            .same_index(self.root.as_fd(), path)
            .map_err(|e| self.read(path, &e))
    }

    /// Whether the base already holds what the branch has.
    fn equal(&mut self, dir: BorrowedFd<'_>, name: &OsStr, change: &Change) -> Result<bool> {
        if self.options.layers.is_empty() {
            return Ok(false);
        }
        if self.view.is_none() {
            let options = MountOptions {
                userxattr: self.options.userxattr,
                volatile: false,
            };
            self.view = Some(view::glance(&self.options.layers, &options)?);
        }
        let Some(view) = &self.view else {
            return Ok(false);
        };
        let path = &change.path;
        let Some((theirs, theirs_name, _)) =
            look(view.as_fd(), path).map_err(|e| self.read(path, &e))?
        else {
            return Ok(false);
        };
        equal::entries((dir, name), (theirs.as_fd(), &theirs_name)).map_err(|e| self.read(path, &e))
    }
}
