//! The strategy's rounds: each of its actions executed, each outcome told to it, until it finishes and
//! nothing runs. Jobs run on threads, as many as the strategy starts; everything is decided here, on
//! one thread.

use forkpoint_model::strategy::{Action, Event, Strategy};
use forkpoint_model::{Error, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::Scope;
use std::time::Instant;

use crate::backend::{Attempt, CommitOutcome, CommitRequest, Ended, JudgeRequest, RunRequest};
use crate::driver::Context;
use crate::jobs::{self, Done, Ran, Verdict};
use crate::observer::Progress;
use crate::report::{AttemptReport, AttemptState, Outcome, Reason, Report, VerifierReport};
use crate::score::Score;
use crate::vars;
use crate::watch::Stop;
use crate::{Cancel, codes};

/// What comes in from other threads.
#[derive(Debug)]
pub(crate) enum Message {
    /// A job is over.
    Job(u32, jobs::Outcome),
    /// The exploration is to end early.
    Stop(Stop),
}

pub(crate) type Sender = mpsc::Sender<Message>;
pub(crate) type Receiver = mpsc::Receiver<Message>;

/// Where one attempt is.
#[derive(Default)]
pub(crate) struct Slot {
    /// The flag of the job that runs, if one does.
    running: Option<Cancel>,
    /// It was told to stop.
    stopping: bool,
    /// Its command was started.
    pub(crate) started: bool,
    /// Its branch was sealed, and nothing is wrong with it.
    pub(crate) sealed: bool,
    /// Why it ended, once that is known.
    pub(crate) reason: Option<Reason>,
}

pub(crate) struct Rounds<'a, 'c, 'r> {
    context: &'a Context<'c>,
    strategy: Box<dyn Strategy>,
    branches: &'a [Option<Box<dyn Attempt>>],
    report: &'r mut Report,
    slots: Vec<Slot>,
    events: VecDeque<Event>,
    sender: Sender,
    messages: Receiver,
    finished: bool,
}

impl<'a, 'c, 'r> Rounds<'a, 'c, 'r> {
    pub(crate) fn new(
        context: &'a Context<'c>,
        strategy: Box<dyn Strategy>,
        branches: &'a [Option<Box<dyn Attempt>>],
        report: &'r mut Report,
        sender: Sender,
        messages: Receiver,
    ) -> Self {
        let begin = Event::Begin {
            attempts: branches.len() as u32,
            jobs: context.jobs,
        };
        Self {
            context,
            strategy,
            branches,
            report,
            slots: branches.iter().map(|_| Slot::default()).collect(),
            events: VecDeque::from([begin]),
            sender,
            messages,
            finished: false,
        }
    }

    pub(crate) fn into_slots(self) -> Vec<Slot> {
        self.slots
    }

