//! The strategy's rounds: each of its actions executed, each outcome told to it, until it finishes and
//! nothing runs. Jobs run on threads, as many as the strategy starts; everything is decided here, on
//! one thread.

use forkpoint_model::Result;
use forkpoint_model::strategy::{Action, Event, Strategy};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::Scope;
use std::time::Instant;

use crate::backend::Told;
use crate::backend::{Attempt, JudgeRequest, RunRequest};
use crate::claims::COST_FILE;
use crate::driver::Context;
use crate::jobs;
use crate::meter::Meter;
use crate::observer::Progress;
use crate::report::{Reason, Report};
use crate::spec::Trial;
use crate::vars;
use crate::watch::Stop;
use crate::{Cancel, codes};

mod budget;
mod commit;
mod compare;
mod fork;
mod outcomes;

/// A branch as the jobs' threads share it; none where it could not be forked.
pub(crate) type Shared = Option<Arc<dyn Attempt>>;

/// What comes in from other threads.
#[derive(Debug)]
pub(crate) enum Message {
    /// A job is over.
    Job(u32, Box<jobs::Outcome>),
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
    /// It was told to stop since this budget is used up.
    over_budget: Option<String>,
    /// The limits it runs with are its own; a budget has not cut them.
    own_limits: bool,
    /// How far it last said it is.
    told: Option<Told>,
    /// Its branch was sealed, and nothing is wrong with it.
    pub(crate) sealed: bool,
    /// Why it ended, once that is known.
    pub(crate) reason: Option<Reason>,
}

pub(crate) struct Rounds<'a, 'c, 'r> {
    context: &'a Context<'c>,
    strategy: Box<dyn Strategy>,
    branches: Vec<Shared>,
    report: &'r mut Report,
    slots: Vec<Slot>,
    events: VecDeque<Event>,
    sender: Sender,
    messages: Receiver,
    finished: bool,
    /// Per attempt, which of the first ones it does again.
    trial_of: Vec<u32>,
    meter: Meter,
    /// When the observer was last told what attempts use.
    usage_told: Option<Instant>,
    /// The pairs that are being compared.
    comparing: Vec<(u32, u32)>,
}

