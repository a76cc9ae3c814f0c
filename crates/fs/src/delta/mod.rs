//! Deltas: what the topmost layers of a stack change against the rest.

mod change;
mod compare;
mod content;
mod diff;
mod sides;

pub use crate::tree::{Usage, usage};
pub use change::{
    Change, ChangeKind, ChangeSet, DiffOptions, Differs, FileTime, FileType, Grants, order,
};
pub use diff::{between, diff, diff_trees};
pub use sides::Sides;

pub(crate) use compare::carried as is_carried;
