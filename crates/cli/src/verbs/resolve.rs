//! `forkpoint resolve`.

use forkpoint_engine::{BranchState, ResolveOptions};
use forkpoint_model::Result;
use serde_json::json;
use std::ffi::OsString;

use crate::app::{App, Masks};
use crate::{codes, exit, output};

/// Go on with a rollback that is incomplete
///
/// Everything that is left is tried again, newest first. What is known now that was not known before is
/// said with --mark or --inverse.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "`forkpoint effect BRANCH --list` shows what is left, with its numbers. Status 4 says that \
    something still is."
)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// You have seen to effect N: nothing of it is left (may be repeated; needs --reason)
    #[arg(long, value_name = "N", requires = "reason")]
    mark: Vec<u64>,
    /// How you know, for the record
    #[arg(long, value_name = "TEXT", requires = "mark")]
    reason: Option<String>,
    /// Undo effect N by this line for the shell instead (may be repeated)
    #[arg(long, value_name = "N=CMD")]
    inverse: Vec<String>,
}

/// Resolves.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let mut options = ResolveOptions::default();
    let reason = args.reason.clone().unwrap_or_default();
    for &ordinal in &args.mark {
        options.settled.push((ordinal, reason.clone()));
    }
    for given in &args.inverse {
        let split = given.split_once('=');
        let Some((ordinal, line)) = split.and_then(|(n, c)| Some((n.parse().ok()?, c))) else {
            return Err(codes::USAGE
                .error(format!("--inverse {given:?} is not N=CMD"))
                .hint("for example --inverse 2='rm -f /srv/trial'"));
        };
        let shell: Vec<OsString> = vec!["/bin/sh".into(), "-c".into(), line.into()];
        options.inverses.push((ordinal, shell));
    }
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    let done = branch.resolve(&options)?;
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.resolve/1", "branch": branch.id(), "state": done.state,
            "left": done.left,
        }))?;
    } else {
        let state = done.state.as_str().replace('_', " ");
        output::print(&format!("{} is {state}\n", branch.label()?))?;
        for left in &done.left {
            app.say(&format!("  left: {}: {}", left.item, left.why));
        }
    }
    Ok(match done.state {
        BranchState::RollbackIncomplete => exit::INCOMPLETE,
        _ => exit::DONE,
    })
}
