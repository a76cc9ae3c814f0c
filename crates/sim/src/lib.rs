//! Seeded simulator: many worlds, branches, siblings and racing commits, driven through the model's
//! own state machine and coordinator, over fake participants and a fake store that crash, lose power,
//! run out of space, and lose, repeat and reorder answers between any two steps. The laws of
//! semantics.md are checked after every step.
//!
//! Everything follows from one seed: no clock, no threads, no ambient randomness. A violation names
//! the law and the seed; `FORKPOINT_SIM_SEED` runs that seed again, `FORKPOINT_SIM_RUNS` sets how
//! many seeds a test tries.
#![forbid(unsafe_code)]

mod check;
mod disk;
mod driver;
mod effects;
mod oracle;
mod rng;
mod rows;
mod sim;
mod steps;

pub use effects::{EffectStats, Removed, run_effects};
pub use sim::{Stats, run};

use std::fmt;

/// A fault built into the fakes on purpose, to prove that the simulator would find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breakage {
    /// Several transactions can reserve one world.
    ReservationNotUnique,
    /// The reservation and the decision look at nothing: not at the head, siblings, other
    /// reservations, nor the branch's state. (Any one of these alone would be caught by the others.)
    DecideWithoutLooking,
    /// The decision is not synced.
    DecisionNotDurable,
    /// The decision leaves the siblings as they are.
    SiblingsKept,
    /// The decision invalidates independent branches too.
    IndependentsKilled,
    /// The abort of a branch is not durable before its delta is deleted.
    AbortNotDurable,
    /// An in-place participant applies when it stages.
    ApplyBeforeDecide,
    /// A participant votes before it has synced.
    VoteWithoutSync,
    /// A participant keeps what it staged when it is told to abort, and does not say so later.
    StagedKept,
    /// A redo computes its change again from the base as it now is.
    DiffRecomputed,
    /// A sealed overlay takes writes.
    SealLeaks,
    /// A branch sees what another wrote.
    ReadsThrough,
    /// Validation finds no conflict, ever.
    ValidatesAnything,
    /// A discarded overlay is kept, and said to be gone.
    DiscardKeeps,
    /// A child sees what its parent writes after the fork.
    ForkFollowsParent,
    /// The decision takes a branch whose verified content is not what was staged.
    StagesOtherThanVerified,
}

impl Breakage {
    /// Every breakage.
    pub const ALL: [Self; 16] = [
        Self::ReservationNotUnique,
        Self::DecideWithoutLooking,
        Self::DecisionNotDurable,
        Self::SiblingsKept,
        Self::IndependentsKilled,
        Self::AbortNotDurable,
        Self::ApplyBeforeDecide,
        Self::VoteWithoutSync,
        Self::StagedKept,
        Self::DiffRecomputed,
        Self::SealLeaks,
        Self::ReadsThrough,
        Self::ValidatesAnything,
        Self::DiscardKeeps,
        Self::ForkFollowsParent,
        Self::StagesOtherThanVerified,
    ];
}

/// A broken law.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The law, as its tests are named.
    pub law: &'static str,
    /// What was seen.
    pub message: String,
    /// The seed that shows it.
    pub seed: u64,
    /// The step.
    pub step: u32,
    /// The last steps before it.
    pub trace: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} is broken at step {}: {}",
            self.law, self.step, self.message
        )?;
        for line in &self.trace {
            writeln!(f, "    {line}")?;
        }
        write!(f, "run it again with FORKPOINT_SIM_SEED={}", self.seed)
    }
}

/// The seeds to try: the one in `FORKPOINT_SIM_SEED`, else `FORKPOINT_SIM_RUNS` of them, else
/// `default`.
pub fn seeds(default: u64) -> impl Iterator<Item = u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match number("FORKPOINT_SIM_SEED") {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..number("FORKPOINT_SIM_RUNS").unwrap_or(default),
    }
}
