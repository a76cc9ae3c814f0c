//! Files and terminals as standard streams. A command never gets a descriptor of a file of the host:
//! through `/proc/self/fd` it could open the file again, and write to what it was only to read, or
//! cut off what it was only to append to. Nor of a terminal: what it leaves behind could read what is
//! typed there long after it has ended. What it gets is a pipe, and a thread here does the reading or
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

/// A thread that writes a command's output into a file of the host, or reads its input.
pub(crate) struct Relay {
    /// `None`: a reader, of which nothing is left to be learned.
    thread: Option<JoinHandle<io::Result<()>>>,
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
        let Some(thread) = self.thread else {
            return Ok(());
        };
        thread
            .join()
            .map_err(|_| codes::INTERNAL.error("a relaying thread panicked"))?
            .map_err(|e| codes::IO.io("cannot write a command's output", e))
    }
}

/// What a command is given in place of the caller's `own` stream, and the thread that serves it.
/// Pipes, sockets and other character devices are passed on as they are.
pub(crate) fn guard(own: OwnedFd, direction: Direction) -> Result<(OwnedFd, Option<Relay>)> {
    let stat =
        rustix::fs::fstat(&own).map_err(|e| codes::IO.io("cannot look at a standard stream", e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => {}
        FileType::CharacterDevice if rustix::termios::isatty(&own) => {}
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
            // Ends with the file, when nobody reads any more, or with the command. An error of
            // reading ends the command's input early, as a broken disk would.
            let (stopped, stop) = pipe()?;
            std::thread::spawn(move || read_in(File::from(own), File::from(write), &stopped));
            Ok((read, Some(Relay { thread: None, stop })))
        }
        Direction::Out | Direction::Err => {
            let (stopped, stop) = pipe()?;
            let thread =
                std::thread::spawn(move || write_out(File::from(read), File::from(own), &stopped));
            let thread = Some(thread);
            Ok((write, Some(Relay { thread, stop })))
        }
    }
}

fn read_in(mut from: File, mut to: File, stopped: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        // Of a terminal no more is taken than was typed while the command ran.
        let mut fds = [
            PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(to.as_fd(), PollFlags::empty()),
            PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        if !fds[0].revents().is_empty() || !fds[1].revents().is_empty() {
            return Ok(());
        }
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
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
