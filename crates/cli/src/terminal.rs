//! Between the caller's terminal and that of a command in a branch: what is typed goes in, what is
//! written comes out, the size follows, and the caller's terminal is as it was at the end, whichever
//! way that came.

use forkpoint_engine::{Child, Modes, TerminalSpec};
use forkpoint_model::{Error, Result};
use forkpoint_sys::signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::codes;
use crate::signals::{self, Signals};

/// As much is read at once, and as much that was typed waits at most for the command to read it.
const CHUNK: usize = 16 << 10;
/// Reads after the command's end: what its terminal still holds, but not what something it left
/// behind writes for ever.
const LAST_READS: usize = 256;
/// While it is in the background, how often it looks whether it is in front again: no signal tells.
const LOOK_MS: i64 = 300;
/// What ends a file typed at a terminal.
const END_OF_FILE: u8 = 4;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The command is over.
    Over,
    /// The caller's terminal is gone, or this process was told to end by this signal.
    HungUp(i32),
}

/// What a command's terminal is like at first: as the caller's.
pub(crate) fn spec() -> TerminalSpec {
    let stdin = io::stdin();
    let modes = tcgetattr(&stdin).ok().map(|settings| Modes::of(&settings));
    let default = TerminalSpec::default();
    match size() {
        Some((rows, cols)) => TerminalSpec { rows, cols, modes },
        None => TerminalSpec { modes, ..default },
    }
}

/// The size of the first standard stream that is a terminal and knows it.
fn size() -> Option<(u16, u16)> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]
        .into_iter()
        .filter_map(|fd| tcgetwinsize(fd).ok())
        .find(|size| size.ws_row > 0 && size.ws_col > 0)
        .map(|size| (size.ws_row, size.ws_col))
}

/// The caller's terminal, taken over; given back when dropped.
struct Taken {
    before: Termios,
    raw: bool,
}

