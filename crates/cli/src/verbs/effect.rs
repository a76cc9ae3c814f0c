//! `forkpoint effect`.

use forkpoint_engine::records::EffectRecord;
use forkpoint_engine::{Branch, CommandEffect, EffectState, Engine};
use forkpoint_model::Result;
use serde_json::{Value, json};
use std::ffi::OsString;

use crate::app::{App, Masks};
use crate::style::Style;
use crate::table::Table;
use crate::{exit, output, records};

/// Perform a command of the host on behalf of a branch, to be undone if the branch is rolled back
///
/// The command runs here, outside the branch, and is written into the branch's journal before it does,
/// with what undoes it. Without --undo it is held instead, and runs once the branch is committed.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Status 0 of the command says that it happened. Any other says nothing, as it may have \
    failed half way: then --query is asked (0: it happened, 1: it did not), and without one the effect is \
    in doubt, which neither commits nor counts as rolled back. All of them run in the current directory \
    and find the effect's key, the same however often it is sent, in FORKPOINT_EFFECT_KEY; --undo finds \
    what the command printed at its standard input.\n\n\
    Example: forkpoint effect b1 --undo 'dropdb trial' --query 'psql -c \"\" trial' -- createdb trial"
)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// What undoes it, a line for the shell
    #[arg(long, value_name = "CMD")]
    undo: Option<OsString>,
    /// What tells whether it happened, a line for the shell
    #[arg(long, value_name = "CMD", requires = "undo")]
    query: Option<OsString>,
    /// --undo does nothing where it had not happened, so that it may run when that is not known
    #[arg(long, requires = "undo")]
    absence_safe: bool,
    /// Hold it until the branch is committed
    #[arg(long, conflicts_with = "undo", required_unless_present_any = ["undo", "list"])]
    defer: bool,
    /// List the branch's journal instead
    #[arg(long, short, conflicts_with_all = ["undo", "defer", "command"])]
    list: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "list")]
    command: Vec<OsString>,
}

/// Performs, or lists.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    if args.list {
        return list(app, &engine, &branch);
    }
    let shell = |line: &OsString| vec!["/bin/sh".into(), "-c".into(), line.clone()];
    let done = branch.perform(&CommandEffect {
        command: args.command.clone(),
        undo: args.undo.as_ref().map(shell),
        query: args.query.as_ref().map(shell),
        absence_safe: args.absence_safe,
        cwd: app.cwd.clone(),
    })?;
    let effect = &done.effect;
    let status = match effect.state {
        EffectState::Sent | EffectState::Ambiguous => exit::INCOMPLETE,
        EffectState::ConfirmedAbsent | EffectState::NeverSent => exit::NONE_PASSED,
        _ => exit::DONE,
    };
    if app.json() {
        let mut document = effect_json(&engine, effect);
        document["schema"] = json!("forkpoint.effect/1");
        document["branch"] = json!(effect.branch);
        document["replayed"] = json!(done.replayed);
        output::print_json(&document)?;
        return Ok(status);
    }
    output::print_bytes(effect.response.as_deref().unwrap_or_default())?;
    let what = match effect.state {
        EffectState::Intended => "is held until the branch is committed".to_owned(),
        EffectState::Acknowledged if done.replayed => {
            "had happened before the rewind: its answer of then is repeated".to_owned()
        }
        EffectState::Acknowledged => {
            "happened, and is undone if the branch is rolled back".to_owned()
        }
        EffectState::ConfirmedAbsent => "did not happen".to_owned(),
        state => format!(
            "is {state}: {}",
            effect.why.as_deref().unwrap_or("not known")
        ),
    };
    app.say(&format!("effect {} {what}", effect.ordinal));
    Ok(status)
}

fn list(app: &App, engine: &Engine, branch: &Branch) -> Result<u8> {
    let effects = branch.effects()?;
    if app.json() {
        let rows: Vec<Value> = effects.iter().map(|e| effect_json(engine, e)).collect();
        output::print_json(&json!({
            "schema": "forkpoint.effects/1", "branch": branch.id(), "effects": rows,
        }))?;
        return Ok(exit::DONE);
    }
    if effects.is_empty() {
        app.say("the branch has had no effects outside its own storage");
        return Ok(exit::DONE);
    }
    let mut table = Table::new(&["N", "OF", "CLASS", "STATE", "WHAT", "WHY"]);
    for effect in &effects {
        table.row(vec![
            effect.ordinal.to_string(),
            effect.participant.to_string(),
            effect.class.to_string(),
            effect.state.to_string().replace('_', " "),
            engine.describe_effect(effect),
            effect.why.clone().unwrap_or_default(),
        ]);
    }
    output::print(&table.render(Style::of_stdout()))?;
    Ok(exit::DONE)
}

/// A row of the journal.
pub(crate) fn effect_json(engine: &Engine, effect: &EffectRecord) -> Value {
    json!({
        "effect": effect.ordinal,
        "participant": effect.participant,
        "class": effect.class,
        "state": effect.state,
        "key": effect.key,
        "what": engine.describe_effect(effect),
        "by": effect.origin,
        "undoable": effect.inverse.is_some(),
        "response": effect.response.as_deref().map(String::from_utf8_lossy),
        "attempts": effect.attempts,
        "why": effect.why,
        "at": records::seconds(effect.created_ns),
        "settled": effect.settled_ns.map(records::seconds),
    })
}
