//! Unix sockets: bytes with descriptors, and who is at the other end.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The most descriptors one call carries (the kernel's own bound is 253).
pub const MAX_FDS: usize = 32;

/// Sends bytes; descriptors go with the first of them. Returns how many bytes were taken.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(bytes)];
    Ok(rustix::io::retry_on_intr(|| {
        sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)
    })?)
}

/// Receives bytes, and descriptors onto the end of `fds`, closed on exec. 0: the other end closed.
/// Descriptors that do not fit are closed by the kernel.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(buffer)];
        recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(got.bytes)
}

/// Receives bytes and no descriptors: what is sent along is closed by the kernel.
pub fn receive_bytes(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (bytes, _) =
        rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()))?;
    Ok(bytes)
}

/// Lets no descriptor be sent to this socket (`SO_PASSRIGHTS`, Linux 6.16). `false`: the kernel
/// does not know how.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> io::Result<bool> {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    // SAFETY: the option's value is an `int`, valid across the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => Ok(false),
        _ => Err(error),
    }
}

/// Who connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its pid in our pid namespace; 0 where it is outside of it.
    pub pid: u32,
    /// Its user id in our user namespace; the overflow id where it has none there.
    pub uid: u32,
}

/// Who is at the other end of a connected socket, as of the time it connected.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    // SAFETY: plain numbers, for which zero is a valid value.
    let mut found: libc::ucred = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // rustix's wrapper cannot represent the pid 0 of a peer outside of our pid namespace.
    // SAFETY: both addresses are valid across the call and `len` is the size of the first.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &mut len,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer {
        pid: found.pid.unsigned_abs(),
        uid: found.uid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_with_their_bytes() {
        let (a, b) = UnixStream::pair().expect("pair");
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        assert_eq!(send(a.as_fd(), b"hi", &[write.as_fd()]).expect("send"), 2);
        drop(write);
        let (mut buffer, mut fds) = ([0u8; 8], Vec::new());
        assert_eq!(
            receive(b.as_fd(), &mut buffer, &mut fds).expect("receive"),
            2
        );
        rustix::io::write(&fds[0], b"x").expect("write");
        fds.clear();
        assert_eq!(rustix::io::read(&read, &mut buffer), Ok(1));
        assert_eq!(rustix::io::read(&read, &mut buffer), Ok(0));
    }

    #[test]
    fn descriptors_are_closed_where_none_are_taken() {
        let (a, b) = UnixStream::pair().expect("pair");
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        assert_eq!(send(a.as_fd(), b"hi", &[write.as_fd()]).expect("send"), 2);
        drop(write);
        let mut buffer = [0u8; 8];
        assert_eq!(receive_bytes(b.as_fd(), &mut buffer).expect("receive"), 2);
        assert_eq!(
            rustix::io::read(&read, &mut buffer),
            Ok(0),
            "nobody holds it"
        );
    }
}
