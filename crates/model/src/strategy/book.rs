//! The book-keeping that strategies share: where each attempt is, and how many slots are in use.

use super::Action;

/// Where an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not started.
    Waiting,
    /// Its command runs.
    Running,
    /// Its branch is sealed and worth verifying.
    Ready,
    /// Its verifier runs.
    Verifying,
    /// It passed.
    Passed,
    /// Its score command runs.
    Scoring,
    /// It passed and its score is known.
    Scored,
    /// It is being compared, and is the one that a stop of the comparison names.
    Comparing,
    /// Its commit is under way.
    Committing,
    /// It is committed.
    Committed,
    /// It is out.
    Out,
}

/// The table of attempts.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    phases: Vec<Phase>,
    stopping: Vec<bool>,
    finished_order: Vec<u32>,
    next_order: u32,
    jobs: usize,
}

impl Book {
    pub(super) fn begin(&mut self, attempts: u32, jobs: u32) {
        let n = attempts as usize;
        self.phases = vec![Phase::Waiting; n];
        self.stopping = vec![false; n];
        self.finished_order = vec![u32::MAX; n];
        self.jobs = jobs.max(1) as usize;
    }

    /// Adds an attempt that waits; returns its number.
    pub(super) fn add(&mut self) -> u32 {
        self.phases.push(Phase::Waiting);
        self.stopping.push(false);
        self.finished_order.push(u32::MAX);
        self.phases.len() as u32 - 1
    }

    /// How many attempts there are.
    pub(super) fn len(&self) -> u32 {
        self.phases.len() as u32
    }

    /// Scores what passed, lowest first, as far as slots go; with `exclusive` one at a time, and only
    /// while nothing else runs.
    pub(super) fn score(&mut self, exclusive: bool, out: &mut Vec<Action>) {
        while let Some(i) = self.first(Phase::Passed) {
            let may = match exclusive {
                true => self.busy() == 0,
                false => self.has_slot(),
            };
            if !may {
                return;
            }
            self.set(i, Phase::Scoring);
            out.push(Action::Score(i));
        }
    }

    /// The attempt's phase; an attempt that does not exist is out.
    pub(super) fn phase(&self, attempt: u32) -> Phase {
        *self.phases.get(attempt as usize).unwrap_or(&Phase::Out)
    }

    /// Moves an attempt on; whatever stop was pending for its former phase is answered by it.
    pub(super) fn set(&mut self, attempt: u32, phase: Phase) {
        if let Some(slot) = self.phases.get_mut(attempt as usize) {
            if *slot == Phase::Running {
                self.finished_order[attempt as usize] = self.next_order;
                self.next_order += 1;
            }
            *slot = phase;
            self.stopping[attempt as usize] = false;
        }
    }

    /// The place of the attempt in the order in which attempts finished.
    pub(super) fn finished_order(&self, attempt: u32) -> u32 {
        self.finished_order[attempt as usize]
    }

    /// The attempts in `phase`, lowest first.
    pub(super) fn all(&self, phase: Phase) -> impl Iterator<Item = u32> + '_ {
        (self.phases.iter().zip(0u32..))
            .filter(move |&(&p, _)| p == phase)
            .map(|(_, i)| i)
    }

    pub(super) fn first(&self, phase: Phase) -> Option<u32> {
        self.all(phase).next()
    }

    pub(super) fn any(&self, phase: Phase) -> bool {
        self.first(phase).is_some()
    }

    fn is_busy(phase: Phase) -> bool {
        matches!(
            phase,
            Phase::Running | Phase::Verifying | Phase::Scoring | Phase::Comparing
        )
    }

    /// Whether anything runs.
    pub(super) fn busy(&self) -> usize {
        self.phases.iter().filter(|&&p| Self::is_busy(p)).count()
    }

    /// Whether another attempt, verifier or score may run.
    pub(super) fn has_slot(&self) -> bool {
        self.busy() < self.jobs
    }

    /// Tells everything that runs to stop, once.
    pub(super) fn stop_busy(&mut self, out: &mut Vec<Action>) {
        for (i, phase) in self.phases.iter().enumerate() {
            if Self::is_busy(*phase) && !self.stopping[i] {
                self.stopping[i] = true;
                out.push(Action::Stop(i as u32));
            }
        }
    }

    /// Verifies what is ready, then starts what waits, as far as slots go. What is ready comes
    /// first: it is closest to an answer.
    pub(super) fn fill(&mut self, out: &mut Vec<Action>) {
        self.fill_with(out, Action::Start);
    }

    /// As [`Book::fill`], where `start` says how an attempt is started.
    pub(super) fn fill_with(&mut self, out: &mut Vec<Action>, start: impl Fn(u32) -> Action) {
        while self.has_slot() {
            if let Some(i) = self.first(Phase::Ready) {
                self.set(i, Phase::Verifying);
                out.push(Action::Verify(i));
            } else if let Some(i) = self.first(Phase::Waiting) {
                self.set(i, Phase::Running);
                out.push(start(i));
            } else {
                return;
            }
        }
    }
}
