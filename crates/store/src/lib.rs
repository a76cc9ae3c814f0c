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
pub mod bus;
pub mod codes;
mod commits;
mod decide;
mod effects;
mod explorations;
mod find;
mod history;
pub mod kv;
mod kv_commit;
mod kv_gc;
mod kv_head;
mod kv_scan;
mod layers;
mod lock;
mod names;
mod open;
mod overlay;
mod overlay_merge;
mod records;
mod reserve;
mod row;
mod schema;
mod shared_gc;
mod shared_records;
mod tx;
mod worlds;

pub use commits::Race;
pub use decide::{Decided, Decision};
pub use effects::NewEffect;
pub use history::HistoryFilter;
pub use kv::{KvEntry, KvPage, KvWritten};
pub use kv_commit::{KvChange, KvConflict, MAX_CONFLICTS};
pub use kv_gc::KvFreed;
pub use names::{Names, names};
pub use open::Store;
pub use overlay::Access;
pub use records::*;
pub use shared_gc::SharedFreed;
pub use shared_records::*;
pub use tx::Durability;
