//! Drives one exploration from its first record to its last: prepares, looks at the base, forks,
//! does what the strategy says, and settles what is left. The strategy decides; this executes.

use forkpoint_model::strategy::{
    Beam, BestOfN, FirstWins, Halving, Nested, Refine, Strategy, Tournament,
};
use forkpoint_model::{ExplorationId, Result};
use std::ffi::OsString;
use std::time::{Duration, Instant};

use crate::backend::{
    Backend, Ended, JudgeRequest, NewAttempt, NewExploration, PrepareRequest, RunRequest,
};
use crate::jobs;
use crate::meter::Meter;
use crate::observer::{Observer, Progress};
use crate::redact;
use crate::report::{AttemptReport, Baseline, Outcome, PreparationReport, Report, SCHEMA};
use crate::rounds::Rounds;
use crate::settle;
use crate::spec::{CommandLine, ExploreSpec, LimitSpec, StrategyName, Trial};
use crate::units::Time;
use crate::vars::{self, Caller, Vars};
use crate::watch::{Quiet, RaiseOnDrop, Shared, Stop, Watch};
use crate::{Cancel, codes};

/// What stays the same throughout.
pub(crate) struct Context<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) spec: &'a ExploreSpec,
    pub(crate) trials: Vec<Trial>,
    pub(crate) caller: Caller<'a>,
    pub(crate) vars: Vars,
    pub(crate) secrets: Vars,
    pub(crate) exploration: ExplorationId,
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) watch: &'a Watch,
    pub(crate) quiet: Quiet,
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
    let secrets = redact::values(&spec.secrets, caller)?;
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
    let most = match spec.strategy().nests() {
        true => spec.search.max_attempts(),
        false => attempts,
    };
    let jobs = spec.jobs.unwrap_or_else(crate::units::processors).min(most);
    let jobs = Meter::jobs(&spec.budget, &spec.limits, jobs);
    let (watch, over) = (Watch::new()?, Cancel::new()?);
    let shared = Shared::new(observer, redact::redactor(&secrets));
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
        secrets,
        trials,
        caller,
        exploration,
        shared: &shared,
        watch: &watch,
        quiet: Quiet::default(),
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
    report.timeline = shared.timeline();
    if let Err(error) = result {
        report.outcome = Outcome::Failed;
        backend.end(&report, Some(&error))?;
        return Err(error);
    }
    backend.end(&report, None)?;
    Ok(report)
}

impl Context<'_> {
    fn blank_report(&self) -> Report {
        let row = |(index, trial): (usize, &Trial)| AttemptReport {
            index: index as u32,
            name: trial.name.clone(),
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
            cost: 0.0,
            comparisons: Vec::new(),
            notes: self.backend.notes(),
            attempts: self.trials.iter().enumerate().map(row).collect(),
            timeline: Vec::new(),
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
        if self.spec.prepare.is_some() {
            let prepare = || self.prepare(report);
            stopped(self.shared.timed(None, "prepare", prepare))?;
        }
        if self.watch.why().is_none() {
            let look = || self.look_at_base(report);
            stopped(self.shared.timed(None, "baseline", look))?;
        }
        if self.watch.why().is_some() {
            settle::never_forked(self, report);
            return Ok(());
        }
        let branches = self.fork(report)?;
        let strategy = self.strategy();
        let mut rounds = Rounds::new(self, strategy, branches, report, sender, messages);
        let result = std::thread::scope(|scope| rounds.play(scope));
        let (branches, slots) = rounds.into_parts();
        settle::settle(self, report, &branches, slots);
        result
    }

    fn strategy(&self) -> Box<dyn Strategy> {
        let search = &self.spec.search;
        let score = self.spec.score.as_ref();
        let direction = score.map(|s| s.direction).unwrap_or_default();
        let exclusive = score.is_some_and(|s| s.exclusive);
        let most = search.max_attempts();
        match self.spec.strategy() {
            StrategyName::FirstWins => Box::new(FirstWins::new()),
            StrategyName::BestOfN => Box::new(BestOfN::new(direction).exclusive(exclusive)),
            StrategyName::Beam => {
                let beam = Beam {
                    width: search.width.unwrap_or(2),
                    branching: search.branching.unwrap_or(2),
                    depth: search.depth.unwrap_or(3),
                };
                Box::new(Nested::new(beam, direction, most).exclusive(exclusive))
            }
            StrategyName::Halving => {
                let halving = Halving {
                    eta: search.eta(),
                    rounds: search.rounds,
                };
                Box::new(Nested::new(halving, direction, most).exclusive(exclusive))
            }
            StrategyName::Refine => {
                let rounds = search.rounds.unwrap_or(8);
                let patience = search.patience.unwrap_or(2);
                let refine = Refine::new(search.branching.unwrap_or(1), rounds, patience);
                Box::new(Nested::new(refine, direction, most).exclusive(exclusive))
            }
            StrategyName::Tournament => {
                let seed = vars::seed(self.exploration, u32::MAX);
                Box::new(Tournament::new(u64::from(seed)))
            }
        }
    }

    fn prepare(&self, report: &mut Report) -> Result<()> {
        let Some(prepare) = &self.spec.prepare else {
            return Ok(());
        };
        let command = prepare.command.display();
        self.shared.tell(&Progress::Preparing { command: &command });
        let begun = Instant::now();
        let mut env = self.vars.clone();
        if prepare.secrets {
            env.extend(self.secrets.iter().cloned());
        }
        let request = PrepareRequest {
            run: RunRequest {
                argv: prepare.command.argv(),
                env,
                timeout: prepare.timeout.map(|t| t.0),
                limits: self.spec.limits,
                network: prepare.network,
                cancel: self.watch.stop.clone(),
            },
            inputs: prepare.inputs.clone(),
            redactor: self.shared.redactor.clone(),
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
            redactor: self.shared.redactor.clone(),
            score: false,
        }
    }

    /// Forks every attempt at once, so that all of them see the base at one moment.
    fn fork(&self, report: &mut Report) -> Result<Vec<crate::rounds::Shared>> {
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
                    branches.push(Some(branch.into()));
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

    /// How many times the limits of the first round an attempt of this depth has.
    fn times_at(&self, depth: u32) -> u32 {
        match self.spec.strategy() {
            StrategyName::Halving => self.spec.search.eta().saturating_pow(depth),
            _ => 1,
        }
    }

    /// An attempt's own limits.
    pub(crate) fn limits_at(&self, trial: &Trial, depth: u32) -> LimitSpec {
        let mut limits = trial.limits;
        let times = self.times_at(depth);
        limits.cpu = limits.cpu.map(|t| Time(t.0.saturating_mul(times)));
        limits
    }

    /// What an attempt may take, and until when: its own limit, or what is left of the whole.
    pub(crate) fn time_for_attempt(
        &self,
        trial: &Trial,
        depth: u32,
    ) -> (Option<Duration>, Option<OsString>) {
        let times = self.times_at(depth);
        let own = trial.timeout.map(|t| t.0.saturating_mul(times));
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
#[path = "search_tests.rs"]
mod search_tests;
#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
