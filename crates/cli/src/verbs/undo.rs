//! `forkpoint undo`.

use forkpoint_model::{CommitId, Result};
use serde_json::json;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::{codes, exit, output, records};

/// Take a commit back: put every path and key it changed back as it was
///
/// Refused where one of these paths or keys was changed since, or a later commit stands on it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The commit. Default: the last one into the directory
    #[arg(value_name = "COMMIT")]
    commit: Option<String>,
    /// The directory. Default: the current one
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
}

/// Undoes.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let commit = args.commit.as_deref().map(parse).transpose()?;
    let engine = app.engine(&Masks::default())?;
    let base = args
        .base
        .as_ref()
        .map_or_else(|| app.cwd.clone(), |b| app.cwd.join(b));
    let report = engine.undo(commit, &base)?;
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.undo/1", "commit": report.commit, "restored": report.restored,
            "kept": report.kept,
            "keys": report.keys,
        }))?;
    } else {
        let keys = match report.keys {
            0 => String::new(),
            n => format!(" and {}", records::keys(n)),
        };
        output::print(&format!(
            "undid commit {}: {} paths{keys} are back\n",
            report.commit, report.restored
        ))?;
        for kept in &report.kept {
            app.say(&format!("not taken back, since it is out: {kept}"));
        }
    }
    Ok(exit::DONE)
}

fn parse(text: &str) -> Result<CommitId> {
    text.parse().map_err(|_| {
        codes::USAGE
            .error(format!("'{text}' is not a commit's identifier"))
            .hint("forkpoint history shows them; they begin with c")
    })
}
