//! Best-of-n: let every attempt finish, and commit the best of those that passed.

use super::{
    Action, Event, Strategy,
    book::{Book, Phase},
    rank::{Direction, Merit, compare},
};
use std::cmp::Ordering;

/// Lets all attempts finish, then commits the best score among those that passed. A tie goes to the
/// smaller change, then to the one that finished earlier. A score that is missing or not a number
/// never beats one that is. If the commit of the best is refused, the next best is tried.
#[derive(Debug, Clone, Default)]
pub struct BestOfN {
    book: Book,
    direction: Direction,
    exclusive: bool,
    best_at_deadline: bool,
    scores: Vec<(Option<f64>, u64)>,
    deadline: bool,
    interrupted: bool,
    over: bool,
}

impl BestOfN {
    /// A new one.
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            ..Self::default()
        }
    }

    /// Scores one at a time, after every attempt and verifier has ended: a benchmark beside running
    /// siblings measures the siblings.
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// When the deadline comes, commits the best of those scored so far instead of nothing.
    #[must_use]
    pub fn best_at_deadline(mut self, best: bool) -> Self {
        self.best_at_deadline = best;
        self
    }

    fn take_in(&mut self, event: Event) {
        use Phase::*;
        let book = &mut self.book;
        match event {
            Event::Begin { attempts, jobs } => {
                book.begin(attempts, jobs);
                self.scores = vec![(None, 0); attempts as usize];
            }
            Event::Finished { attempt, candidate } if book.phase(attempt) == Running => {
                book.set(attempt, if candidate { Ready } else { Out });
            }
            Event::Verified { attempt, passed } if book.phase(attempt) == Verifying => {
                book.set(attempt, if passed { Passed } else { Out });
            }
            Event::Scored {
                attempt,
                score,
                changed_bytes,
            } if book.phase(attempt) == Scoring => {
                self.scores[attempt as usize] = (score.filter(|s| !s.is_nan()), changed_bytes);
                book.set(attempt, Scored);
            }
            Event::Failed { attempt } | Event::Stopped { attempt }
                if matches!(book.phase(attempt), Running | Verifying | Scoring) =>
            {
                book.set(attempt, Out);
            }
            Event::CommitResult { attempt, committed } if book.phase(attempt) == Committing => {
                book.set(attempt, if committed { Committed } else { Out });
            }
            Event::Deadline => self.deadline = true,
            Event::Interrupted => self.interrupted = true,
            _ => {}
        }
    }

    /// Whether `a` is to be preferred to `b`.
    fn compare(&self, a: u32, b: u32) -> Ordering {
        let merit = |i: u32| {
            let (score, changed_bytes) = self.scores[i as usize];
            Merit {
                score,
                changed_bytes,
                order: self.book.finished_order(i),
            }
        };
        compare(&merit(a), &merit(b), self.direction)
    }

    fn best(&self) -> Option<u32> {
        self.book
            .all(Phase::Scored)
            .min_by(|&a, &b| self.compare(a, b))
    }

    fn finish(&mut self, winner: Option<u32>, out: &mut Vec<Action>) {
        self.over = true;
        out.push(Action::Finish { winner });
    }

    fn act(&mut self, out: &mut Vec<Action>) {
        if let Some(winner) = self.book.first(Phase::Committed) {
            return self.finish(Some(winner), out);
        }
        let closing = self.deadline || self.interrupted;
        if closing {
            self.book.stop_busy(out);
        }
        if self.book.any(Phase::Committing) {
            return;
        }
        if closing && (self.interrupted || !self.best_at_deadline) {
            return self.finish(None, out);
        }
        if !closing {
            if !self.exclusive {
                self.book.score(false, out);
            }
            self.book.fill(out);
            self.book.score(self.exclusive, out);
        }
        if self.book.busy() == 0 {
            match self.best() {
                Some(i) => {
                    self.book.set(i, Phase::Committing);
                    out.push(Action::Commit(i));
                }
                None => self.finish(None, out),
            }
        }
    }
}

impl Strategy for BestOfN {
    fn name(&self) -> &'static str {
        "best-of-n"
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        if !self.over {
            self.take_in(event);
            self.act(&mut out);
        }
        out
    }
}
