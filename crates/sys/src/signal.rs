//! Signals by number: the caller's may be any, real-time ones included.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use libc::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGSTOP, SIGTERM};

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends a signal to the process behind `pidfd`; it cannot hit another one.
pub fn send(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: takes numbers; a null `siginfo` means that of `kill`.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            nothing,
            0,
        )
    })
}

/// Sends a signal to a process of this pid namespace by number.
pub fn send_pid(pid: u32, signal: i32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    if pid <= 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: takes numbers.
    check(unsafe { libc::kill(pid, signal) }.into())
}

/// Sends a signal to every process of the group that process `leader` of this pid namespace leads.
pub fn send_group(leader: u32, signal: i32) -> io::Result<()> {
    let pid =
        libc::pid_t::try_from(leader).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    if pid <= 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: takes numbers.
    check(unsafe { libc::kill(-pid, signal) }.into())
}

/// Sends a signal to every process of this pid namespace but pid 1, in one step. Only for pid 1
/// of a namespace: anyone else would hit everything it may signal. `false`: there was none.
pub fn send_all_from_init(signal: i32) -> io::Result<bool> {
    if std::process::id() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: takes numbers.
    match check(unsafe { libc::kill(-1, signal) }.into()) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        Err(e) => Err(e),
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: plain numbers; `sigemptyset` and `sigaddset` only write to the set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Blocks the signals and returns a descriptor that is readable when one of them arrived.
pub fn descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: `set` outlives the calls.
    unsafe {
        check(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()).into())?;
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(fd.into())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Takes what has arrived at a descriptor of [`descriptor`]; which signals does not matter here.
pub fn drain(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut buffer = [0u8; 1024];
    loop {
        match rustix::io::read(fd, &mut buffer) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Blocks no signal any more, and gives each of the given ones its default action: before an exec.
pub fn reset(signals: &[i32]) -> io::Result<()> {
    let none = set_of(&[]);
    // SAFETY: take numbers, and a set that outlives the call; no handler is installed.
    unsafe {
        for &signal in signals {
            libc::signal(signal, libc::SIG_DFL);
        }
        check(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()).into())
    }
}

/// Ignores a signal from now on.
pub fn ignore(signal: i32) {
    // SAFETY: takes numbers; no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}
