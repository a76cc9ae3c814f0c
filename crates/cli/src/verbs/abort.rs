//! `forkpoint abort`.

use forkpoint_engine::records::{ExplorationRecord, ExplorationState};
use forkpoint_engine::{AbortOptions, BranchState, Cancel, Conflict, Engine};
use forkpoint_explore::{resolve, waiting};
use forkpoint_model::Result;
use serde_json::json;

use crate::app::{App, Masks};
use crate::exit;
use crate::verbs::stop::{Done, each_of};

/// Roll branches back: end what runs in them and undo everything they did
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branches; an exploration that runs is interrupted, and waited for
    #[arg(value_name = "BRANCH", required = true)]
    branches: Vec<String>,
    /// Keep the sealed delta and the logs to look at, until `forkpoint gc`
    #[arg(long)]
    keep: bool,
}

/// Rolls back. All names are looked up before anything happens.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let (mut found, mut explorations) = (Vec::new(), Vec::new());
    for name in &args.branches {
        match app.branch(&engine, name) {
            Ok(branch) => found.push(branch),
            Err(error) => match running(app, &engine, name) {
                Some(exploration) => explorations.push(exploration),
                None => return Err(error),
            },
        }
    }
    for exploration in &explorations {
        interrupt(app, &engine, exploration)?;
    }
    let options = AbortOptions {
        reason: "aborted".into(),
        retain: args.keep,
    };
    each_of(app, found, "forkpoint.abort/1", |branch| {
        let done = branch.abort(&options)?;
        let left = |left: &Conflict| format!("  left: {}: {}", left.item, left.why);
        Ok(Done {
            words: format!("is {}", done.state.as_str().replace('_', " ")),
            fields: json!({"state": done.state, "left": done.left}),
            more: done.left.iter().map(left).collect(),
            status: match done.state {
                BranchState::RollbackIncomplete => exit::INCOMPLETE,
                _ => exit::DONE,
            },
        })
    })
}

/// The exploration of that name, if it runs.
fn running(app: &App, engine: &Engine, name: &str) -> Option<ExplorationRecord> {
    let found = resolve::exploration(&engine.store(), name, &app.cwd).ok()?;
    (found.state == ExplorationState::Running).then_some(found)
}

/// Ends an exploration as Ctrl-C would, and waits until it has rolled everything back.
fn interrupt(app: &App, engine: &Engine, exploration: &ExplorationRecord) -> Result<()> {
    waiting::interrupt(exploration)?;
    waiting::wait(engine, exploration.id, None, &Cancel::new()?)?;
    app.say(&format!("exploration {} is over", exploration.id));
    Ok(())
}
