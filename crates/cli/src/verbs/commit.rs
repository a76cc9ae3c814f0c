//! `forkpoint commit`.

use forkpoint_engine::{
    Branch, Cancel, CommitOptions, CommitOutcome, CommitReport, Drift, GitOptions, JudgeSpec,
    Limits, Network,
};
use forkpoint_model::{Conflict, Result};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::signals::Signals;
use crate::{exit, output, records};

/// Commit a branch into what it was forked from
///
/// Ends the branch's processes, checks that nothing it changed has changed underneath, and makes all of
/// its changes visible at once. Siblings are rolled back; independent branches of the same directory
/// become stale.
///
/// With --git-branch the base is not changed: HEAD's tree with the branch's changes becomes a commit on
/// HEAD's commit, and a git branch. Work tree, index and HEAD stay; so does the directory's generation,
/// and independent branches stay fresh. Siblings are rolled back all the same: one of them was committed.
/// Where HEAD is not what the branch was forked from, at a path that it changes, that is a conflict.
/// Files go in byte by byte: no filter, no conversion of line ends, no hook runs, and nothing is signed.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// Paths that are not committed (may be repeated)
    #[arg(long, value_name = "GLOB", value_parser = crate::flags::glob)]
    exclude: Vec<String>,
    /// Leave what a preparation changed out
    #[arg(long)]
    exclude_prepared: bool,
    /// Commit also changes that would make the host run something (git hooks and configuration) or grant rights on it (set-id files, file capabilities, overlay attributes)
    #[arg(long)]
    allow_host_exec: bool,
    /// Do not commit if anything in the base has changed since the fork
    #[arg(long)]
    strict: bool,
    /// Commit even if nothing changed
    #[arg(long)]
    allow_empty: bool,
    /// Commit although its verifier failed; move a git branch of that name which is there already
    #[arg(long)]
    force: bool,
    /// Commit as this git branch of the directory's repository, and leave the directory alone
    #[arg(long, value_name = "NAME", conflicts_with = "stop_others")]
    git_branch: Option<String>,
    /// The git commit's message
    #[arg(long, short, value_name = "TEXT", requires = "git_branch")]
    message: Option<String>,
    /// Put also what .gitignore leaves out into the git commit
    #[arg(long, requires = "git_branch")]
    include_ignored: bool,
    /// Judge a verified branch with this again if the base has changed elsewhere
    #[arg(long, value_name = "CMD")]
    reverify: Option<OsString>,
    /// End what runs in independent branches of the directory, instead of refusing
    #[arg(long)]
    stop_others: bool,
    #[command(flatten)]
    masks: Masks,
}

/// Commits.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    let signals = Signals::ending()?;
    let cancel = Cancel::new()?;
    signals.raise(cancel.clone());
    let engine = app.engine(&args.masks)?;
    let branch = app.branch(&engine, &args.branch)?;
    let label = branch.label()?;
    let reverify = args.reverify.map(|line| JudgeSpec {
        argv: vec!["/bin/sh".into(), "-c".into(), line],
        env: Vec::new(),
        timeout: None,
        limits: Limits::default(),
        network: Network::Loopback,
        mounts: Vec::new(),
        log: Some(branch.log_path().with_file_name("reverify.log")),
        redactor: Default::default(),
        capture_limit: 0,
        score: false,
        cancel,
    });
    let options = CommitOptions {
        exclude: args.exclude,
        include_prepared: !args.exclude_prepared,
        allow_host_exec: args.allow_host_exec,
        strict: args.strict,
        allow_empty: args.allow_empty,
        force: args.force,
        reverify,
        stop_others: args.stop_others,
        ..CommitOptions::default()
    };
    if let Some(git_branch) = args.git_branch {
        let options = GitOptions {
            branch: git_branch,
            message: args.message,
            include_ignored: args.include_ignored,
            replace: options.force,
            commit: options,
        };
        return as_git(app, &branch, &label, &options);
    }
    let report = branch.commit(&options)?;
    let (status, outcome, words) = judge(&report.outcome);
    if app.json() {
        output::print_json(&document(&report, branch.id(), outcome))?;
        return Ok(status);
    }
    if status == exit::DONE {
        let mut changed = records::changed(report.changed.items, report.changed.bytes);
        if report.keys > 0 {
            changed += &format!(", {}", records::keys(report.keys));
        }
        output::print(&format!(
            "committed {label}: {changed} (commit {})\n",
            report.commit
        ))?;
    } else {
        output::say(&format!("{label} is not committed: {words}"));
    }
    tell(app, &report);
    Ok(status)
}

