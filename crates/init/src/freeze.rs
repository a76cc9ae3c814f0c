//! Freezing the branch's processes by signals: SIGSTOP to all of them in one step, and SIGCONT
//! leaf first, so that no shell sees its children stopped; what was stopped before stays so.

use crate::procs::{self, Process};
use forkpoint_sys::{clock, signal};
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;

/// How long stopping may take: a process in uninterruptible sleep stops when that ends.
const PATIENCE_NS: u64 = 5_000_000_000;

/// After how many looks a parent that does not stop may be one that waits for the child of its vfork.
const VFORK_LOOKS: i64 = 2;

/// Processes that were stopped before the freeze, by pid and start.
#[derive(Debug, Default)]
pub struct Frozen {
    stopped_before: HashSet<(u32, u64)>,
}

impl Frozen {
    fn was_stopped(&self, process: &Process) -> bool {
        self.stopped_before
            .contains(&(process.pid, process.started))
    }
}

fn halted(state: u8) -> bool {
    matches!(state, b'T' | b't' | b'Z' | b'X')
}

/// Stops everything; returns when nothing can make progress.
pub fn freeze(proc: BorrowedFd<'_>) -> io::Result<Frozen> {
    let before = procs::list(proc)?;
    let stopped_before = before.iter().filter(|p| p.state == b'T');
    let frozen = Frozen {
        stopped_before: stopped_before.map(|p| (p.pid, p.started)).collect(),
    };
    if !signal::send_all_from_init(signal::SIGSTOP)? {
        return Ok(frozen);
    }
    let deadline = clock::monotonic_ns().saturating_add(PATIENCE_NS);
    for look in 0.. {
        let all = procs::list(proc)?;
        let going = going(proc, &all)?;
        if going.is_empty() {
            break;
        }
        if clock::monotonic_ns() > deadline {
            thaw(proc, &frozen)?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        let freed = look >= VFORK_LOOKS && free_vforked(&all, &going, &frozen)?;
        // A stop is not an event that can be waited for unless one is the parent.
        pause_ms(if freed { 1 + look % 8 } else { 1 })?;
        if freed {
            signal::send_all_from_init(signal::SIGSTOP)?;
        }
    }
    Ok(frozen)
}

/// The processes with a thread that is not stopped yet.
fn going(proc: BorrowedFd<'_>, all: &[Process]) -> io::Result<HashSet<u32>> {
    let mut going = HashSet::new();
    for process in all {
        // The state of a process is that of its first thread.
        if !halted(process.state)
            || process.threads > 1 && !procs::threads(proc, process.pid)?.into_iter().all(halted)
        {
            going.insert(process.pid);
        }
    }
    Ok(going)
}

/// Lets the stopped children of what does not stop go on for a moment, and says whether there were
/// any. A parent in vfork(2) waits, deaf to a stop, until its child runs a program or ends; a child
/// stopped before that would hold it there for ever.
fn free_vforked(all: &[Process], going: &HashSet<u32>, frozen: &Frozen) -> io::Result<bool> {
    let mut freed = false;
    for child in all {
        let held = child.state == b'T' && going.contains(&child.parent);
        if held && !frozen.was_stopped(child) {
            resume(child)?;
            freed = true;
        }
    }
    Ok(freed)
}

/// Lets go on what [`freeze`] stopped.
pub fn thaw(proc: BorrowedFd<'_>, frozen: &Frozen) -> io::Result<()> {
    let mut processes = procs::list(proc)?;
    let depths: Vec<usize> = processes.iter().map(|p| depth(&processes, p)).collect();
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(depths[i]));
    let mut sorted = Vec::with_capacity(processes.len());
    sorted.extend(order.into_iter().map(|i| processes[i]));
    processes = sorted;
    for process in processes.iter().filter(|p| !frozen.was_stopped(p)) {
        resume(process)?;
    }
    Ok(())
}

/// Lets one go on that may have ended.
fn resume(process: &Process) -> io::Result<()> {
    match signal::send_pid(process.pid, signal::SIGCONT) {
        Err(e) if e.raw_os_error() != Some(Errno::SRCH.raw_os_error()) => Err(e),
        _ => Ok(()),
    }
}

/// How far below init a process is.
fn depth(processes: &[Process], process: &Process) -> usize {
    let mut depth = 0;
    let mut parent = process.parent;
    while depth < processes.len() {
        let Ok(at) = processes.binary_search_by_key(&parent, |p| p.pid) else {
            break;
        };
        parent = processes[at].parent;
        depth += 1;
    }
    depth
}

fn pause_ms(ms: i64) -> io::Result<()> {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: ms * 1_000_000,
    };
    let none: &mut [PollFd<'_>] = &mut [];
    rustix::io::retry_on_intr(|| poll(none, Some(&timeout)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32) -> Process {
        Process {
            pid,
            parent,
            state: b'S',
            ticks: 0,
            started: 0,
            pages: 0,
            threads: 1,
        }
    }

    #[test]
    fn leaves_are_deepest() {
        let all = [process(2, 1), process(3, 2), process(4, 3), process(9, 1)];
        let depths: Vec<usize> = all.iter().map(|p| depth(&all, p)).collect();
        assert_eq!(depths, vec![0, 1, 2, 0]);
        let looped = [process(2, 3), process(3, 2)];
        assert_eq!(depth(&looped, &looped[0]), 2, "bounded");
    }
}
