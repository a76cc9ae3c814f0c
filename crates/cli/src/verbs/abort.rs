//! `forkpoint abort`.

use forkpoint_engine::{AbortOptions, BranchState};
use forkpoint_model::Result;
use serde_json::json;

use crate::app::{App, Masks};
use crate::{exit, output};

/// Roll branches back: end what runs in them and undo everything they did
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branches
    #[arg(value_name = "BRANCH", required = true)]
    branches: Vec<String>,
    /// Keep the sealed delta and the logs to look at, until `forkpoint gc`
    #[arg(long)]
    keep: bool,
}

/// Rolls back. All names are looked up before anything happens.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let found = args
        .branches
        .iter()
        .map(|name| app.branch(&engine, name))
        .collect::<Result<Vec<_>>>()?;
    let (mut rows, mut status) = (Vec::new(), exit::DONE);
    for branch in found {
        let label = branch.label()?;
        let options = AbortOptions {
            reason: "aborted".into(),
            retain: args.keep,
        };
        match branch.abort(&options) {
            Ok(done) => {
                if done.state == BranchState::RollbackIncomplete {
                    status = exit::INCOMPLETE;
                }
                if !app.json() {
                    output::print(&format!(
                        "{label} is {}\n",
                        done.state.as_str().replace('_', " ")
                    ))?;
                    for left in &done.left {
                        app.say(&format!("  left: {}: {}", left.item, left.why));
                    }
                }
                rows.push(json!({"branch": branch.id(), "state": done.state, "left": done.left}));
            }
            Err(error) => {
                output::say(&output::error_lines(
                    &error,
                    crate::style::Style::of_stderr(),
                ));
                status = status.max(exit::of_error(error.kind));
                rows.push(json!({"branch": branch.id(), "error": error}));
            }
        }
    }
    if app.json() {
        output::print_json(&json!({"schema": "forkpoint.abort/1", "branches": rows}))?;
    }
    Ok(status)
}
