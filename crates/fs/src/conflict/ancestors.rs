//! The directories above a delta's paths: whether each still is the one the branch saw.

use super::check::{CheckOptions, PathConflict, absent, look, stamp_of};
use crate::codes;
use crate::delta::ChangeSet;
use crate::stamp::Stamp;
use forkpoint_model::Result;
use forkpoint_sys::{handle, openat, xattr};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Ancestors that are other directories than at the fork, each once.
///
/// A directory of an upper layer remembers the handle of the lower one it was copied from, which
/// settles it. Where the kernel recorded none (for ordinary users), a directory counts as another
/// one if it was born since, or if it and its parent's names changed but its own names did not
/// (renamed into place). A directory that was renamed into place _and_ got a new name in it is not
/// told from one that only got a new name.
pub(crate) fn swapped(
    root: BorrowedFd<'_>,
    changes: &ChangeSet,
    stamp: Stamp,
    options: &CheckOptions,
) -> Result<Vec<PathConflict>> {
    let above: BTreeSet<&Path> = changes
        .changes
        .iter()
        .flat_map(|change| change.path.ancestors().skip(1))
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    let mut found = Vec::new();
    for path in above {
        let other = is_other(root, path, stamp, options).map_err(|e| {
            let path = crate::bytes::escape(path.as_os_str().as_encoded_bytes());
            codes::READ.io(format_args!("cannot look at {path} in the base"), e)
        })?;
        if other {
            let why = "another directory stands here since the fork".to_owned();
            found.push(PathConflict {
                path: path.to_owned(),
                why,
            });
        }
    }
    Ok(found)
}

fn is_other(
    root: BorrowedFd<'_>,
    path: &Path,
    stamp: Stamp,
    options: &CheckOptions,
) -> io::Result<bool> {
    let Some((dir, name, meta)) = look(root, path)? else {
        return Ok(false);
    };
    if !meta.is_dir() || stamp_of(meta.ctime) < stamp {
        return Ok(false);
    }
    match origin(path, options)? {
        Origin::Handle(then) => return Ok(handle::at(dir.as_fd(), &name)? != then),
        // The branch made the directory itself; the check of its own change sees the base's.
        Origin::None => return Ok(false),
        Origin::Unknown => {}
    }
    if meta.btime.is_some_and(|birth| stamp_of(birth) >= stamp) {
        return Ok(true);
    }
    let own_names = stamp_of(meta.mtime) >= stamp;
    Ok(!own_names && names_changed(root, path, stamp)?)
}

/// Whether a name was added to or removed from the nearest existing ancestor of `path` since.
pub(crate) fn names_changed(root: BorrowedFd<'_>, path: &Path, stamp: Stamp) -> io::Result<bool> {
    for above in path.ancestors().skip(1) {
        if let Some((_, _, meta)) = look(root, above)? {
            return Ok(stamp_of(meta.ctime) >= stamp);
        }
    }
    Ok(false)
}

/// What a delta's layer says of the lower file that an entry was copied from.
pub(crate) enum Origin {
    /// Copied from the lower file with this handle.
    Handle(Vec<u8>),
    /// Copied from a lower file, or that cannot be told.
    Unknown,
    /// Not copied from any lower file.
    None,
}

/// What the lowest layer of the delta that has `path` says of where it was copied from.
pub(crate) fn origin(path: &Path, options: &CheckOptions) -> io::Result<Origin> {
    let key = if options.userxattr {
        "user.overlay.origin"
    } else {
        "trusted.overlay.origin"
    };
    let delta = options.layers.get(..options.top).unwrap_or_default();
    for layer in delta.iter().rev() {
        let root = openat::directory_path(layer)?;
        let found = match look(root.as_fd(), path) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(e) if absent(&e) => continue,
            Err(e) => return Err(e),
        };
        return Ok(
            match xattr::get(found.0.as_fd(), &found.1, OsStr::new(key))? {
                Some(value) => decode(&value).map_or(Origin::Unknown, Origin::Handle),
                None => Origin::None,
            },
        );
    }
    Ok(Origin::Unknown)
}

/// The handle in an overlay's `origin` attribute, as [`handle::at`] gives it. Layout (the kernel's
/// `struct ovl_fb`): version, magic 0xfb, length of all, flags, handle type, 16 bytes of file
/// system id, handle. Empty where the overlay may not take handles.
fn decode(value: &[u8]) -> Option<Vec<u8>> {
    const HEAD: usize = 21;
    if value.len() <= HEAD
        || value[0] != 0
        || value[1] != 0xfb
        || usize::from(value[2]) != value.len()
    {
        return None;
    }
    let mut handle = i32::from(value[4]).to_le_bytes().to_vec();
    handle.extend_from_slice(&value[HEAD..]);
    Some(handle)
}
