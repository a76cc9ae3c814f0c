//! Durable metadata shared by several processes: worlds, branches, layers, commits, explorations,
//! checkpoints, preparations and the operation log, in one SQLite database per store directory.
//!
//! Every write transaction takes an exclusive `flock` first, so that waiting is fair and bounded,
//! and then `BEGIN IMMEDIATE`. Ordinary rows are written with `synchronous=NORMAL` (a power loss may
//! cost the newest of them, never their consistency); the rows that decide something are written
//! with `FULL`, which also makes everything before them durable.
//!
//! **Architecture invariant:** nothing here knows of mounts, processes or the files of a layer, and
//! nothing here reads a clock of its own: times come in from the caller, in nanoseconds.
#![forbid(unsafe_code)]

mod branches;
pub mod codes;
mod commits;
mod decide;
mod explorations;
mod find;
mod history;
mod layers;
mod lock;
mod open;
mod records;
mod row;
mod schema;
mod tx;
mod worlds;

pub use commits::Race;
pub use decide::{Decided, Decision};
pub use history::HistoryFilter;
pub use open::Store;
pub use records::*;
pub use tx::Durability;
