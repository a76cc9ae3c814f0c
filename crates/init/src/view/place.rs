//! Making mount points inside the new root, and mounting on them. A path inside is never followed
//! out of it, and a symbolic link on the way is refused where something is to be created.

use super::failed;
use forkpoint_model::Result;
use forkpoint_sys::{mount, openat};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// The path without its leading slash; one with `..` in it is refused.
fn relative(path: &Path) -> io::Result<&Path> {
    let rest = path.strip_prefix("/").unwrap_or(path);
    let plain = rest
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if plain {
        Ok(rest)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// Opens a directory of the new root, making it and its parents where absent.
pub(super) fn directory(root: BorrowedFd<'_>, path: &Path, mode: u32) -> Result<OwnedFd> {
    make_directory(root, path, mode)
        .map_err(|e| failed(format_args!("make {} inside", path.display()), e))
}

fn make_directory(root: BorrowedFd<'_>, path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let rest = relative(path)?;
    match openat::beneath(root, rest, DIR, Mode::empty()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let mut at = openat::beneath(root, Path::new(""), DIR, Mode::empty())?;
    for part in rest.components() {
        let name = Path::new(part.as_os_str());
        at = match openat::beneath(at.as_fd(), name, DIR, Mode::empty()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(mode))?;
                openat::beneath(at.as_fd(), name, DIR, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(at)
}

/// Opens a file of the new root, making it, empty, and its parents where absent.
pub(super) fn file(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    make_file(root, path).map_err(|e| failed(format_args!("make {} inside", path.display()), e))
}

fn make_file(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let rest = relative(path)?;
    let above = rest.parent().unwrap_or(Path::new(""));
    let name = Path::new(rest.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    let parent = make_directory(root, above, 0o755)?;
    match openat::beneath(parent.as_fd(), name, OFlags::PATH, Mode::empty()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)) {
        Ok(_) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    openat::beneath(parent.as_fd(), name, OFlags::PATH, Mode::empty())
}

/// Opens what a path inside leads to, following symbolic links within the new root. `None`: there
/// is nothing, or it cannot be reached.
pub(super) fn existing(root: BorrowedFd<'_>, path: &Path) -> io::Result<Option<OwnedFd>> {
    match openat::in_root(root, path, OFlags::PATH, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(e) => match Errno::from_io_error(&e) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(None),
            _ => Err(e),
        },
    }
}

/// The type of what is open.
pub(super) fn kind(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(openat::stat_fd(fd)?.mode))
}

/// Mounts on an open directory or file.
pub(super) fn on(mounted: BorrowedFd<'_>, target: BorrowedFd<'_>, path: &Path) -> Result<()> {
    mount::attach(mounted, target, Path::new(""))
        .map_err(|e| failed(format_args!("mount on {}", path.display()), e))
}
