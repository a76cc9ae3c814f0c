//! The init executable, carried inside this library.

use crate::codes::HOST_IO;
use forkpoint_model::Result;
use forkpoint_sys::memfd;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forkpoint-init"));

/// Made on first use and kept: making it copies a megabyte.
static PROGRAM: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// The name of a kept copy: another image has another one.
const KEPT: &str = concat!("forkpoint-init-", env!("FORKPOINT_INIT_HASH"));

/// Where a copy is kept between processes.
static KEPT_IN: OnceLock<PathBuf> = OnceLock::new();

/// Keeps a copy of the init executable in `dir`, from which it is started from now on: a process
/// that starts one branch and ends would otherwise spend much of its time on making the executable.
/// The directory must be the caller's alone, as a store is. The first call counts.
pub fn keep_program_in(dir: &Path) {
    KEPT_IN.get_or_init(|| dir.to_owned());
}

/// Where an unnamed file can be executed when anonymous memory may not.
const FALLBACKS: &[&str] = &["/dev/shm", "/var/tmp", "/tmp"];

/// A descriptor of the executable.
pub(crate) fn program(near: Option<&Path>) -> Result<OwnedFd> {
    let mut kept = PROGRAM.lock().unwrap_or_else(|e| e.into_inner());
    if kept.is_none() {
        // Without a kept copy it is made each time: slower, and as good.
        let copy = KEPT_IN.get().and_then(|dir| copy_in(dir).ok());
        *kept = Some(copy.map_or_else(|| make(near), Ok)?);
    }
    let program = kept.as_ref().map(AsFd::as_fd);
    let copy = program.map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned());
    copy.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
        .map_err(|e| HOST_IO.io("cannot copy a descriptor", e))
}

fn make(near: Option<&Path>) -> Result<OwnedFd> {
    let first = match memfd::executable("forkpoint-init", IMAGE) {
        Ok(fd) => return Ok(fd),
        Err(e) => e,
    };
    let dirs = near.into_iter().chain(FALLBACKS.iter().map(Path::new));
    for dir in dirs {
        if let Ok(fd) = in_directory(dir) {
            return Ok(fd);
        }
    }
    Err(HOST_IO
        .io("cannot make init's executable", first)
        .hint("`sysctl vm.memfd_noexec=1`, or a store on a file system without `noexec`"))
}

/// The kept copy, made if it is missing. One that is not exactly the caller's own, or not whole, is
/// not used.
fn copy_in(dir: &Path) -> io::Result<OwnedFd> {
    let path = dir.join(KEPT);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = || rustix::fs::open(&path, flags, Mode::empty());
    let fd = match open() {
        Err(rustix::io::Errno::NOENT) => {
            make_copy(dir, &path)?;
            open()?
        }
        other => other?,
    };
    let meta = rustix::fs::fstat(&fd)?;
    let own = meta.st_uid == rustix::process::geteuid().as_raw();
    let whole = meta.st_size == IMAGE.len() as i64 && meta.st_mode & 0o7777 == 0o500;
    let executable = !rustix::fs::fstatvfs(&fd)?
        .f_flag
        .contains(StatVfsMountFlags::NOEXEC);
    if own && whole && executable {
        return Ok(fd);
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Written and synced before it has its name, so that a whole one is all that can be found.
fn make_copy(dir: &Path, path: &Path) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::from_raw_mode(0o500))?;
    let mut file = std::fs::File::from(fd);
    io::Write::write_all(&mut file, IMAGE)?;
    file.sync_all()?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o500))?;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let (cwd, follow) = (rustix::fs::CWD, rustix::fs::AtFlags::SYMLINK_FOLLOW);
    match rustix::fs::linkat(cwd, link, cwd, path, follow) {
        // Another process was faster.
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// An unnamed file in `dir`, opened for reading only: one open for writing is not executed.
fn in_directory(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::from_raw_mode(0o500))?;
    io::Write::write_all(&mut std::fs::File::from(fd.try_clone()?), IMAGE)?;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let again = rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(again)
}
