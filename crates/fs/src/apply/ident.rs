//! Who a file is, and in what state: what redo and undo compare before they touch anything.

use crate::delta::FileTime;
use forkpoint_sys::{handle, openat, xattr};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A file's identity, which no other file ever has while this one exists: its handle (inode and
/// generation), or inode and birth time where the file system has no handles.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub Vec<u8>);

/// Marks an identity made of inode and birth time. No file system uses this handle type.
const NO_HANDLE: i32 = -1;

impl FileId {
    /// The identity of the entry `name` of `dir` (`dir` itself for an empty name).
    pub fn at(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Self> {
        match handle::at(dir, name) {
            Ok(bytes) => Ok(Self(bytes)),
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                let meta = openat::stat(dir, name)?;
                let birth = meta.btime.unwrap_or_default();
                let mut bytes = NO_HANDLE.to_le_bytes().to_vec();
                bytes.extend_from_slice(&meta.ino.to_le_bytes());
                bytes.extend_from_slice(&birth.secs.to_le_bytes());
                bytes.extend_from_slice(&birth.nanos.to_le_bytes());
                Ok(Self(bytes))
            }
            Err(e) => Err(e),
        }
    }

    /// As [`FileId::at`], `None` where there is no such entry.
    pub fn at_opt(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Self>> {
        match Self::at(dir, name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }
}

/// A file's state at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ident {
    /// Who it is.
    pub id: FileId,
    /// Type and permission bits (`st_mode`).
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Size in bytes; 0 for a directory, where it means nothing.
    pub size: u64,
    /// Last change of content; for a directory of its own entries.
    pub mtime: FileTime,
    /// Last change of anything. A rename sets it.
    pub ctime: FileTime,
    /// For a directory: pins everything below it. For git's index as a commit writes it: its entries,
    /// by which a mere refresh of it is told from a change.
    pub below: Option<[u8; 32]>,
}

impl Ident {
    /// The state of the entry `name` of `dir`, or `None` where there is none. `below` is not
    /// filled in.
    pub fn at(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Self>> {
        let Some(id) = FileId::at_opt(dir, name)? else {
            return Ok(None);
        };
        let Some(meta) = openat::stat_opt(dir, name)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            id,
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            nlink: if meta.is_dir() { 0 } else { meta.nlink },
            size: if meta.is_dir() { 0 } else { meta.size },
            mtime: meta.mtime.into(),
            ctime: meta.ctime.into(),
            below: None,
        }))
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        rustix::fs::FileType::from_raw_mode(self.mode) == rustix::fs::FileType::Directory
    }

    /// Whether `now`, read after a rename, is still this file in this state. The rename itself set
    /// the ctime (and other links may have gone or come with it), so those are not compared; nor is
    /// a directory's mtime, which an exchange on XFS sets: what is below it is pinned by `below`.
    pub fn same_but_renamed(&self, now: &Self) -> bool {
        (&self.id, self.mode, self.uid, self.gid, self.size)
            == (&now.id, now.mode, now.uid, now.gid, now.size)
            && (self.is_dir() || self.mtime == now.mtime)
    }

    /// Whether `now` is this file, untouched. One of several links is compared without its ctime,
    /// which a rename of another link sets.
    pub fn untouched(&self, now: &Self) -> bool {
        self.same_but_renamed(now) && (self.nlink > 1 || self.ctime == now.ctime)
    }
}

/// The attributes of a file that are changed in place, without a new file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attrs {
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Extended attributes, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attrs {
    /// The attributes of the entry `name` of `dir` (`dir` itself for an empty name).
    pub fn at(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Self> {
        let meta = openat::stat(dir, name)?;
        Ok(Self {
            mode: meta.permissions(),
            uid: meta.uid,
            gid: meta.gid,
            xattrs: xattrs(dir, name)?,
        })
    }

    /// Whether each attribute of `now` is as here or as in `other`: the state of a change from one
    /// to the other that was stopped half way, and nobody else's work.
    pub fn between(&self, other: &Self, now: &Self) -> bool {
        let either = |a, b, now| now == a || now == b;
        let known = |list: &[(Vec<u8>, Vec<u8>)], entry: &(Vec<u8>, Vec<u8>)| list.contains(entry);
        // Changing an owner clears set-id bits until the mode is set again.
        let mode = [self.mode, other.mode]
            .iter()
            .any(|m| now.mode == *m || now.mode == m & 0o1777);
        mode && either(self.uid, other.uid, now.uid)
            && either(self.gid, other.gid, now.gid)
            && now
                .xattrs
                .iter()
                .all(|x| known(&self.xattrs, x) || known(&other.xattrs, x))
    }
}

/// Every extended attribute of an entry that is [`carried`], sorted.
pub(crate) fn xattrs(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let all = if name.is_empty() {
        let mut all = Vec::new();
        for key in xattr::list_fd(dir)? {
            if let Some(value) = xattr::get_fd(dir, &key)? {
                all.push((key, value));
            }
        }
        all
    } else {
        xattr::all(dir, name)?
    };
    let carried = all.into_iter().filter(|(key, _)| carried(key));
    Ok(carried
        .map(|(key, value)| (OsString::into_vec(key), value))
        .collect())
}

/// A name out of a journal.
pub(crate) fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Whether an extended attribute belongs to a file rather than to the system it lies on: the
/// user's, capabilities, access lists, and root's own (never the overlay's marks).
pub(crate) fn carried(key: &OsStr) -> bool {
    let bytes = key.as_bytes();
    xattr::in_namespace(key, "user")
        || bytes == b"security.capability"
        || bytes.starts_with(b"system.posix_acl_")
        || (xattr::in_namespace(key, "trusted") && !bytes.starts_with(b"trusted.overlay."))
}
