//! The exit statuses, decided in this one place (docs/command.md says what they mean).

use forkpoint_explore::{Outcome, Report};
use forkpoint_model::Kind;

/// Done.
pub(crate) const DONE: u8 = 0;
/// No attempt passed; a verifier said no.
pub(crate) const NONE_PASSED: u8 = 1;
/// Usage or specification.
pub(crate) const USAGE: u8 = 2;
/// Conflict, drift or stale.
pub(crate) const CONFLICT: u8 = 3;
/// Something is left to resolve.
pub(crate) const INCOMPLETE: u8 = 4;
/// This machine cannot do it.
pub(crate) const UNAVAILABLE: u8 = 5;
/// The total time is over.
pub(crate) const TIMEOUT: u8 = 124;
/// Internal.
pub(crate) const INTERNAL: u8 = 125;
/// The command of an `exec` cannot be executed.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// The command of an `exec` was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// The status of an error.
pub(crate) fn of_error(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid => USAGE,
        Kind::Conflict | Kind::Closed => CONFLICT,
        Kind::Incomplete => INCOMPLETE,
        Kind::Unavailable => UNAVAILABLE,
        Kind::Data | Kind::Io | Kind::Internal => INTERNAL,
    }
}

/// The status of an exploration. Something left to resolve outweighs a commit that went through.
pub(crate) fn of_report(report: &Report) -> u8 {
    match report.outcome {
        Outcome::Interrupted => INTERRUPTED,
        Outcome::Timeout => TIMEOUT,
        _ if report.incomplete() => INCOMPLETE,
        Outcome::Committed | Outcome::Chosen => DONE,
        Outcome::NonePassed => NONE_PASSED,
        Outcome::Refused => CONFLICT,
        Outcome::Failed => INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkpoint_explore::{AttemptReport, AttemptState};
    use forkpoint_model::{ExplorationId, WorldId};

    fn report(outcome: Outcome, state: AttemptState) -> Report {
        Report {
            schema: String::new(),
            exploration: ExplorationId::from_bits(0),
            world: WorldId::from_bits(0),
            base: "/".into(),
            strategy: String::new(),
            outcome,
            winner: None,
            committed: false,
            commit: None,
            baseline: None,
            preparation: None,
            cost: 0.0,
            comparisons: Vec::new(),
            wall_s: 0.0,
            notes: Vec::new(),
            attempts: vec![AttemptReport {
                state,
                ..AttemptReport::default()
            }],
            timeline: Vec::new(),
        }
    }

    #[test]
    fn every_outcome_has_the_status_of_the_design() {
        use AttemptState::{RollbackIncomplete, RolledBack};
        for (outcome, state, status) in [
            (Outcome::Committed, RolledBack, 0),
            (Outcome::Chosen, RolledBack, 0),
            (Outcome::NonePassed, RolledBack, 1),
            (Outcome::Refused, RolledBack, 3),
            (Outcome::Committed, RollbackIncomplete, 4),
            (Outcome::NonePassed, RollbackIncomplete, 4),
            (Outcome::Timeout, RolledBack, 124),
            (Outcome::Interrupted, RolledBack, 130),
            (Outcome::Failed, RolledBack, 125),
        ] {
            assert_eq!(of_report(&report(outcome, state)), status, "{outcome:?}");
        }
    }
}