    /// Plays until the strategy has finished and nothing runs.
    pub(crate) fn play<'s, 'e>(&mut self, scope: &'s Scope<'s, 'e>) -> Result<()>
    where
        'a: 's,
    {
        loop {
            while let Some(event) = self.events.pop_front() {
                for action in self.strategy.on(event) {
                    self.act(action, scope)?;
                }
            }
            let busy = self.slots.iter().any(|s| s.running.is_some());
            match (self.finished, busy) {
                (true, false) => return Ok(()),
                (false, false) => {
                    return Err(codes::INTERNAL.error("the strategy waits for nothing"));
                }
                (_, true) => self.receive()?,
            }
        }
    }

    fn receive(&mut self) -> Result<()> {
        let gone = |_| codes::INTERNAL.error("every thread of the exploration is gone");
        match self.messages.recv().map_err(gone)? {
            Message::Stop(Stop::Interrupted) => self.events.push_back(Event::Interrupted),
            Message::Stop(Stop::Deadline) => self.events.push_back(Event::Deadline),
            Message::Job(index, outcome) => {
                let slot = &mut self.slots[index as usize];
                (slot.running, slot.stopping) = (None, false);
                let event = match outcome {
                    jobs::Outcome::Ran(done) => self.ran(index, done),
                    jobs::Outcome::Verified(done) => self.verified(index, done),
                    jobs::Outcome::Scored(done) => self.scored(index, done),
                };
                self.events.push_back(event);
            }
        }
        Ok(())
    }

    fn act<'s, 'e>(&mut self, action: Action, scope: &'s Scope<'s, 'e>) -> Result<()>
    where
        'a: 's,
    {
        match action {
            Action::Start(i) => self.start(i, scope)?,
            Action::Verify(i) => self.verify(i, scope)?,
            Action::Score(i) => self.score(i, scope)?,
            Action::Stop(i) => {
                let slot = &mut self.slots[i as usize];
                if let Some(cancel) = &slot.running {
                    cancel.cancel();
                    slot.stopping = true;
                }
            }
            Action::Commit(i) => {
                self.wait_for_stopped()?;
                let committed = self.commit(i);
                self.events.push_back(Event::CommitResult {
                    attempt: i,
                    committed,
                });
            }
            Action::Finish { .. } => self.finished = true,
        }
        Ok(())
    }

    /// Starts `job` on a thread; it sends exactly one message, whatever happens in it.
    fn spawn<'s, 'e, F>(&mut self, i: u32, cancel: Cancel, scope: &'s Scope<'s, 'e>, job: F)
    where
        'a: 's,
        F: FnOnce() -> jobs::Outcome + Send + 's,
    {
        self.slots[i as usize].running = Some(cancel);
        let sender = self.sender.clone();
        scope.spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| {
                jobs::Outcome::Ran(Done::Failed(
                    codes::INTERNAL.error("a thread of an attempt panicked"),
                ))
            });
            // The receiver outlives every job: it is owned by the thread that joins them.
            sender.send(Message::Job(i, outcome)).unwrap_or(());
        });
    }

