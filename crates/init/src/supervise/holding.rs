//! Holding the branch's processes, for a moment (a fork) or until told otherwise (a pause); and
//! what is handed to somebody outside: a connection to a port inside, and the branch's socket.

use super::{Init, answer};
use crate::codes::{SETUP, UNDEAD};
use crate::conn::{self, Conn};
use crate::freeze;
use crate::protocol::FromInit;
use forkpoint_model::Error;
use forkpoint_sys::clone::namespace;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

impl Init {
    pub(super) fn freeze(&mut self) -> Result<(), Error> {
        if self.frozen.is_none() {
            let frozen = freeze::freeze(self.proc.as_fd())
                .map_err(|e| UNDEAD.io("the branch's processes do not stop", e))?;
            self.frozen = Some(frozen);
            self.watch.hold();
        }
        Ok(())
    }

    /// Lets everything go on, unless the branch is paused or somebody still holds it: who is done with
    /// a fork of it does not end another's hold.
    pub(super) fn thaw(&mut self) -> Result<(), Error> {
        if self.paused || self.holders > 0 {
            return Ok(());
        }
        if let Some(frozen) = self.frozen.take() {
            self.watch.release();
            freeze::thaw(self.proc.as_fd(), &frozen)
                .map_err(|e| SETUP.io("cannot continue the branch's processes", e))?;
        }
        Ok(())
    }

    pub(super) fn pause(&mut self) -> Result<(), Error> {
        self.freeze()?;
        self.paused = true;
        Ok(())
    }

    pub(super) fn resume(&mut self) -> Result<(), Error> {
        self.paused = false;
        self.thaw()
    }

    /// Connects to a port inside and sends the connection to whoever asked. Init is in the branch's
    /// network namespace already.
    pub(super) fn connect(&self, reply: &Conn, port: u16, ipv6: bool) {
        let own = self
            .inner
            .others
            .iter()
            .any(|(kind, _)| *kind == namespace::NET);
        if !own {
            let refused = SETUP
                .error("the branch is on the host's network: its ports are the host's")
                .hint("connect to the port itself");
            return answer(reply, &FromInit::Failed(refused));
        }
        match connection(port, ipv6) {
            Ok(socket) => {
                // Who asked may have gone, and the connection with it.
                conn::send(reply.as_fd(), &FromInit::Connected, &[socket.as_fd()]).unwrap_or(());
            }
            Err(e) => {
                let refused = SETUP
                    .io(format!("nothing answers at port {port} in the branch"), e)
                    .hint("start what listens there first");
                answer(reply, &FromInit::Failed(refused));
            }
        }
    }

    /// Sends the branch's socket to whoever serves it. Any number may: each accepts for itself.
    pub(super) fn hand_over(&self, reply: &Conn) {
        let Some(listener) = &self.branch else {
            let refused = SETUP
                .error("the branch has no socket")
                .hint("a branch at the reasoning layer, and one that judges, has none");
            return answer(reply, &FromInit::Failed(refused));
        };
        let left_ms = self.watch.left_ms();
        let message = FromInit::BranchSocket { left_ms };
        // Who asked may have gone.
        conn::send(reply.as_fd(), &message, &[listener.as_fd()]).unwrap_or(());
    }
}

/// A connection on the loopback that is made, or in the making: nothing here waits.
fn connection(port: u16, ipv6: bool) -> io::Result<OwnedFd> {
    let (family, address) = match ipv6 {
        false => (
            AddressFamily::INET,
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        ),
        true => (
            AddressFamily::INET6,
            SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
        ),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(e) => Err(e.into()),
    }
}
