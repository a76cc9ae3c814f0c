//! `forkpoint list`.

use forkpoint_engine::BranchFilter;
use forkpoint_model::Result;
use serde_json::json;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::records::{self, Bases, BranchLine};
use crate::style::Style;
use crate::table::Table;
use crate::{exit, output};

/// List branches, or explorations
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only those of this directory
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Also those that have ended
    #[arg(long, short)]
    all: bool,
    /// Explorations instead of branches
    #[arg(long, short = 'x')]
    explorations: bool,
}

#[derive(serde::Serialize)]
struct List<'b> {
    branches: Vec<BranchLine<'b>>,
    schema: &'static str,
}

/// Lists.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let world = match &args.base {
        Some(base) => match engine.find_world(&app.cwd.join(base))? {
            Some(world) => Some(world.id()),
            None => return empty(app, args.explorations),
        },
        None => None,
    };
    let now = forkpoint_sys::clock::wall_ns();
    if args.explorations {
        let mut all = engine.store().explorations(false)?;
        all.retain(|x| world.is_none_or(|w| x.world == w));
        if app.json() {
            let rows: Vec<_> = all.iter().map(records::exploration_json).collect();
            output::print_json(
                &json!({"schema": "forkpoint.explorations/1", "explorations": rows}),
            )?;
            return Ok(exit::DONE);
        }
        let mut table = Table::new(&["EXPLORATION", "STATE", "OUTCOME", "DIRECTORY", "STARTED"]);
        for x in &all {
            let outcome = records::outcome(x).unwrap_or_default();
            table.row(vec![
                x.id.to_string(),
                x.state.to_string(),
                outcome,
                x.cwd.display().to_string(),
                records::ago(now, x.created_ns),
            ]);
        }
        return print(app, &table, "nothing was explored yet");
    }
    let branches = engine.branches(BranchFilter {
        world,
        ended: args.all,
    })?;
    let mut bases = Bases::new(&engine);
    if app.json() {
        let branches = branches
            .iter()
            .map(|b| BranchLine::new(&mut bases, b))
            .collect::<Result<Vec<_>>>()?;
        output::print_json(&List {
            branches,
            schema: "forkpoint.list/1",
        })?;
        return Ok(exit::DONE);
    }
    let mut table = Table::new(&["BRANCH", "NAME", "STATE", "FROM", "DIRECTORY", "FORKED"]);
    for b in &branches {
        table.row(vec![
            b.id.to_string(),
            b.name.clone().unwrap_or_else(|| records::attempt_name(b)),
            records::state_now(&engine, b)?,
            records::source_words(&b.parent),
            bases.of(b.world)?.display().to_string(),
            records::ago(now, b.created_ns),
        ]);
    }
    print(app, &table, "there are no branches")
}

fn print(app: &App, table: &Table, nothing: &str) -> Result<u8> {
    if table.is_empty() {
        app.say(nothing);
    } else {
        output::print(&table.render(Style::of_stdout()))?;
    }
    Ok(exit::DONE)
}

fn empty(app: &App, explorations: bool) -> Result<u8> {
    if app.json() {
        let (schema, field) = match explorations {
            true => ("forkpoint.explorations/1", "explorations"),
            false => ("forkpoint.list/1", "branches"),
        };
        output::print_json(&json!({"schema": schema, field: []}))?;
    } else {
        app.say("nothing was forked from that directory");
    }
    Ok(exit::DONE)
}
