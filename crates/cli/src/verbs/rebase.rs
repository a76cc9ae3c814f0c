//! `forkpoint rebase`.

use forkpoint_explore::logs::printable;
use forkpoint_model::Result;
use serde_json::json;

use crate::app::{App, Masks};
use crate::{exit, output};

/// Move a stale branch onto the directory as it now is
///
/// Refused with the list where both sides changed the same paths, or a key it read or wrote was changed. A verification no longer holds
/// afterwards.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
}

/// Rebases.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    let label = branch.label()?;
    let report = branch.rebase()?;
    let fresh = report.conflicts.is_empty();
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.rebase/1", "branch": branch.id(), "rebased": fresh,
            "generation": report.generation, "conflicts": report.conflicts,
        }))?;
    } else if fresh {
        output::print(&format!(
            "{label} is on generation {} now\n",
            report.generation.0
        ))?;
    } else {
        output::say(&format!(
            "{label} is not rebased: {} conflict",
            super::commit::what(&report.conflicts)
        ));
        for conflict in report.conflicts.iter().take(20) {
            output::say(&printable(&format!(
                "  {}: {}",
                conflict.item, conflict.why
            )));
        }
    }
    Ok(if fresh { exit::DONE } else { exit::CONFLICT })
}
