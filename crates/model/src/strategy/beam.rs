//! Beam search: the best few branches of each round are forked again, several times each.
//!
//! Lowerre, "The HARPY speech recognition system" (1976), is the usual reference. A round is one level
//! of nested forks; only branches of the last round are forked again, and the winner is the best that
//! passed in any.

use super::{Policy, Round};

/// Keeps `width` branches of each round, forks each `branching` times, `depth` times over.
#[derive(Debug, Clone, Copy)]
pub struct Beam {
    /// How many branches of a round are forked again.
    pub width: u32,
    /// How many forks of each. They do the attempts of the first round again in turn.
    pub branching: u32,
    /// How many rounds follow the first.
    pub depth: u32,
}

impl Policy for Beam {
    fn name(&self) -> &'static str {
        "beam"
    }

    fn next(&mut self, round: &Round<'_>) -> Vec<(u32, u32)> {
        if round.number >= self.depth {
            return Vec::new();
        }
        let kept = round.ranked.iter().take(self.width as usize);
        kept.flat_map(|&parent| round.trials(self.branching).map(move |t| (parent, t)))
            .collect()
    }
}
