//! One connection of a branch's socket: the lines that came in, the answers that wait to be read.
//! Nothing here blocks, and nothing grows beyond its bounds, whatever the other end does.

use super::request::MAX_LINE;
use forkpoint_sys::scm;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Answers beyond this that nobody reads keep further requests waiting.
const MAX_UNREAD: usize = 64 << 10;
/// A buffer that grew beyond this is given back once it is empty.
const KEPT: usize = 64 << 10;

/// One connection.
pub(crate) struct Connection {
    /// Names it among all that this process ever served.
    pub(crate) key: u64,
    pub(crate) socket: OwnedFd,
    input: Vec<u8>,
    /// Where the first line that was not taken begins.
    start: usize,
    /// No line ends before this.
    scanned: usize,
    /// Where the first line ends, once it is known to.
    end: Option<usize>,
    output: Vec<u8>,
    sent: usize,
    /// The other end sends no more.
    eof: bool,
    /// Nothing more is taken; it is closed once its answers are read.
    closing: bool,
    /// A request of it is being worked on.
    pub(crate) busy: bool,
    /// When something last came or went, in monotonic nanoseconds.
    pub(crate) active_ns: u64,
}

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// Nothing new.
    Nothing,
    /// Something, or the end.
    Something,
    /// A line that is longer than any may be.
    TooLong,
    /// More than the branch may keep here at a time.
    TooMuch,
    /// The connection is gone.
    Gone,
}

impl Connection {
    pub(crate) fn new(key: u64, socket: OwnedFd, now: u64) -> Self {
        Self {
            key,
            socket,
            input: Vec::new(),
            start: 0,
            scanned: 0,
            end: None,
            output: Vec::new(),
            sent: 0,
            eof: false,
            closing: false,
            busy: false,
            active_ns: now,
        }
    }

    /// The bytes it keeps here.
    pub(crate) fn kept(&self) -> usize {
        self.input.len() + self.output.len()
    }