    fn start<'s, 'e>(&mut self, i: u32, scope: &'s Scope<'s, 'e>) -> Result<()>
    where
        'a: 's,
    {
        let context = self.context;
        let branches = self.branches;
        let Some(branch) = branches[i as usize].as_deref() else {
            self.events.push_back(Event::Failed { attempt: i });
            return Ok(());
        };
        let trial = &context.trials[i as usize];
        let cancel = Cancel::new()?;
        let (timeout, deadline) = context.time_for_attempt();
        let mut env = self.vars(i);
        if let Some(deadline) = deadline {
            env.push(("FORKPOINT_DEADLINE".into(), deadline));
        }
        let request = RunRequest {
            argv: trial.command.argv(),
            env,
            timeout,
            limits: context.spec.limits,
            network: context.spec.network,
            cancel: cancel.clone(),
        };
        self.slots[i as usize].started = true;
        let command = trial.command.display();
        context.shared.tell(&Progress::Started {
            index: i,
            command: &command,
        });
        self.spawn(i, cancel, scope, move || {
            jobs::Outcome::Ran(jobs::run(
                i,
                branch,
                &request,
                &context.spec.protect,
                context.shared,
            ))
        });
        Ok(())
    }

    fn vars(&self, i: u32) -> vars::Vars {
        let context = self.context;
        let trial = &context.trials[i as usize];
        vars::of_attempt(context.exploration, i, trial, &context.vars, context.caller)
    }

    /// Why the attempt is not worth verifying, if it is not.
    fn not_a_candidate(&self, ran: &Ran) -> Option<Reason> {
        let spec = self.context.spec;
        match &ran.exit.ended {
            Ended::TimeLimit => Some(Reason::Timeout),
            Ended::Limit(_) => Some(Reason::Limit),
            Ended::NotStarted(_) => Some(Reason::StartError),
            Ended::Code(0) => None,
            _ if spec.verify.is_none() => Some(Reason::Exit),
            _ => None,
        }
        .or_else(|| (ran.delta.changed.files == 0 && !spec.allow_empty).then_some(Reason::NoChange))
    }

    fn ran(&mut self, i: u32, done: Done<Ran>) -> Event {
        match done {
            Done::Stopped => Event::Stopped { attempt: i },
            Done::Failed(error) => self.fail(i, Reason::StartError, &error),
            Done::Ok(ran) => {
                let reason = self.not_a_candidate(&ran);
                let detail = match &ran.exit.ended {
                    Ended::Code(_) | Ended::TimeLimit => None,
                    ended => Some(format!("the command {}", jobs::words(ended))),
                };
                let row = &mut self.report.attempts[i as usize];
                row.exit_code = ran.exit.ended.exit_code();
                row.wall_s = ran.exit.wall.as_secs_f64();
                row.cpu_s = ran.exit.cpu.as_secs_f64();
                row.peak_memory_bytes = ran.exit.peak_memory_bytes;
                row.uncaptured = ran.exit.uncaptured;
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

    /// Notes that the attempt is out.
    fn out(&mut self, i: u32, reason: Reason, detail: Option<String>) {
        self.slots[i as usize].reason = Some(reason);
        let progress = Progress::Out {
            index: i,
            reason,
            detail: detail.as_deref(),
        };
        self.context.shared.tell(&progress);
        self.report.attempts[i as usize].detail = detail;
    }

    fn fail(&mut self, i: u32, reason: Reason, error: &Error) -> Event {
        let reason = if error.code == codes::INTERNAL.text {
            Reason::InternalError
        } else {
            reason
        };
        self.out(i, reason, Some(error.to_string()));
        Event::Failed { attempt: i }
    }

    fn verify<'s, 'e>(&mut self, i: u32, scope: &'s Scope<'s, 'e>) -> Result<()>
    where
        'a: 's,
    {
        let (context, branches) = (self.context, self.branches);
        let Some(branch) = branches[i as usize].as_deref() else {
            self.events.push_back(Event::Failed { attempt: i });
            return Ok(());
        };
        let Some(verify) = &context.spec.verify else {
            // Without a verifier, what came this far exited with 0.
            self.report.attempts[i as usize].passed = true;
            context.shared.tell(&Progress::Verified {
                index: i,
                passed: true,
                log: None,
            });
            self.events.push_back(Event::Verified {
                attempt: i,
                passed: true,
            });
            return Ok(());
        };
        let cancel = Cancel::new()?;
        let mut request =
            context.judge(&verify.command, verify.timeout, self.vars(i), "verify.log");
        request.run.cancel = cancel.clone();
        let repeat = verify.repeat;
        self.spawn(i, cancel, scope, move || {
            jobs::Outcome::Verified(jobs::verify(branch, &request, repeat))
        });
        Ok(())
    }

    fn verified(&mut self, i: u32, done: Done<Verdict>) -> Event {
        let verdict = match done {
            Done::Stopped => return Event::Stopped { attempt: i },
            Done::Failed(error) => return self.fail(i, Reason::VerifierError, &error),
            Done::Ok(verdict) => verdict,
        };
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

    fn score<'s, 'e>(&mut self, i: u32, scope: &'s Scope<'s, 'e>) -> Result<()>
    where
        'a: 's,
    {
        let (context, branches) = (self.context, self.branches);
        let (Some(score), Some(branch)) = (&context.spec.score, branches[i as usize].as_deref())
        else {
            let changed_bytes = self.report.attempts[i as usize].changed.bytes;
            self.events.push_back(Event::Scored {
                attempt: i,
                score: None,
                changed_bytes,
            });
            return Ok(());
        };
        let cancel = Cancel::new()?;
        let mut request = JudgeRequest {
            score: true,
            ..context.judge(&score.command, score.timeout, self.vars(i), "score.log")
        };
        request.run.cancel = cancel.clone();
        let repeat = score.repeat;
        self.spawn(i, cancel, scope, move || {
            jobs::Outcome::Scored(jobs::score(branch, &request, repeat))
        });
        Ok(())
    }

    fn scored(&mut self, i: u32, done: Done<Score>) -> Event {
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

    /// Waits until everything that was told to stop is dead: a commit tears down every view on the
    /// base, and the losers must not outlive the first pass.
    fn wait_for_stopped(&mut self) -> Result<()> {
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
    fn commit(&mut self, i: u32) -> bool {
        let context = self.context;
        let Some(branch) = self.branches[i as usize].as_deref() else {
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
        let result = branch.commit(&self.commit_request(i));
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
