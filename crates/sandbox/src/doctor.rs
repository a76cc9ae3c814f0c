//! What this machine can do, found by really trying.

use std::path::Path;

/// How well something works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckState {
    /// As it should.
    Ok,
    /// By a fallback, which `detail` names.
    Degraded,
    /// Not at all.
    Missing,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was tried.
    pub name: String,
    /// How well it works.
    pub state: CheckState,
    /// What was found, and what follows from it.
    pub detail: String,
    /// The exact command or setting that mends it.
    pub mend: Option<String>,
}

/// Tries what branches of `base` with their store at `store` need.
pub fn doctor(_store: &Path, _base: &Path) -> Vec<Check> {
    Vec::new()
}
