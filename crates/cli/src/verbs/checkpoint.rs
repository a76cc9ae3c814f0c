//! `forkpoint checkpoint`.

use forkpoint_engine::{Branch, Checkpoint, Engine};
use forkpoint_explore::units::human_bytes;
use forkpoint_model::{Error, Kind, Result};
use serde_json::{Value, json};

use crate::app::{App, Masks};
use crate::style::Style;
use crate::table::Table;
use crate::{codes, exit, output, records};

/// Keep named states to fork from
///
/// A checkpoint never changes: not when its branch goes on, and not when the directory does, which is
/// therefore copied under it (sharing blocks where the file system can). `forkpoint fork NAME` forks it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand, Debug)]
enum Verb {
    /// Take a checkpoint of a directory or a stopped branch, as it now is
    Create {
        /// A directory (beginning with / or .), branch or attempt
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Its name. Default: its identifier is its only one
        #[arg(long)]
        name: Option<String>,
    },
    /// List checkpoints
    List {
        /// Also the steps of branches, which `forkpoint rewind` goes back to
        #[arg(long, short)]
        all: bool,
    },
    /// Show one: what it is of, what it takes, which branches were forked from it
    Show {
        /// Its name or identifier
        #[arg(value_name = "CHECKPOINT")]
        name: String,
    },
    /// Delete checkpoints
    ///
    /// Branches that were forked from one stay as they are: gc frees only the layers that nothing stands
    /// on.
    Delete {
        /// Their names or identifiers
        #[arg(value_name = "CHECKPOINT", required = true)]
        names: Vec<String>,
    },
}

/// Does it.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    match &args.verb {
        Verb::Create { source, name } => create(app, &engine, source, name.as_deref()),
        Verb::List { all } => list(app, &engine, *all),
        Verb::Show { name } => show(app, &engine, name),
        Verb::Delete { names } => delete(app, &engine, names),
    }
}

fn create(app: &App, engine: &Engine, source: &str, name: Option<&str>) -> Result<u8> {
    if let Some(name) = name {
        super::fork::check_name(name)?;
    }
    let dir = app.cwd.join(source);
    let made = match branch_of(app, engine, source) {
        Ok(Some(_)) if dir.is_dir() => {
            return Err(codes::AMBIGUOUS
                .error(format!("'{source}' is a branch and a directory"))
                .hint(format!("write ./{source} for the directory")));
        }
        Ok(Some(branch)) => branch.checkpoint(name)?,
        Ok(None) => app.world(engine, Some(&dir), false)?.checkpoint(name)?,
        Err(error) if error.kind == Kind::Invalid && dir.is_dir() => {
            app.world(engine, Some(&dir), false)?.checkpoint(name)?
        }
        Err(error) => return Err(error),
    };
    if app.json() {
        let mut shown = checkpoint_json(engine, &made)?;
        shown["schema"] = json!("forkpoint.checkpoint/1");
        shown["notes"] = json!(made.notes());
        output::print_json(&shown)?;
    } else {
        output::print(&format!("{}\n", label(&made)))?;
    }
    for note in made.notes() {
        app.say(&format!("note: {note}"));
    }
    Ok(exit::DONE)
}

/// The branch of that name; nothing for what can only be a path.
fn branch_of(app: &App, engine: &Engine, source: &str) -> Result<Option<Branch>> {
    match source.starts_with(['/', '.']) {
        true => Ok(None),
        false => app.branch(engine, source).map(Some),
    }
}

fn label(checkpoint: &Checkpoint) -> String {
    let name = checkpoint.name().map(str::to_owned);
    name.unwrap_or_else(|| checkpoint.id().to_string())
}

fn checkpoint_json(engine: &Engine, checkpoint: &Checkpoint) -> Result<Value> {
    let record = checkpoint.record();
    let branches: Vec<_> = checkpoint.branches()?.iter().map(|b| b.id).collect();
    Ok(json!({
        "checkpoint": record.id, "name": record.name, "world": record.world,
        "base": records::path_json(engine.world_by_id(record.world)?.base()),
        "generation": record.generation, "created": records::seconds(record.created_ns),
        "branches": branches,
    }))
}

