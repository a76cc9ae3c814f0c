//! A branch's own terminals: pairs out of its `devpts` instance. Init makes them and passes the
//! controlling end out to whoever asked; a command never holds a terminal of the host, so that
//! nothing it leaves behind can read what is typed there later.

use crate::protocol::TerminalMessage;
use crate::spec::Identity;
use forkpoint_sys::{caps, pty};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, Winsize,
    tcgetattr, tcsetattr, tcsetwinsize,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What a terminal is like at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSpec {
    /// Its height in lines.
    pub rows: u16,
    /// Its width in columns.
    pub cols: u16,
    /// Its modes; the kernel's own where not given.
    pub modes: Option<Modes>,
}

impl Default for TerminalSpec {
    fn default() -> Self {
        Self {
            rows: 24,
            cols: 80,
            modes: None,
        }
    }
}

/// How a terminal treats what goes through it: that of the caller, for one that acts the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modes {
    input: u32,
    output: u32,
    local: u32,
    codes: Vec<u8>,
}

/// The special characters that are carried over.
const CODES: &[SpecialCodeIndex] = &[
    SpecialCodeIndex::VINTR,
    SpecialCodeIndex::VQUIT,
    SpecialCodeIndex::VERASE,
    SpecialCodeIndex::VKILL,
    SpecialCodeIndex::VEOF,
    SpecialCodeIndex::VMIN,
    SpecialCodeIndex::VTIME,
    SpecialCodeIndex::VEOL,
    SpecialCodeIndex::VEOL2,
    SpecialCodeIndex::VSTART,
    SpecialCodeIndex::VSTOP,
    SpecialCodeIndex::VSUSP,
    SpecialCodeIndex::VLNEXT,
    SpecialCodeIndex::VWERASE,
    SpecialCodeIndex::VREPRINT,
    SpecialCodeIndex::VDISCARD,
];

impl Modes {
    /// Those of a terminal whose settings are `of`.
    pub fn of(of: &Termios) -> Self {
        Self {
            input: of.input_modes.bits(),
            output: of.output_modes.bits(),
            local: of.local_modes.bits(),
            codes: CODES.iter().map(|&c| of.special_codes[c]).collect(),
        }
    }

    fn set(&self, on: &mut Termios) {
        on.input_modes = InputModes::from_bits_retain(self.input);
        on.output_modes = OutputModes::from_bits_retain(self.output);
        on.local_modes = LocalModes::from_bits_retain(self.local);
        for (&code, &value) in CODES.iter().zip(&self.codes) {
            on.special_codes[code] = value;
        }
    }
}

/// A terminal's two ends.
#[derive(Debug)]
pub struct Pair {
    /// The controlling end.
    pub master: OwnedFd,
    /// The command's.
    pub slave: OwnedFd,
}

/// Where terminals are made.
#[derive(Debug)]
pub struct Terminals {
    /// The root of the branch's `devpts`, in which only the kernel makes names.
    root: OwnedFd,
    /// Root's shift: a terminal must belong to the commands' root.
    shift: Option<u32>,
}

impl Terminals {
    /// Of a branch of this identity, whose `devpts` has this root.
    pub fn new(root: OwnedFd, identity: &Identity) -> Self {
        let shift = match identity {
            Identity::Root { shift, .. } => Some(*shift),
            Identity::User { .. } => None,
        };
        Self { root, shift }
    }

    /// Makes one, and puts it in place of the streams it is asked to replace.
    pub fn open(&self, asked: &TerminalMessage, streams: &mut [OwnedFd]) -> io::Result<Pair> {
        let pair = match self.shift {
            Some(shift) => caps::with_fs_ids(shift, shift, || self.pair())??,
            None => self.pair()?,
        };
        let slave = pair.slave.as_fd();
        tcsetwinsize(
            slave,
            Winsize {
                ws_row: asked.spec.rows,
                ws_col: asked.spec.cols,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )?;
        if let Some(modes) = &asked.spec.modes {
            let mut settings = tcgetattr(slave)?;
            modes.set(&mut settings);
            tcsetattr(slave, OptionalActions::Now, &settings)?;
        }
        for (stream, _) in streams
            .iter_mut()
            .zip(asked.streams)
            .filter(|(_, yes)| *yes)
        {
            *stream = rustix::io::fcntl_dupfd_cloexec(slave, 0)?;
        }
        Ok(pair)
    }

    fn pair(&self) -> io::Result<Pair> {
        let (master, slave) = pty::open(self.root.as_fd())?;
        Ok(Pair { master, slave })
    }
}
