//! Output of commands: every byte into a log file up to a cap, and whole lines to whoever watches.
//! What an attempt writes is hostile: a line shown on a terminal has its control characters replaced
//! and its length bounded.

use forkpoint_model::Result;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::backend::Stream;
use crate::codes;

/// A log grows to this many bytes; the rest is counted and said, not kept.
pub const LOG_CAP: u64 = 256 << 20;

/// A line that is shown is cut after this many bytes.
pub const LINE_CAP: usize = 2000;

/// A log file with a cap.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    left: u64,
    lost: u64,
}

impl LogFile {
    /// Opens `path` for appending, making it and its directory if they are missing.
    ///
    /// # Errors
    /// `FP0503`.
    pub fn append(path: &Path, cap: u64) -> Result<Self> {
        let io = |e| codes::LOG.io(format!("cannot open the log {}", path.display()), e);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(io)?;
        }
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(io)?;
        Ok(Self {
            file,
            left: cap,
            lost: 0,
        })
    }

    /// Writes what fits.
    ///
    /// # Errors
    /// `FP0503`: a disk that is full must not look like a quiet attempt.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let fits = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        self.file
            .write_all(&bytes[..fits])
            .map_err(|e| codes::LOG.io("cannot write a log", e))?;
        self.left -= fits as u64;
        self.lost += (bytes.len() - fits) as u64;
        Ok(())
    }

    /// Says at the end of the log how much is missing, if anything is.
    ///
    /// # Errors
    /// `FP0503`.
    pub fn finish(mut self) -> Result<()> {
        if self.lost == 0 {
            return Ok(());
        }
        let note = format!(
            "\n[forkpoint: the log is full; {} more bytes are not kept]\n",
            self.lost
        );
        self.file
            .write_all(note.as_bytes())
            .map_err(|e| codes::LOG.io("cannot write a log", e))
    }
}

/// Cuts a stream into lines fit to be shown.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    cut: bool,
}

impl Lines {
    /// Takes in `bytes` and gives each whole line.
    pub fn push(&mut self, bytes: &[u8], mut give: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|&b| b == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = LINE_CAP - self.line.len();
            self.cut |= text.len() > room;
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                self.flush(&mut give);
            }
        }
    }

    /// Gives what is left of a line that has no end.
    pub fn end(&mut self, mut give: impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.flush(&mut give);
        }
    }

    fn flush(&mut self, give: &mut impl FnMut(&str)) {
        // A carriage return redraws a line (progress bars): what was drawn last is what counts.
        let line = self.line.trim_ascii_end();
        let last = line.rsplit(|&b| b == b'\r').next().unwrap_or_default();
        let mut text = printable(&String::from_utf8_lossy(last));
        if self.cut {
            text.push('…');
        }
        give(&text);
        self.line.clear();
        self.cut = false;
    }
}

/// `text` without anything that a terminal obeys: escape sequences are dropped where they are
/// recognised, other control characters (also the C1 range and those that turn the direction of
/// writing) replaced.
pub fn printable(text: &str) -> String {
    if text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\t' => out.push(' '),
            c if c.is_control() => out.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Skips the rest of an escape sequence: CSI up to its final letter, OSC up to BEL, else one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            while chars.next_if(|c| !('@'..='~').contains(c)).is_some() {}
            chars.next();
        }
        Some(']') => {
            while chars.next_if(|&c| c != '\u{7}' && c != '\u{1b}').is_some() {}
            chars.next();
        }
        _ => {}
    }
}

