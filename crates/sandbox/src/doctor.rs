//! What this machine can do, found by really trying.

mod checks;

pub(crate) use checks::forbidden_by;

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

impl Check {
    fn new(name: &str, state: CheckState, detail: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            state,
            detail: detail.into(),
            mend: None,
        }
    }

    fn ok(name: &str, detail: impl Into<String>) -> Self {
        Self::new(name, CheckState::Ok, detail)
    }

    fn degraded(name: &str, detail: impl Into<String>) -> Self {
        Self::new(name, CheckState::Degraded, detail)
    }

    fn missing(name: &str, detail: impl Into<String>) -> Self {
        Self::new(name, CheckState::Missing, detail)
    }

    fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

/// Tries what branches of `base` with their store at `store` need. `store` must exist; what is
/// made in it for a try is removed again.
pub fn doctor(store: &Path, base: &Path) -> Vec<Check> {
    let mut all = vec![
        checks::kernel(),
        checks::executable(store),
        checks::namespaces(),
    ];
    all.extend(checks::ids());
    all.push(checks::overlay(store, base));
    all.push(checks::cgroups());
    all.push(checks::sandbox(store));
    all
}
