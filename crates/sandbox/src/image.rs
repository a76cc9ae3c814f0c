//! The init executable, carried inside this library.

use crate::codes::HOST_IO;
use forkpoint_model::Result;
use forkpoint_sys::memfd;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forkpoint-init"));

/// Made on first use and kept: making it copies a megabyte.
static PROGRAM: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Where an unnamed file can be executed when anonymous memory may not.
const FALLBACKS: &[&str] = &["/dev/shm", "/var/tmp", "/tmp"];

/// A descriptor of the executable.
pub(crate) fn program(near: Option<&Path>) -> Result<OwnedFd> {
    let mut kept = PROGRAM.lock().unwrap_or_else(|e| e.into_inner());
    if kept.is_none() {
        *kept = Some(make(near)?);
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

/// An unnamed file in `dir`, opened for reading only: one open for writing is not executed.
fn in_directory(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::from_raw_mode(0o500))?;
    io::Write::write_all(&mut std::fs::File::from(fd.try_clone()?), IMAGE)?;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let again = rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(again)
}
