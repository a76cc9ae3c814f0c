//! Opening and listing directories beneath a descriptor, at any depth and with few descriptors.

use forkpoint_sys::openat;
use rustix::fs::{Dir, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The longest path given to the kernel at once (it takes 4,095 bytes).
const AT_ONCE: usize = 4000;

/// Opens the directory `path` beneath `root` with `O_PATH`. A symbolic link on the way or at its
/// end is refused (`ELOOP`), so is another mount (`EXDEV`).
pub(crate) fn dir(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    open(root, path, OFlags::PATH | OFlags::DIRECTORY)
}

/// As [`dir`], for listing or syncing.
pub(crate) fn readable_dir(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    open(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens `path` beneath `root`; see [`dir`].
pub(crate) fn open(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut rest = path.as_os_str().as_bytes();
    let mut at: Option<OwnedFd> = None;
    while rest.len() > AT_ONCE {
        let Some(cut) = rest[..AT_ONCE].iter().rposition(|&b| b == b'/') else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        let from = at.as_ref().map_or(root, AsFd::as_fd);
        let part = Path::new(OsStr::from_bytes(&rest[..cut]));
        let way = OFlags::PATH | OFlags::DIRECTORY;
        let next = openat::beneath_same_mount(from, part, way, Mode::empty())?;
        at = Some(next);
        rest = &rest[cut + 1..];
    }
    let from = at.as_ref().map_or(root, AsFd::as_fd);
    openat::beneath_same_mount(
        from,
        Path::new(OsStr::from_bytes(rest)),
        flags,
        Mode::empty(),
    )
}

/// The names in an open directory (opened for reading), sorted by their bytes.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort_unstable();
    Ok(names)
}
