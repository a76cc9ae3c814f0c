//! `forkpoint commit`.

use forkpoint_engine::{
    Cancel, CommitOptions, CommitOutcome, CommitReport, Drift, JudgeSpec, Limits, Network,
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
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// Paths that are not committed (may be repeated)
    #[arg(long, value_name = "GLOB")]
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
    /// Commit although its verifier failed
    #[arg(long)]
    force: bool,
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
        capture_limit: 0,
        score: false,
        cancel,
    });
    let report = branch.commit(&CommitOptions {
        exclude: args.exclude,
        include_prepared: !args.exclude_prepared,
        allow_host_exec: args.allow_host_exec,
        strict: args.strict,
        allow_empty: args.allow_empty,
        force: args.force,
        reverify,
        stop_others: args.stop_others,
        ..CommitOptions::default()
    })?;
    let (status, outcome, words) = judge(&report.outcome);
    if app.json() {
        output::print_json(&document(&report, branch.id(), outcome))?;
        return Ok(status);
    }
    if status == exit::DONE {
        let changed = records::changed(report.changed.items, report.changed.bytes);
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

fn judge(outcome: &CommitOutcome) -> (u8, &'static str, String) {
    match outcome {
        CommitOutcome::Committed => (exit::DONE, "committed", String::new()),
        CommitOutcome::Conflict(items) => (
            exit::CONFLICT,
            "conflict",
            format!("{} paths changed underneath", items.len()),
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
        "changed": {"files": report.changed.items, "bytes": report.changed.bytes},
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
    let list = |what: &str, all: &[PathBuf]| {
        for path in all.iter().take(LISTED) {
            app.say(&format!("  {what} {}", path.to_string_lossy()));
        }
        if all.len() > LISTED {
            app.say(&format!("  {what} {} more", all.len() - LISTED));
        }
    };
    for conflict in items(&report.outcome).iter().take(LISTED) {
        app.say(&format!("  {}: {}", conflict.item, conflict.why));
    }
    list("drift:", drifted(report));
    list("excluded:", &report.excluded);
    list("withheld:", &report.withheld);
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