    fn unread(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether more is to be read from it now.
    pub(crate) fn wants_input(&self) -> bool {
        !(self.eof || self.closing || self.busy || self.end.is_some()) && self.unread() < MAX_UNREAD
    }

    /// Whether answers wait to be read.
    pub(crate) fn wants_output(&self) -> bool {
        self.unread() > 0
    }

    /// Whether a request can be taken from it now.
    pub(crate) fn has_request(&self) -> bool {
        self.end.is_some() && !self.busy && !self.closing && self.unread() < MAX_UNREAD
    }

    /// Whether it waits for nothing: neither half a line, nor an answer.
    pub(crate) fn is_idle(&self) -> bool {
        !self.busy && self.end.is_none() && self.start == self.input.len() && self.unread() == 0
    }

    /// Whether it waits for the other end: for the rest of a line, or for answers to be read.
    pub(crate) fn waits(&self) -> bool {
        !self.busy && !self.is_idle() && !self.has_request()
    }

    /// Whether nothing is left to do on it.
    pub(crate) fn is_over(&self) -> bool {
        let asks = !self.closing && (self.busy || self.end.is_some());
        (self.eof || self.closing) && !asks && self.unread() == 0
    }

    /// Reads once into `scratch`, and keeps what came if the branch may keep `room` bytes more.
    pub(crate) fn read(&mut self, scratch: &mut [u8], room: usize, now: u64) -> Got {
        let len = match scm::receive_bytes(self.socket.as_fd(), scratch) {
            Ok(len) => len,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Got::Nothing,
            Err(_) => return Got::Gone,
        };
        self.active_ns = now;
        if len == 0 {
            self.eof = true;
            // A last line may lack its end.
            if self.start < self.input.len() && self.end.is_none() {
                self.end = Some(self.input.len());
            }
            return Got::Something;
        }
        if len > room {
            return Got::TooMuch;
        }
        if self.start > 0 {
            self.input.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        self.input.extend_from_slice(&scratch[..len]);
        self.scan();
        let line = self.end.unwrap_or(self.input.len()) - self.start;
        if line >= MAX_LINE {
            return Got::TooLong;
        }
        Got::Something
    }

    fn scan(&mut self) {
        let from = self.scanned.max(self.start);
        self.end = self.input[from..]
            .iter()
            .position(|&b| b == b'\n')
            .map(|at| from + at);
        self.scanned = self.end.map_or(self.input.len(), |end| end + 1);
        if self.end.is_none() && self.eof && self.start < self.input.len() {
            self.end = Some(self.input.len());
        }
    }

    /// Takes the first request's line, without its end. `work` is given it in place.
    pub(crate) fn take<T>(&mut self, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let end = self.end.take()?;
        let done = work(&self.input[self.start..end]);
        self.start = (end + 1).min(self.input.len());
        self.scan();
        if self.start == self.input.len() {
            self.input.clear();
            (self.start, self.scanned) = (0, 0);
            if self.input.capacity() > KEPT {
                self.input = Vec::new();
            }
        }
        Some(done)
    }

    /// Adds an answer and sends what can be sent. `false`: the connection is gone.
    pub(crate) fn answer(&mut self, line: &[u8], now: u64) -> bool {
        self.output.extend_from_slice(line);
        self.flush(now)
    }

    /// Sends what can be sent. `false`: the connection is gone.
    pub(crate) fn flush(&mut self, now: u64) -> bool {
        while self.sent < self.output.len() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&self.socket, &self.output[self.sent..], flags) {
                Ok(len) => {
                    self.sent += len;
                    self.active_ns = now;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        self.output.clear();
        self.sent = 0;
        if self.output.capacity() > KEPT {
            self.output = Vec::new();
        }
        true
    }

    /// Takes and gives nothing more.
    pub(crate) fn drop_all(&mut self) {
        self.close();
        self.output = Vec::new();
        self.sent = 0;
    }

    /// Takes nothing more, and ends once what it was answered is read.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        self.input = Vec::new();
        (self.start, self.scanned, self.end) = (0, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, Connection) {
        let (outside, inside) = UnixStream::pair().expect("pair");
        inside.set_nonblocking(true).expect("nonblocking");
        (outside, Connection::new(1, inside.into(), 0))
    }

    fn lines(connection: &mut Connection, room: usize) -> (Vec<String>, Got) {
        let (mut scratch, mut all) = ([0; 32], Vec::new());
        loop {
            while connection.has_request() {
                let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
                all.extend(connection.take(text));
            }
            let got = connection.read(&mut scratch, room, 1);
            if got != Got::Something || connection.eof && !connection.has_request() {
                return (all, got);
            }
        }
    }

    #[test]
    fn lines_are_found_however_they_arrive() {
        let (mut outside, mut connection) = pair();
        let long = "x".repeat(100);
        for part in ["a\nb", "b\n\nc", &long, "\n"] {
            outside.write_all(part.as_bytes()).expect("write");
        }
        let (found, _) = lines(&mut connection, 1000);
        assert_eq!(found, ["a", "bb", "", &format!("c{long}")]);
        assert!(connection.is_idle() && connection.wants_input());
        assert_eq!(connection.kept(), 0);
        outside.write_all(b"half").expect("write");
        lines(&mut connection, 1000);
        assert!(connection.waits());
        outside.shutdown(std::net::Shutdown::Write).expect("end");
        let (found, _) = lines(&mut connection, 1000);
        assert_eq!(found, ["half"], "the last line needs no end");
        assert!(connection.is_over());
    }

    #[test]
    fn what_is_too_much_is_said_to_be() {
        let (mut outside, mut connection) = pair();
        outside.write_all(b"0123456789").expect("write");
        assert_eq!(lines(&mut connection, 9).1, Got::TooMuch);
        let (mut outside, mut connection) = pair();
        let mut scratch = vec![0; 64 << 10];
        let writer = std::thread::spawn(move || outside.write_all(&vec![b'x'; MAX_LINE]));
        let got = loop {
            match connection.read(&mut scratch, usize::MAX, 1) {
                Got::Something | Got::Nothing => {}
                other => break other,
            }
        };
        assert_eq!(got, Got::TooLong);
        writer.join().expect("join").expect("write");
        connection.close();
        assert_eq!(connection.kept(), 0);
        assert!(connection.is_over());
    }

    #[test]
    fn answers_wait_for_a_slow_reader_and_keep_its_requests_waiting() {
        let (mut outside, mut connection) = pair();
        outside.write_all(b"one\ntwo\n").expect("write");
        connection.read(&mut [0; 32], 1000, 1);
        assert!(connection.has_request());
        let answer = vec![b'a'; 1 << 20];
        assert!(connection.answer(&answer, 2));
        assert!(connection.wants_output() && connection.waits());
        assert!(!connection.has_request() && !connection.wants_input());
        let mut read = vec![0; answer.len()];
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| outside.read_exact(&mut read));
            while connection.wants_output() {
                assert!(connection.flush(3));
            }
            reader.join().expect("join").expect("read");
        });
        assert!(connection.has_request());
        drop(outside);
        assert!(!connection.answer(b"x", 4), "nobody is there");
    }
}
