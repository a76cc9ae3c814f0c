//! An exploration as a person sees it: a line for each thing that happens, and a table at the end.

use forkpoint_explore::backend::{Ended, Stream};
use forkpoint_explore::units::{human_bytes, human_time};
use forkpoint_explore::{
    AttemptReport, AttemptState, Observer, Outcome, Progress, Reason, Report, words,
};
use std::io::Write;
use std::time::Duration;

use crate::live::told;
use crate::records::changed;
use crate::style::Style;
use crate::table::Table;

/// Writes progress to standard error.
pub(crate) struct Lines {
    quiet: bool,
    output: bool,
    style: Style,
}

impl Lines {
    /// `output`: the attempts' own lines too.
    pub(crate) fn new(quiet: bool, output: bool) -> Self {
        Self {
            quiet,
            output,
            style: Style::of_stderr(),
        }
    }
}

impl Observer for Lines {
    fn on(&mut self, progress: &Progress<'_>) {
        if self.quiet {
            return;
        }
        if matches!(progress, Progress::Line { .. }) && !self.output {
            return;
        }
        if let Some(line) = line(progress, self.style) {
            // Nobody can be told that standard error is gone.
            writeln!(std::io::stderr().lock(), "{line}").unwrap_or(());
        }
    }
}

fn attempt(index: u32) -> String {
    format!("[{index}]")
}

/// One thing that happened, as one line.
pub(crate) fn line(progress: &Progress<'_>, style: Style) -> Option<String> {
    Some(match progress {
        Progress::Note(note) => format!("note: {note}"),
        Progress::Begin {
            exploration,
            attempts,
            jobs,
            strategy,
        } => {
            let noun = if *attempts == 1 {
                "attempt"
            } else {
                "attempts"
            };
            style.bold(&format!(
                "exploration {exploration}: {attempts} {noun}, {jobs} at once, {strategy}"
            ))
        }
        Progress::Preparing { command } => format!("preparing: {command}"),
        Progress::Prepared { prepared, took } => {
            let how = if prepared.cached {
                "prepared before"
            } else {
                "prepared"
            };
            let what = changed(prepared.changed.files, prepared.changed.bytes);
            format!("{how}: {what} in {}", human_time(*took))
        }
        Progress::Baseline(baseline) => {
            let gate = match baseline.passed {
                Some(true) => "passes",
                Some(false) => "fails",
                None => "has no verifier",
            };
            let score = baseline
                .score
                .map(|s| format!(", score {s}"))
                .unwrap_or_default();
            format!("the base {gate}{score}")
        }
        Progress::Started { index, command } => format!("{} started: {command}", attempt(*index)),
        Progress::Line {
            index,
            stream,
            text,
        } => {
            let prefix = index.map_or("[prepare]".to_owned(), attempt);
            let bar = if *stream == Stream::Stderr { "!" } else { "|" };
            format!("{} {text}", style.dim(&format!("{prefix} {bar}")))
        }
        Progress::Told {
            index,
            text,
            fraction,
        } => format!("{} {}", attempt(*index), told(text, *fraction)),
        Progress::Ended { index, exit } => {
            let how = match &exit.ended {
                Ended::Code(0) => "done".to_owned(),
                ended => words(ended),
            };
            format!("{} {how} after {}", attempt(*index), human_time(exit.wall))
        }
        Progress::Restored { index, paths } => {
            format!(
                "{} had changed {paths} protected paths: put back",
                attempt(*index)
            )
        }
        Progress::Verified {
            index,
            passed: true,
            ..
        } => format!("{} passed", attempt(*index)),
        Progress::Verified {
            index,
            passed: false,
            log,
        } => {
            let log = log
                .map(|l| format!(" (log: {})", l.display()))
                .unwrap_or_default();
            format!("{} did not pass{log}", attempt(*index))
        }
        Progress::Scored { index, score } => format!("{} scored {score}", attempt(*index)),
        // The verifier's verdict has been told already.
        Progress::Out {
            reason: Reason::FailedVerify | Reason::Timeout,
            detail: None,
            ..
        } => return None,
        Progress::Out {
            index,
            reason,
            detail,
        } => {
            let reason = reason.as_str().replace('_', " ");
            let detail = detail.map(|d| format!(": {d}")).unwrap_or_default();
            format!("{} is out: {reason}{detail}", attempt(*index))
        }
        Progress::LosersDead { count, took } => {
            let noun = if *count == 1 { "other" } else { "others" };
            format!("stopped {count} {noun} in {}", human_time(*took))
        }
        Progress::Committing { index } => format!("{} committing", attempt(*index)),
        Progress::Won {
            attempt: row,
            committed,
        } => {
            let how = if *committed {
                "is committed"
            } else {
                "is chosen"
            };
            style.green(&format!("{} {how}", attempt(row.index)))
        }
        Progress::Refused { index, why } => {
            style.red(&format!("{} is not committed: {why}", attempt(*index)))
        }
        _ => return None,
    })
}

