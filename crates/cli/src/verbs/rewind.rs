//! `forkpoint rewind`.

use forkpoint_engine::{Step, Summary};
use forkpoint_model::Result;
use serde_json::{Value, json};

use crate::app::{App, Masks};
use crate::style::Style;
use crate::table::Table;
use crate::{exit, output, records};

/// Go back to how a branch was before a command that `exec --step` ran
///
/// Without STEP the last command is undone, and one more each time. How the branch was until then is
/// kept as a step too: rewind to that one to go forward again.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Nothing may run in the branch (forkpoint stop). Files outside its disks, such as those \
    in /tmp, are not rewound. The newest 100 steps are kept, until the branch ends."
)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// The step to go back to
    #[arg(value_name = "STEP", conflicts_with = "list")]
    step: Option<u64>,
    /// List the steps instead
    #[arg(long, short)]
    list: bool,
}

/// Rewinds.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    if args.list {
        let steps = branch.steps()?;
        if app.json() {
            let rows: Vec<Value> = steps.iter().map(step_json).collect();
            output::print_json(
                &json!({"schema": "forkpoint.steps/1", "branch": branch.id(), "steps": rows}),
            )?;
        } else if steps.is_empty() {
            app.say("there are no steps: `forkpoint exec --step` takes them");
        } else {
            output::print(&table(&steps).render(Style::of_stdout()))?;
        }
        return Ok(exit::DONE);
    }
    let (to, kept) = branch.rewind(args.step)?;
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.rewind/1", "branch": branch.id(), "to": step_json(&to), "kept": kept,
        }))?;
    } else {
        let label = branch.label()?;
        output::print(&format!("{label} is as it was at step {}\n", to.number))?;
        app.say(&format!(
            "what it was until now: forkpoint rewind {label} {kept}"
        ));
    }
    Ok(exit::DONE)
}

/// The steps as a table.
pub(crate) fn table(steps: &[Step]) -> Table {
    let now = forkpoint_sys::clock::wall_ns();
    let mut table = Table::new(&[">STEP", "TAKEN", "CHANGED", "BEFORE"]);
    for step in steps {
        table.row(vec![
            step.number.to_string(),
            records::ago(now, step.at_ns),
            step.changed.as_ref().map(counts).unwrap_or_default(),
            forkpoint_explore::logs::printable(&step.command),
        ]);
    }
    table
}

/// How many paths changed, by kind.
pub(crate) fn counts(summary: &Summary) -> String {
    let parts: Vec<String> = [
        ('A', summary.added),
        ('M', summary.modified),
        ('D', summary.removed),
    ]
    .iter()
    .filter(|(_, count)| *count > 0)
    .map(|(letter, count)| format!("{count}{letter}"))
    .collect();
    match parts.is_empty() {
        true => "nothing".into(),
        false => parts.join(" "),
    }
}

/// A summary in JSON.
pub(crate) fn summary_json(summary: &Summary) -> Value {
    let paths: Vec<Value> = summary
        .paths
        .iter()
        .map(|(letter, path)| json!({"kind": letter.to_string(), "path": records::path_json(path)}))
        .collect();
    json!({
        "added": summary.added, "modified": summary.modified, "removed": summary.removed,
        "paths": paths,
    })
}

/// A step in JSON.
pub(crate) fn step_json(step: &Step) -> Value {
    json!({
        "number": step.number, "at": records::seconds(step.at_ns), "command": step.command,
        "rewind": step.rewind, "changed": step.changed.as_ref().map(summary_json),
    })
}
