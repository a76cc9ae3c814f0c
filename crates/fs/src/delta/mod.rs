//! Deltas: what the topmost layers of a stack change against the rest.

mod change;

pub use change::{Change, ChangeKind, ChangeSet, DiffOptions, Differs, FileTime, FileType, order};
