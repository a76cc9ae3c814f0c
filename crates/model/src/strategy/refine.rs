//! Refine from the best: the best branch so far is forked again with what was said of it, until one
//! passes, the scores get no better, or the rounds are over.

use super::{Policy, Round};

/// Forks the best branch so far `branching` times in each round. Without any score the best is the
/// first of the last round that can be forked.
#[derive(Debug, Clone, Copy)]
pub struct Refine {
    branching: u32,
    rounds: u32,
    patience: u32,
    fruitless: u32,
}

impl Refine {
    /// At most `rounds` rounds after the first. It ends earlier once one has passed, and after
    /// `patience` rounds in succession without a better score.
    pub fn new(branching: u32, rounds: u32, patience: u32) -> Self {
        Self {
            branching,
            rounds,
            patience,
            fruitless: 0,
        }
    }
}

impl Policy for Refine {
    fn name(&self) -> &'static str {
        "refine"
    }

    fn next(&mut self, round: &Round<'_>) -> Vec<(u32, u32)> {
        let plateau = round.any_scored && !round.improved;
        self.fruitless = if plateau { self.fruitless + 1 } else { 0 };
        let over = round.number >= self.rounds || self.fruitless >= self.patience;
        if round.any_passed || over {
            return Vec::new();
        }
        let best = match round.any_scored {
            true => round.ranked_of_all.first(),
            false => round.ranked.iter().min().or(round.ranked_of_all.first()),
        };
        let Some(&best) = best else {
            return Vec::new();
        };
        round.trials(self.branching).map(|t| (best, t)).collect()
    }
}
