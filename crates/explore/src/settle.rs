//! The end of an exploration: every branch that did not win is rolled back (or stays sealed, where
//! someone can still want it), and each row gets its final state and reason.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::backend::RolledBack;
use crate::driver::Context;
use crate::report::{AttemptReport, AttemptState, Outcome, Reason, Report};
use crate::rounds::{Shared, Slot};
use crate::spec::{Keep, StrategyName};
use crate::watch::Stop;

/// How many rollbacks run at once.
const ROLLBACKS: usize = 8;

/// Fills in an exploration that ended before its fork.
pub(crate) fn never_forked(context: &Context<'_>, report: &mut Report) {
    report.outcome = early_outcome(context).unwrap_or_default();
    let reason = context.stop_reason().unwrap_or_default();
    for row in &mut report.attempts {
        row.reason = reason;
    }
}

fn early_outcome(context: &Context<'_>) -> Option<Outcome> {
    context.watch.why().map(|why| match why {
        Stop::Interrupted => Outcome::Interrupted,
        Stop::Deadline => Outcome::Timeout,
    })
}

/// Rolls back what did not win, and completes the report.
pub(crate) fn settle(
    context: &Context<'_>,
    report: &mut Report,
    branches: &[Shared],
    slots: Vec<Slot>,
) {
    if report.winner.is_none()
        && let Some(outcome) = early_outcome(context)
    {
        report.outcome = outcome;
    }
    let won = report.winner;
    for (row, slot) in report.attempts.iter_mut().zip(&slots) {
        row.reason = slot
            .reason
            .unwrap_or_else(|| undecided(context, won.is_some(), row, slot));
    }
    let keep = context.spec.keep;
    let to_abort: Vec<usize> = (0..branches.len())
        .filter(|&i| branches[i].is_some() && won != Some(i as u32))
        .filter(|&i| {
            let stays = stays_sealed(keep, report.outcome, &report.attempts[i], &slots[i]);
            if stays {
                report.attempts[i].state = AttemptState::Sealed;
                report.attempts[i].retained = true;
            }
            !stays
        })
        .collect();
    let reasons: Vec<Reason> = report.attempts.iter().map(|row| row.reason).collect();
    let retain = |i: usize| keep != Keep::None && slots[i].started;
    let results = abort_all(branches, &to_abort, &reasons, &retain);
    for (i, result) in results {
        let row = &mut report.attempts[i];
        match result {
            Ok(done) => {
                row.state = done.state.into();
                row.retained = retain(i);
                row.conflicts.extend(done.left);
            }
            Err(error) => {
                row.state = AttemptState::RollbackIncomplete;
                row.detail = Some(format!("its rollback failed: {error}"));
            }
        }
    }
    if let Some(i) = won
        && let Some(row) = report.attempts.get_mut(i as usize)
    {
        row.retained = true;
    }
}

/// Why an attempt ended about which nobody said anything.
fn undecided(context: &Context<'_>, won: bool, row: &AttemptReport, slot: &Slot) -> Reason {
    if row.branch.is_none() && row.detail.is_some() {
        return Reason::StartError;
    }
    let ranks = context.spec.strategy() != StrategyName::FirstWins;
    match context.stop_reason() {
        Some(reason) if !won => reason,
        _ if !won && !slot.started => Reason::NotRun,
        _ if ranks && row.passed => Reason::Outscored,
        _ => Reason::SiblingCommitted,
    }
}

/// Whether a branch stays sealed for someone to take up: one whose commit was refused while nothing
/// else was committed, and with `--keep all` every one that finished.
fn stays_sealed(keep: Keep, outcome: Outcome, row: &AttemptReport, slot: &Slot) -> bool {
    if !slot.sealed
        || matches!(
            outcome,
            Outcome::Committed | Outcome::Interrupted | Outcome::Timeout
        )
    {
        return false;
    }
    let refused = matches!(
        row.reason,
        Reason::Conflict
            | Reason::Drift
            | Reason::ReverifyFailed
            | Reason::Lost
            | Reason::CommitError
    );
    refused || keep == Keep::All
}

fn abort_all(
    branches: &[Shared],
    which: &[usize],
    reasons: &[Reason],
    retain: &(dyn Fn(usize) -> bool + Sync),
) -> Vec<(usize, forkpoint_model::Result<RolledBack>)> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..ROLLBACKS.min(which.len()) {
            scope.spawn(|| {
                while let Some(&i) = which.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(branch) = &branches[i] else { continue };
                    let result = branch.abort(reasons[i].as_str(), retain(i));
                    results
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((i, result));
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}
