//! Capabilities, and acting on files as another id.

use std::io;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: two words a set.
const VERSION: u32 = 0x2008_0522;

/// Effective, permitted and inheritable set, low words first.
type Sets = [u32; 6];

fn get() -> io::Result<Sets> {
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut sets: Sets = [0; 6];
    // SAFETY: both have the layout version 3 asks for and outlive the call.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, &raw mut sets) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(sets)
}

fn set(sets: &Sets) -> io::Result<()> {
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    // SAFETY: both have the layout version 3 asks for and outlive the call.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, &raw const *sets) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Runs `act` with this thread's file-system ids changed and its capabilities kept (the kernel
/// drops those over files when the id leaves 0). The ids are set back afterwards. An overlay takes
/// the ids of its mounter, so one over id-mapped layers is mounted this way.
pub fn with_fs_ids<T>(uid: u32, gid: u32, act: impl FnOnce() -> T) -> io::Result<T> {
    let mut sets = get()?;
    let before = sets;
    // SAFETY: take and return numbers; they change this thread only.
    let (old_uid, old_gid) = unsafe {
        let old_gid = libc::syscall(libc::SYS_setfsgid, gid);
        (libc::syscall(libc::SYS_setfsuid, uid), old_gid)
    };
    sets[0] = sets[1];
    sets[3] = sets[4];
    // Word order of the kernel is effective, permitted, inheritable for the low word, then again.
    set(&sets)?;
    let result = act();
    // SAFETY: as above.
    unsafe {
        libc::syscall(libc::SYS_setfsuid, old_uid);
        libc::syscall(libc::SYS_setfsgid, old_gid);
    }
    set(&before)?;
    Ok(result)
}

/// This thread's file-system ids, user and group.
pub fn fs_ids() -> (u32, u32) {
    // SAFETY: an id that nobody can have is refused, and the present one returned; no memory is
    // touched.
    let (uid, gid) = unsafe {
        (
            libc::syscall(libc::SYS_setfsuid, u32::MAX),
            libc::syscall(libc::SYS_setfsgid, u32::MAX),
        )
    };
    (uid as u32, gid as u32)
}

/// Whether this thread has any effective capability.
pub fn any_effective() -> io::Result<bool> {
    let sets = get()?;
    Ok(sets[0] != 0 || sets[3] != 0)
}
