//! Drives one exploration from its first record to its last: prepares, looks at the base, forks,
//! does what the strategy says, and settles what is left. The strategy decides; this executes.

use forkpoint_model::strategy::{BestOfN, Direction, FirstWins, Strategy};
use forkpoint_model::{ExplorationId, Result};
use std::ffi::OsString;
use std::time::{Duration, Instant};

use crate::backend::{
    Attempt, Backend, Ended, JudgeRequest, NewAttempt, NewExploration, PrepareRequest, RunRequest,
};
use crate::jobs;
use crate::observer::{Observer, Progress};
use crate::report::{AttemptReport, Baseline, Outcome, PreparationReport, Report, SCHEMA};
use crate::rounds::Rounds;
use crate::settle;
use crate::spec::{CommandLine, ExploreSpec, StrategyName, Trial};
use crate::vars::{self, Caller, Vars};
use crate::watch::{RaiseOnDrop, Shared, Stop, Watch};
use crate::{Cancel, codes};

/// What stays the same throughout.
pub(crate) struct Context<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) spec: &'a ExploreSpec,
    pub(crate) trials: Vec<Trial>,
    pub(crate) caller: Caller<'a>,
    pub(crate) vars: Vars,
    pub(crate) exploration: ExplorationId,
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) watch: &'a Watch,
    pub(crate) deadline: Option<Instant>,
    pub(crate) jobs: u32,
}

/// Explores: everything up to the report. Raising `cancel` ends it within moments, everything rolled
/// back.
///
/// # Errors
/// `FP0501` where the specification makes no sense (nothing has happened then), and whatever keeps
/// every attempt from running: a preparation that fails, a base that cannot be forked. A single
/// attempt that fails is no error but a row of the report.
pub fn run(
    backend: &dyn Backend,
    spec: &ExploreSpec,
    caller: Caller<'_>,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Report> {
    let trials = spec.expand()?;
    let begun = Instant::now();
    let deadline = spec.total_timeout.and_then(|t| begun.checked_add(t.0));
    let strategy = spec.strategy().as_str();
    let json = serde_json::to_string(spec)
        .map_err(|e| codes::INTERNAL.io("cannot write the specification down", e))?;
    let attempts = trials.len() as u32;
    let exploration = backend.begin(&NewExploration {
        strategy,
        spec: json,
        attempts,
    })?;
    let jobs = spec.jobs.unwrap_or_else(default_jobs).min(attempts);
    let (watch, over) = (Watch::new()?, Cancel::new()?);
    let shared = Shared::new(observer);
    shared.tell(&Progress::Begin {
        exploration,
        attempts,
        jobs,
        strategy,
    });
    let context = Context {
        backend,
        spec,
        vars: vars::resolve(&spec.env, caller),
        trials,
        caller,
        exploration,
        shared: &shared,
        watch: &watch,
        deadline,
        jobs,
    };
    let mut report = context.blank_report();
    for note in &report.notes {
        shared.tell(&Progress::Note(note));
    }
    let result = std::thread::scope(|scope| {
        let (sender, messages) = std::sync::mpsc::channel();
        let ended = sender.clone();
        let (watch, over) = (&watch, &over);
        scope.spawn(move || {
            // The receiver is gone once the exploration is over: nobody needs to be told then.
            watch.wait(cancel, over, deadline, |why| {
                ended.send(crate::rounds::Message::Stop(why)).unwrap_or(())
            });
        });
        let _over = RaiseOnDrop(over);
        context.explore(&mut report, sender, messages)
    });
    report.wall_s = begun.elapsed().as_secs_f64();
    if let Err(error) = result {
        report.outcome = Outcome::Failed;
        backend.end(&report, Some(&error))?;
        return Err(error);
    }
    backend.end(&report, None)?;
    Ok(report)
}

/// As many as there are processors.
fn default_jobs() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(1024) as u32)
}

