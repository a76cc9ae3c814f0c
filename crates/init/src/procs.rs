//! The processes of the branch, as init's own `/proc` shows them.

use forkpoint_sys::openat;
use rustix::fs::{Dir, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// One process of the branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its pid inside.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// The state letter: `T` is stopped, `Z` a zombie.
    pub state: u8,
    /// Processor time of it and of the children it waited for, in clock ticks.
    pub ticks: u64,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// Resident pages.
    pub pages: u64,
    /// Threads.
    pub threads: u64,
}

/// Every process but init, in the order of their pids. One that ends meanwhile is left out.
pub fn list(proc: BorrowedFd<'_>) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for pid in pids(proc)? {
        match read(proc, pid, "stat") {
            Ok(text) => found.extend(parse(pid, &text)),
            Err(e) if gone(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// The pids of every process but init.
pub fn pids(proc: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut pids = numbers(proc, "")?;
    pids.retain(|&pid| pid != 1);
    pids.sort_unstable();
    Ok(pids)
}

/// The state letters of a process's threads; none when it has ended.
pub fn threads(proc: BorrowedFd<'_>, pid: u32) -> io::Result<Vec<u8>> {
    let tids = match numbers(proc, &format!("{pid}/task")) {
        Err(e) if gone(&e) => return Ok(Vec::new()),
        tids => tids?,
    };
    let mut states = Vec::with_capacity(tids.len());
    for tid in tids {
        match read(proc, pid, &format!("task/{tid}/stat")) {
            Ok(text) => states.extend(parse(tid, &text).map(|thread| thread.state)),
            Err(e) if gone(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(states)
}

/// The entries of a directory of `/proc` that are numbers.
fn numbers(proc: BorrowedFd<'_>, path: &str) -> io::Result<Vec<u32>> {
    // The mount's own descriptor only stands for a path: open the directory to read it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dir = openat::beneath(proc, Path::new(path), flags, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::new(dir)? {
        let entry = entry?;
        let name = std::str::from_utf8(entry.file_name().to_bytes()).unwrap_or("");
        found.extend(name.parse::<u32>());
    }
    Ok(found)
}

/// The part of a process's memory that counts as its own: pages shared with others are counted
/// by shares. Slower than [`Process::pages`] by far.
pub fn proportional_bytes(proc: BorrowedFd<'_>, pid: u32) -> io::Result<u64> {
    let text = match read(proc, pid, "smaps_rollup") {
        Ok(text) => text,
        Err(e) if gone(&e) => return Ok(0),
        Err(e) => return Err(e),
    };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = line.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.unwrap_or(0).saturating_mul(1024))
}

fn gone(e: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(e), Some(Errno::NOENT | Errno::SRCH))
}

fn read(proc: BorrowedFd<'_>, pid: u32, name: &str) -> io::Result<Vec<u8>> {
    let path = format!("{pid}/{name}");
    let fd = openat::beneath(proc, Path::new(&path), OFlags::RDONLY, Mode::empty())?;
    let mut buffer = [0u8; 4096];
    let len = rustix::io::read(fd.as_fd(), &mut buffer)?;
    Ok(buffer[..len].to_vec())
}

/// The name is in parentheses and may hold anything: fields are counted from the last closing one.
fn parse(pid: u32, stat: &[u8]) -> Option<Process> {
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let text = std::str::from_utf8(stat.get(after..)?).ok()?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        ticks: (11..=14).filter_map(number).sum(),
        threads: number(17)?,
        started: number(19)?,
        pages: number(21)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_a_hostile_name() {
        let line = b"7 (a) R 1 ) S 3 7 7 0 -1 0 0 0 0 0 1 2 4 8 20 0 5 0 99 1000 42 1";
        let process = parse(7, line).expect("parsed");
        assert_eq!((process.parent, process.state), (3, b'S'));
        assert_eq!(process.ticks, 15);
        assert_eq!(
            (process.threads, process.started, process.pages),
            (5, 99, 42)
        );
        assert_eq!(parse(7, b"7 (broken"), None);
    }
}