impl<'a, 'c, 'r> Rounds<'a, 'c, 'r> {
    pub(crate) fn new(
        context: &'a Context<'c>,
        strategy: Box<dyn Strategy>,
        branches: Vec<Shared>,
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
            report,
            slots: branches.iter().map(|_| Slot::default()).collect(),
            trial_of: (0..branches.len() as u32).collect(),
            meter: Meter::new(context.spec.budget),
            usage_told: None,
            comparing: Vec::new(),
            branches,
            events: VecDeque::from([begin]),
            sender,
            messages,
            finished: false,
        }
    }

    /// Every branch and where it came to, once nothing plays any more.
    pub(crate) fn into_parts(self) -> (Vec<Shared>, Vec<Slot>) {
        (self.branches, self.slots)
    }

    /// The attempt's branch.
    fn branch(&self, i: u32) -> Shared {
        self.branches.get(i as usize).cloned().flatten()
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
        match self.next_message()? {
            Message::Stop(Stop::Interrupted) => self.events.push_back(Event::Interrupted),
            Message::Stop(Stop::Deadline) => self.events.push_back(Event::Deadline),
            Message::Job(index, outcome) => {
                let slot = &mut self.slots[index as usize];
                (slot.running, slot.stopping) = (None, false);
                let event = match *outcome {
                    jobs::Outcome::Ran(done) => self.ran(index, done),
                    jobs::Outcome::Verified(done) => self.verified(index, done),
                    jobs::Outcome::Scored(done) => self.scored(index, done),
                    jobs::Outcome::Compared(done) => self.compared(index, done),
                };
                self.stop_what_is_over();
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
            Action::Fork {
                attempt,
                parent,
                trial,
            } => self.fork((attempt, parent, trial), scope)?,
            Action::Compare { left, right } => self.compare(left, right, scope)?,
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
                jobs::Outcome::Ran(jobs::Run::failed(
                    codes::INTERNAL.error("a thread of an attempt panicked"),
                ))
            });
            // The receiver outlives every job: it is owned by the thread that joins them.
            sender
                .send(Message::Job(i, Box::new(outcome)))
                .unwrap_or(());
        });
    }

    fn start<'s, 'e>(&mut self, i: u32, scope: &'s Scope<'s, 'e>) -> Result<()>
    where
        'a: 's,
    {
        let context = self.context;
        let Some(branch) = self.branch(i) else {
            self.events.push_back(Event::Failed { attempt: i });
            return Ok(());
        };
        let depth = self.report.attempts[i as usize].depth;
        let trial = self.trial(i);
        let own = context.limits_at(trial, depth);
        let limits = match self.meter.start(i, own) {
            Ok(limits) => limits,
            Err(why) => {
                self.refuse_start(i, why);
                return Ok(());
            }
        };
        self.slots[i as usize].own_limits = limits == own;
        let cancel = Cancel::new()?;
        let (timeout, deadline) = context.time_for_attempt(trial, depth);
        let mut env = self.vars(i);
        env.extend(context.secrets.iter().cloned());
        if let Some(feedback) = self.leave_feedback(i)? {
            env.push(("FORKPOINT_FEEDBACK".into(), feedback));
        }
        env.push(("FORKPOINT_COST_FILE".into(), branch.inside(COST_FILE)));
        if let Some(deadline) = deadline {
            env.push(("FORKPOINT_DEADLINE".into(), deadline));
        }
        let request = RunRequest {
            argv: trial.command.argv(),
            env,
            timeout,
            limits,
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
            let protect = &context.spec.protect;
            let ran = || jobs::run(i, &*branch, &request, protect, context.shared);
            let timed = || context.shared.timed(Some(i), "run", ran);
            jobs::Outcome::Ran(context.quiet.beside(timed))
        });
        Ok(())
    }

    /// What the attempt runs.
    fn trial(&self, i: u32) -> &'a Trial {
        &self.context.trials[self.trial_of[i as usize] as usize]
    }

    fn vars(&self, i: u32) -> vars::Vars {
        let context = self.context;
        let mut vars = vars::of_attempt(
            context.exploration,
            i,
            self.trial(i),
            &context.vars,
            context.caller,
        );
        let row = &self.report.attempts[i as usize];
        vars.push(("FORKPOINT_DEPTH".into(), row.depth.to_string().into()));
        if let Some(parent) = row.parent {
            vars.push(("FORKPOINT_PARENT".into(), parent.to_string().into()));
        }
        vars
    }

    fn verify<'s, 'e>(&mut self, i: u32, scope: &'s Scope<'s, 'e>) -> Result<()>
    where
        'a: 's,
    {
        let context = self.context;
        let Some(branch) = self.branch(i) else {
            self.events.push_back(Event::Failed { attempt: i });
            return Ok(());
        };
        let Some(verify) = &context.spec.verify else {
            // Without a verifier passing means exit status 0; what came this far with another may
            // still be worth going on from.
            let row = &mut self.report.attempts[i as usize];
            let passed = row.exit_code == Some(0);
            row.passed = passed;
            context.shared.tell(&Progress::Verified {
                index: i,
                passed,
                log: None,
            });
            if !passed {
                self.out(i, Reason::Exit, None);
            }
            self.events
                .push_back(Event::Verified { attempt: i, passed });
            return Ok(());
        };
        let cancel = Cancel::new()?;
        let mut request =
            context.judge(&verify.command, verify.timeout, self.vars(i), "verify.log");
        request.run.cancel = cancel.clone();
        let (repeat, exclusive) = (verify.repeat, verify.exclusive);
        self.spawn(i, cancel, scope, move || {
            let judge = || {
                let job = || jobs::verify(&*branch, &request, repeat);
                context.shared.timed(Some(i), "verify", job)
            };
            jobs::Outcome::Verified(match exclusive {
                true => context.quiet.alone(judge),
                false => context.quiet.beside(judge),
            })
        });
        Ok(())
    }

    fn score<'s, 'e>(&mut self, i: u32, scope: &'s Scope<'s, 'e>) -> Result<()>
    where
        'a: 's,
    {
        let context = self.context;
        let (Some(score), Some(branch)) = (&context.spec.score, self.branch(i)) else {
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
            let judge = || {
                let job = || jobs::score(&*branch, &request, repeat);
                context.shared.timed(Some(i), "score", job)
            };
            jobs::Outcome::Scored(context.quiet.beside(judge))
        });
        Ok(())
    }
}
