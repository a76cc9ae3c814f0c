//! Signals through a descriptor: an interrupt becomes a raised flag, or is passed on to a command.

use forkpoint_engine::Cancel;
use forkpoint_model::Result;
use forkpoint_sys::signal;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::codes;

/// `SIGQUIT`, `SIGUSR1`, `SIGUSR2`, `SIGTSTP`, `SIGTTOU` and `SIGWINCH` have these numbers on every architecture Linux
/// shares them on with x86; most are only passed on.
pub(crate) const QUIT: i32 = 3;
const USR1: i32 = 10;
const USR2: i32 = 12;
/// Stopped from a terminal.
pub(crate) const TSTP: i32 = 20;
/// Written to a terminal from the background.
pub(crate) const TTOU: i32 = 22;
/// The terminal's size changed.
pub(crate) const WINCH: i32 = 28;

/// The size of the kernel's `struct signalfd_siginfo`; the signal's number is its first four bytes.
const RECORD: usize = 128;

/// Signals that arrive from now on, in place of what they would do.
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// Watches what ends a program. Call it before any thread is started: threads inherit the mask.
    ///
    /// # Errors
    /// `FP0006`.
    pub(crate) fn ending() -> Result<Self> {
        Self::of(&[signal::SIGINT, signal::SIGTERM, signal::SIGHUP])
    }

    /// Watches everything that is passed on to a command.
    ///
    /// # Errors
    /// `FP0006`.
    pub(crate) fn forwarded() -> Result<Self> {
        Self::of(&[
            signal::SIGINT,
            signal::SIGTERM,
            signal::SIGHUP,
            QUIT,
            USR1,
            USR2,
            WINCH,
            TSTP,
            signal::SIGCONT,
        ])
    }

    fn of(signals: &[i32]) -> Result<Self> {
        signal::descriptor(signals)
            .map(Self)
            .map_err(|e| codes::SIGNALS.io("cannot watch signals", e))
    }

    /// Readable when one has arrived.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes those that have arrived: each signal's number, and whether the kernel sent it (a key on
    /// the terminal, which every process of the foreground group is sent as well).
    pub(crate) fn take(&self) -> Vec<(i32, bool)> {
        let mut all = Vec::new();
        let mut buffer = [0u8; RECORD * 8];
        while let Ok(n) = rustix::io::read(&self.0, &mut buffer) {
            if n == 0 {
                break;
            }
            for record in buffer[..n].chunks_exact(RECORD) {
                let number = |at: usize| {
                    let bytes = [record[at], record[at + 1], record[at + 2], record[at + 3]];
                    i32::from_ne_bytes(bytes)
                };
                // SI_KERNEL is 0x80; `ssi_code` is the third word.
                all.push((number(0), number(8) == 0x80));
            }
        }
        all
    }

    /// Raises `cancel` at the first signal, from a thread; later ones change nothing.
    pub(crate) fn raise(self, cancel: Cancel) {
        std::thread::spawn(move || {
            loop {
                let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
                match poll(&mut fds, None) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return,
                }
                if !self.take().is_empty() {
                    cancel.cancel();
                }
            }
        });
    }
}

/// Stops this process, until somebody continues it.
pub(crate) fn stop_self() {
    // Where it cannot be sent, it goes on, which is all that could be done.
    signal::send_pid(std::process::id(), signal::SIGSTOP).unwrap_or(());
}

/// Dies of `number`, as the command did, so that a shell sees the same. Returns only where the signal
/// does not kill.
pub(crate) fn die_of(number: i32) {
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A second core file of this process would tell nothing. Failing that, one is written.
    rustix::process::setrlimit(rustix::process::Resource::Core, none).unwrap_or(());
    if signal::reset(&[number]).is_ok() {
        // Where it cannot be sent, the caller exits with 128 and the number.
        signal::send_pid(std::process::id(), number).unwrap_or(());
    }
}
