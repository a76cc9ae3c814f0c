//! Applying a delta to a directory its user already has: staged beside it, journaled, redone with
//! renames, kept reversible.
//!
//! The order is: [`stage`] (durable, nothing of the base is touched), the caller's durable decision
//! that holds the [`Journal`], [`redo`] (again and again until it is `Done`), later perhaps
//! [`undo`]. `docs/design-apply.md` gives the journal's layout, the invariants and the crash table.
//!
//! **Architecture invariant:** every call that changes a file system goes through [`io::Io`], so
//! that a test can stop or fail it at any point; and a path of a delta is only ever resolved
//! beneath a directory descriptor, never through a symbolic link.

mod api;
mod attrs;
mod before;
mod build;
pub mod ident;
pub mod io;
pub mod journal;
mod place;
mod plan;
pub(crate) mod prepare;
mod redo;
mod stage;
mod stage_dir;
mod subtree;
mod times;
mod undo;
pub(crate) mod walk;

pub use api::{Owners, Redo, StageRequest, Staged};
pub use before::restore_before;
pub use journal::Journal;
pub use prepare::MAX_NOTES;
pub use redo::{redo, redo_with};
pub use stage::{stage, stage_with};
pub use stage_dir::{own_name, stage_dir, stage_places, stays_in_store};
pub use undo::{check_undo, undo, undo_with};

use forkpoint_model::Result;
use std::path::Path;

/// Removes a stage: of a commit that was not decided, or the undo layer of one that is not to be
/// undone any more.
pub fn discard(stage: &Path) -> Result<()> {
    crate::tree::remove(stage)
}
