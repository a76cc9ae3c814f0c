//! Removing a tree whatever is in it: directories without permissions, names of any bytes, any
//! depth.

use super::cursor::Cursor;
use crate::codes;
use forkpoint_model::Result;
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Removes `path` and everything below it. A symbolic link is removed, never followed; that there
/// is nothing at `path` is no error.
pub fn remove(path: &Path) -> Result<()> {
    remove_path(path)
        .map_err(|e| codes::WRITE.io(format_args!("cannot remove {}", path.display()), e))
}

fn remove_path(path: &Path) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path names no entry",
        ));
    };
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let above = match forkpoint_sys::openat::directory(above) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut cursor = Cursor::new(above.as_fd())?;
    match rustix::fs::unlinkat(cursor.fd(), name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    remove_below(&mut cursor, name)
}

/// Removes the directory `name` of where `cursor` is.
fn remove_below(cursor: &mut Cursor, name: &OsStr) -> io::Result<()> {
    // For each directory entered: its name and the directories still to be removed in it.
    let mut open: Vec<(OsString, Vec<OsString>)> = Vec::new();
    cursor.force_enter(name)?;
    open.push((name.to_owned(), unlink_files(cursor)?));
    while let Some((_, pending)) = open.last_mut() {
        if let Some(next) = pending.pop() {
            // Most directories of a delta are small; an empty one goes without being opened.
            match rustix::fs::unlinkat(cursor.fd(), &next, AtFlags::REMOVEDIR) {
                Ok(()) => continue,
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => {}
                Err(errno) => return Err(errno.into()),
            }
            cursor.force_enter(&next)?;
            let below = unlink_files(cursor)?;
            open.push((next, below));
        } else if let Some((done, _)) = open.pop() {
            cursor.leave()?;
            unlink(cursor, &done, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

/// Removes what is not a directory where `cursor` is, and returns the names of the directories.
fn unlink_files(cursor: &Cursor) -> io::Result<Vec<OsString>> {
    let mut directories = Vec::new();
    for entry in cursor.names()? {
        if entry.kind == FileType::Directory {
            directories.push(entry.name);
            continue;
        }
        match unlink(cursor, &entry.name, AtFlags::empty()) {
            Ok(()) => {}
            // A file system that does not tell types in its listing.
            Err(e) if entry.kind == FileType::Unknown && is_directory_error(&e) => {
                directories.push(entry.name);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(directories)
}

fn is_directory_error(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::ISDIR | Errno::PERM)
    )
}

fn unlink(cursor: &Cursor, name: &OsStr, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(cursor.fd(), name, flags) {
        Err(Errno::ACCESS) => {
            rustix::fs::fchmod(cursor.fd(), Mode::RWXU)?;
            Ok(rustix::fs::unlinkat(cursor.fd(), name, flags)?)
        }
        other => Ok(other?),
    }
}
