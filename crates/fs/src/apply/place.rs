//! The two places a journal speaks of, the base and the stage, opened and proven to be the ones.

use super::ident::FileId;
use super::journal::{Dir, Journal};
use super::walk;
use crate::codes;
use crate::conflict::PathConflict;
use forkpoint_model::Result;
use forkpoint_sys::openat;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The base and the stage of one journal.
pub(crate) struct Place<'j> {
    pub(crate) journal: &'j Journal,
    base: OwnedFd,
    pub(crate) stage: OwnedFd,
}

/// What stopped an operation: something to tell the user, who can mend it and go on.
pub(crate) type Blocked = PathConflict;

impl<'j> Place<'j> {
    /// Opens both.
    pub(crate) fn open(base: &Path, journal: &'j Journal) -> Result<Result<Self, Blocked>> {
        let opened = match openat::directory_path(base) {
            Ok(fd) => fd,
            Err(e) => return Ok(Err(blocked(Path::new(""), why(&e)))),
        };
        let stage = PathBuf::from(OsStr::from_bytes(&journal.stage));
        match FileId::at(opened.as_fd(), OsStr::new("")) {
            Ok(id) if id == journal.base => {}
            Ok(_) => {
                let text = "another directory stands in place of the base";
                return Ok(Err(blocked(Path::new(""), text)));
            }
            Err(e) => return Ok(Err(blocked(Path::new(""), why(&e)))),
        }
        let lost = |why: &dyn std::fmt::Display| {
            codes::STAGE_LOST
                .io(format!("{} cannot be used", stage.display()), why)
                .hint("bring the directory back from a backup, then resolve again")
        };
        let fd = openat::directory(&stage).map_err(|e| lost(&e))?;
        let id = FileId::at(fd.as_fd(), OsStr::new("")).map_err(|e| lost(&e))?;
        if id != journal.stage_id {
            return Err(lost(
                &"it is another directory than the one that was staged in",
            ));
        }
        Ok(Ok(Self {
            journal,
            base: opened,
            stage: fd,
        }))
    }

    /// A directory of the journal, if it still is the one it was.
    pub(crate) fn dir(&self, index: u32) -> Result<OwnedFd, Blocked> {
        let dir = self.record(index);
        let path = Path::new(OsStr::from_bytes(&dir.path));
        let fd = walk::dir(self.base.as_fd(), path).map_err(|e| blocked(path, why_dir(&e)))?;
        match FileId::at(fd.as_fd(), OsStr::new("")) {
            Ok(id) if id == dir.id => Ok(fd),
            Ok(_) => Err(blocked(path, "another directory stands here since")),
            Err(e) => Err(blocked(path, why(&e))),
        }
    }

    /// A directory's record. Indices were checked when the journal was read.
    pub(crate) fn record(&self, index: u32) -> &'j Dir {
        &self.journal.dirs[index as usize]
    }

    /// Where an original is kept, absolute.
    pub(crate) fn kept(&self, stage: &[u8]) -> PathBuf {
        Path::new(OsStr::from_bytes(&self.journal.stage)).join(OsStr::from_bytes(stage))
    }

    /// The path of an entry, relative to the base.
    pub(crate) fn path(&self, dir: u32, name: &[u8]) -> PathBuf {
        let dir = Path::new(OsStr::from_bytes(&self.record(dir).path));
        if name.is_empty() {
            dir.to_owned()
        } else {
            dir.join(OsStr::from_bytes(name))
        }
    }
}

/// A blocked path, relative to the base.
pub(crate) fn blocked(path: &Path, why: impl Into<String>) -> Blocked {
    PathConflict {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// What an error of the kernel means to a user.
pub(crate) fn why(error: &io::Error) -> String {
    use rustix::io::Errno;
    let text = match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => "no space left on its file system",
        Some(Errno::DQUOT) => "the disk quota is used up",
        Some(Errno::ACCESS) => "permission denied",
        Some(Errno::PERM) => "not permitted (an immutable file, or someone else's)",
        Some(Errno::ROFS) => "its file system is read-only",
        Some(Errno::BUSY) => "busy: something is mounted there",
        Some(Errno::TXTBSY) => "busy: it is being executed",
        Some(Errno::XDEV) => "it lies on another mount or file system",
        Some(Errno::LOOP) => "a symbolic link stands in the way",
        _ => return error.to_string(),
    };
    text.to_owned()
}

fn why_dir(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "the directory is gone".to_owned(),
        io::ErrorKind::NotADirectory => {
            "something else stands in place of the directory".to_owned()
        }
        _ => why(error),
    }
}