/// The result: a table, the outcome, and what can be done next.
pub(crate) fn summary(report: &Report, style: Style) -> String {
    let scored = report.attempts.iter().any(|a| a.score.is_some());
    let params = report.attempts.iter().any(|a| !a.params.is_empty());
    let mut headings = vec![">#", "STATE", "REASON", ">EXIT", ">TIME", ">CHANGED"];
    if scored {
        headings.push(">SCORE");
    }
    headings.push(if params { "PARAMETERS" } else { "COMMAND" });
    let mut table = Table::new(&headings);
    for a in &report.attempts {
        table.row(row(a, report.winner, scored, params));
    }
    let mut text = table.render(style);
    text.push_str(&outcome(report, style));
    for a in &report.attempts {
        text.push_str(&remarks(a));
    }
    for next in next(report) {
        text.push_str(&format!("  {next}\n"));
    }
    text
}

fn row(a: &AttemptReport, winner: Option<u32>, scored: bool, params: bool) -> Vec<String> {
    let mark = if winner == Some(a.index) { "*" } else { "" };
    let state = serde_json::to_value(a.state).ok();
    let state = state
        .as_ref()
        .and_then(|s| s.as_str())
        .unwrap_or_default()
        .replace('_', " ");
    let mut cells = vec![
        format!("{mark}{}", a.index),
        state,
        a.reason.as_str().replace('_', " "),
        a.exit_code.map(|c| c.to_string()).unwrap_or_default(),
        if a.wall_s > 0.0 {
            human_time(Duration::from_secs_f64(a.wall_s.min(1e9)))
        } else {
            String::new()
        },
        if a.changed.files > 0 {
            format!("{} ({})", a.changed.files, human_bytes(a.changed.bytes))
        } else {
            String::new()
        },
    ];
    if scored {
        cells.push(a.score.map(|s| s.to_string()).unwrap_or_default());
    }
    let last = match params {
        true => a
            .params
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect::<Vec<_>>()
            .join(" "),
        false => a
            .command
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(60)
            .collect(),
    };
    cells.push(last);
    cells
}

fn outcome(report: &Report, style: Style) -> String {
    let winner = report.winner.unwrap_or_default();
    let line = match report.outcome {
        Outcome::Committed => {
            let commit = report
                .commit
                .map(|c| format!(" (commit {c})"))
                .unwrap_or_default();
            style.green(&format!("attempt {winner} is committed{commit}"))
        }
        Outcome::Chosen => style.green(&format!("attempt {winner} is chosen, not committed")),
        Outcome::NonePassed => style.red("no attempt passed"),
        Outcome::Refused => style.red("nothing is committed: the base has changed meanwhile"),
        Outcome::Timeout => style.red("the total time is over; everything is rolled back"),
        Outcome::Interrupted => style.red("interrupted; everything is rolled back"),
        Outcome::Failed => style.red("nothing is committed: the commit failed"),
    };
    format!("{line}\n")
}

