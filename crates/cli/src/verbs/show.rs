//! `forkpoint show`.

use forkpoint_engine::{Branch, Engine};
use forkpoint_explore::Report;
use forkpoint_explore::resolve::{self, Name};
use forkpoint_model::Result;
use serde_json::json;

use crate::app::{App, Masks};
use crate::style::Style;
use crate::verbs::rewind;
use crate::{exit, output, progress, records};

/// Show an exploration, an attempt or a branch
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// An exploration (or last), an attempt (last/2), or a branch
    #[arg(value_name = "NAME", default_value = "last")]
    name: String,
}

/// Shows.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    if let Name::Plain(name) = resolve::parse(&args.name)?
        && (name == "last" || name.starts_with('x'))
    {
        let found = resolve::exploration(&engine.store(), name, &app.cwd);
        match found {
            Ok(record) => return exploration(app, &record),
            // A branch may have a name that looks like that.
            Err(error) if engine.branch(name).is_err() => return Err(error),
            Err(_) => {}
        }
    }
    branch(app, &engine, &app.branch(&engine, &args.name)?)
}

fn exploration(app: &App, record: &forkpoint_engine::records::ExplorationRecord) -> Result<u8> {
    let report = record
        .result
        .as_deref()
        .and_then(|r| serde_json::from_str::<Report>(r).ok());
    match report {
        Some(report) if app.json() => output::print_json(&report)?,
        Some(report) => output::print(&progress::summary(&report, Style::of_stdout()))?,
        None if app.json() => output::print_json(&records::exploration_json(record))?,
        None => {
            let why = match &record.result {
                Some(error) => format!(": {error}"),
                None => String::new(),
            };
            output::print(&format!(
                "exploration {} is {}{why}\n",
                record.id, record.state
            ))?;
        }
    }
    Ok(exit::DONE)
}

fn branch(app: &App, engine: &Engine, branch: &Branch) -> Result<u8> {
    let record = branch.record()?;
    let mut shown = records::branch_json(engine, &record)?;
    let changes = if record.ended_ns.is_none() || record.retained {
        branch.diff().ok()
    } else {
        None
    };
    if app.json() {
        shown["schema"] = json!("forkpoint.branch/1");
        shown["steps"] = branch.steps()?.iter().map(rewind::step_json).collect();
        let (open, all) = effects(branch)?;
        shown["effects"] = json!({"open": open, "all": all});
        if let Some(changes) = &changes {
            shown["changed"] = json!({
                "files": changes.changes.len(), "bytes": changes.bytes,
                "keys": branch.kv_changed()?,
            });
        }
        output::print_json(&shown)?;
        return Ok(exit::DONE);
    }
    let now = forkpoint_sys::clock::wall_ns();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!(
            "{name:<12} {}\n",
            forkpoint_explore::logs::printable(value)
        ));
    };
    line("branch", &record.id.to_string());
    if let Some(name) = &record.name {
        line("name", name);
    }
    line("state", &records::state_now(engine, &record)?);
    line("directory", &records::base_of(engine, record.world)?);
    line("from", &records::source_words(&record.parent));
    if let Some((exploration, index)) = record.exploration {
        line("attempt", &format!("{exploration}/{index}"));
    }
    if let Some(verified) = &record.verified {
        let words = if verified.passed { "passed" } else { "failed" };
        line("verified", &format!("{words}: {}", verified.command));
    }
    if let Some(reason) = &record.reason {
        line("reason", reason);
    }
    for path in &record.uncaptured {
        line("uncaptured", path);
    }
    if let Some(changes) = &changes {
        let keys = match branch.kv_changed()? {
            0 => String::new(),
            n => format!(", {}", records::keys(n)),
        };
        line(
            "changed",
            &(records::changed(changes.changes.len() as u64, changes.bytes) + &keys),
        );
    }
    let (open, all) = effects(branch)?;
    if all > 0 {
        line(
            "effects",
            &format!("{all}, of which {open} are not settled"),
        );
    }
    line("forked", &records::ago(now, record.created_ns));
    if let Some(ended) = record.ended_ns {
        line("ended", &records::ago(now, ended));
        line(
            "kept",
            if record.retained {
                "yes, to look at and fork from"
            } else {
                "no"
            },
        );
    }
    line("log", &branch.log_path().display().to_string());
    output::print(&text)?;
    let steps = branch.steps()?;
    if !steps.is_empty() {
        output::print(&rewind::table(&steps).render(Style::of_stdout()))?;
    }
    Ok(exit::DONE)
}

/// How many of its effects outside are not settled, and how many there are.
fn effects(branch: &Branch) -> Result<(usize, usize)> {
    let all = branch.effects()?;
    let open = all.iter().filter(|e| e.settled_ns.is_none()).count();
    Ok((open, all.len()))
}
