//! What Forkpoint means, as pure code: identifiers, branch states, the commit protocol, exploration
//! strategies, and the interface every participant implements.
//!
//! **Architecture invariant:** nothing here reads a clock, does I/O or draws a random number. What
//! happens comes in as an event and what should happen leaves as a command, so that the simulator
//! and the engine drive exactly the same code.
#![forbid(unsafe_code)]

pub mod codes;
pub mod commit;
pub mod effect;
pub mod error;
pub mod ids;
pub mod participant;
pub mod state;
pub mod strategy;

pub use error::{Code, Error, Kind, Result};
pub use ids::*;
pub use participant::{
    ApplyOutcome, ChangeSummary, Conflict, Discarded, Participant, Source, TxnStatus, Vote,
};
pub use state::{BranchState, ForkLayer};
