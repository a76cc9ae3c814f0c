//! A loopback port of a branch, reachable from the host. Nothing listens inside the host's network
//! for a branch unless somebody asks for exactly this, and only as long as he holds it.

use crate::branch::{Branch, name};
use crate::codes;
use forkpoint_model::Result;
use forkpoint_model::state::ForkLayer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// How often a full house looks whether somebody left.
const LOOK_MS: i64 = 50;
/// How long a connection inside may take: it is on a loopback.
const CONNECT_S: i64 = 5;

/// A port of the host that leads into a branch, as long as this lives.
pub struct Forward {
    branch: Branch,
    listener: TcpListener,
    local: u16,
    port: u16,
}

impl Branch {
    /// Connects to a loopback port inside: 127.0.0.1, else ::1.
    ///
    /// # Errors
    /// `FP0405` when nothing runs in it; when nothing listens there.
    pub fn connect(&self, port: u16) -> Result<TcpStream> {
        let record = self.record()?;
        let sandbox = self
            .attach(&record)?
            .ok_or_else(|| codes::STATE.error(format!("nothing runs in {}", name(&record))))?;
        let mut last = None;
        for ipv6 in [false, true] {
            let made = sandbox
                .connect(port, ipv6)
                .and_then(|socket| settled(TcpStream::from(socket), port));
            match made {
                Ok(stream) => return Ok(stream),
                Err(e) => last = last.or(Some(e)),
            }
        }
        Err(last.unwrap_or_else(|| codes::INTERNAL.error("no address was tried")))
    }

    /// Listens at 127.0.0.1:`local` (0: any free port) for connections to `port` inside. What comes
    /// in and goes out this way is captured by nothing: it is on record as an effect path from here
    /// on, and the branch ends `abandoned`, not `rolled_back`.
    ///
    /// # Errors
    /// `FP0404` for a branch at the reasoning layer; when the port cannot be listened at.
    pub fn forward(&self, local: u16, port: u16) -> Result<Forward> {
        let record = self.record()?;
        if record.layer == ForkLayer::Reasoning {
            return Err(codes::UNSAFE_FORK_POINT
                .error(format!(
                    "{} has no effect path, and a port would be one",
                    name(&record)
                ))
                .hint("fork it at the effect layer"));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).map_err(|e| {
            codes::IO
                .io(format!("cannot listen at 127.0.0.1:{local}"), e)
                .hint("choose another port, or 0 for any that is free")
        })?;
        let io = |e| codes::IO.io("cannot listen", e);
        listener.set_nonblocking(true).map_err(io)?;
        let local = listener.local_addr().map_err(io)?.port();
        let path = format!("port {port}");
        self.engine.store().modify_branch(self.id, |b| {
            if !b.uncaptured.contains(&path) {
                b.uncaptured.push(path);
            }
        })?;
        let text = format!(
            "127.0.0.1:{local} leads to port {port} in {}",
            name(&record)
        );
        self.engine.log_branch("port", &record, text, None)?;
        Ok(Forward {
            branch: self.clone(),
            listener,
            local,
            port,
        })
    }
}

impl Forward {
    /// The port of the host.
    pub fn local_port(&self) -> u16 {
        self.local
    }

    /// Serves until `stop` is readable; connections that are open then are closed. `failed` is told of
    /// each that could not be made inside.
    ///
    /// # Errors
    /// When connections can be taken no more.
    pub fn run(
        &self,
        stop: BorrowedFd<'_>,
        failed: &dyn Fn(&forkpoint_model::Error),
    ) -> Result<()> {
        let open = Arc::new(AtomicUsize::new(0));
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_MS * 1_000_000,
        };
        loop {
            let full = open.load(Ordering::Acquire) >= MAX_CONNECTIONS;
            let wanted = if full {
                PollFlags::empty()
            } else {
                PollFlags::IN
            };
            let mut fds = [
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
                PollFd::new(&self.listener, wanted),
            ];
            match poll(&mut fds, full.then_some(&look)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(codes::IO.io("cannot wait for connections", e)),
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            if fds[1].revents().is_empty() {
                continue;
            }
            // Whoever connected may have gone again.
            let Ok((outside, _)) = self.listener.accept() else {
                continue;
            };
            match self.branch.connect(self.port) {
                Ok(inside) => {
                    open.fetch_add(1, Ordering::AcqRel);
                    let open = open.clone();
                    std::thread::spawn(move || {
                        // Each end learns of the other's by its connection alone.
                        serve(&outside, &inside).unwrap_or(());
                        open.fetch_sub(1, Ordering::AcqRel);
                    });
                }
                Err(e) => failed(&e),
            }
        }
    }
}

/// Waits until a connection that was begun is made, and lets it block from then on.
fn settled(stream: TcpStream, port: u16) -> Result<TcpStream> {
    let done = (|| {
        let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::OUT)];
        let limit = Timespec {
            tv_sec: CONNECT_S,
            tv_nsec: 0,
        };
        if rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit)))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some(e) = stream.take_error()? {
            return Err(e);
        }
        stream.set_nonblocking(false)
    })();
    done.map_err(|e| {
        codes::STATE
            .io(format!("nothing answers at port {port} in the branch"), e)
            .hint("start what listens there first")
    })?;
    Ok(stream)
}

/// Copies both ways; the end of one direction is passed on alone.
fn serve(outside: &TcpStream, inside: &TcpStream) -> io::Result<()> {
    outside.set_nonblocking(false)?;
    let copy = |mut from: &TcpStream, mut to: &TcpStream| {
        let copied = io::copy(&mut from, &mut to);
        // It may be closed already.
        to.shutdown(Shutdown::Write).unwrap_or(());
        if copied.is_err() {
            from.shutdown(Shutdown::Read).unwrap_or(());
        }
        copied.map(drop)
    };
    std::thread::scope(|scope| {
        let back = scope.spawn(|| copy(inside, outside));
        let there = copy(outside, inside);
        back.join()
            .map_err(|_| io::Error::other("a relaying thread panicked"))?
            .and(there)
    })
}
