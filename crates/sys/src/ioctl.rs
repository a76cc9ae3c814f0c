//! Calls on open files: reflinks, holes, and the simulated power loss of the crash tests.

use rustix::fs::{self as rfs, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes `dst` share all of `src`'s blocks (`FICLONE`). Both must be regular files of one file
/// system. [`no_reflink`] tells an error that means "cannot here" from one that matters.
pub fn clone_file(dst: BorrowedFd<'_>, src: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rfs::ioctl_ficlone(dst, src)?)
}

/// Whether an error of [`clone_file`] only says that this pair of files cannot share blocks.
pub fn no_reflink(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EOPNOTSUPP
                | libc::ENOTTY
                | libc::EXDEV
                | libc::EINVAL
                | libc::ENOSYS
                | libc::EPERM
        )
    )
}

/// The first stretch of data of `fd` at or after `from`, below `size`. `None`: only a hole is left.
/// A file system that knows no holes calls everything data. Moves the file's position.
pub fn next_data(fd: BorrowedFd<'_>, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if from >= size {
        return Ok(None);
    }
    let start = match rfs::seek(fd, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL) => return Ok(Some(from..size)),
        Err(errno) => return Err(errno.into()),
    };
    if start >= size {
        return Ok(None);
    }
    let end = rfs::seek(fd, SeekFrom::Hole(start))?;
    Ok(Some(start..end.min(size)))
}

/// How [`shutdown`] treats what is not on the device yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Write everything first.
    FlushAll,
    /// Write the journal first, not the data.
    FlushJournal,
    /// Write nothing more: as if the power had gone.
    PowerLoss,
}

/// Stops the file system (ext4 or XFS) that holds `fd` at once. Every later call on it fails until
/// it is mounted again. Needs the right to administer; for crash tests on a loop device.
pub fn shutdown(fd: BorrowedFd<'_>, how: Shutdown) -> io::Result<()> {
    // _IOR('X', 125, __u32), the same number for ext4 and XFS.
    const IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
    let flag: u32 = match how {
        Shutdown::FlushAll => 0,
        Shutdown::FlushJournal => 1,
        Shutdown::PowerLoss => 2,
    };
    // SAFETY: the kernel reads one u32 from the pointer, which `flag` outlives.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SHUTDOWN as _, &raw const flag) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn holes_are_seen() {
        let mut file = tempfile::tempfile().expect("tempfile");
        file.write_all(&[1; 4096]).expect("write");
        file.seek(io::SeekFrom::Start(1 << 20)).expect("seek");
        file.write_all(&[2; 4096]).expect("write");
        file.set_len(4 << 20).expect("truncate");
        let size = 4 << 20;
        let first = next_data(file.as_fd(), 0, size)
            .expect("seek")
            .expect("data");
        assert_eq!(first.start, 0);
        assert!(first.end <= 1 << 20);
        let second = next_data(file.as_fd(), first.end, size)
            .expect("seek")
            .expect("data");
        assert_eq!(second.start, 1 << 20);
        assert_eq!(
            next_data(file.as_fd(), second.end, size).expect("seek"),
            None
        );
        assert_eq!(next_data(file.as_fd(), size, size).expect("seek"), None);
    }

    #[test]
    fn a_file_system_that_cannot_share_says_so() {
        let (a, b) = (
            tempfile::tempfile().expect("a"),
            tempfile::tempfile().expect("b"),
        );
        if let Err(e) = clone_file(a.as_fd(), b.as_fd()) {
            assert!(no_reflink(&e), "{e}");
        }
    }
}
