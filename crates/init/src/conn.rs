//! Framed messages over a stream socket: a header of two 32-bit numbers (length in bytes, count of
//! descriptors; native byte order, both ends are of one machine), then the message in postcard's
//! form. Descriptors travel with the header's bytes.

use forkpoint_sys::clone::NOT_EXECUTED;
use forkpoint_sys::scm;
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest message to and from init: arguments and environment are bounded by the kernel.
pub const MAX_CONTROL: usize = 16 << 20;
/// The longest message to and from the worker: the diff of a very large delta.
pub const MAX_WORKER: usize = 1 << 30;

const HEADER: usize = 8;

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Sends one message, with descriptors. On a blocking socket it waits until all is taken; on one
/// that does not block, `WouldBlock` means that the peer does not read, and the connection is of
/// no more use.
pub fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut bytes = vec![0u8; HEADER];
    bytes = postcard::to_extend(message, bytes).map_err(|e| invalid(e.to_string()))?;
    let len = u32::try_from(bytes.len() - HEADER).map_err(|_| invalid("message too long"))?;
    if fds.len() > scm::MAX_FDS || len == NOT_EXECUTED {
        return Err(invalid("too many descriptors"));
    }
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..HEADER].copy_from_slice(&(fds.len() as u32).to_ne_bytes());
    let mut sent = scm::send(socket, &bytes, fds)?;
    while sent < bytes.len() {
        sent += scm::send(socket, &bytes[sent..], &[])?;
    }
    Ok(())
}

/// The receiving side of a connection: keeps what has arrived until a message is whole.
#[derive(Debug)]
pub struct Conn {
    socket: OwnedFd,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    limit: usize,
    /// The other end holds the branch's processes for as long as it is there.
    pub holds: bool,
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Conn {
    /// Takes a connected socket; messages of more than `limit` bytes are refused.
    pub fn new(socket: OwnedFd, limit: usize) -> Self {
        Self {
            socket,
            bytes: Vec::new(),
            fds: Vec::new(),
            limit,
            holds: false,
        }
    }

    /// Gives the socket back; what has arrived and was not taken is lost.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Reads what has arrived, once. `false`: the other end closed.
    pub fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0u8; 16 << 10];
        let len = scm::receive(self.socket.as_fd(), &mut buffer, &mut self.fds)?;
        self.bytes.extend_from_slice(&buffer[..len]);
        // A peer may not park descriptors here.
        if self.fds.len() > 4 * scm::MAX_FDS {
            return Err(invalid("more descriptors than messages"));
        }
        Ok(len > 0)
    }

    /// Takes one whole message, if there is one.
    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let Some(header) = self.bytes.get(..HEADER) else {
            return Ok(None);
        };
        let word = |at: usize| {
            let mut four = [0u8; 4];
            four.copy_from_slice(&header[at..at + 4]);
            u32::from_ne_bytes(four)
        };
        let (len, count) = (word(0), word(4) as usize);
        if len == NOT_EXECUTED {
            return Err(io::Error::from_raw_os_error(count as i32));
        }
        let len = len as usize;
        if len > self.limit || count > scm::MAX_FDS {
            return Err(invalid(format!(
                "a message of {len} bytes, {count} descriptors"
            )));
        }
        let Some(body) = self.bytes.get(HEADER..HEADER + len) else {
            return Ok(None);
        };
        if self.fds.len() < count {
            return Err(invalid("descriptors are missing"));
        }
        let message = postcard::from_bytes(body).map_err(|e| invalid(e.to_string()))?;
        self.bytes.drain(..HEADER + len);
        Ok(Some((message, self.fds.drain(..count).collect())))
    }

    /// Waits for a message. `None`: the other end closed.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> (OwnedFd, Conn) {
        let (a, b) = UnixStream::pair().expect("pair");
        (a.into(), Conn::new(b.into(), MAX_CONTROL))
    }

    #[test]
    fn messages_keep_their_order_and_their_descriptors() {
        let (a, mut b) = pair();
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        send(a.as_fd(), &1u32, &[]).expect("send");
        send(a.as_fd(), &2u32, &[read.as_fd(), write.as_fd()]).expect("send");
        send(a.as_fd(), &3u32, &[read.as_fd()]).expect("send");
        drop(a);
        let mut got = Vec::new();
        while let Some((number, fds)) = b.receive::<u32>().expect("receive") {
            got.push((number, fds.len()));
        }
        assert_eq!(got, vec![(1, 0), (2, 2), (3, 1)]);
    }

    #[test]
    fn a_long_message_arrives_whole() {
        let (a, mut b) = pair();
        let long: Vec<u32> = (0..300_000).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| send(a.as_fd(), &long, &[]).expect("send"));
            let (got, _) = b.receive::<Vec<u32>>().expect("receive").expect("message");
            assert_eq!(got, long);
        });
    }

    #[test]
    fn a_hostile_header_is_refused() {
        let (a, mut b) = pair();
        rustix::io::write(&a, &[0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0]).expect("write");
        assert!(b.receive::<u32>().is_err());
        let (a, mut b) = pair();
        rustix::io::write(&a, &[1, 0, 0, 0, 1, 0, 0, 0, 7]).expect("write");
        assert!(b.receive::<u32>().is_err(), "promised a descriptor");
    }
}
