//! What a diff is made of.

use forkpoint_sys::openat;
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What became of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// A regular file's content, a symbolic link's target or a device's number differs.
    Modified,
    /// It is gone.
    Removed,
    /// It is of another type now.
    TypeChanged,
    /// The content is the same; mode, owner, extended attributes, the time of a file, or which
    /// names are hard links of each other differ.
    Metadata,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket. It has no content and no meaning outside the process that made it.
    Socket,
    /// A character device.
    CharDev,
    /// A block device.
    BlockDev,
}

impl FileType {
    /// The type in the bits of `st_mode`, or `None` for bits no Linux knows.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match rustix::fs::FileType::from_raw_mode(mode) {
            rustix::fs::FileType::RegularFile => Self::File,
            rustix::fs::FileType::Directory => Self::Dir,
            rustix::fs::FileType::Symlink => Self::Symlink,
            rustix::fs::FileType::Fifo => Self::Fifo,
            rustix::fs::FileType::Socket => Self::Socket,
            rustix::fs::FileType::CharacterDevice => Self::CharDev,
            rustix::fs::FileType::BlockDevice => Self::BlockDev,
            rustix::fs::FileType::Unknown => return None,
        })
    }
}

/// A file's time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct FileTime {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl From<openat::FileTime> for FileTime {
    fn from(time: openat::FileTime) -> Self {
        Self {
            secs: time.secs,
            nanos: time.nanos,
        }
    }
}

/// In what a path that existed before differs. All false for an added or removed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Differs {
    /// Bytes, link target or device number.
    pub content: bool,
    /// Permission bits.
    pub mode: bool,
    /// User or group.
    pub owner: bool,
    /// Extended attributes (`user.*`, capabilities, access control lists).
    pub xattrs: bool,
    /// The time of last modification; for anything but a directory.
    pub mtime: bool,
    /// Which other names it is a hard link of.
    pub links: bool,
}

impl Differs {
    /// Whether anything differs.
    pub fn any(self) -> bool {
        self.content || self.mode || self.owner || self.xattrs || self.mtime || self.links
    }
}

/// What an entry does to the host by its attributes alone, wherever it is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grants {
    /// A file that runs with its owner's or group's rights, whoever starts it.
    SetId,
    /// A file that runs with capabilities.
    Capability,
    /// Attributes by which an overlay over this tree would hide, redirect or refuse what is there:
    /// the next branch would not see the directory as it is.
    OverlayMark,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Change {
    /// The path relative to the disk, as bytes: never assumed to be UTF-8. Empty for the root
    /// directory itself.
    #[serde(with = "crate::bytes")]
    pub path: PathBuf,
    /// What became of it.
    pub kind: ChangeKind,
    /// The type it has now; for a removed path the type it had.
    pub file_type: FileType,
    /// The type it had, where it existed.
    pub old_type: Option<FileType>,
    /// Bytes a commit has to write for it: a regular file's size when its content is new.
    pub size: u64,
    /// Mode now (permission, set-id and sticky bits); for a removed path what it was.
    pub mode: u32,
    /// Owner now.
    pub uid: u32,
    /// Group now.
    pub gid: u32,
    /// Time of last modification now.
    pub mtime: FileTime,
    /// Device number now, for a device node.
    pub rdev: (u32, u32),
    /// In what it differs, where it existed before.
    pub differs: Differs,
    /// Whether the topmost layer that holds it says that it was copied up from a lower one.
    /// `None` where it does not say (hard-linked files, removed paths, the copy fallback).
    pub had_lower: Option<bool>,
    /// For a removed path: it was a directory, and everything below went with it (not listed).
    pub subtree: bool,
    /// Changed files with the same number here are hard links of one file.
    pub link_group: Option<u32>,
    /// What it would grant on the host, if it is new in that.
    pub grants: Option<Grants>,
    /// Set by selection: why this change is not committed.
    pub withheld: Option<String>,
}

/// What a delta changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChangeSet {
    /// The changes, sorted by their components' bytes: a directory comes before what is in it.
    pub changes: Vec<Change>,
    /// Directories that exist on both sides and differ only in their time, with the time they have
    /// now. No change by itself; a commit that touches such a directory sets it.
    #[serde(with = "dir_times")]
    pub dir_times: Vec<(PathBuf, FileTime)>,
    /// Sum of the changes' sizes.
    pub bytes: u64,
    /// Candidates other than directories that turned out equal on both sides.
    pub skipped_noops: u64,
}

impl ChangeSet {
    /// The change of `path`, if it has one of its own.
    pub fn get(&self, path: &Path) -> Option<&Change> {
        let found = self
            .changes
            .binary_search_by(|change| order(&change.path, path))
            .ok()?;
        self.changes.get(found)
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Paths as bytes in the list of directory times.
mod dir_times {
    use super::FileTime;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::path::PathBuf;

    #[derive(Serialize, Deserialize)]
    struct Item(#[serde(with = "crate::bytes")] PathBuf, FileTime);

    pub(super) fn serialize<S: Serializer>(
        list: &[(PathBuf, FileTime)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|(path, time)| Item(path.clone(), *time)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(PathBuf, FileTime)>, D::Error> {
        let items = Vec::<Item>::deserialize(from)?;
        Ok(items
            .into_iter()
            .map(|Item(path, time)| (path, time))
            .collect())
    }
}

/// The order of changes: by components, each by its bytes, so that a directory comes before what is
/// in it and its subtree is contiguous.
pub fn order(a: &Path, b: &Path) -> std::cmp::Ordering {
    let (a, b) = (a.as_os_str().as_bytes(), b.as_os_str().as_bytes());
    a.split(|&c| c == b'/').cmp(b.split(|&c| c == b'/'))
}

/// How a diff is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct DiffOptions {
    /// The layers hold `user.overlay.*` marks (see [`crate::MountOptions::userxattr`]).
    pub userxattr: bool,
}
