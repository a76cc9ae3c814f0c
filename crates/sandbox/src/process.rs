//! Processes by an identity that survives the reuse of pids and reboots.

use crate::codes::{HOST_IO, UNDEAD};
use forkpoint_init::ProcessIdentity;
use forkpoint_model::Result;
use forkpoint_sys::{clock, signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// How long the death of a killed pid namespace may take: processes in uninterruptible sleep end
/// when that does.
pub(crate) const DEATH_MS: u64 = 30_000;

fn boot_id() -> Result<&'static str> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if BOOT.get().is_none() {
        let read = clock::boot_id().map_err(|e| HOST_IO.io("cannot read the boot id", e))?;
        // Another thread may have been first, with the same text.
        BOOT.set(read).unwrap_or(());
    }
    Ok(BOOT.get().map_or("", String::as_str))
}

/// The identity of a process that is known to be alive or unreaped.
pub(crate) fn identify(pid: u32) -> Result<ProcessIdentity> {
    let start_time = clock::process_start_time(pid)
        .map_err(|e| HOST_IO.io(format!("cannot look at process {pid}"), e))?;
    Ok(ProcessIdentity {
        boot_id: boot_id()?.to_owned(),
        pid,
        start_time,
    })
}

/// A pidfd of exactly that process. `None`: it is gone. The start time is checked after the pidfd
/// was opened: from then on the pid cannot come to mean another process unnoticed.
pub(crate) fn open(process: &ProcessIdentity) -> Result<Option<OwnedFd>> {
    if process.boot_id != boot_id()? {
        return Ok(None);
    }
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else {
        return Ok(None);
    };
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
        Err(e) => return Err(HOST_IO.io(format!("cannot open process {}", process.pid), e)),
    };
    match clock::process_start_time(process.pid) {
        Ok(start) if start == process.start_time && !ended(fd.as_fd())? => Ok(Some(fd)),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        // What the process was when it was read ended meanwhile.
        Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(e) => Err(HOST_IO.io(format!("cannot look at process {}", process.pid), e)),
    }
}

/// Whether the process behind a pidfd has ended.
pub(crate) fn ended(pidfd: BorrowedFd<'_>) -> Result<bool> {
    wait(pidfd, 0)
}

/// Waits until a descriptor is readable. `false`: it was not, in that time.
pub(crate) fn wait(fd: BorrowedFd<'_>, ms: u64) -> Result<bool> {
    let deadline = clock::monotonic_ns().saturating_add(ms.saturating_mul(1_000_000));
    loop {
        let left = deadline.saturating_sub(clock::monotonic_ns());
        let timeout = Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        };
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(e) => return Err(HOST_IO.io("cannot wait for a process", e)),
        }
    }
}

/// Kills the process behind a pidfd, an init and with it everything inside, and waits until it is
/// dead: the pidfd of a pid namespace's init is readable only when the namespace is empty.
pub(crate) fn kill(pidfd: BorrowedFd<'_>) -> Result<()> {
    match signal::send(pidfd, signal::SIGKILL) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
        Err(e) => return Err(UNDEAD.io("cannot kill the sandbox's init", e)),
    }
    if wait(pidfd, DEATH_MS)? {
        return Ok(());
    }
    Err(UNDEAD
        .error(format!(
            "processes are still alive after {} s",
            DEATH_MS / 1000
        ))
        .hint("look for processes in state D: a device or network file system does not answer"))
}

/// Whether that very process lives.
pub fn is_alive(process: &ProcessIdentity) -> Result<bool> {
    Ok(open(process)?.is_some())
}

/// Readable once that very process, an init, is dead, and with it everything inside. `None`: it is
/// gone already.
pub fn process_end(process: &ProcessIdentity) -> Result<Option<OwnedFd>> {
    open(process)
}

/// Kills that very process, an init and with it everything inside, and waits until it is dead.
/// `false`: it was gone already.
pub fn kill_process(process: &ProcessIdentity) -> Result<bool> {
    let Some(pidfd) = open(process)? else {
        return Ok(false);
    };
    kill(pidfd.as_fd())?;
    Ok(true)
}