impl Context<'_> {
    fn blank_report(&self) -> Report {
        let row = |(index, trial): (usize, &Trial)| AttemptReport {
            index: index as u32,
            command: trial.command.display(),
            params: trial.params.clone(),
            ..AttemptReport::default()
        };
        Report {
            schema: SCHEMA.into(),
            exploration: self.exploration,
            world: self.backend.world(),
            base: self.spec.base.clone(),
            strategy: self.spec.strategy().as_str().into(),
            outcome: Outcome::NonePassed,
            winner: None,
            committed: false,
            commit: None,
            baseline: None,
            preparation: None,
            wall_s: 0.0,
            notes: self.backend.notes(),
            attempts: self.trials.iter().enumerate().map(row).collect(),
        }
    }

    fn explore(
        &self,
        report: &mut Report,
        sender: crate::rounds::Sender,
        messages: crate::rounds::Receiver,
    ) -> Result<()> {
        let stopped = |result: Result<()>| match result {
            // What was cancelled is not a failure: the report says that it was interrupted.
            Err(_) if self.watch.why().is_some() => Ok(()),
            other => other,
        };
        stopped(self.prepare(report))?;
        if self.watch.why().is_none() {
            stopped(self.look_at_base(report))?;
        }
        if self.watch.why().is_some() {
            settle::never_forked(self, report);
            return Ok(());
        }
        let branches = self.fork(report)?;
        let strategy = self.strategy();
        let mut rounds = Rounds::new(self, strategy, &branches, report, sender, messages);
        let result = std::thread::scope(|scope| rounds.play(scope));
        let slots = rounds.into_slots();
        settle::settle(self, report, &branches, slots);
        result
    }

    fn strategy(&self) -> Box<dyn Strategy> {
        match (self.spec.strategy(), &self.spec.score) {
            (StrategyName::FirstWins, _) => Box::new(FirstWins::new()),
            (StrategyName::BestOfN, Some(score)) => {
                Box::new(BestOfN::new(score.direction).exclusive(score.exclusive))
            }
            (StrategyName::BestOfN, None) => Box::new(BestOfN::new(Direction::default())),
        }
    }

    fn prepare(&self, report: &mut Report) -> Result<()> {
        let Some(prepare) = &self.spec.prepare else {
            return Ok(());
        };
        let command = prepare.command.display();
        self.shared.tell(&Progress::Preparing { command: &command });
        let begun = Instant::now();
        let request = PrepareRequest {
            run: RunRequest {
                argv: prepare.command.argv(),
                env: self.vars.clone(),
                timeout: prepare.timeout.map(|t| t.0),
                limits: self.spec.limits,
                network: prepare.network,
                cancel: self.watch.stop.clone(),
            },
            inputs: prepare.inputs.clone(),
        };
        let shared = self.shared;
        let mut lines = [crate::logs::Lines::default(), crate::logs::Lines::default()];
        let prepared = self
            .backend
            .prepare(self.exploration, &request, &mut |stream, bytes| {
                lines[stream as usize].push(bytes, |text| {
                    shared.tell(&Progress::Line {
                        index: None,
                        stream,
                        text,
                    })
                });
            })?;
        let took = begun.elapsed();
        self.shared.tell(&Progress::Prepared {
            prepared: &prepared,
            took,
        });
        report.preparation = Some(PreparationReport {
            cached: prepared.cached,
            wall_s: took.as_secs_f64(),
            changed: prepared.changed,
            log: prepared.log.map(Into::into),
        });
        Ok(())
    }

    /// Runs the gate and the score on the base: what passes there already cannot tell a fix from none.
    fn look_at_base(&self, report: &mut Report) -> Result<()> {
        if self.spec.verify.is_none() && self.spec.score.is_none() {
            return Ok(());
        }
        let mut vars = self.vars.clone();
        vars.push((
            "FORKPOINT_EXPLORATION".into(),
            self.exploration.to_string().into(),
        ));
        let mut baseline = Baseline::default();
        if let Some(verify) = &self.spec.verify {
            let request = self.judge(&verify.command, verify.timeout, vars.clone(), "verify.log");
            let judged = self.backend.judge_base(self.exploration, &request)?;
            baseline.passed = Some(judged.exit.ended == Ended::Code(0));
            baseline.exit_code = judged.exit.ended.exit_code();
            if let Ended::NotStarted(_) = judged.exit.ended {
                self.note(
                    report,
                    format!("the verifier {}", jobs::words(&judged.exit.ended)),
                );
            }
            baseline.log = judged.log.map(Into::into);
        }
        if let Some(score) = &self.spec.score {
            let request = JudgeRequest {
                score: true,
                ..self.judge(&score.command, score.timeout, vars, "score.log")
            };
            let judged = self.backend.judge_base(self.exploration, &request)?;
            match jobs::read_score(&judged) {
                Ok(all) => (baseline.score, baseline.metrics) = (Some(all.score), all.metrics),
                Err(error) => self.note(report, format!("no score on the base: {}", error.message)),
            }
            baseline.log = baseline.log.or(judged.log.map(Into::into));
        }
        if self.watch.why().is_some() {
            return Ok(());
        }
        if baseline.passed == Some(true) {
            let note =
                "the verifier passes on the base already: it cannot tell a fix from no change";
            self.note(report, note.into());
        }
        self.shared.tell(&Progress::Baseline(&baseline));
        report.baseline = Some(baseline);
        Ok(())
    }

    pub(crate) fn note(&self, report: &mut Report, note: String) {
        self.shared.tell(&Progress::Note(&note));
        report.notes.push(note);
    }

    /// A judge's request, cancelled with the exploration until someone gives it a flag of its own.
    pub(crate) fn judge(
        &self,
        command: &CommandLine,
        timeout: Option<crate::units::Time>,
        env: Vec<(OsString, OsString)>,
        log: &str,
    ) -> JudgeRequest {
        JudgeRequest {
            run: RunRequest {
                argv: command.argv(),
                env,
                timeout: timeout.map(|t| t.0),
                limits: self.spec.limits,
                network: self.spec.network,
                cancel: self.watch.stop.clone(),
            },
            mounts: self.spec.judge_mounts(),
            log: log.into(),
            score: false,
        }
    }

    /// Forks every attempt at once, so that all of them see the base at one moment.
    fn fork(&self, report: &mut Report) -> Result<Vec<Option<Box<dyn Attempt>>>> {
        let count = self.trials.len() as u32;
        let forked = self.backend.fork(self.exploration, count)?;
        let mut branches = Vec::new();
        let mut first_error = None;
        for (row, fork) in report.attempts.iter_mut().zip(forked) {
            match fork {
                Ok(branch) => {
                    row.branch = Some(branch.id());
                    row.log = Some(branch.log().into());
                    row.out = Some(branch.out().into());
                    branches.push(Some(branch));
                }
                Err(error) => {
                    row.reason = crate::report::Reason::StartError;
                    row.detail = Some(error.to_string());
                    first_error.get_or_insert(error);
                    branches.push(None);
                }
            }
        }
        if branches.len() != self.trials.len() {
            return Err(
                codes::INTERNAL.error("the engine forked another number than was asked for")
            );
        }
        let rows: Vec<NewAttempt> = report
            .attempts
            .iter()
            .map(|row| NewAttempt {
                index: row.index,
                branch: row.branch,
                command: row.command.clone(),
                params: row.params.clone(),
            })
            .collect();
        self.backend.attempts(self.exploration, &rows)?;
        match first_error {
            Some(error) if branches.iter().all(Option::is_none) => Err(error),
            _ => Ok(branches),
        }
    }

    /// What an attempt may take, and until when: its own limit, or what is left of the whole.
    pub(crate) fn time_for_attempt(&self) -> (Option<Duration>, Option<OsString>) {
        let own = self.spec.timeout.map(|t| t.0);
        let left = self
            .deadline
            .map(|at| at.saturating_duration_since(Instant::now()));
        let until = match (own, left) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let deadline = until.map(|time| {
            let nanos = i128::from(self.backend.wall_ns()) + time.as_nanos() as i128;
            OsString::from((nanos / 1_000_000_000).to_string())
        });
        (own, deadline)
    }

    /// The reason of what the watch ended.
    pub(crate) fn stop_reason(&self) -> Option<crate::report::Reason> {
        self.watch.why().map(|why| match why {
            Stop::Interrupted => crate::report::Reason::Interrupted,
            Stop::Deadline => crate::report::Reason::TotalTimeout,
        })
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
