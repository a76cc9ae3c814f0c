//! The few threads that do what may take long, so that nobody else's request waits for it. They are
//! started when there is work; what is queued is bounded, in all and for each branch.

use super::ops;
use super::request::{Id, Op};
use super::{Capability, Letter, Mail};
use crate::codes;
use crate::engine::Inner;
use forkpoint_model::{BranchId, Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// So many threads at most.
const MAX_THREADS: usize = 4;
/// So many requests wait at most, in all and of one branch, those at work included.
const MAX_JOBS: usize = 256;
const MAX_JOBS_OF_BRANCH: usize = 4;

/// One request and where its answer goes.
pub(super) struct Job {
    pub(super) capability: Capability,
    pub(super) connection: u64,
    pub(super) id: Option<Id>,
    pub(super) op: Op,
}

/// The threads. They end when this is dropped, each after the job it is at.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Weak<Inner>,
    mail: Arc<Mail>,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// The branches whose requests are at work.
    at_work: Vec<BranchId>,
    threads: usize,
    over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workers {
    pub(super) fn new(engine: Weak<Inner>, mail: Arc<Mail>) -> Self {
        Self {
            shared: Arc::new(Shared {
                engine,
                mail,
                state: Mutex::default(),
                work: Condvar::new(),
            }),
        }
    }

    /// Takes a job on.
    ///
    /// # Errors
    /// `FP0451` when too much is asked for at once, `FP0420` when no thread can be made.
    pub(super) fn take(&self, job: Job) -> Result<()> {
        let mut state = self.shared.state();
        let of_branch = |id: &BranchId| *id == job.capability.branch;
        let queued = state.queue.iter().map(|j| j.capability.branch);
        let own = queued.filter(&of_branch).count()
            + state.at_work.iter().filter(|b| of_branch(b)).count();
        if own >= MAX_JOBS_OF_BRANCH || state.queue.len() >= MAX_JOBS {
            return Err(full("too many requests that take long are under way"));
        }
        if state.threads < MAX_THREADS && state.threads <= state.at_work.len() + state.queue.len() {
            let shared = self.shared.clone();
            std::thread::Builder::new()
                .name("forkpoint-work".into())
                .spawn(move || serve(&shared))
                .map_err(|e| codes::IO.io("cannot start a thread", e))?;
            state.threads += 1;
        }
        state.queue.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.work.notify_all();
    }
}

/// An error of whoever asks too much.
pub(super) fn full(why: &str) -> Error {
    codes::SOCKET_FULL
        .error(why)
        .hint("wait for an answer before asking again")
}

fn serve(shared: &Shared) {
    loop {
        let mut state = shared.state();
        let job = loop {
            if state.over {
                return;
            }
            match state.queue.pop_front() {
                Some(job) => break job,
                None => {
                    state = shared
                        .work
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        let branch = job.capability.branch;
        state.at_work.push(branch);
        drop(state);
        let result = match shared.engine.upgrade() {
            Some(inner) => ops::caught(&inner, &job.capability, &job.op),
            None => return,
        };
        let mut state = shared.state();
        if let Some(at) = state.at_work.iter().position(|&b| b == branch) {
            state.at_work.swap_remove(at);
        }
        drop(state);
        shared.mail.post(Letter::Done {
            connection: job.connection,
            id: job.id,
            result,
        });
    }
}
