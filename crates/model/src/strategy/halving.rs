//! Successive halving: many attempts with little time; the best part of them goes on with more.
//!
//! Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits" (2013); Jamieson and
//! Talwalkar (2016). What goes on does so in a fork of its own sealed branch, so a command that finds
//! its earlier work continues it, and one that does not look starts again. The driver gives each
//! round `eta` times the time of the one before, and takes an attempt that ran out of it as finished.

use super::{Policy, Round};

/// Keeps one of `eta` attempts of a round, until one is left or for `rounds` rounds after the first.
#[derive(Debug, Clone, Copy)]
pub struct Halving {
    /// The part that goes on is one of this many; at least 2.
    pub eta: u32,
    /// The most rounds after the first; none: until one is left.
    pub rounds: Option<u32>,
}

impl Policy for Halving {
    fn name(&self) -> &'static str {
        "halving"
    }

    fn next(&mut self, round: &Round<'_>) -> Vec<(u32, u32)> {
        let last = self.rounds.is_some_and(|rounds| round.number >= rounds);
        if last || round.planned <= 1 {
            return Vec::new();
        }
        let keep = (round.planned / self.eta.max(2)).max(1);
        let kept = round.ranked.iter().take(keep as usize);
        kept.map(|&parent| (parent, round.trial_of(parent)))
            .collect()
    }
}
