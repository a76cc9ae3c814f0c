//! What lies in an upper directory, without comparing it with anything: the list of what was written
//! outside a world's disks, and whether a layer holds a renamed directory.

use crate::tree::Cursor;
use crate::{bytes, codes};
use forkpoint_model::Result;
use forkpoint_sys::{openat, xattr};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What was written below one directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Written {
    /// Entries that are not directories; whiteouts count.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first of them, relative to the directory.
    #[serde(with = "bytes::list")]
    pub paths: Vec<PathBuf>,
}

/// Lists what an upper holds; at most `limit` paths.
///
/// # Errors
/// `FP0203` when a directory cannot be read.
pub fn written(upper: &Path, limit: usize) -> Result<Written> {
    let mut found = Written::default();
    walk(upper, |path, meta, _| {
        if !meta.is_dir() {
            found.files += 1;
            found.bytes += meta.size;
            if found.paths.len() < limit {
                found.paths.push(path.to_owned());
            }
        }
        Ok(true)
    })
    .map_err(|e| codes::READ.io(format_args!("cannot list {}", upper.display()), e))?;
    Ok(found)
}

/// Whether a layer made by root holds a directory that was renamed, which overlayfs finds in the
/// layers below by its old name.
///
/// # Errors
/// `FP0203` when a directory cannot be read.
pub fn has_redirect(layer: &Path) -> Result<bool> {
    let mut found = false;
    walk(layer, |_, meta, (dir, name)| {
        if meta.is_dir() && xattr::get(dir, name, OsStr::new("trusted.overlay.redirect"))?.is_some()
        {
            found = true;
        }
        Ok(!found)
    })
    .map_err(|e| codes::READ.io(format_args!("cannot list {}", layer.display()), e))?;
    Ok(found)
}

/// Calls `each` with every entry below `dir` until it says no.
fn walk(
    dir: &Path,
    mut each: impl FnMut(
        &Path,
        &openat::Meta,
        (std::os::fd::BorrowedFd<'_>, &OsStr),
    ) -> io::Result<bool>,
) -> io::Result<()> {
    let root = openat::directory(dir)?;
    let mut cursor = Cursor::new(root.as_fd())?;
    let mut here = PathBuf::new();
    let mut pending: Vec<Vec<OsString>> = vec![Vec::new()];
    let mut list = true;
    while let Some(level) = pending.last_mut() {
        if list {
            for entry in cursor.names()? {
                let Some(meta) = openat::stat_opt(cursor.fd(), &entry.name)? else {
                    continue;
                };
                if !each(&here.join(&entry.name), &meta, (cursor.fd(), &entry.name))? {
                    return Ok(());
                }
                if meta.is_dir() {
                    level.push(entry.name);
                }
            }
            list = false;
        }
        if let Some(next) = level.pop() {
            cursor.enter(&next)?;
            here.push(&next);
            pending.push(Vec::new());
            list = true;
        } else {
            pending.pop();
            if !pending.is_empty() {
                cursor.leave()?;
                here.pop();
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn all_that_was_written_is_counted_and_the_list_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for name in ["1", "a/2", "a/b/3"] {
            fs::write(dir.path().join(name), "xy").unwrap();
        }
        let found = written(dir.path(), 2).unwrap();
        assert_eq!((found.files, found.bytes, found.paths.len()), (3, 6, 2));
        assert!(!has_redirect(dir.path()).unwrap());
    }
}
