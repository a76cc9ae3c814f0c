//! The branch's socket inside, `/run/forkpoint/sock`. Init only makes it: an engine that serves the
//! branch takes the listener over the control socket and accepts from it, so that no request is ever
//! read in here. Until somebody serves, connections wait. The socket takes no descriptors: whoever
//! could pass one in could hand a branch's file to another branch.

use forkpoint_sys::scm;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Where it is.
pub const PATH: &str = "/run/forkpoint/sock";

/// So many connections wait to be accepted; whoever comes after waits in `connect`.
const WAITING: i32 = 64;

/// Binds it, in init's new root.
pub fn make() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&listener, &SocketAddrUnix::new(PATH)?)?;
    rustix::fs::chmod(PATH, rustix::fs::Mode::from_raw_mode(0o666))?;
    scm::refuse_descriptors(listener.as_fd())?;
    listen(&listener, WAITING)?;
    Ok(listener)
}
