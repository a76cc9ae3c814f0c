//! The output of a judged command: written to a log, and the end of its standard output kept.

use crate::codes;
use crate::redact::{Cleaner, Redactor};
use forkpoint_model::Result;
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A log stops growing here, with a line that says so. The command runs on.
const LOG_LIMIT: u64 = 64 << 20;

struct Log {
    file: Option<File>,
    written: u64,
}

impl Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let room = usize::try_from(LOG_LIMIT - self.written).unwrap_or(usize::MAX);
        let part = &bytes[..bytes.len().min(room)];
        file.write_all(part)?;
        self.written += part.len() as u64;
        if part.len() < bytes.len() {
            file.write_all(b"\n[forkpoint: the rest of the output was not logged]\n")?;
            self.file = None;
        }
        Ok(())
    }
}

/// Reads a command's output until it ends.
pub(crate) struct Tail {
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    readers: Vec<JoinHandle<std::io::Result<Vec<u8>>>>,
}

impl Tail {
    pub(crate) fn start(log: Option<&Path>, redactor: &Redactor, keep: usize) -> Result<Self> {
        let file = log
            .map(|path| {
                // A branch that nothing ran in yet has no directory.
                if let Some(dir) = path.parent() {
                    crate::files::make_dir(dir)?;
                }
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .mode(0o600)
                    .open(path)
                    .map_err(|e| codes::IO.io(format!("cannot open {}", path.display()), e))
            })
            .transpose()?;
        let log = Arc::new(Mutex::new(Log { file, written: 0 }));
        let pipe =
            || pipe_with(PipeFlags::CLOEXEC).map_err(|e| codes::IO.io("cannot make a pipe", e));
        let (out, stdout) = pipe()?;
        let (err, stderr) = pipe()?;
        let readers = vec![
            reader(out, log.clone(), redactor.clone(), keep),
            reader(err, log, redactor.clone(), 0),
        ];
        Ok(Self {
            stdout: Some(stdout),
            stderr: Some(stderr),
            readers,
        })
    }

    pub(crate) fn take_stdout(&mut self) -> Result<OwnedFd> {
        self.stdout
            .take()
            .ok_or_else(|| codes::INTERNAL.error("a stream was taken twice"))
    }

    pub(crate) fn take_stderr(&mut self) -> Result<OwnedFd> {
        self.stderr
            .take()
            .ok_or_else(|| codes::INTERNAL.error("a stream was taken twice"))
    }

    /// The end of standard output, once nobody holds it open any more.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        drop((self.stdout, self.stderr));
        let mut kept = Vec::new();
        for (index, reader) in self.readers.into_iter().enumerate() {
            let bytes = reader
                .join()
                .map_err(|_| codes::INTERNAL.error("a reading thread panicked"))?
                .map_err(|e| codes::IO.io("cannot keep a command's output", e))?;
            if index == 0 {
                kept = bytes;
            }
        }
        Ok(kept)
    }
}

fn reader(
    fd: OwnedFd,
    log: Arc<Mutex<Log>>,
    redactor: Redactor,
    keep: usize,
) -> JoinHandle<std::io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut file = File::from(fd);
        let mut kept = VecDeque::new();
        let mut buffer = vec![0u8; 64 << 10];
        let mut failure = None;
        let mut clean = Cleaner::new(&redactor);
        // A full disk must not block or kill the command: it is reported at the end.
        let mut write = |bytes: &[u8]| {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if failure.is_none() {
                failure = log.write(bytes).err();
            }
        };
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            clean.push(&buffer[..count], &mut write);
            kept.extend(&buffer[..count]);
            let excess = kept.len().saturating_sub(keep);
            kept.drain(..excess);
        }
        clean.end(&mut write);
        match failure {
            Some(e) => Err(e),
            None => Ok(kept.into()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_output_is_kept_and_all_of_it_logged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::start(Some(&path), &Redactor::default(), 5).unwrap();
        let (out, err) = (tail.take_stdout().unwrap(), tail.take_stderr().unwrap());
        File::from(out).write_all(b"0123456789").unwrap();
        drop(err);
        assert_eq!(tail.finish().unwrap(), b"56789");
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
    }

    #[test]
    fn a_secret_is_in_no_log_while_the_command_still_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let redactor = Redactor::new([b"hunter22".to_vec()]);
        let mut tail = Tail::start(Some(&path), &redactor, 0).unwrap();
        let mut out = File::from(tail.take_stdout().unwrap());
        let mut err = File::from(tail.take_stderr().unwrap());
        out.write_all(b"a hunt").unwrap();
        err.write_all(b"hunter22\n").unwrap();
        let wait = |text: &[u8]| {
            let begun = std::time::Instant::now();
            while std::fs::read(&path).unwrap().len() < text.len() {
                assert!(begun.elapsed().as_secs() < 10, "nothing was logged");
                std::thread::yield_now();
            }
        };
        wait(b"a [secret]\n");
        out.write_all(b"er22 b\n").unwrap();
        wait(b"a [secret]\n[secret] b\n");
        // Both streams are still open: nothing has been cleaned afterwards.
        let log = String::from_utf8(std::fs::read(&path).unwrap()).unwrap();
        assert!(!log.contains("hunt"), "{log}");
        drop((out, err));
        tail.finish().unwrap();
    }
}
