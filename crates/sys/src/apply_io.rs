//! Writing a file's data back to its device without waiting for anything else.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Starts to write the dirty pages of `fd` to the device (`sync_file_range`); with `wait`, returns
/// when they are written. It makes nothing durable by itself: neither size nor allocation of the
/// file, nor the device's cache. A following `fsync` does, and finds little left to do.
pub fn write_back(fd: BorrowedFd<'_>, wait: bool) -> io::Result<()> {
    let mut flags = libc::SYNC_FILE_RANGE_WRITE;
    if wait {
        flags |= libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    }
    // SAFETY: the call takes a descriptor, which lives through it, and plain numbers.
    let done = unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, flags) };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // What cannot be started early is left to fsync.
        Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn writing_back_takes_a_file_and_leaves_a_directory_to_fsync() {
        let mut file = tempfile::tempfile().expect("tempfile");
        file.write_all(&[1; 8192]).expect("write");
        write_back(file.as_fd(), false).expect("start");
        write_back(file.as_fd(), true).expect("wait");
        let dir = std::fs::File::open(std::env::temp_dir()).expect("open");
        write_back(dir.as_fd(), true).expect("a directory has no pages to wait for");
    }
}
