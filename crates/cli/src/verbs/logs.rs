//! `forkpoint logs`.

use forkpoint_engine::{Activity, Branch, BranchState, Engine};
use forkpoint_model::{ExplorationId, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use serde_json::json;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::app::{App, Masks};
use crate::{codes, exit, output};

/// Show what a branch's commands wrote to standard output and error
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// What its verifier wrote instead
    #[arg(long, conflicts_with = "score")]
    verify: bool,
    /// What its score command wrote instead
    #[arg(long)]
    score: bool,
    /// Go on with what is written from now on, until nothing runs in the branch any more
    #[arg(long, short)]
    follow: bool,
}

/// How often a followed log is looked at where the kernel has nothing to tell.
const LOOK_MS: i64 = 500;

/// Shows.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    let log = branch.log_path();
    let path = match (args.verify, args.score) {
        (true, _) => log.with_file_name("verify.log"),
        (_, true) => log.with_file_name("score.log"),
        _ => log,
    };
    let label = branch.label()?;
    let mut follow = match args.follow && !app.json() {
        true => Some(Follow::new(&engine, &branch, &path)?),
        false => None,
    };
    if let Some(follow) = &mut follow {
        while !path.exists() && follow.wait()? {}
    }
    let mut file = std::fs::File::open(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => codes::NOTHING
            .error(format!("{label} has no such log"))
            .hint("a log exists once something has run, and until the branch is collected"),
        _ => codes::OUTPUT.io(format!("cannot read {}", path.display()), e),
    })?;
    if app.json() {
        output::print_json(
            &json!({"schema": "forkpoint.logs/1", "branch": branch.id(), "path": path}),
        )?;
        return Ok(exit::DONE);
    }
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => {
                let more = match &mut follow {
                    Some(follow) => follow.wait()?,
                    None => false,
                };
                if !more {
                    return Ok(exit::DONE);
                }
            }
            Ok(n) => output::print_foreign(&buffer[..n])?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(codes::OUTPUT.io(format!("cannot read {}", path.display()), e)),
        }
    }
}

/// Waits for a log to grow.
struct Follow<'a> {
    engine: &'a Engine,
    branch: &'a Branch,
    log: &'a Path,
    changes: OwnedFd,
    /// Something was seen running.
    ran: bool,
    /// Nothing runs any more: what is there now is all.
    over: bool,
}

impl<'a> Follow<'a> {
    fn new(engine: &'a Engine, branch: &'a Branch, log: &'a Path) -> Result<Self> {
        let io = |e| codes::OUTPUT.io("cannot watch the log", e);
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(io)?;
        // The directory is there as long as the branch is; without a watch it is looked at in turns.
        let what = WatchFlags::MODIFY | WatchFlags::CREATE;
        let dir = log.parent().unwrap_or(log);
        match inotify::add_watch(&changes, dir, what) {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(e) => return Err(io(e)),
        }
        Ok(Self {
            engine,
            branch,
            log,
            changes,
            ran: false,
            over: false,
        })
    }

    /// Whether something ran in a branch in which nothing runs. An attempt has its log before it is started.
    fn has_run(&self, exploration: Option<(ExplorationId, u32)>) -> Result<bool> {
        let to_come = match exploration {
            Some((id, _)) => forkpoint_explore::waiting::is_running(self.engine, id)?,
            None => false,
        };
        Ok(!to_come && self.log.exists())
    }

    /// Waits until there may be more. `false`: there will be none.
    fn wait(&mut self) -> Result<bool> {
        if self.over {
            return Ok(false);
        }
        let record = self.branch.record()?;
        let runs = self.branch.activity()? != Activity::Stopped;
        // Looked at before what is left is read: nothing is written after it.
        self.over = record.state != BranchState::Open
            || (!runs && (self.ran || self.has_run(record.exploration)?));
        self.ran |= runs;
        if self.over {
            return Ok(true);
        }
        let mut fds = [PollFd::new(&self.changes, PollFlags::IN)];
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_MS * 1_000_000,
        };
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(codes::OUTPUT.io("cannot wait for the log", e)),
        }
        forkpoint_sys::signal::drain(self.changes.as_fd())
            .map_err(|e| codes::OUTPUT.io("cannot watch the log", e))?;
        Ok(true)
    }
}