/// Commits as a git branch.
fn as_git(app: &App, branch: &Branch, label: &str, options: &GitOptions) -> Result<u8> {
    let git = branch.commit_git(options)?;
    let (status, outcome, words) = judge(&git.report.outcome);
    let paths = |all: &[PathBuf]| {
        all.iter()
            .map(|p| records::path_json(p))
            .collect::<Vec<_>>()
    };
    if app.json() {
        let mut shown = document(&git.report, branch.id(), outcome);
        shown["commit"] = json!(null);
        shown["git"] = json!({
            "branch": options.branch,
            "commit": git.made.as_ref().map(|made| &made.commit),
            "parent": git.parent,
            "ignored": paths(&git.ignored),
            "uncarried": paths(&git.uncarried),
        });
        output::print_json(&shown)?;
        return Ok(status);
    }
    match &git.made {
        Some(made) => output::print(&format!(
            "committed {label} as git branch {}: {} paths (commit {})\n",
            made.branch, git.report.changed.items, made.commit
        ))?,
        None => output::say(&format!("{label} is not committed: {words}")),
    }
    tell(app, &git.report);
    list(app, "ignored:", &git.ignored);
    list(app, "not for git:", &git.uncarried);
    if git.made.is_some() {
        app.say(&format!(
            "note: what git cannot carry stays in {} until gc: forkpoint diff {}",
            branch.id(),
            branch.id()
        ));
    }
    Ok(status)
}

fn list(app: &App, what: &str, all: &[PathBuf]) {
    for path in all.iter().take(LISTED) {
        app.say(&format!("  {what} {}", path.to_string_lossy()));
    }
    if all.len() > LISTED {
        app.say(&format!("  {what} {} more", all.len() - LISTED));
    }
}

fn judge(outcome: &CommitOutcome) -> (u8, &'static str, String) {
    match outcome {
        CommitOutcome::Committed => (exit::DONE, "committed", String::new()),
        CommitOutcome::Conflict(items) => (
            exit::CONFLICT,
            "conflict",
            format!("{} changed underneath", what(items)),
        ),
        CommitOutcome::Lost { why } => (exit::CONFLICT, "lost", why.clone()),
        CommitOutcome::ApplyBlocked(items) => (
            exit::INCOMPLETE,
            "apply_blocked",
            format!(
                "it is decided, but {} paths block the end of it",
                items.len()
            ),
        ),
        CommitOutcome::Drift(paths) => (
            exit::CONFLICT,
            "drift",
            format!(
                "{} other paths of the base changed since the fork",
                paths.len()
            ),
        ),
        CommitOutcome::Empty => (
            exit::NONE_PASSED,
            "empty",
            "it changes nothing (--allow-empty commits it)".into(),
        ),
        CommitOutcome::ReverifyFailed(_) => (
            exit::CONFLICT,
            "reverify_failed",
            "it does not pass on the base as it now is".into(),
        ),
    }
}

/// How many paths, and keys.
pub(crate) fn what(items: &[Conflict]) -> String {
    let keys = items.iter().filter(|c| c.participant.0 == "kv").count();
    match (items.len() - keys, keys) {
        (paths, 0) => format!("{paths} paths"),
        (0, n) => records::keys(n as u64),
        (paths, n) => format!("{paths} paths and {}", records::keys(n as u64)),
    }
}

fn items(outcome: &CommitOutcome) -> &[Conflict] {
    match outcome {
        CommitOutcome::Conflict(items) | CommitOutcome::ApplyBlocked(items) => items,
        _ => &[],
    }
}

fn drifted(report: &CommitReport) -> &[PathBuf] {
    match (&report.outcome, &report.drift) {
        (CommitOutcome::Drift(paths), _) | (_, Drift::Paths(paths)) => paths,
        _ => &[],
    }
}

fn document(
    report: &CommitReport,
    branch: forkpoint_model::BranchId,
    outcome: &str,
) -> serde_json::Value {
    let paths = |all: &[PathBuf]| {
        all.iter()
            .map(|p| records::path_json(p))
            .collect::<Vec<_>>()
    };
    json!({
        "schema": "forkpoint.commit/1",
        "branch": branch,
        "outcome": outcome,
        "committed": matches!(report.outcome, CommitOutcome::Committed),
        "commit": report.commit,
        "generation": report.generation,
        "changed": {
            "files": report.changed.items,
            "bytes": report.changed.bytes,
            "keys": report.keys,
        },
        "conflicts": items(&report.outcome),
        "drift": paths(drifted(report)),
        "excluded": paths(&report.excluded),
        "withheld": paths(&report.withheld),
        "losers": report.losers,
        "stale": report.stale,
        "notes": report.notes,
    })
}

/// The longest list of paths that is told in full.
const LISTED: usize = 20;

fn tell(app: &App, report: &CommitReport) {
    for conflict in items(&report.outcome).iter().take(LISTED) {
        let key = match conflict.participant.0 == "kv" {
            true => "key ",
            false => "",
        };
        app.say(&format!("  {key}{}: {}", conflict.item, conflict.why));
    }
    list(app, "drift:", drifted(report));
    list(app, "excluded:", &report.excluded);
    list(app, "withheld:", &report.withheld);
    if !report.withheld.is_empty() {
        app.say(
            "  (these would make the host run something, or grant rights there; \
             --allow-host-exec commits them)",
        );
    }
    for note in &report.notes {
        app.say(&format!("note: {note}"));
    }
    for id in &report.stale {
        app.say(&format!("{id} is stale now: forkpoint rebase {id}"));
    }
}
