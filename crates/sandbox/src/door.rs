//! The listening end of a branch's socket, as init hands it over. Whoever holds it accepts the
//! connections that processes of that branch make, and those of nobody else.

use crate::codes::HOST_IO;
use crate::handle::{gone, unexpected};
use forkpoint_init::conn::{Conn, MAX_CONTROL};
use forkpoint_init::protocol::FromInit;
use forkpoint_model::Result;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A request for the socket that init has not answered yet, or has.
#[derive(Debug)]
pub struct Asked {
    reply: Conn,
    ended: OwnedFd,
}

/// A branch's socket.
#[derive(Debug)]
pub struct Door {
    /// Readable when somebody inside connects. It does not block. Others may accept from it too.
    pub listener: OwnedFd,
    /// Readable when everything inside is dead.
    pub ended: OwnedFd,
    /// How long the branch may still run, in milliseconds, where its wall time is limited.
    pub left_ms: Option<u64>,
}

impl Asked {
    pub(crate) fn new(reply: OwnedFd, ended: OwnedFd) -> Self {
        Self {
            reply: Conn::new(reply, MAX_CONTROL),
            ended,
        }
    }

    /// Readable when init has answered, or has gone.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reply.as_fd()
    }

    /// The answer; waits for it.
    ///
    /// # Errors
    /// `FP0302` when the branch has no socket, `FP0303` when it has ended.
    pub fn take(mut self) -> Result<Door> {
        match self.reply.receive::<FromInit>() {
            Ok(Some((FromInit::BranchSocket { left_ms }, mut fds))) => Ok(Door {
                listener: fds.pop().ok_or_else(unexpected)?,
                ended: self.ended,
                left_ms,
            }),
            Ok(Some((FromInit::Failed(e), _))) => Err(e),
            Ok(Some(_)) => Err(unexpected()),
            Ok(None) => Err(gone()),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Err(gone()),
            Err(e) => Err(HOST_IO.io("cannot hear init's answer", e)),
        }
    }
}