/// Reads `stdout` and `stderr` until `done` is readable and both are drained of what is in them, or
/// both are at their end; calls `stop` once when `cancel` is readable. A process that was moved out of
/// reach but still holds a pipe cannot keep this waiting.
///
/// # Errors
/// `FP0503` where a pipe cannot be read or `output` fails.
pub fn pump(
    mut stdout: File,
    mut stderr: File,
    done: BorrowedFd<'_>,
    cancel: BorrowedFd<'_>,
    stop: &mut dyn FnMut() -> Result<()>,
    output: &mut dyn FnMut(Stream, &[u8]) -> Result<()>,
) -> Result<()> {
    for file in [&stdout, &stderr] {
        let flags =
            rustix::fs::fcntl_getfl(file).map_err(|e| codes::LOG.io("cannot use a pipe", e))?;
        rustix::fs::fcntl_setfl(file, flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(|e| codes::LOG.io("cannot use a pipe", e))?;
    }
    let mut open = [true, true];
    let mut cancelled = false;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(done, PollFlags::IN)];
        for (is_open, file) in [(open[0], stdout.as_fd()), (open[1], stderr.as_fd())] {
            let events = if is_open {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            // A closed pipe would report a hang-up for ever: watch `done` in its place.
            fds.push(PollFd::from_borrowed_fd(
                if is_open { file } else { done },
                events,
            ));
        }
        if !cancelled {
            fds.push(PollFd::from_borrowed_fd(cancel, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(codes::LOG.io("cannot wait for output", e)),
        }
        let is_done = !fds[0].revents().is_empty();
        let is_cancelled = fds.get(3).is_some_and(|fd| !fd.revents().is_empty());
        if is_cancelled {
            cancelled = true;
            stop()?;
        }
        // Once it is done: one last look at what the pipes hold, bounded, since something it left
        // behind may write for ever.
        for (i, (file, stream)) in [(&mut stdout, Stream::Stdout), (&mut stderr, Stream::Stderr)]
            .into_iter()
            .enumerate()
        {
            let drain = if is_done { 64 } else { 16 };
            for _ in 0..drain {
                if !open[i] {
                    break;
                }
                match file.read(&mut buffer) {
                    Ok(0) => open[i] = false,
                    Ok(n) => output(stream, &buffer[..n])?,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(codes::LOG.io("cannot read output", e)),
                }
            }
        }
        if is_done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    fn lines(parts: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        for part in parts {
            lines.push(part, |line| out.push(line.to_owned()));
        }
        lines.end(|line| out.push(line.to_owned()));
        out
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        assert_eq!(lines(&[b"a", b"b\nc\n", b"d"]), ["ab", "c", "d"]);
        assert_eq!(lines(&[b"\n\n"]), ["", ""]);
        assert_eq!(lines(&[b"10%\r20%\r30%\r\n"]), ["30%"]);
    }

    #[test]
    fn a_long_line_is_cut_and_bounded_memory_is_used() {
        let long = vec![b'x'; 10 * LINE_CAP];
        let out = lines(&[&long, &long, b"\nshort\n"]);
        assert_eq!(out[0].chars().count(), LINE_CAP + 1);
        assert_eq!(out[1], "short");
    }

    #[test]
    fn what_a_terminal_obeys_is_not_shown() {
        assert_eq!(printable("\u{1b}[31mred\u{1b}[0m"), "red");
        assert_eq!(printable("\u{1b}]0;title\u{7}x"), "x");
        assert_eq!(
            printable("a\u{8}\u{9b}b\u{202e}"),
            "a\u{fffd}\u{fffd}b\u{fffd}"
        );
        assert_eq!(printable("\u{1b}[31"), "");
    }

    #[test]
    fn a_full_log_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = LogFile::append(&path, 4).unwrap();
        log.write(b"abc").unwrap();
        log.write(b"def").unwrap();
        log.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("abcd\n[forkpoint:") && text.contains(" 2 more bytes"),
            "{text}"
        );
    }

    struct Pumped {
        out: Vec<u8>,
        stops: u32,
    }

    /// Pumps with the write ends given to `writer`, which returns what keeps them open.
    fn pumped(cancel: bool, writer: impl FnOnce(File, File, OwnedFd)) -> Pumped {
        let pipe = || rustix::pipe::pipe().unwrap();
        let (out_r, out_w) = pipe();
        let (err_r, err_w) = pipe();
        let (done_r, done_w) = pipe();
        let (cancel_r, cancel_w) = pipe();
        if cancel {
            rustix::io::write(&cancel_w, b"x").unwrap();
        }
        writer(out_w.into(), err_w.into(), done_w);
        let (mut out, mut stops) = (Vec::new(), 0);
        pump(
            out_r.into(),
            err_r.into(),
            done_r.as_fd(),
            cancel_r.as_fd(),
            &mut || {
                stops += 1;
                Ok(())
            },
            &mut |_, bytes| {
                out.extend_from_slice(bytes);
                Ok(())
            },
        )
        .unwrap();
        Pumped { out, stops }
    }

    #[test]
    fn everything_written_before_the_end_is_read() {
        let mut keep = None;
        let all = pumped(false, |mut out, err, done| {
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    out.write_all(&[b'x'; 997]).unwrap();
                }
                drop((out, err, done));
            });
        });
        assert_eq!(all.out.len(), 997_000);
        // A pipe that someone still holds open does not keep the pump waiting once it is done.
        let held = pumped(false, |mut out, err, done| {
            out.write_all(b"last words").unwrap();
            keep = Some((out, err));
            drop(done);
        });
        assert_eq!(held.out, b"last words");
    }

    #[test]
    fn a_cancel_stops_once() {
        let stopped = pumped(true, |out, err, done| {
            std::thread::spawn(move || drop((out, err, done)));
        });
        assert!(stopped.stops <= 1);
    }
}
