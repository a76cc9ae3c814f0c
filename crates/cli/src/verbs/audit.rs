//! `forkpoint audit`.

use forkpoint_engine::AuditCheck;
use forkpoint_explore::backend::Ended;
use forkpoint_explore::logs::printable;
use forkpoint_explore::rerun::{Rerun, rerun};
use forkpoint_explore::{Cancel, words};
use forkpoint_model::{CommitId, Result};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::signals::Signals;
use crate::style::Style;
use crate::table::Table;
use crate::{exit, output};

/// Check what a commit's state derives from, and that nothing uncommitted of another branch is in it
///
/// Looks at the decision, at what each participant staged, at the layers and overlays the branch stood on
/// and at its effects. Status 1 when something does not hold.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// A commit, or a branch that was committed (default: the directory's last commit)
    #[arg(value_name = "COMMIT|BRANCH")]
    what: Option<String>,
    /// The directory whose last commit is meant
    #[arg(long, value_name = "DIR", conflicts_with = "what")]
    base: Option<PathBuf>,
    /// Run again what made the commit, in a fork of the directory as it was before, and compare. Without
    /// a COMMAND what the exploration's record has. Only while forkpoint undo could take the commit back
    #[arg(long)]
    rerun: bool,
    /// What made it
    #[arg(value_name = "COMMAND", last = true, requires = "rerun")]
    command: Vec<OsString>,
}

/// So many paths are listed that came out differently.
const LISTED: usize = 20;

/// What came of a rerun, as one more thing that was looked at.
fn rerun_check(done: &Rerun) -> AuditCheck {
    let found = match (done.same(), &done.ended) {
        (true, Ended::Code(0)) => "came out the same".to_owned(),
        (true, ended) => format!("came out the same, and {}", words(ended)),
        (false, ended) => {
            let paths = done.differences.changes.iter().take(LISTED);
            let mut found: Vec<String> = paths
                .map(|change| printable(&change.path.to_string_lossy()))
                .collect();
            let more = done.differences.changes.len().saturating_sub(LISTED);
            if more > 0 {
                found.push(format!("{more} more paths"));
            }
            if done.same_keys == Some(false) {
                found.push("keys".into());
            }
            let how = match ended {
                Ended::Code(0) => String::new(),
                other => format!(" (it {})", words(other)),
            };
            format!("came out differently{how}: {}", found.join(", "))
        }
    };
    AuditCheck {
        subject: "rerun".into(),
        holds: Some(done.same()),
        found,
    }
}

/// Audits.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let commit: CommitId = match &args.what {
        None => {
            let base = args.base.clone().unwrap_or_default();
            engine.last_commit(&app.cwd.join(base))?
        }
        Some(text) => match text.parse() {
            Ok(commit) => commit,
            Err(_) => engine.commit_of(&app.branch(&engine, text)?.record()?)?,
        },
    };
    let mut report = engine.audit(commit)?;
    if args.rerun {
        let signals = Signals::ending()?;
        let cancel = Cancel::new()?;
        signals.raise(cancel.clone());
        let command = Some(&args.command[..]).filter(|c| !c.is_empty());
        let caller = |name: &OsStr| std::env::var_os(name);
        let done = rerun(&engine, commit, command, &caller, &cancel, &mut |_, _| {})?;
        report.checks.push(rerun_check(&done));
    }
    let status = match report.sound() {
        true => exit::DONE,
        false => exit::NONE_PASSED,
    };
    let row = |check: &AuditCheck| json!({"subject": check.subject, "holds": check.holds, "found": check.found});
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.audit/1",
            "commit": commit,
            "branch": report.commit.branch,
            "from": report.from,
            "to": report.commit.to,
            "verified": report.commit.verified,
            "sound": report.sound(),
            "checks": report.checks.iter().map(row).collect::<Vec<_>>(),
        }))?;
        return Ok(status);
    }
    let mut table = Table::new(&["", "OF", "FOUND"]);
    for check in &report.checks {
        let mark = match check.holds {
            Some(true) => "ok",
            Some(false) => "WRONG",
            None => "?",
        };
        table.row(vec![
            mark.into(),
            check.subject.clone(),
            check.found.clone(),
        ]);
    }
    output::print(&table.render(Style::of_stdout()))?;
    let verified = match report.commit.verified {
        true => "it had passed its verifier",
        false => "it was not verified",
    };
    app.say(&format!(
        "commit {commit} of branch {}: {verified}",
        report.commit.branch
    ));
    Ok(status)
}
