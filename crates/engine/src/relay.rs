//! Files as standard streams. A command never gets a descriptor of a file of the host: through
//! `/proc/self/fd` it could open the file again, and write to what it was only to read, or cut off
//! what it was only to append to. What it gets is a pipe, and a thread here does the reading or
//! writing.

use crate::codes;
use crate::command::Direction;
use forkpoint_model::Result;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

/// Once the command has ended: what its pipe still holds is taken, but not what something it left
/// behind writes for ever.
const LAST_READS: usize = 64;

/// A thread that writes a command's output into a file of the host.
pub(crate) struct Relay {
    thread: JoinHandle<io::Result<()>>,
    /// Closed to say that the command has ended.
    stop: OwnedFd,
}

impl Relay {
    /// Takes what is left and ends.
    ///
    /// # Errors
    /// What the file said: a full disk must not look like a command that printed nothing.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.stop);
        self.thread
            .join()
            .map_err(|_| codes::INTERNAL.error("a relaying thread panicked"))?
            .map_err(|e| codes::IO.io("cannot write a command's output", e))
    }
}

/// What a command is given in place of the caller's `own` stream, and the thread that serves it.
/// Terminals, pipes, sockets and character devices are passed on as they are.
pub(crate) fn guard(own: OwnedFd, direction: Direction) -> Result<(OwnedFd, Option<Relay>)> {
    let stat =
        rustix::fs::fstat(&own).map_err(|e| codes::IO.io("cannot look at a standard stream", e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => {}
        FileType::Directory => {
            return Err(codes::COMMAND
                .error("a standard stream is a directory: it would lead out of the branch")
                .hint("redirect it from or to a file"));
        }
        _ => return Ok((own, None)),
    }
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| codes::IO.io("cannot make a pipe", e));
    let (read, write) = pipe()?;
    match direction {
        Direction::In => {
            // Ends with the file, or when nobody reads any more. An error of reading ends the
            // command's input early, as a broken disk would.
            std::thread::spawn(move || io::copy(&mut File::from(own), &mut File::from(write)));
            Ok((read, None))
        }
        Direction::Out | Direction::Err => {
            let (stopped, stop) = pipe()?;
            let thread =
                std::thread::spawn(move || write_out(File::from(read), File::from(own), &stopped));
            Ok((write, Some(Relay { thread, stop })))
        }
    }
}

fn write_out(mut from: File, mut to: File, stopped: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&from)?;
    rustix::fs::fcntl_setfl(&from, flags | rustix::fs::OFlags::NONBLOCK)?;
    let mut buffer = vec![0; 64 << 10];
    let mut last = None;
    loop {
        if last.is_none() {
            let mut fds = [
                PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            if !fds[1].revents().is_empty() {
                last = Some(LAST_READS);
            }
        }
        match last {
            Some(0) => return Ok(()),
            Some(left) => last = Some(left - 1),
            None => {}
        }
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && last.is_some() => return Ok(()),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(e),
        }
    }
}
