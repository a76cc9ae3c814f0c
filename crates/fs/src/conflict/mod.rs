//! Conflicts and drift: what changed in the base since a branch was forked from it.
//!
//! Conflicts are found by looking at the delta's own paths, their ancestors, and what lies below
//! directories the delta removes. Drift is everything else, found by a scan within a budget.

mod ancestors;
mod check;
mod drift;
mod equal;
mod index;

pub(crate) use check::look;
pub use check::{CheckOptions, PathConflict, check};
pub use drift::{Budget, Drift, MAX_PATHS, drift};
pub use index::Baseline;
pub(crate) use index::digest as index_digest;
