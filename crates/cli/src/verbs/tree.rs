//! `forkpoint tree`.

use forkpoint_engine::BranchFilter;
use forkpoint_engine::records::BranchRecord;
use forkpoint_model::{Result, Source, WorldId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::{exit, output, records};

/// Show which branch was forked from which
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only those of this directory
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Also those that have ended
    #[arg(long, short)]
    all: bool,
}

/// The deepest level that is drawn: a loop in the records must not hang.
const DEPTH: usize = 200;

/// Draws.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let only = match &args.base {
        Some(base) => match engine.find_world(&app.cwd.join(base))? {
            Some(world) => Some(world.id()),
            None => Some(WorldId::from_bits(0)),
        },
        None => None,
    };
    let branches = engine.branches(BranchFilter {
        world: only,
        ended: args.all,
    })?;
    let mut worlds: BTreeMap<WorldId, Vec<&BranchRecord>> = BTreeMap::new();
    for branch in &branches {
        worlds.entry(branch.world).or_default().push(branch);
    }
    let mut text = String::new();
    let mut documents = Vec::new();
    for (id, all) in worlds {
        let world = engine.world_by_id(id)?;
        let head = world.head()?;
        let shown = |b: &BranchRecord| all.iter().any(|o| b.parent == Source::Branch(o.id));
        let roots: Vec<_> = all.iter().copied().filter(|b| !shown(b)).collect();
        if app.json() {
            let children = roots.iter().map(|b| node(b, &all, 0)).collect::<Vec<_>>();
            documents.push(json!({
                "world": id, "base": world.base().to_string_lossy(), "head": head.0, "branches": children,
            }));
            continue;
        }
        text.push_str(&format!(
            "{} (generation {})\n",
            world.base().display(),
            head.0
        ));
        draw(&mut text, &roots, &all, "", 0);
    }
    if app.json() {
        output::print_json(&json!({"schema": "forkpoint.tree/1", "worlds": documents}))?;
    } else if text.is_empty() {
        app.say("there are no branches");
    } else {
        output::print(&text)?;
    }
    Ok(exit::DONE)
}

fn children<'a>(of: &BranchRecord, all: &[&'a BranchRecord]) -> Vec<&'a BranchRecord> {
    all.iter()
        .copied()
        .filter(|b| b.parent == Source::Branch(of.id))
        .collect()
}

fn node(branch: &BranchRecord, all: &[&BranchRecord], depth: usize) -> Value {
    let below = match depth < DEPTH {
        true => children(branch, all)
            .iter()
            .map(|c| node(c, all, depth + 1))
            .collect(),
        false => Vec::new(),
    };
    json!({
        "branch": branch.id, "name": branch.name, "state": branch.state, "stale": branch.stale,
        "generation": branch.generation, "branches": below,
    })
}

fn draw(
    text: &mut String,
    level: &[&BranchRecord],
    all: &[&BranchRecord],
    indent: &str,
    depth: usize,
) {
    for (i, branch) in level.iter().enumerate() {
        let last = i + 1 == level.len();
        let name = branch
            .name
            .clone()
            .unwrap_or_else(|| records::attempt_name(branch));
        let state = records::state_words(branch);
        let arm = if last { "└─" } else { "├─" };
        text.push_str(format!("{indent}{arm} {} {name}", branch.id).trim_end());
        text.push_str(&format!("  {state}\n"));
        if depth < DEPTH {
            let indent = format!("{indent}{}", if last { "   " } else { "│  " });
            draw(text, &children(branch, all), all, &indent, depth + 1);
        }
    }
}
