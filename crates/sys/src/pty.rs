//! Pseudo-terminals out of a given `devpts` instance.

use rustix::fs::{Mode, OFlags, openat};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A new terminal out of the `devpts` whose root is `root` (or of the one that a `ptmx` in a `/dev` leads to): its controlling end and its other end,
/// both closed on exec. Neither becomes anybody's controlling terminal.
pub fn open(root: BorrowedFd<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = openat(root, "ptmx", flags, Mode::empty())?;
    let unlocked: libc::c_int = 0;
    // SAFETY: the kernel reads one int from the pointer, which `unlocked` outlives.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let slave = peer(master.as_fd())?;
    Ok((master, slave))
}

/// Opens the other end of `master`, by no name: nobody can have put something else in its place.
fn peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes numbers; what comes back is a new descriptor or an error.
    let fd = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for us, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_at_one_end_is_read_at_the_other() {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        // Where the one in /dev/pts is closed to users, the one in /dev is not.
        let made = ["/dev/pts", "/dev"].into_iter().find_map(|dir| {
            let root = rustix::fs::open(dir, flags, Mode::empty()).ok()?;
            match open(root.as_fd()) {
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => None,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
                made => Some(made.expect("a terminal")),
            }
        });
        let Some((master, slave)) = made else {
            eprintln!("SKIP: there is no terminal for this user");
            return;
        };
        assert!(rustix::termios::isatty(&slave));
        rustix::io::write(&master, b"typed\n").expect("write");
        let mut buffer = [0; 16];
        assert_eq!(rustix::io::read(&slave, &mut buffer), Ok(6));
        drop(slave);
        // The echo is still there, then nothing but a hang-up.
        assert_eq!(rustix::io::read(&master, &mut buffer), Ok(7));
        assert_eq!(
            rustix::io::read(&master, &mut buffer),
            Err(rustix::io::Errno::IO)
        );
    }
}
