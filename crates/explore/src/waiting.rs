//! Explorations of other processes: waiting for one to end, and asking its supervisor to end it. A
//! supervisor is recognised by boot, process id and start time, and held by a descriptor, so that a
//! process that was given its number later is never taken for it.

use forkpoint_engine::Engine;
use forkpoint_engine::records::{ExplorationRecord, ExplorationState};
use forkpoint_model::{Error, ExplorationId, Result};
use forkpoint_sys::clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::watch::timespec;
use crate::{Cancel, Report, codes};

/// How waiting ended.
#[derive(Debug)]
pub enum Waited {
    /// The exploration is over; its report.
    Over(Box<Report>),
    /// An error ended it.
    Failed(Error),
    /// The time is over, and it still runs.
    TimedOut,
    /// The caller's flag was raised.
    Cancelled,
}

/// The supervisor, if it lives.
fn supervisor(record: &ExplorationRecord) -> Result<Option<OwnedFd>> {
    let Some(process) = &record.supervisor else {
        return Ok(None);
    };
    let io = |e: std::io::Error| codes::INTERNAL.io("cannot look at a supervisor", e);
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    if clock::boot_id().map_err(io)? != process.boot_id {
        return Ok(None);
    }
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(Errno::SRCH) => return Ok(None),
        Err(e) => return Err(io(e.into())),
    };
    // Looked at after it is held: from here on the number belongs to this very process.
    match clock::process_start_time(process.pid) {
        Ok(start) if start == process.start_time => Ok(Some(pidfd)),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // It ended while it was read.
        Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(e) => Err(io(e)),
    }
}

/// Whether exploration `id` still runs: its attempts may be started yet.
///
/// # Errors
/// When there is no such exploration, or its supervisor cannot be looked at.
pub fn is_running(engine: &Engine, id: ExplorationId) -> Result<bool> {
    let record = engine.store().exploration(id)?;
    Ok(record.state == ExplorationState::Running && supervisor(&record)?.is_some())
}

/// Waits until exploration `id` is over, at most `limit`.
///
/// # Errors
/// `FP0505` where it ended without a result, since its supervisor died.
pub fn wait(
    engine: &Engine,
    id: ExplorationId,
    limit: Option<Duration>,
    cancel: &Cancel,
) -> Result<Waited> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let record = engine.store().exploration(id)?;
    if let Some(result) = outcome(&record)? {
        return Ok(result);
    }
    if record.state == ExplorationState::Running
        && let Some(supervisor) = supervisor(&record)?
    {
        loop {
            let mut fds = [
                PollFd::new(&supervisor, PollFlags::IN),
                PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN),
            ];
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match poll(&mut fds, left.map(timespec).as_ref()) {
                Err(Errno::INTR) => continue,
                Err(e) => return Err(codes::INTERNAL.io("cannot wait", e)),
                Ok(0) => return Ok(Waited::TimedOut),
                Ok(_) => {}
            }
            if cancel.is_cancelled() {
                return Ok(Waited::Cancelled);
            }
            break;
        }
    }
    let record = engine.store().exploration(id)?;
    outcome(&record)?.ok_or_else(|| {
        codes::NO_RESULT
            .error(format!(
                "exploration {id} ended without a result: its supervisor died"
            ))
            .hint("its attempts are rolled back by the next command; explore again")
    })
}

/// What the record says came of it, if it is over.
fn outcome(record: &ExplorationRecord) -> Result<Option<Waited>> {
    let Some(text) = &record.result else {
        return Ok(None);
    };
    if let Ok(report) = serde_json::from_str::<Report>(text) {
        return Ok(Some(Waited::Over(Box::new(report))));
    }
    serde_json::from_str::<Error>(text)
        .map(|error| Some(Waited::Failed(error)))
        .map_err(|e| codes::INTERNAL.io("the result of an exploration cannot be read", e))
}

/// Asks the supervisor of a running exploration to end it, as Ctrl-C would. `false` where it runs no
/// longer.
///
/// # Errors
/// When the supervisor cannot be asked.
pub fn interrupt(record: &ExplorationRecord) -> Result<bool> {
    if record.state != ExplorationState::Running {
        return Ok(false);
    }
    let Some(supervisor) = supervisor(record)? else {
        return Ok(false);
    };
    match pidfd_send_signal(supervisor.as_fd(), Signal::INT) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(e) => Err(codes::INTERNAL.io("cannot interrupt a supervisor", e)),
    }
}
