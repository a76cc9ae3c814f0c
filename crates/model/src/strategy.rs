//! How an exploration goes about its attempts, as pure code behind one small trait. It must not know
//! how an attempt is run, verified, scored or committed: a driver does what it is told and says what
//! came of it, so that a program (or an SDK in another language) can drive a strategy from outside.
//!
//! The driver answers each [`Action`] but `Finish` with exactly one event for that attempt:
//! `Start` and `Fork` with [`Event::Finished`], [`Event::Failed`] or [`Event::Stopped`]; `Verify` with
//! [`Event::Verified`], `Failed` or `Stopped`; `Score` with [`Event::Scored`], `Failed` or
//! `Stopped`; `Compare` with [`Event::Compared`], or `Stopped` for its left one; `Commit` with
//! [`Event::CommitResult`]. `Stop` has no answer of its own: it makes the
//! pending one come soon, as `Stopped` unless it was too late. Without a verify command the driver
//! answers `Verify` at once with whether the attempt exited with 0; without a score command it
//! answers `Score` at once with no score. A budget that is used up needs no event of its own: what it
//! keeps from starting is `Failed`, and what it ends is `Stopped`.

mod beam;
mod best_of_n;
mod book;
mod first_wins;
mod halving;
mod nested;
mod rank;
mod refine;
mod repeat;
mod tournament;

pub use beam::Beam;
pub use best_of_n::BestOfN;
pub use first_wins::FirstWins;
pub use halving::Halving;
pub use nested::{Nested, Policy, Round};
pub use rank::Direction;
pub use refine::Refine;
pub use repeat::{all_pass, median};
pub use tournament::Tournament;

use serde::{Deserialize, Serialize};

/// What happened to an exploration or to one of its attempts (numbered from 0).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It begins. Sent once, first.
    Begin {
        /// How many attempts there are.
        attempts: u32,
        /// How many may be running, in verification or in scoring at once; 0 counts as 1.
        jobs: u32,
    },
    /// The attempt's command ended and its branch is sealed.
    Finished {
        /// The attempt.
        attempt: u32,
        /// Whether it is worth verifying: false for a time limit, a limit hit, an empty change.
        candidate: bool,
    },
    /// The verifier has judged.
    Verified {
        /// The attempt.
        attempt: u32,
        /// Whether it passed.
        passed: bool,
    },
    /// The score is known.
    Scored {
        /// The attempt.
        attempt: u32,
        /// The score; none without a score command, or when it gave no number.
        score: Option<f64>,
        /// The size of its change, for ties.
        changed_bytes: u64,
    },
    /// The attempt could not be started, verified or scored: it is out.
    Failed {
        /// The attempt.
        attempt: u32,
    },
    /// The attempt, its verification or its scoring ended because of [`Action::Stop`].
    Stopped {
        /// The attempt.
        attempt: u32,
    },
    /// A comparison is over.
    Compared {
        /// The one shown on the left.
        left: u32,
        /// The one shown on the right.
        right: u32,
        /// What it said.
        verdict: Comparison,
    },
    /// What became of a commit.
    CommitResult {
        /// The attempt.
        attempt: u32,
        /// Whether it is committed; false for a conflict, drift, a lost race or a failure.
        committed: bool,
    },
    /// The time for the whole exploration is over.
    Deadline,
    /// Someone interrupted it.
    Interrupted,
}

/// What a comparison of two attempts says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The left one is better.
    Left,
    /// The right one is better.
    Right,
    /// Neither is.
    Tie,
    /// It could not be said: the command failed.
    Error,
}

/// What the driver must do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run this attempt, forked from where the exploration began.
    Start(u32),
    /// Fork an attempt off another one's sealed branch, which goes on from what that one left, and
    /// run it.
    Fork {
        /// The new attempt. New attempts are numbered on from those of [`Event::Begin`], without gaps,
        /// in the order in which they are forked.
        attempt: u32,
        /// The attempt whose branch it continues.
        parent: u32,
        /// Which of the attempts of [`Event::Begin`] it does again: its command and parameters.
        trial: u32,
    },
    /// Verify this attempt, whose branch is sealed.
    Verify(u32),
    /// Score this attempt.
    Score(u32),
    /// Say which of two attempts is better.
    Compare {
        /// Shown on the left; a stop names this one.
        left: u32,
        /// Shown on the right.
        right: u32,
    },
    /// Kill what runs of this attempt: its command, its verifier, its score, or the comparison in
    /// which it is the left one.
    Stop(u32),
    /// Commit this attempt (or only choose it, if the exploration is not to commit).
    Commit(u32),
    /// It is over. Whatever still runs was told to stop.
    Finish {
        /// The committed attempt.
        winner: Option<u32>,
    },
}

/// A way to explore.
pub trait Strategy {
    /// Its name, as the spec and the report write it.
    fn name(&self) -> &'static str;
    /// Takes in what happened; returns what to do next, in this order. After `Finish` it returns
    /// nothing.
    fn on(&mut self, event: Event) -> Vec<Action>;
}

#[cfg(test)]
mod nested_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tournament_tests;
