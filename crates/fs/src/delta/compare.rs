//! Comparing one path of two trees in everything a program may do to it, and collecting what
//! differs.

use super::change::{Change, ChangeKind, ChangeSet, Differs, FileTime, FileType, Grants};
use super::content;
use forkpoint_sys::openat::{self, Meta};
use forkpoint_sys::xattr;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// One side of a comparison: an entry that exists.
pub(super) struct Look<'a> {
    dir: BorrowedFd<'a>,
    name: OsString,
    /// Its type.
    pub(super) kind: FileType,
    meta: Meta,
}

impl<'a> Look<'a> {
    /// Looks at `name` in `dir` (an empty name: at `dir` itself); `None` where it does not exist.
    pub(super) fn at(dir: BorrowedFd<'a>, name: &OsStr) -> io::Result<Option<Self>> {
        let Some(meta) = openat::stat_opt(dir, name)? else {
            return Ok(None);
        };
        let kind = FileType::from_mode(meta.mode).ok_or_else(|| {
            io::Error::other(format!("unknown file type in mode {:o}", meta.mode))
        })?;
        let name = if name.is_empty() {
            OsStr::new(".")
        } else {
            name
        };
        Ok(Some(Self {
            dir,
            name: name.to_owned(),
            kind,
            meta,
        }))
    }

    fn xattrs(&self) -> io::Result<Vec<(OsString, Vec<u8>)>> {
        let mut all = xattr::all(self.dir, &self.name)?;
        all.retain(|(key, _)| carried(key));
        Ok(all)
    }

    fn target(&self) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(self.dir, &self.name, Vec::new())?.into_bytes())
    }
}

/// The extended attributes that are part of a tree's content. The kernel hides the overlay's own
/// in a view, and shows those of an overlay inside it under their plain names.
pub(crate) fn carried(key: &OsStr) -> bool {
    xattr::in_namespace(key, "user")
        || key == "security.capability"
        || key == "system.posix_acl_access"
        || key == "system.posix_acl_default"
}

type Inode = ((u32, u32), u64);

/// A candidate that has several names in V.
struct Linked {
    path: PathBuf,
    /// The same path's inode in B.
    before: Option<Inode>,
    change: Change,
    /// Whether `change` differs by itself.
    listed: bool,
}

/// Collects changes.
#[derive(Default)]
pub(super) struct Comparer {
    set: ChangeSet,
    links: HashMap<Inode, Vec<Linked>>,
    /// The inodes above in the order they were met, so that the result is always the same.
    order: Vec<Inode>,
}

impl Comparer {
    /// Compares `path` as V and B have it.
    pub(super) fn compare(
        &mut self,
        path: &Path,
        now: Option<&Look<'_>>,
        before: Option<&Look<'_>>,
        had_lower: Option<bool>,
    ) -> io::Result<()> {
        let (now, before) = match (now, before) {
            (None, None) => {
                self.set.skipped_noops += 1;
                return Ok(());
            }
            (None, Some(before)) => {
                self.push(removed(path, before));
                return Ok(());
            }
            (Some(now), before) => (now, before),
        };
        let mut change = change(path, now, had_lower);
        if let Some(before) = before {
            change.old_type = Some(before.kind);
            // Of a file with several names the kernel does not note that it was copied up.
            if before.meta.nlink > 1 && had_lower == Some(false) {
                change.had_lower = None;
            }
            if before.kind == now.kind {
                change.differs = differs(now, before)?;
                change.kind = if change.differs.content {
                    ChangeKind::Modified
                } else {
                    ChangeKind::Metadata
                };
                if now.kind == FileType::Dir && now.meta.mtime != before.meta.mtime {
                    self.set
                        .dir_times
                        .push((path.to_owned(), now.meta.mtime.into()));
                }
            } else {
                change.kind = ChangeKind::TypeChanged;
                change.subtree = before.kind == FileType::Dir;
            }
        }
        if change.kind == ChangeKind::Metadata {
            change.size = 0;
        }
        let listed = change.kind != ChangeKind::Metadata || change.differs.any();
        if listed {
            change.grants = grants(now, before)?;
        }
        if now.kind != FileType::Dir && now.meta.nlink > 1 {
            let inode = (now.meta.dev, now.meta.ino);
            let before = before.map(|before| (before.meta.dev, before.meta.ino));
            let names = self.links.entry(inode).or_insert_with(|| {
                self.order.push(inode);
                Vec::new()
            });
            names.push(Linked {
                path: path.to_owned(),
                before,
                change,
                listed,
            });
        } else if listed {
            self.push(change);
        } else if now.kind != FileType::Dir {
            self.set.skipped_noops += 1;
        }
        Ok(())
    }

