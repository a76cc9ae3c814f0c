//! What is known of an exploration while it runs, put together from what it tells.

use forkpoint_explore::backend::Ended;
use forkpoint_explore::{Progress, Reason, words};
use std::time::{Duration, Instant};

/// Where an attempt is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Waiting,
    Running,
    /// Its command has ended; the verifier or the score is at work, or will be.
    Judging,
    Passed,
    Out,
    Committing,
    Won,
}

impl Phase {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Judging => "judging",
            Self::Passed => "passed",
            Self::Out => "out",
            Self::Committing => "committing",
            Self::Won => "won",
        }
    }

    /// What is shown first when not everything fits: the larger.
    pub(super) fn weight(self) -> u8 {
        match self {
            Self::Won | Self::Committing => 5,
            Self::Running => 4,
            Self::Judging => 3,
            Self::Passed => 2,
            Self::Out => 1,
            Self::Waiting => 0,
        }
    }
}

/// One attempt.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) phase: Phase,
    pub(super) begun: Option<Instant>,
    pub(super) took: Option<Duration>,
    pub(super) cpu: Option<Duration>,
    pub(super) memory: Option<u64>,
    pub(super) score: Option<f64>,
    /// Its last line of output, or why it is out.
    pub(super) last: String,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) title: String,
    pub(super) begun: Option<Instant>,
    /// What is done that is no attempt: the preparation, the base.
    pub(super) doing: String,
    pub(super) rows: Vec<Row>,
}

/// Whether a line about it is to stay on the terminal.
pub(super) fn stays(progress: &Progress<'_>) -> bool {
    matches!(
        progress,
        Progress::Note(_)
            | Progress::Prepared { .. }
            | Progress::Baseline(_)
            | Progress::Restored { .. }
            | Progress::Refused { .. }
    )
}

/// What an attempt says of how far it is, in a line.
pub(crate) fn told(text: &str, fraction: Option<f64>) -> String {
    match fraction {
        Some(fraction) => format!("{:.0}% {text}", fraction * 100.0),
        None => text.to_owned(),
    }
}

impl State {
    fn row(&mut self, index: u32) -> &mut Row {
        let index = index as usize;
        // A strategy may make attempts as it goes; their number is bounded by the specification.
        if index >= self.rows.len() {
            self.rows.resize_with(index + 1, Row::default);
        }
        &mut self.rows[index]
    }

    pub(super) fn on(&mut self, progress: &Progress<'_>, now: Instant) {
        match progress {
            Progress::Begin {
                exploration,
                attempts,
                jobs,
                strategy,
            } => {
                self.title = format!("{exploration}  {strategy}, {jobs} at once");
                self.begun = Some(now);
                self.rows.resize_with(*attempts as usize, Row::default);
            }
            Progress::Preparing { command } => self.doing = format!("preparing: {command}"),
            Progress::Prepared { .. } => self.doing = "looking at the base".into(),
            Progress::Line {
                index: None, text, ..
            } => self.doing = format!("preparing: {text}"),
            Progress::Line {
                index: Some(index),
                text,
                ..
            } if !text.is_empty() => {
                let row = self.row(*index);
                row.last.clear();
                row.last.push_str(text);
            }
            Progress::Told {
                index,
                text,
                fraction,
            } => self.row(*index).last = told(text, *fraction),
            Progress::Started { index, .. } => {
                self.doing.clear();
                let row = self.row(*index);
                row.phase = Phase::Running;
                row.begun = Some(now);
            }
            Progress::Usage {
                index,
                cpu,
                memory_bytes,
            } => {
                let row = self.row(*index);
                // One that ended meanwhile has said what it used in all.
                if row.phase == Phase::Running {
                    row.cpu = Some(*cpu);
                    row.memory = Some(*memory_bytes).filter(|m| *m > 0);
                }
            }
            Progress::Ended { index, exit } => {
                let row = self.row(*index);
                row.phase = Phase::Judging;
                row.took = Some(exit.wall);
                row.cpu = Some(exit.cpu);
                row.memory = Some(exit.peak_memory_bytes).filter(|m| *m > 0);
                if exit.ended != Ended::Code(0) {
                    row.last = words(&exit.ended);
                }
            }
            Progress::Verified {
                index,
                passed: true,
                ..
            } => self.row(*index).phase = Phase::Passed,
            Progress::Scored { index, score } => {
                let row = self.row(*index);
                row.phase = Phase::Passed;
                row.score = Some(*score);
            }
            Progress::Out {
                index,
                reason,
                detail,
            } => self.out(*index, *reason, *detail),
            Progress::Committing { index } => self.row(*index).phase = Phase::Committing,
            Progress::Won { attempt, .. } => self.row(attempt.index).phase = Phase::Won,
            Progress::Refused { index, why } => {
                let row = self.row(*index);
                row.phase = Phase::Out;
                row.last = (*why).to_owned();
            }
            _ => {}
        }
    }

    fn out(&mut self, index: u32, reason: Reason, detail: Option<&str>) {
        let row = self.row(index);
        row.phase = Phase::Out;
        let reason = reason.as_str().replace('_', " ");
        row.last = detail.map_or(reason.clone(), |d| format!("{reason}: {d}"));
    }
}
