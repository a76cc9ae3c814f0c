//! Entering namespaces and setting them up.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Enters the namespace behind `fd`, which must be of the kind `kind` (a `CLONE_NEW*` bit). For
/// single-threaded programs: only the calling thread enters.
pub fn enter(fd: BorrowedFd<'_>, kind: u64) -> io::Result<()> {
    // SAFETY: takes numbers. Entering can change what paths and ids mean to this thread, but no
    // memory.
    if unsafe { libc::setns(fd.as_raw_fd(), kind as libc::c_int) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Leaves the given namespaces (`CLONE_NEW*` bits) for new ones.
pub fn leave(kinds: u64) -> io::Result<()> {
    // SAFETY: takes numbers; the flags are namespaces only, never the sharing of descriptors.
    if unsafe { libc::unshare(kinds as libc::c_int) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Brings the loopback interface of this network namespace up.
pub fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: plain bytes and unions of them, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: SIOCSIFFLAGS reads an `ifreq`, which is valid across the call.
    if unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS as _, &raw const request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Drops all supplementary groups of this thread.
pub fn drop_groups() -> io::Result<()> {
    // SAFETY: zero groups: the list is not read. The raw call changes this thread only, which is
    // the only one of its program.
    let done = unsafe { libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<u32>()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets real, effective and saved group and user id of this thread.
pub fn become_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: take numbers. The raw calls change this thread only.
    let (group, user) = unsafe {
        let group = libc::syscall(libc::SYS_setresgid, gid, gid, gid);
        if group < 0 {
            return Err(io::Error::last_os_error());
        }
        (group, libc::syscall(libc::SYS_setresuid, uid, uid, uid))
    };
    if group < 0 || user < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
