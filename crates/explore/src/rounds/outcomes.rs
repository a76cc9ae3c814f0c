//! What came of the jobs: each outcome is written into its row of the report and told to the strategy
//! as one event.

use forkpoint_model::Error;
use forkpoint_model::strategy::Event;
use std::time::Duration;

use super::Rounds;
use crate::backend::Ended;
use crate::codes;
use crate::jobs::{self, Done, Ran, Run, Verdict};
use crate::observer::Progress;
use crate::report::{Reason, VerifierReport};
use crate::score::Score;
use crate::spec::StrategyName;

impl Rounds<'_, '_, '_> {
    /// Why the attempt is not worth verifying, if it is not.
    fn not_a_candidate(&self, i: u32, ran: &Ran) -> Option<Reason> {
        let spec = self.context.spec;
        let strategy = spec.strategy();
        match &ran.ended {
            // In halving the time is a turn, and what was done in it counts.
            Ended::TimeLimit if strategy == StrategyName::Halving => None,
            Ended::TimeLimit => Some(Reason::Timeout),
            // What failed may be worth going on from; it has not passed.
            Ended::Code(_) if strategy.nests() => None,
            Ended::Limit(_) if !self.slots[i as usize].own_limits => Some(Reason::Budget),
            Ended::Limit(_) => Some(Reason::Limit),
            Ended::NotStarted(_) => Some(Reason::StartError),
            Ended::Code(0) => None,
            _ if spec.verify.is_none() => Some(Reason::Exit),
            _ => None,
        }
        .or_else(|| (ran.delta.changed.files == 0 && !spec.allow_empty).then_some(Reason::NoChange))
    }

    pub(super) fn ran(&mut self, i: u32, Run { exit, done }: Run) -> Event {
        self.read_cost(i);
        self.meter
            .ended(i, exit.as_ref().map_or(Duration::ZERO, |exit| exit.cpu));
        if let Some(exit) = exit {
            self.read_claimed_score(i);
            let row = &mut self.report.attempts[i as usize];
            // How one that was told to stop ended says nothing of it.
            row.exit_code = match &done {
                Done::Stopped => None,
                _ => exit.ended.exit_code(),
            };
            row.wall_s = exit.wall.as_secs_f64();
            row.cpu_s = exit.cpu.as_secs_f64();
            row.peak_memory_bytes = exit.peak_memory_bytes;
            row.uncaptured = exit.uncaptured;
        }
        match done {
            Done::Stopped => {
                if let Some(why) = self.slots[i as usize].over_budget.take() {
                    self.out(i, Reason::Budget, Some(why));
                }
                Event::Stopped { attempt: i }
            }
            Done::Failed(error) => self.fail(i, Reason::StartError, &error),
            Done::Ok(ran) => {
                self.count_disk(i);
                let reason = self.not_a_candidate(i, &ran);
                let detail = match &ran.ended {
                    Ended::Code(_) | Ended::TimeLimit => None,
                    ended => Some(format!("the command {}", jobs::words(ended))),
                };
                let row = &mut self.report.attempts[i as usize];
                row.restored = ran.restored.into_iter().map(Into::into).collect();
                (row.changed, row.prepared) = (ran.delta.changed, ran.delta.prepared);
                row.dropped = ran.delta.dropped;
                self.slots[i as usize].sealed = true;
                if let Some(reason) = reason {
                    self.out(i, reason, detail);
                }
                Event::Finished {
                    attempt: i,
                    candidate: reason.is_none(),
                }
            }
        }
    }

    /// Counts what the attempt has left on disk.
    fn count_disk(&mut self, i: u32) {
        if !self.meter.watches_disk() {
            return;
        }
        if let Some(Ok(usage)) = self.branch(i).map(|branch| branch.usage(true)) {
            self.meter.saw(i, usage);
        }
    }

    /// Notes that the attempt is out.
    pub(super) fn out(&mut self, i: u32, reason: Reason, detail: Option<String>) {
        self.slots[i as usize].reason = Some(reason);
        let progress = Progress::Out {
            index: i,
            reason,
            detail: detail.as_deref(),
        };
        self.context.shared.tell(&progress);
        self.report.attempts[i as usize].detail = detail;
    }

    pub(super) fn fail(&mut self, i: u32, reason: Reason, error: &Error) -> Event {
        let reason = if error.code == codes::INTERNAL.text {
            Reason::InternalError
        } else {
            reason
        };
        self.out(i, reason, Some(error.to_string()));
        Event::Failed { attempt: i }
    }

    pub(super) fn verified(&mut self, i: u32, done: Done<Verdict>) -> Event {
        let verdict = match done {
            Done::Stopped => return Event::Stopped { attempt: i },
            Done::Failed(error) => return self.fail(i, Reason::VerifierError, &error),
            Done::Ok(verdict) => verdict,
        };
        self.meter.judged(verdict.judged.exit.cpu);
        let passed = verdict.passed;
        let log = verdict.judged.log.as_deref();
        self.context.shared.tell(&Progress::Verified {
            index: i,
            passed,
            log,
        });
        let row = &mut self.report.attempts[i as usize];
        row.passed = passed;
        let ended = verdict.judged.exit.ended;
        row.verifier = Some(VerifierReport {
            exit_code: ended.exit_code(),
            log: verdict.judged.log.map(Into::into),
        });
        if !passed {
            let (reason, says) = match &ended {
                Ended::NotStarted(_) => (Reason::VerifierError, true),
                // What a shell says of a command that is missing or cannot be executed.
                Ended::Code(126 | 127) => (Reason::VerifierError, true),
                Ended::TimeLimit => (Reason::VerifierTimeout, false),
                Ended::Code(_) => (Reason::FailedVerify, false),
                Ended::Signal(_) | Ended::Limit(_) => (Reason::FailedVerify, true),
            };
            let detail = says.then(|| format!("the verifier {}", jobs::words(&ended)));
            self.out(i, reason, detail);
        }
        Event::Verified { attempt: i, passed }
    }

    pub(super) fn scored(&mut self, i: u32, done: Done<Score>) -> Event {
        match done {
            Done::Stopped => Event::Stopped { attempt: i },
            Done::Failed(error) => self.fail(i, Reason::ScoreError, &error),
            Done::Ok(all) => {
                self.context.shared.tell(&Progress::Scored {
                    index: i,
                    score: all.score,
                });
                let row = &mut self.report.attempts[i as usize];
                row.score = Some(all.score);
                row.metrics = all.metrics;
                let changed_bytes = row.changed.bytes;
                Event::Scored {
                    attempt: i,
                    score: Some(all.score),
                    changed_bytes,
                }
            }
        }
    }
}
