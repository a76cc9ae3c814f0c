//! Whether two files hold the same bytes.

use crate::tree::open_regular;
use forkpoint_sys::ioctl;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes compared at once.
const CHUNK: usize = 128 * 1024;

type At<'a> = (BorrowedFd<'a>, &'a OsStr);

/// Whether two regular files, both of `size` bytes, hold the same. Reads up to the first
/// difference, and skips where both have a hole.
pub(super) fn equal(a: At<'_>, b: At<'_>, size: u64) -> io::Result<bool> {
    if size == 0 {
        return Ok(true);
    }
    let (a, _) = open_regular(a.0, a.1)?;
    let (b, _) = open_regular(b.0, b.1)?;
    let (a, b) = (a.as_fd(), b.as_fd());
    let mut buffers = (Vec::new(), Vec::new());
    let mut offset = 0;
    loop {
        let (in_a, in_b) = (
            ioctl::next_data(a, offset, size)?,
            ioctl::next_data(b, offset, size)?,
        );
        // The nearest stretch that is data on either side; a hole on the other reads as zeroes.
        let (start, end) = match (in_a, in_b) {
            (None, None) => return Ok(true),
            (Some(only), None) | (None, Some(only)) => (only.start, only.end),
            (Some(a), Some(b)) if a.start < b.start => (a.start, a.end),
            (Some(_), Some(b)) => (b.start, b.end),
        };
        if !equal_stretch(a, b, start, end, &mut buffers)? {
            return Ok(false);
        }
        offset = end;
    }
}

fn equal_stretch(
    a: BorrowedFd<'_>,
    b: BorrowedFd<'_>,
    mut offset: u64,
    end: u64,
    buffers: &mut (Vec<u8>, Vec<u8>),
) -> io::Result<bool> {
    while offset < end {
        let want = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
        read(a, &mut buffers.0, want, offset)?;
        read(b, &mut buffers.1, want, offset)?;
        if buffers.0 != buffers.1 {
            return Ok(false);
        }
        offset += want as u64;
    }
    Ok(true)
}

/// Reads exactly `want` bytes, or fewer at the end of the file.
fn read(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>, want: usize, offset: u64) -> io::Result<()> {
    buffer.resize(want, 0);
    let mut done = 0;
    while done < want {
        match rustix::io::pread(fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    buffer.truncate(done);
    Ok(())
}