    fn push(&mut self, change: Change) {
        self.set.bytes = self.set.bytes.saturating_add(change.size);
        self.set.changes.push(change);
    }

    /// Settles which names are hard links of each other, and gives the result.
    pub(super) fn finish(mut self) -> ChangeSet {
        let mut group = 0;
        for inode in std::mem::take(&mut self.order) {
            let mut names = self.links.remove(&inode).unwrap_or_default();
            if names.len() > 1 {
                let first = names[0].before;
                let as_before = first.is_some() && names.iter().all(|name| name.before == first);
                for name in &mut names {
                    name.change.link_group = Some(group);
                    if !as_before && name.change.old_type == Some(name.change.file_type) {
                        name.change.differs.links = true;
                        name.listed = true;
                    }
                }
                // Linked as before, but changed in some names' eyes: list all of the names, so
                // that the links can be made again.
                if as_before && names.iter().any(|name| name.listed) {
                    names.iter_mut().for_each(|name| name.listed = true);
                }
                group += 1;
            }
            // The content is written once for all names of a file.
            let mut counted = false;
            for mut name in names {
                debug_assert_eq!(name.path, name.change.path);
                if !name.listed {
                    self.set.skipped_noops += 1;
                    continue;
                }
                if counted {
                    name.change.size = 0;
                }
                counted |= name.change.size > 0;
                self.push(name.change);
            }
        }
        self.set
            .changes
            .sort_by(|a, b| super::order(&a.path, &b.path));
        self.set
    }
}

fn change(path: &Path, now: &Look<'_>, had_lower: Option<bool>) -> Change {
    let device = matches!(now.kind, FileType::CharDev | FileType::BlockDev);
    Change {
        path: path.to_owned(),
        kind: ChangeKind::Added,
        file_type: now.kind,
        old_type: None,
        size: if now.kind == FileType::File {
            now.meta.size
        } else {
            0
        },
        mode: now.meta.permissions(),
        uid: now.meta.uid,
        gid: now.meta.gid,
        mtime: FileTime::from(now.meta.mtime),
        rdev: if device { now.meta.rdev } else { (0, 0) },
        differs: Differs::default(),
        had_lower,
        subtree: false,
        link_group: None,
        grants: None,
        withheld: None,
    }
}

/// What a new or changed entry grants. Of a file that grants something already every change counts:
/// its content is new, or it is somebody else's now.
fn grants(now: &Look<'_>, before: Option<&Look<'_>>) -> io::Result<Option<Grants>> {
    let file = now.kind == FileType::File;
    let mode = now.meta.permissions();
    if file && (mode & 0o4000 != 0 || mode & 0o2010 == 0o2010) {
        return Ok(Some(Grants::SetId));
    }
    if !file && now.kind != FileType::Dir {
        return Ok(None);
    }
    let xattrs = now.xattrs()?;
    if file && xattrs.iter().any(|(key, _)| key == "security.capability") {
        return Ok(Some(Grants::Capability));
    }
    let marks = |all: Vec<(OsString, Vec<u8>)>| -> Vec<_> {
        let mark = |key: &OsStr| xattr::in_namespace(key, "user.overlay");
        all.into_iter().filter(|(key, _)| mark(key)).collect()
    };
    let marked = marks(xattrs);
    if marked.is_empty() {
        return Ok(None);
    }
    let had = match before {
        Some(before) if before.kind == now.kind => marks(before.xattrs()?),
        _ => Vec::new(),
    };
    Ok((marked != had).then_some(Grants::OverlayMark))
}

fn removed(path: &Path, before: &Look<'_>) -> Change {
    Change {
        kind: ChangeKind::Removed,
        old_type: Some(before.kind),
        size: 0,
        subtree: before.kind == FileType::Dir,
        ..change(path, before, None)
    }
}

/// In what two entries of one type differ.
fn differs(now: &Look<'_>, before: &Look<'_>) -> io::Result<Differs> {
    let (a, b) = (&now.meta, &before.meta);
    let content = match now.kind {
        FileType::File => {
            a.size != b.size
                || !content::equal((now.dir, &now.name), (before.dir, &before.name), a.size)?
        }
        FileType::Symlink => now.target()? != before.target()?,
        FileType::CharDev | FileType::BlockDev => a.rdev != b.rdev,
        FileType::Dir | FileType::Fifo | FileType::Socket => false,
    };
    Ok(Differs {
        content,
        mode: now.kind != FileType::Symlink && a.permissions() != b.permissions(),
        owner: (a.uid, a.gid) != (b.uid, b.gid),
        xattrs: now.xattrs()? != before.xattrs()?,
        mtime: now.kind != FileType::Dir && a.mtime != b.mtime,
        links: false,
    })
}
