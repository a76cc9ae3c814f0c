//! File handles: what the kernel calls a file that outlives names. On the usual file systems a
//! handle holds inode and generation, so it is never reused for another file, unlike the inode
//! number alone.

use crate::openat::c_name;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kernel's own bound on a handle, in bytes.
const MAX: usize = 128;

#[repr(C, align(8))]
struct Raw {
    handle_bytes: u32,
    handle_type: i32,
    handle: [u8; MAX],
}

/// The handle of the entry `name` of `dir`, itself if it is a symbolic link. An empty name means
/// `dir`'s own. The bytes are the handle's type (4, little endian) and the handle; they compare
/// equal exactly for the same file of the same file system.
///
/// `EOPNOTSUPP` where the file system has no handles.
pub fn at(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Vec<u8>> {
    let flags = if name.is_empty() {
        libc::AT_EMPTY_PATH
    } else {
        0
    };
    let name = c_name(name)?;
    let mut raw = Raw {
        handle_bytes: MAX as u32,
        handle_type: 0,
        handle: [0; MAX],
    };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: `raw` has the layout of `struct file_handle` followed by `handle_bytes` writable
    // bytes; `name` is NUL-terminated and `mount_id` is a valid int; all live through the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut raw,
            &raw mut mount_id,
            flags,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let len = (raw.handle_bytes as usize).min(MAX);
    let mut bytes = Vec::with_capacity(4 + len);
    bytes.extend_from_slice(&raw.handle_type.to_le_bytes());
    bytes.extend_from_slice(&raw.handle[..len]);
    Ok(bytes)
}

/// The handle of an open file (any descriptor, `O_PATH` too).
pub fn of(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    at(fd, OsStr::new(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_handle_follows_the_file_and_not_the_name() {
        let dir = tempfile::tempdir().expect("tempdir");
        let fd = std::fs::File::open(dir.path()).expect("open");
        std::fs::write(dir.path().join("a"), "1").expect("write");
        let first = match at(fd.as_fd(), OsStr::new("a")) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                eprintln!("SKIP: no file handles here");
                return;
            }
            other => other.expect("handle"),
        };
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).expect("rename");
        assert_eq!(at(fd.as_fd(), OsStr::new("b")).expect("handle"), first);
        std::fs::remove_file(dir.path().join("b")).expect("remove");
        std::fs::write(dir.path().join("a"), "2").expect("write");
        assert_ne!(at(fd.as_fd(), OsStr::new("a")).expect("handle"), first);
        assert!(of(fd.as_fd()).is_ok());
    }
}
