//! Locks of single bytes of a file, held by an open file description (`F_OFD_SETLK`, `F_OFD_SETLKW`).
//!
//! One file can so hold a lock for each of very many things, none of which needs a file of its own.
//! As with `flock`, two descriptions exclude each other also within one process, and the kernel lets
//! go when the last descriptor of the holder is closed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Takes the lock of byte `at` for this open file description alone, without waiting. False where
/// another description holds it. The file must be open for writing; it need not be that long.
///
/// # Errors
/// What the kernel says, apart from the lock being held; `InvalidInput` for an offset it cannot
/// express.
pub fn try_lock(file: BorrowedFd<'_>, at: u64) -> io::Result<bool> {
    match set(file, at, libc::F_WRLCK, libc::F_OFD_SETLK) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// As [`try_lock`], but waits while another description holds it. The kernel looks for no deadlock.
///
/// # Errors
/// What the kernel says; `InvalidInput` for an offset it cannot express.
pub fn lock(file: BorrowedFd<'_>, at: u64) -> io::Result<()> {
    loop {
        match set(file, at, libc::F_WRLCK, libc::F_OFD_SETLKW) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Lets go of the lock of byte `at`. One that is not held is no error.
///
/// # Errors
/// What the kernel says.
pub fn unlock(file: BorrowedFd<'_>, at: u64) -> io::Result<()> {
    set(file, at, libc::F_UNLCK, libc::F_OFD_SETLK)
}

fn set(file: BorrowedFd<'_>, at: u64, kind: libc::c_int, how: libc::c_int) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let lock = libc::flock {
        l_type: libc::c_short::try_from(kind).map_err(invalid)?,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::try_from(at).map_err(invalid)?,
        l_len: 1,
        // The kernel refuses anything else for these locks.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for the call's length, and the kernel only reads `lock`.
    match unsafe { libc::fcntl(file.as_raw_fd(), how, &lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;
    use std::path::Path;

    fn open(path: &Path) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(path).unwrap()
    }

    #[test]
    fn a_byte_is_held_by_one_description_and_others_are_free() {
        let path = std::env::temp_dir().join(format!("range-lock-{}", std::process::id()));
        let (one, two) = (open(&path), open(&path));
        let far = (1 << 40) - 1;
        assert!(try_lock(one.as_fd(), 7).unwrap());
        assert!(try_lock(one.as_fd(), far).unwrap());
        assert!(!try_lock(two.as_fd(), 7).unwrap());
        assert!(try_lock(two.as_fd(), 8).unwrap());
        unlock(one.as_fd(), 7).unwrap();
        assert!(try_lock(two.as_fd(), 7).unwrap());
        let waits = std::thread::spawn({
            let path = path.clone();
            move || lock(open(&path).as_fd(), 8)
        });
        unlock(two.as_fd(), 8).unwrap();
        waits.join().unwrap().unwrap();
        drop(one);
        assert!(try_lock(two.as_fd(), far).unwrap(), "closing lets go");
        let beyond = try_lock(two.as_fd(), u64::MAX).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::InvalidInput);
        std::fs::remove_file(path).unwrap();
    }
}