/// What of an attempt must not be overlooked.
fn remarks(a: &AttemptReport) -> String {
    let mut text = String::new();
    let mut list = |what: &str, paths: &[forkpoint_explore::text::OsText]| {
        if let Some(first) = paths.first() {
            let more = if paths.len() > 1 {
                format!(" and {} more", paths.len() - 1)
            } else {
                String::new()
            };
            let first = forkpoint_explore::logs::printable(&first.lossy());
            text.push_str(&format!("attempt {}: {what} {first}{more}\n", a.index));
        }
    };
    if a.state == AttemptState::Committed || a.state == AttemptState::Sealed {
        list("withheld, since the host would run it:", &a.withheld);
        list("excluded:", &a.excluded);
        list(
            "written outside the directory, and dropped:",
            &a.dropped.paths,
        );
        list("protected, put back:", &a.restored);
    }
    for path in &a.uncaptured {
        text.push_str(&format!("attempt {}: not captured: {path}\n", a.index));
    }
    if matches!(
        a.state,
        AttemptState::RollbackIncomplete | AttemptState::ApplyBlocked
    ) {
        for left in a.conflicts.iter().take(10) {
            text.push_str(&format!(
                "attempt {}: left: {}: {}\n",
                a.index, left.item, left.why
            ));
        }
    }
    text
}

/// Commands worth typing now.
fn next(report: &Report) -> Vec<String> {
    let x = report.exploration;
    let kept = |a: &&AttemptReport| a.retained && report.winner != Some(a.index);
    let mut all = Vec::new();
    match report.outcome {
        Outcome::Committed => all.push("forkpoint undo".to_owned()),
        Outcome::Chosen => {
            let winner = report.winner.unwrap_or_default();
            all.push(format!("forkpoint diff {x}/{winner} --patch"));
            all.push(format!("forkpoint commit {x}/{winner}"));
        }
        Outcome::Refused => {
            if let Some(a) = report
                .attempts
                .iter()
                .find(|a| a.state == AttemptState::Sealed)
            {
                all.push(format!("forkpoint diff {x}/{}", a.index));
                all.push(format!(
                    "forkpoint rebase {x}/{0} && forkpoint commit {x}/{0}",
                    a.index
                ));
            }
        }
        _ => {}
    }
    if let Some(a) = report
        .attempts
        .iter()
        .find(|a| kept(a) && a.state != AttemptState::Sealed)
    {
        all.push(format!("forkpoint diff {x}/{}", a.index));
        all.push(format!("forkpoint logs {x}/{}", a.index));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkpoint_model::{BranchId, CommitId, ExplorationId, WorldId};

    fn report() -> Report {
        let row = |index, state, reason| AttemptReport {
            index,
            state,
            reason,
            branch: Some(BranchId::from_bits(index.into())),
            command: "sed -i s/a/b/ f".into(),
            exit_code: Some(0),
            wall_s: 1.5,
            changed: forkpoint_explore::report::Changed {
                files: 2,
                bytes: 2048,
            },
            retained: true,
            ..AttemptReport::default()
        };
        Report {
            schema: String::new(),
            exploration: ExplorationId::from_bits(1),
            world: WorldId::from_bits(1),
            base: "/b".into(),
            strategy: "first-wins".into(),
            outcome: Outcome::Committed,
            winner: Some(1),
            committed: true,
            commit: Some(CommitId::from_bits(3)),
            baseline: None,
            preparation: None,
            cost: 0.0,
            comparisons: Vec::new(),
            wall_s: 2.0,
            notes: Vec::new(),
            attempts: vec![
                row(0, AttemptState::RolledBack, Reason::FailedVerify),
                row(1, AttemptState::Committed, Reason::Passed),
            ],
            timeline: Vec::new(),
        }
    }

    #[test]
    fn the_summary_reads_without_colour_and_says_what_to_type() {
        let text = summary(&report(), Style::PLAIN);
        let expected = " #  STATE        REASON         EXIT   TIME      CHANGED  COMMAND
 0  rolled back  failed verify     0  1.5 s  2 (2.0 KiB)  sed -i s/a/b/ f
*1  committed    passed            0  1.5 s  2 (2.0 KiB)  sed -i s/a/b/ f
attempt 1 is committed (commit c00000003)
  forkpoint undo
  forkpoint diff x00000001/0
  forkpoint logs x00000001/0
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_line_of_output_has_its_attempt_before_it() {
        let progress = Progress::Line {
            index: Some(3),
            stream: Stream::Stderr,
            text: "oops",
        };
        assert_eq!(line(&progress, Style::PLAIN).as_deref(), Some("[3] ! oops"));
    }
}
