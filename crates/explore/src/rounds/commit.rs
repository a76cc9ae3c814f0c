//! The end of a round: waits until what lost is dead, then commits or chooses one attempt.

use forkpoint_model::Result;
use std::time::Instant;

use super::Rounds;
use crate::backend::{CommitOutcome, CommitRequest};
use crate::observer::Progress;
use crate::report::{AttemptReport, AttemptState, Outcome, Reason, VerifierReport};

impl Rounds<'_, '_, '_> {
    /// Waits until everything that was told to stop is dead: a commit tears down every view on the
    /// base, and the losers must not outlive the first pass.
    pub(super) fn wait_for_stopped(&mut self) -> Result<()> {
        let count = self.slots.iter().filter(|s| s.stopping).count();
        if count == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        while self.slots.iter().any(|s| s.stopping) {
            self.receive()?;
        }
        self.context.shared.tell(&Progress::LosersDead {
            count,
            took: begun.elapsed(),
        });
        Ok(())
    }

    /// Commits or chooses the attempt; whether that went through.
    pub(super) fn commit(&mut self, i: u32) -> bool {
        let context = self.context;
        let Some(branch) = self.branch(i) else {
            return false;
        };
        if let Some(reason) = context.stop_reason() {
            self.slots[i as usize].reason = Some(reason);
            return false;
        }
        if context.spec.no_commit {
            self.win(i, AttemptState::Sealed, Outcome::Chosen);
            return true;
        }
        context.shared.tell(&Progress::Committing { index: i });
        let request = self.commit_request(i);
        let result = context
            .shared
            .timed(Some(i), "commit", || branch.commit(&request));
        let done = match result {
            Ok(done) => done,
            Err(error) => {
                let (reason, outcome) = match error.kind {
                    forkpoint_model::Kind::Conflict | forkpoint_model::Kind::Closed => {
                        (Reason::Lost, Outcome::Refused)
                    }
                    _ => (Reason::CommitError, Outcome::Failed),
                };
                let why = if error.hint.is_empty() {
                    error.to_string()
                } else {
                    format!("{error} ({})", error.hint)
                };
                return self.refuse(i, reason, outcome, why);
            }
        };
        for note in done.notes {
            context.note(self.report, note);
        }
        let row = &mut self.report.attempts[i as usize];
        row.excluded = done.excluded.into_iter().map(Into::into).collect();
        row.withheld = done.withheld.into_iter().map(Into::into).collect();
        let refused = Outcome::Refused;
        match done.outcome {
            CommitOutcome::Committed => {
                self.report.commit = Some(done.commit);
                self.win(i, AttemptState::Committed, Outcome::Committed);
                true
            }
            CommitOutcome::Blocked(items) => {
                self.report.commit = Some(done.commit);
                let row = &mut self.report.attempts[i as usize];
                row.detail = Some(format!("{} paths block the end of the commit", items.len()));
                row.conflicts = items;
                self.win(i, AttemptState::ApplyBlocked, Outcome::Committed);
                true
            }
            CommitOutcome::Conflict(items) => {
                let why = format!("{} paths changed in the base meanwhile", items.len());
                self.report.attempts[i as usize].conflicts = items;
                self.refuse(i, Reason::Conflict, refused, why)
            }
            CommitOutcome::Drift(paths) => {
                let why = match paths.first() {
                    Some(first) => format!("the base changed meanwhile: {}", first.display()),
                    None => "the base may have changed meanwhile".into(),
                };
                self.refuse(i, Reason::Drift, refused, why)
            }
            CommitOutcome::Lost(why) => self.refuse(i, Reason::Lost, refused, why),
            CommitOutcome::Empty => self.refuse(
                i,
                Reason::NoChange,
                Outcome::NonePassed,
                "it changes nothing".into(),
            ),
            CommitOutcome::ReverifyFailed(judged) => {
                let row = &mut self.report.attempts[i as usize];
                row.verifier = Some(VerifierReport {
                    exit_code: judged.exit.ended.exit_code(),
                    log: judged.log.map(Into::into),
                });
                let why = "it does not pass on the base as it now is".to_owned();
                self.refuse(i, Reason::ReverifyFailed, refused, why)
            }
        }
    }

    fn commit_request(&self, i: u32) -> CommitRequest {
        let context = self.context;
        let spec = context.spec;
        let reverify = spec.verify.as_ref().map(|verify| {
            context.judge(
                &verify.command,
                verify.timeout,
                self.vars(i),
                "reverify.log",
            )
        });
        CommitRequest {
            exclude: spec.exclude.clone(),
            include_prepared: !spec.exclude_prepared,
            allow_host_exec: spec.allow_host_exec,
            strict: spec.strict,
            allow_empty: spec.allow_empty,
            reverify,
        }
    }

    fn win(&mut self, i: u32, state: AttemptState, outcome: Outcome) {
        self.slots[i as usize].reason = Some(Reason::Passed);
        self.report.winner = Some(i);
        self.report.outcome = outcome;
        self.report.committed = outcome == Outcome::Committed;
        let row: &mut AttemptReport = &mut self.report.attempts[i as usize];
        row.state = state;
        let progress = Progress::Won {
            attempt: row,
            committed: self.report.committed,
        };
        self.context.shared.tell(&progress);
    }

    fn refuse(&mut self, i: u32, reason: Reason, outcome: Outcome, why: String) -> bool {
        self.context.shared.tell(&Progress::Refused {
            index: i,
            why: &why,
        });
        self.slots[i as usize].reason = Some(reason);
        self.report.attempts[i as usize].detail = Some(why);
        // A refusal among refusals does not hide an error.
        if self.report.outcome != Outcome::Failed {
            self.report.outcome = outcome;
        }
        false
    }
}
