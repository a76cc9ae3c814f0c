//! Attempts that go on from others: forked off a sealed branch, with what was said of it, and run.

use forkpoint_model::Result;
use forkpoint_model::strategy::Event;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::thread::Scope;

use super::{Rounds, Slot};
use crate::backend::NewAttempt;
use crate::claims::{self, FEEDBACK_FILE, FEEDBACK_LIMIT};
use crate::codes;
use crate::report::{AttemptReport, Reason};

impl<'a> Rounds<'a, '_, '_> {
    /// Forks attempt `i` off `parent`'s branch and starts it.
    pub(super) fn fork<'s, 'e>(
        &mut self,
        (i, parent, trial): (u32, u32, u32),
        scope: &'s Scope<'s, 'e>,
    ) -> Result<()>
    where
        'a: 's,
    {
        let context = self.context;
        let source = self.branch(parent);
        let Some(command) = context.trials.get(trial as usize) else {
            return Err(codes::INTERNAL.error("the strategy repeats an attempt there is not"));
        };
        if self.branches.len() != i as usize {
            return Err(codes::INTERNAL.error("the strategy numbers its attempts with gaps"));
        }
        let mut row = AttemptReport {
            index: i,
            command: command.command.display(),
            params: command.params.clone(),
            parent: Some(parent),
            depth: self.report.attempts[parent as usize].depth + 1,
            ..AttemptReport::default()
        };
        let branch = match source {
            Some(source) => source.fork(context.exploration, i),
            None => Err(codes::INTERNAL.error("what was never forked cannot be forked again")),
        };
        let mut failed = None;
        let branch = match branch {
            Ok(branch) => {
                row.branch = Some(branch.id());
                row.log = Some(branch.log().into());
                row.out = Some(branch.out().into());
                Some(branch.into())
            }
            Err(error) => {
                failed = Some(error);
                None
            }
        };
        let first = NewAttempt {
            index: i,
            branch: row.branch,
            command: row.command.clone(),
            params: row.params.clone(),
        };
        self.report.attempts.push(row);
        self.branches.push(branch);
        self.slots.push(Slot::default());
        self.trial_of.push(trial);
        context.backend.attempts(context.exploration, &[first])?;
        match failed {
            Some(error) => {
                let event = self.fail(i, Reason::StartError, &error);
                self.events.push_back(event);
                Ok(())
            }
            None => self.start(i, scope),
        }
    }

    /// Leaves what was said of the parent where the attempt finds it; its path inside.
    pub(super) fn leave_feedback(&self, i: u32) -> Result<Option<OsString>> {
        let row = &self.report.attempts[i as usize];
        let (Some(parent), Some(branch)) = (row.parent, self.branch(i)) else {
            return Ok(None);
        };
        let parent = &self.report.attempts[parent as usize];
        let verifier = parent.verifier.as_ref().and_then(|v| v.log.as_ref());
        let log = match verifier.or(parent.log.as_ref()) {
            Some(log) => end_of(Path::new(&log.0))?,
            None => Vec::new(),
        };
        let text = claims::feedback(parent, &log);
        branch.leave(FEEDBACK_FILE, &text).map(Some)
    }

    /// An attempt that may not start ends before it has begun.
    pub(super) fn refuse_start(&mut self, i: u32, why: String) {
        self.out(i, Reason::Budget, Some(why));
        self.events.push_back(Event::Failed { attempt: i });
    }
}

/// The end of a log of ours; nothing where there is none.
fn end_of(path: &Path) -> Result<Vec<u8>> {
    let io = |e| codes::LOG.io(format!("cannot read {}", path.display()), e);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io(e)),
    };
    let length = file.metadata().map_err(io)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(FEEDBACK_LIMIT)))
        .map_err(io)?;
    let mut text = Vec::new();
    file.take(FEEDBACK_LIMIT)
        .read_to_end(&mut text)
        .map_err(io)?;
    Ok(text)
}