impl Taken {
    /// `None`: standard input is no terminal.
    fn new() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let raw = false;
        Some(Self { before, raw })
    }

    /// Makes it pass everything on as it is, if this process is in front. Says whether it is.
    fn take(&mut self) -> bool {
        let stdin = io::stdin();
        let front = tcgetpgrp(&stdin).is_ok_and(|front| front == rustix::process::getpgrp());
        if front {
            let mut settings = self.before.clone();
            settings.make_raw();
            self.raw = tcsetattr(&stdin, OptionalActions::Drain, &settings).is_ok();
        }
        front
    }

    /// Sets it back. What was typed and not passed on goes, and with it late answers of the terminal
    /// to what the command asked it: a shell would take them for typing.
    fn give_back(&mut self) {
        if std::mem::take(&mut self.raw) {
            // It may be gone: then there is nothing to set back.
            tcsetattr(io::stdin(), OptionalActions::Flush, &self.before).unwrap_or(());
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The relay of one command.
struct Relay<'a> {
    child: &'a Child,
    master: OwnedFd,
    signals: &'a Signals,
    taken: Option<Taken>,
    /// Whether standard input may be read now.
    reading: bool,
    /// Whether standard input has ended.
    ended: bool,
    typed: Vec<u8>,
    /// Standard input goes to the command's terminal; else it is a stream of its own.
    input: bool,
    /// Where what the command writes to its terminal is shown.
    out: OwnedFd,
    /// `SIGTERM` is for this process, not for the command.
    term_ends: bool,
}

/// Where what is written to a terminal that stands for these streams is shown: standard output where
/// that is one of them, else the caller's terminal, by whichever name it has.
fn shown_at(streams: Streams) -> io::Result<OwnedFd> {
    if streams.0[1] {
        return io::stdout().as_fd().try_clone_to_owned();
    }
    if isatty(io::stderr()) {
        return io::stderr().as_fd().try_clone_to_owned();
    }
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::open("/dev/tty", flags, Mode::empty()) {
        Ok(terminal) => Ok(terminal),
        // Without a controlling one: a terminal is mostly opened for both ways.
        Err(_) => io::stdin().as_fd().try_clone_to_owned(),
    }
}

/// Relays until the command is over or the caller's terminal is gone. `streams`: which of the standard
/// streams are the command's terminal. `term_ends`: `SIGTERM` hangs up, as a lost connection does, in
/// place of being passed on.
pub(crate) fn relay(
    child: &Child,
    master: OwnedFd,
    signals: &Signals,
    streams: Streams,
    term_ends: bool,
) -> Result<Ending> {
    let failed = |e: io::Error| codes::SIGNALS.io("cannot relay the terminal", e);
    let input = streams.0[0];
    rustix::io::ioctl_fionbio(&master, true).map_err(|e| failed(e.into()))?;
    // Setting the terminal back must work from the background too.
    signal::ignore(signals::TTOU);
    let mut relay = Relay {
        child,
        master,
        signals,
        taken: if input { Taken::new() } else { None },
        reading: false,
        ended: false,
        typed: Vec::new(),
        input,
        out: shown_at(streams).map_err(failed)?,
        term_ends,
    };
    relay.claim();
    loop {
        if let Some(ending) = relay.turn()? {
            return Ok(ending);
        }
    }
}

fn cannot_wait(e: Errno) -> Error {
    codes::SIGNALS.io("cannot wait for the command", e)
}

impl Relay<'_> {
    /// Takes the caller's terminal, where this process is in front. Input that is no terminal is
    /// read at any time.
    fn claim(&mut self) {
        self.reading = match &mut self.taken {
            Some(taken) => taken.take(),
            None => true,
        };
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self) -> Result<Option<Ending>> {
        let stdin = io::stdin();
        let reads = self.input && self.reading && !self.ended && self.typed.is_empty();
        let mut on_master = PollFlags::IN;
        if !self.typed.is_empty() {
            on_master |= PollFlags::OUT;
        }
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.child.wait_fd()?, PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
            PollFd::new(&self.master, on_master),
        ];
        if reads {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_MS * 1_000_000,
        };
        match poll(&mut fds, (!self.reading).then_some(&look)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(cannot_wait(e)),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if !self.reading {
            self.claim();
        }
        if ready[1]
            && let Some(ending) = self.take_signals()
        {
            return Ok(Some(ending));
        }
        if ready[2] && !(self.pass_in() && self.pass_out()?) {
            return Ok(Some(Ending::HungUp(signal::SIGHUP)));
        }
        if ready.get(3) == Some(&true) && !self.read_typed() {
            return Ok(Some(Ending::HungUp(signal::SIGHUP)));
        }
        if ready[0] {
            for _ in 0..LAST_READS {
                if !matches!(self.copy_out(), Ok(Some(1..))) {
                    break;
                }
            }
            return Ok(Some(Ending::Over));
        }
        Ok(None)
    }

    fn take_signals(&mut self) -> Option<Ending> {
        for (number, from_kernel) in self.signals.take() {
            match number {
                signals::WINCH => self.resize(),
                signal::SIGHUP => return Some(Ending::HungUp(number)),
                signal::SIGTERM if self.term_ends => return Some(Ending::HungUp(number)),
                // A key only reaches this process where the terminal is not taken.
                signals::TSTP => {
                    if let Some(taken) = &mut self.taken {
                        taken.give_back();
                    } else {
                        self.child.signal_group(signal::SIGSTOP).unwrap_or(());
                    }
                    signals::stop_self();
                }
                // After a stop a shell may have set the terminal its own way.
                signal::SIGCONT => {
                    if self.taken.is_none() {
                        self.child.signal_group(number).unwrap_or(());
                    }
                    self.claim();
                    self.resize();
                }
                // It may have ended in between; then there is nobody to tell.
                _ if from_kernel => self.child.signal_group(number).unwrap_or(()),
                _ => self.child.signal(number).unwrap_or(()),
            }
        }
        None
    }

    fn resize(&self) {
        let stdin = io::stdin();
        let own = tcgetwinsize(&stdin).or_else(|_| tcgetwinsize(io::stdout()));
        if let Ok(own) = own {
            // Its other end may be closed already.
            tcsetwinsize(&self.master, own).unwrap_or(());
        }
    }

    /// Takes what was typed. `false`: the caller's terminal is gone.
    fn read_typed(&mut self) -> bool {
        let mut buffer = [0; CHUNK];
        match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(0) | Err(Errno::IO) if self.taken.is_some() => return false,
            Ok(0) => {
                // A pipe or a file: its end is told as a terminal tells it.
                self.ended = true;
                self.typed.push(END_OF_FILE);
            }
            Ok(count) => self.typed.extend_from_slice(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return false,
        }
        self.pass_in()
    }

    /// Gives the command what it takes of what was typed.
    fn pass_in(&mut self) -> bool {
        while !self.typed.is_empty() {
            match rustix::io::write(&self.master, &self.typed) {
                Ok(count) => drop(self.typed.drain(..count)),
                Err(Errno::INTR) => {}
                // Full; or hung up, which only happens when the command is over.
                Err(Errno::AGAIN) => break,
                Err(_) => self.typed.clear(),
            }
        }
        true
    }

    /// Shows what was written. `false`: nobody is there to see it.
    fn pass_out(&mut self) -> Result<bool> {
        match self.copy_out() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::IO) => Ok(false),
            Err(e) => Err(codes::OUTPUT.io("cannot write to standard output", e)),
        }
    }

    /// Copies one piece. `None`: there is none at the moment.
    fn copy_out(&mut self) -> io::Result<Option<usize>> {
        let mut buffer = [0; CHUNK];
        let count = match rustix::io::read(&self.master, &mut buffer) {
            Ok(count) => count,
            Err(_) => return Ok(None),
        };
        write_all(self.out.as_fd(), &buffer[..count])?;
        Ok(Some(count))
    }
}

