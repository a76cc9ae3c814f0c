//! What a patch, or a git commit, leaves out: counted by kind, with the first paths of each.

use crate::delta::{Change, ChangeKind, FileType};
use forkpoint_sys::{openat, xattr};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// How many paths of one kind are named.
const NAMED: usize = 20;

/// What git has no notion of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A directory that is, or was, empty.
    EmptyDir,
    /// A FIFO, socket or device.
    Special,
    /// Permissions other than 644 and 755, or those of a directory.
    Mode,
    /// A user or group.
    Owner,
    /// Extended attributes.
    Xattrs,
    /// A time, where nothing else changed.
    Time,
    /// That two names are one file.
    Links,
    /// A path that git keeps to itself: what lies in `.git`.
    GitsOwn,
}

impl What {
    /// In words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::EmptyDir => "empty directories",
            Self::Special => "FIFOs, sockets and devices",
            Self::Mode => "permissions other than 644 and 755",
            Self::Owner => "owners",
            Self::Xattrs => "extended attributes",
            Self::Time => "times where nothing else changed",
            Self::Links => "hard links (they become separate files)",
            Self::GitsOwn => "git's own data",
        }
    }
}

/// One kind of what is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// What.
    pub what: What,
    /// Of how many paths.
    pub count: u64,
    /// The first twenty of them.
    #[serde(with = "crate::bytes::list")]
    pub paths: Vec<PathBuf>,
}

/// Collects what is left out.
pub(super) struct Ledger {
    kinds: BTreeMap<What, (u64, Vec<PathBuf>)>,
    me: (u32, u32),
}

impl Ledger {
    pub(super) fn new() -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Self {
            kinds: BTreeMap::new(),
            me: (user, group),
        }
    }

    pub(super) fn note(&mut self, what: What, path: &Path) {
        let (count, paths) = self.kinds.entry(what).or_default();
        *count += 1;
        if paths.len() < NAMED {
            paths.push(path.to_owned());
        }
    }

    /// Notes the attributes of a change that have no place in git.
    pub(super) fn attributes(&mut self, change: &Change, view: BorrowedFd<'_>) -> io::Result<()> {
        let path = &change.path;
        if change.kind == ChangeKind::Removed {
            return Ok(());
        }
        let plain = match change.file_type {
            FileType::File => matches!(change.mode, 0o644 | 0o755),
            FileType::Dir => change.mode == 0o755,
            _ => true,
        };
        let differs = change.differs;
        let fresh = change.old_type != Some(change.file_type);
        if !plain && (fresh || differs.mode) || (change.file_type == FileType::Dir && differs.mode)
        {
            self.note(What::Mode, path);
        }
        let others = (change.uid, change.gid) != self.me;
        if differs.owner || (fresh && others) {
            self.note(What::Owner, path);
        }
        if differs.xattrs || (fresh && has_xattrs(view, change)?) {
            self.note(What::Xattrs, path);
        }
        if differs.links || (fresh && change.link_group.is_some()) {
            self.note(What::Links, path);
        }
        let time_only = differs.mtime
            && !(differs.mode
                || differs.owner
                || differs.xattrs
                || differs.links
                || differs.content);
        if time_only {
            self.note(What::Time, path);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Vec<Left> {
        let kinds = self.kinds.into_iter();
        kinds
            .map(|(what, (count, paths))| Left { what, count, paths })
            .collect()
    }
}

fn has_xattrs(view: BorrowedFd<'_>, change: &Change) -> io::Result<bool> {
    if !matches!(change.file_type, FileType::File | FileType::Dir) {
        return Ok(false);
    }
    let all = match openat::parent(view, &change.path) {
        Ok((dir, name)) => xattr::list(dir.as_fd(), &name)?,
        // The root itself has no name in a directory.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => xattr::list(view, ".".as_ref())?,
        Err(e) => return Err(e),
    };
    Ok(all.iter().any(|key| crate::delta::is_carried(key)))
}
