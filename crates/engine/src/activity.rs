//! What a branch's processes are doing: ending, pausing and resuming them.

use crate::branch::{Branch, identity, kill_recorded, name};
use crate::codes;
use crate::engine::Engine;
use forkpoint_model::Result;
use forkpoint_sandbox::is_alive;
use forkpoint_store::{BranchRecord, HistoryRecord};
use std::fmt;

/// What a branch's processes are doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// There are none: nothing of the branch is in memory.
    Stopped,
    /// They run.
    Running,
    /// They are held until [`Branch::resume`].
    Paused,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Paused => "paused",
        })
    }
}

impl Engine {
    /// What the processes of a branch are doing. Ends nothing, unlike [`Branch::is_running`].
    ///
    /// # Errors
    /// When the process table cannot be read.
    pub fn activity(&self, record: &BranchRecord) -> Result<Activity> {
        let Some(process) = &record.process else {
            return Ok(Activity::Stopped);
        };
        if !is_alive(&identity(process))? {
            return Ok(Activity::Stopped);
        }
        let branch = Branch::new(self.clone(), record.id);
        Ok(match branch.ask(record, |sandbox| sandbox.is_paused())? {
            Some(true) => Activity::Paused,
            Some(false) => Activity::Running,
            None => Activity::Stopped,
        })
    }

    /// Appends a line about a branch to the operation log.
    pub(crate) fn log_branch(
        &self,
        verb: &str,
        record: &BranchRecord,
        text: String,
        json: Option<String>,
    ) -> Result<()> {
        self.log(HistoryRecord {
            seq: 0,
            at_ns: self.now(),
            verb: verb.into(),
            world: Some(record.world),
            branch: Some(record.id),
            commit: None,
            text,
            json,
        })
    }
}

impl Branch {
    /// What its processes are doing.
    ///
    /// # Errors
    /// As [`Engine::activity`].
    pub fn activity(&self) -> Result<Activity> {
        self.engine.activity(&self.record()?)
    }

    /// Ends all its processes, paused ones too, and waits until they are dead. What it wrote to its
    /// disks stays, and it can be run in again. Says whether anything ran.
    ///
    /// # Errors
    /// `FP0406` when another process works on it; when the end cannot be made certain.
    pub fn stop(&self) -> Result<bool> {
        let _lock = self.lock()?;
        let record = self.record()?;
        let ran = self.engine.activity(&record)? != Activity::Stopped;
        kill_recorded(&self.engine, &record)?;
        if ran {
            let text = format!("{} is stopped", name(&record));
            self.engine.log_branch("stop", &record, text, None)?;
        }
        Ok(ran)
    }

    /// Holds all its processes until [`Branch::resume`], whatever becomes of this one: its init keeps
    /// them. A wall-clock limit does not run meanwhile, and nothing can be started in it. Pausing a
    /// paused branch changes nothing.
    ///
    /// # Errors
    /// `FP0405` when nothing runs in it; `FP0307` when a process does not stop.
    pub fn pause(&self) -> Result<()> {
        let _lock = self.lock()?;
        let record = self.record()?;
        self.held(&record)?.pause()?;
        let text = format!("{} is paused", name(&record));
        self.engine.log_branch("pause", &record, text, None)
    }

    /// Lets a paused branch go on. Resuming one that runs changes nothing.
    ///
    /// # Errors
    /// `FP0405` when nothing runs in it.
    pub fn resume(&self) -> Result<()> {
        let _lock = self.lock()?;
        let record = self.record()?;
        self.held(&record)?.resume()?;
        let text = format!("{} goes on", name(&record));
        self.engine.log_branch("resume", &record, text, None)
    }

    fn held(&self, record: &BranchRecord) -> Result<forkpoint_sandbox::Sandbox> {
        self.attach(record)?.ok_or_else(|| {
            codes::STATE
                .error(format!("nothing runs in {}", name(record)))
                .hint("start something first: forkpoint exec BRANCH -- CMD")
        })
    }
}