/// Writes all of it, past any buffer; also to a terminal that somebody made non-blocking.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
                rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Whether a command's streams are a terminal of the branch's own: standard input, output, error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Streams(pub(crate) [bool; 3]);

impl Streams {
    /// What was asked for, else what fits ([`Streams::choose`]).
    pub(crate) fn of(tty: bool, no_tty: bool) -> Self {
        let own = [
            isatty(io::stdin()),
            isatty(io::stdout()),
            isatty(io::stderr()),
        ];
        let pipe = rustix::fs::fstat(io::stdout())
            .is_ok_and(|meta| FileType::from_raw_mode(meta.st_mode) == FileType::Fifo);
        Self::choose(tty, no_tty, own, pipe)
    }

    /// A terminal where standard output is one, in place of every stream that is. Where only the input
    /// is one, output stays the stream it is and the rest becomes a terminal, so that the command has a
    /// controlling one; but not unasked where output goes into a pipe, since a program at its end may be
    /// using the caller's (a pager).
    fn choose(tty: bool, no_tty: bool, own: [bool; 3], pipe: bool) -> Self {
        match (tty, no_tty, own) {
            (_, true, _) => Self([false; 3]),
            (false, _, [_, true, _]) => Self(own),
            (true, _, [true, false, errors]) => Self([true, false, errors]),
            (false, _, [true, false, errors]) if !pipe => Self([true, false, errors]),
            (true, ..) => Self([true; 3]),
            _ => Self([false; 3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_made_where_one_fits() {
        let of = |flag: &str, own: &str, pipe| {
            let own: Vec<bool> = own.chars().map(|c| c == 't').collect();
            let own = [own[0], own[1], own[2]];
            let chosen = Streams::choose(flag == "-t", flag == "-T", own, pipe);
            let letters = chosen.0.map(|yes| if yes { 't' } else { '-' });
            letters.iter().collect::<String>()
        };
        assert_eq!(of("", "ttt", false), "ttt");
        assert_eq!(of("", "-tt", false), "-tt");
        // Output to a file: the command still has a controlling terminal.
        assert_eq!(of("", "t-t", false), "t-t");
        assert_eq!(of("", "t--", false), "t--");
        // Into a pipe only when asked.
        assert_eq!(of("", "t-t", true), "---");
        assert_eq!(of("-t", "t-t", true), "t-t");
        assert_eq!(of("-t", "---", true), "ttt");
        assert_eq!(of("", "--t", false), "---");
        assert_eq!(of("-T", "ttt", false), "---");
    }
}
