//! `forkpoint history`.

use forkpoint_engine::records::HistoryFilter;
use forkpoint_model::Result;
use serde_json::json;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::style::Style;
use crate::table::Table;
use crate::{exit, output, records};

/// Show what was done: forks, commits, aborts, undos
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only what was done to branches of this directory
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// The newest so many; 0 for all
    #[arg(long, value_name = "N", default_value = "50")]
    limit: u32,
}

/// Shows.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let world = match &args.base {
        Some(base) => match engine.find_world(&app.cwd.join(base))? {
            Some(world) => Some(world.id()),
            None => Some(forkpoint_model::WorldId::from_bits(0)),
        },
        None => None,
    };
    let lines = engine.history(&HistoryFilter {
        world,
        limit: args.limit,
        ..HistoryFilter::default()
    })?;
    if app.json() {
        let rows: Vec<_> = lines
            .iter()
            .map(|h| {
                json!({
                    "seq": h.seq, "at": records::seconds(h.at_ns), "verb": h.verb, "world": h.world,
                    "branch": h.branch, "commit": h.commit, "text": h.text,
                })
            })
            .collect();
        output::print_json(&json!({"schema": "forkpoint.history/1", "history": rows}))?;
        return Ok(exit::DONE);
    }
    let now = forkpoint_sys::clock::wall_ns();
    let mut table = Table::new(&["WHEN", "VERB", "COMMIT", "WHAT"]);
    for h in &lines {
        let commit = h.commit.map(|c| c.to_string()).unwrap_or_default();
        table.row(vec![
            records::ago(now, h.at_ns),
            h.verb.clone(),
            commit,
            h.text.clone(),
        ]);
    }
    if table.is_empty() {
        app.say("nothing was done yet");
    } else {
        output::print(&table.render(Style::of_stdout()))?;
    }
    Ok(exit::DONE)
}