fn list(app: &App, engine: &Engine, steps: bool) -> Result<u8> {
    let mut all = engine.checkpoints(None)?;
    all.retain(|checkpoint| steps || !checkpoint.is_step());
    if app.json() {
        let rows = all.iter().map(|c| checkpoint_json(engine, c));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        output::print_json(&json!({"schema": "forkpoint.checkpoints/1", "checkpoints": rows}))?;
        return Ok(exit::DONE);
    }
    let now = forkpoint_sys::clock::wall_ns();
    let mut table = Table::new(&[
        "CHECKPOINT",
        "NAME",
        "DIRECTORY",
        ">GENERATION",
        ">BRANCHES",
        "TAKEN",
    ]);
    for checkpoint in &all {
        let record = checkpoint.record();
        table.row(vec![
            record.id.to_string(),
            record.name.clone().unwrap_or_default(),
            records::base_of(engine, record.world)?,
            record.generation.0.to_string(),
            checkpoint.branches()?.len().to_string(),
            records::ago(now, record.created_ns),
        ]);
    }
    match table.is_empty() {
        true => app.say("there are no checkpoints"),
        false => output::print(&table.render(Style::of_stdout()))?,
    }
    Ok(exit::DONE)
}

fn show(app: &App, engine: &Engine, name: &str) -> Result<u8> {
    let checkpoint = find(engine, name)?;
    let usage = checkpoint.usage()?;
    let mut shown = checkpoint_json(engine, &checkpoint)?;
    if app.json() {
        shown["schema"] = json!("forkpoint.checkpoint/1");
        shown["bytes"] = json!(usage);
        output::print_json(&shown)?;
        return Ok(exit::DONE);
    }
    let record = checkpoint.record();
    let now = forkpoint_sys::clock::wall_ns();
    let branches = checkpoint.branches()?;
    let names: Vec<String> = branches
        .iter()
        .map(|b| b.name.clone().unwrap_or_else(|| b.id.to_string()))
        .collect();
    let lines = [
        ("checkpoint", record.id.to_string()),
        ("name", record.name.clone().unwrap_or_default()),
        ("directory", records::base_of(engine, record.world)?),
        ("generation", record.generation.0.to_string()),
        ("takes", human_bytes(usage)),
        ("taken", records::ago(now, record.created_ns)),
        ("branches", names.join(", ")),
    ];
    let lines = lines.iter().filter(|(_, value)| !value.is_empty());
    let text: String = lines
        .map(|(name, value)| format!("{name:<12} {}\n", forkpoint_explore::logs::printable(value)))
        .collect();
    output::print(&text)?;
    Ok(exit::DONE)
}

fn delete(app: &App, engine: &Engine, names: &[String]) -> Result<u8> {
    let mut rows = Vec::new();
    // All are found before any is deleted.
    let all = names.iter().map(|name| find(engine, name));
    for checkpoint in all.collect::<Result<Vec<_>>>()? {
        let (label, branches) = (label(&checkpoint), checkpoint.branches()?.len());
        rows.push(json!({"checkpoint": checkpoint.id(), "name": checkpoint.name()}));
        checkpoint.delete()?;
        if !app.json() {
            output::print(&format!("deleted {label}\n"))?;
        }
        if branches > 0 {
            app.say(&format!(
                "note: {branches} branches stand on what it kept: it is freed after them"
            ));
        }
    }
    if app.json() {
        output::print_json(&json!({"schema": "forkpoint.checkpoint_delete/1", "deleted": rows}))?;
    }
    Ok(exit::DONE)
}

fn find(engine: &Engine, name: &str) -> Result<Checkpoint> {
    let hint = |e: Error| e.hint("forkpoint checkpoint list shows them");
    engine.checkpoint(name).map_err(hint)
}
