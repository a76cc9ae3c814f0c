//! First-wins: commit the first attempt that passes and stop the rest at once.

use super::{
    Action, Event, Strategy,
    book::{Book, Phase},
};

/// Commits the first attempt that passes, and stops everything else in the same breath. If that
/// commit is refused, goes on with what is left: attempts that had passed meanwhile, then those
/// whose command had finished, then those not yet started. What was stopped while its command ran
/// is lost.
#[derive(Debug, Clone, Default)]
pub struct FirstWins {
    book: Book,
    /// Passed attempts in the order in which they passed.
    passed: Vec<u32>,
    over: bool,
    closing: bool,
}

impl FirstWins {
    /// A new one.
    pub fn new() -> Self {
        Self::default()
    }

    fn take_in(&mut self, event: Event) {
        use Phase::*;
        let book = &mut self.book;
        match event {
            Event::Begin { attempts, jobs } => book.begin(attempts, jobs),
            Event::Finished { attempt, candidate } if book.phase(attempt) == Running => {
                book.set(attempt, if candidate { Ready } else { Out });
            }
            Event::Verified { attempt, passed } if book.phase(attempt) == Verifying => {
                book.set(attempt, if passed { Passed } else { Out });
                if passed {
                    self.passed.push(attempt);
                }
            }
            Event::Failed { attempt } if matches!(book.phase(attempt), Running | Verifying) => {
                book.set(attempt, Out);
            }
            Event::Stopped { attempt } => match book.phase(attempt) {
                Running => book.set(attempt, Out),
                // Its branch is sealed and whole: only the judging of it was cut short.
                Verifying => book.set(attempt, Ready),
                _ => {}
            },
            Event::CommitResult { attempt, committed } if book.phase(attempt) == Committing => {
                book.set(attempt, if committed { Committed } else { Out });
            }
            Event::Deadline | Event::Interrupted => self.closing = true,
            _ => {}
        }
    }

    fn act(&mut self, out: &mut Vec<Action>) {
        let book = &mut self.book;
        if let Some(winner) = book.first(Phase::Committed) {
            self.over = true;
            out.push(Action::Finish {
                winner: Some(winner),
            });
        } else if self.closing {
            book.stop_busy(out);
            if !book.any(Phase::Committing) {
                self.over = true;
                out.push(Action::Finish { winner: None });
            }
        } else if book.any(Phase::Committing) {
            // One commit at a time; what passes meanwhile waits for its result.
        } else if let Some(i) = self
            .passed
            .iter()
            .copied()
            .find(|&i| book.phase(i) == Phase::Passed)
        {
            book.set(i, Phase::Committing);
            book.stop_busy(out);
            out.push(Action::Commit(i));
        } else {
            book.fill(out);
            if book.busy() == 0 {
                self.over = true;
                out.push(Action::Finish { winner: None });
            }
        }
    }
}

impl Strategy for FirstWins {
    fn name(&self) -> &'static str {
        "first-wins"
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
