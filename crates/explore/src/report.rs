//! The result of an exploration: `explore --json`, schema `forkpoint.explore/1`. docs/json.md says
//! what each field means; a test compares the shape with it.

use forkpoint_model::participant::Conflict;
use forkpoint_model::state::BranchState;
use forkpoint_model::strategy::Comparison;
use forkpoint_model::{BranchId, CommitId, ExplorationId, WorldId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::text::OsText;

/// The schema of [`Report`].
pub const SCHEMA: &str = "forkpoint.explore/1";

/// How much changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Paths added, modified or removed.
    pub files: u64,
    /// Bytes a commit has to write for them.
    pub bytes: u64,
}

/// What was written outside the disks, and thrown away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedReport {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first of them.
    pub paths: Vec<OsText>,
}

/// What the verifier said last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifierReport {
    /// Its exit status; 128 and the signal's number for a death; null where it never ran or a limit
    /// ended it.
    pub exit_code: Option<i32>,
    /// Its output.
    pub log: Option<OsText>,
}

/// The gate and the score on the prepared base itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Whether the gate passes there already; null without a verifier.
    pub passed: Option<bool>,
    /// The verifier's exit status.
    pub exit_code: Option<i32>,
    /// The score there; null without a score command, or where it gave none.
    pub score: Option<f64>,
    /// Its metrics.
    pub metrics: BTreeMap<String, f64>,
    /// The verifier's output, or else the score's.
    pub log: Option<OsText>,
}

/// The preparation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PreparationReport {
    /// Whether an earlier one served.
    pub cached: bool,
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// What it changed.
    pub changed: Changed,
    /// Its output.
    pub log: Option<OsText>,
}

/// How the exploration as a whole ended. The command's exit status follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A winner is committed.
    Committed,
    /// A winner is chosen and was not to be committed.
    Chosen,
    /// No attempt passed.
    #[default]
    NonePassed,
    /// Attempts passed, but no commit went through: conflict, drift, a lost race.
    Refused,
    /// The total time limit ended it.
    Timeout,
    /// Someone interrupted it.
    Interrupted,
    /// An error ended it.
    Failed,
}

/// Where an attempt stands in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Its changes are in the base.
    Committed,
    /// Decided, but something blocks the end of it.
    ApplyBlocked,
    /// Nothing of it is left anywhere.
    RolledBack,
    /// Rolled back; it had an effect path that nothing captures.
    Abandoned,
    /// Something of it is left.
    RollbackIncomplete,
    /// Chosen or kept, uncommitted.
    Sealed,
    /// It never ran.
    #[default]
    FailedToStart,
}

impl From<BranchState> for AttemptState {
    fn from(state: BranchState) -> Self {
        match state {
            BranchState::Committed => Self::Committed,
            BranchState::Applying | BranchState::ApplyBlocked => Self::ApplyBlocked,
            BranchState::RolledBack | BranchState::Discarded => Self::RolledBack,
            BranchState::Abandoned => Self::Abandoned,
            BranchState::Open
            | BranchState::Sealed
            | BranchState::Verified { .. }
            | BranchState::Staged => Self::Sealed,
            BranchState::Invalidated | BranchState::Aborting | BranchState::RollbackIncomplete => {
                Self::RollbackIncomplete
            }
        }
    }
}

/// Why an attempt ended as it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It passed, and won.
    Passed,
    /// The verifier said no.
    FailedVerify,
    /// The verifier ran into its time limit.
    VerifierTimeout,
    /// The verifier could not be run.
    VerifierError,
    /// There is no verifier, and it did not exit with 0.
    Exit,
    /// It ran into its own time limit.
    Timeout,
    /// It ran into another limit.
    Limit,
    /// A budget of the whole exploration was used up: it was stopped, or never started.
    Budget,
    /// It changed nothing.
    NoChange,
    /// It passed, and another's score was better.
    Outscored,
    /// It passed, and its score could not be read.
    ScoreError,
    /// A sibling was committed or chosen before it was done.
    SiblingCommitted,
    /// The total time limit ended the exploration.
    TotalTimeout,
    /// Someone interrupted the exploration.
    Interrupted,
    /// It passed, and the base has changed where it changed something.
    Conflict,
    /// It passed, and the base has changed elsewhere.
    Drift,
    /// It passed, and did not on the base as it now is.
    ReverifyFailed,
    /// It passed, and a commit from elsewhere was first.
    Lost,
    /// It passed, and its commit failed.
    CommitError,
    /// Its branch or its command could not be started.
    StartError,
    /// The exploration ended before it was its turn.
    #[default]
    NotRun,
    /// Forkpoint itself failed on it.
    InternalError,
}

impl Reason {
    /// Every reason, in the order of docs/json.md.
    pub const ALL: [Self; 22] = [
        Self::Passed,
        Self::FailedVerify,
        Self::VerifierTimeout,
        Self::VerifierError,
        Self::Exit,
        Self::Timeout,
        Self::Limit,
        Self::Budget,
        Self::NoChange,
        Self::Outscored,
        Self::ScoreError,
        Self::SiblingCommitted,
        Self::TotalTimeout,
        Self::Interrupted,
        Self::Conflict,
        Self::Drift,
        Self::ReverifyFailed,
        Self::Lost,
        Self::CommitError,
        Self::StartError,
        Self::NotRun,
        Self::InternalError,
    ];

    /// Its name in JSON and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::FailedVerify => "failed_verify",
            Self::VerifierTimeout => "verifier_timeout",
            Self::VerifierError => "verifier_error",
            Self::Exit => "exit",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
            Self::Budget => "budget",
            Self::NoChange => "no_change",
            Self::Outscored => "outscored",
            Self::ScoreError => "score_error",
            Self::SiblingCommitted => "sibling_committed",
            Self::TotalTimeout => "total_timeout",
            Self::Interrupted => "interrupted",
            Self::Conflict => "conflict",
            Self::Drift => "drift",
            Self::ReverifyFailed => "reverify_failed",
            Self::Lost => "lost",
            Self::CommitError => "commit_error",
            Self::StartError => "start_error",
            Self::NotRun => "not_run",
            Self::InternalError => "internal_error",
        }
    }
}

/// One attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptReport {
    /// Its branch; null where it could not be forked.
    pub branch: Option<BranchId>,
    /// Its number, from 0.
    pub index: u32,
    /// What the specification calls it; null where it has no name.
    #[serde(default)]
    pub name: Option<String>,
    /// What it ran.
    pub command: String,
    /// Its parameters.
    pub params: BTreeMap<String, String>,
    /// The attempt it goes on from; null for one forked from the base.
    pub parent: Option<u32>,
    /// How many attempts it goes on from, one after the other.
    pub depth: u32,
    /// What it says that it has cost.
    pub cost: f64,
    /// Where it stands.
    pub state: AttemptState,
    /// Why.
    pub reason: Reason,
    /// Why, in words, where there is more to say.
    pub detail: Option<String>,
    /// Its exit status; 128 and the signal's number for a death; null where it never ran or a limit
    /// ended it.
    pub exit_code: Option<i32>,
    /// Whether it passed the gate.
    pub passed: bool,
    /// Its score.
    pub score: Option<f64>,
    /// What it says its score is: ranks nothing.
    pub claimed_score: Option<f64>,
    /// Its metrics.
    pub metrics: BTreeMap<String, f64>,
    /// What the verifier said; null where it never looked.
    pub verifier: Option<VerifierReport>,
    /// Its output.
    pub log: Option<OsText>,
    /// What it left in `FORKPOINT_OUT`.
    pub out: Option<OsText>,
    /// How long its command ran, in seconds.
    pub wall_s: f64,
    /// Processor time, in seconds.
    pub cpu_s: f64,
    /// The most memory at once.
    pub peak_memory_bytes: u64,
    /// What it changed.
    pub changed: Changed,
    /// What the preparation under it changed.
    pub prepared: Changed,
    /// Paths not committed because of the caller's globs.
    pub excluded: Vec<OsText>,
    /// Paths not committed because the host would run something.
    pub withheld: Vec<OsText>,
    /// Protected paths that it had changed, and that were put back.
    pub restored: Vec<OsText>,
    /// What it wrote outside the disks.
    pub dropped: DroppedReport,
    /// Effect paths that nothing captured, and limits that nothing enforced.
    pub uncaptured: Vec<String>,
    /// What stands in the way of its commit, or is left of its rollback.
    pub conflicts: Vec<Conflict>,
    /// Whether its sealed delta and logs are kept to look at.
    pub retained: bool,
}

/// One comparison of two attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// The attempt on the left.
    pub left: u32,
    /// The attempt on the right.
    pub right: u32,
    /// `left`, `right`, `tie` or `error`.
    pub verdict: Comparison,
    /// The command's exit status, as a verifier's.
    pub exit_code: Option<i32>,
    /// Its output.
    pub log: Option<OsText>,
    /// Why it failed, where it did.
    pub detail: Option<String>,
}

/// What took how long, for the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The attempt; null for the preparation and the base.
    pub attempt: Option<u32>,
    /// `prepare`, `baseline`, `run`, `verify`, `score` or `commit`.
    pub phase: String,
    /// When it began, in seconds since the exploration did.
    pub from_s: f64,
    /// When it ended.
    pub to_s: f64,
}

/// The result of an exploration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `forkpoint.explore/1`.
    pub schema: String,
    /// Its id.
    pub exploration: ExplorationId,
    /// The world it explored.
    pub world: WorldId,
    /// The base directory.
    pub base: OsText,
    /// How the winner was chosen.
    pub strategy: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The winning attempt's index.
    pub winner: Option<u32>,
    /// Whether the winner is committed.
    pub committed: bool,
    /// The commit.
    pub commit: Option<CommitId>,
    /// The gate on the base; null without verifier and score.
    pub baseline: Option<Baseline>,
    /// The preparation; null without one.
    pub preparation: Option<PreparationReport>,
    /// How long all of it took, in seconds.
    pub wall_s: f64,
    /// What the attempts say that they have cost together.
    #[serde(default)]
    pub cost: f64,
    /// The comparisons, in the order in which they ended.
    #[serde(default)]
    pub comparisons: Vec<ComparisonReport>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// The attempts, by index.
    pub attempts: Vec<AttemptReport>,
    /// What ran when.
    #[serde(default)]
    pub timeline: Vec<Span>,
}

impl Report {
    /// Whether something is left to resolve, whatever else happened.
    pub fn incomplete(&self) -> bool {
        self.attempts.iter().any(|a| {
            matches!(
                a.state,
                AttemptState::RollbackIncomplete | AttemptState::ApplyBlocked
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_have_the_names_that_json_gives_them() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }

    #[test]
    fn docs_json_lists_every_reason_and_every_field() {
        let page = include_str!("../../../docs/json.md");
        for reason in Reason::ALL {
            assert!(
                page.contains(&format!("`{}`", reason.as_str())),
                "{}",
                reason.as_str()
            );
        }
        let report = Report {
            schema: SCHEMA.into(),
            exploration: ExplorationId::from_bits(1),
            world: WorldId::from_bits(1),
            base: "/b".into(),
            strategy: "first-wins".into(),
            outcome: Outcome::NonePassed,
            winner: None,
            committed: false,
            commit: None,
            baseline: Some(Baseline::default()),
            preparation: Some(PreparationReport::default()),
            wall_s: 0.0,
            cost: 0.0,
            comparisons: vec![ComparisonReport {
                left: 0,
                right: 1,
                verdict: Comparison::Tie,
                exit_code: None,
                log: None,
                detail: None,
            }],
            notes: Vec::new(),
            attempts: vec![AttemptReport {
                verifier: Some(VerifierReport::default()),
                ..AttemptReport::default()
            }],
            timeline: vec![Span {
                attempt: None,
                phase: "run".into(),
                from_s: 0.0,
                to_s: 1.0,
            }],
        };
        let mut names = Vec::new();
        fields(&serde_json::to_value(report).unwrap(), &mut names);
        for name in names {
            assert!(
                page.contains(&format!("`{name}`")),
                "{name} is not in docs/json.md"
            );
        }
    }

    fn fields(value: &serde_json::Value, names: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(name, value)| {
                names.push(name.clone());
                fields(value, names);
            }),
            serde_json::Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
            _ => {}
        }
    }

    #[test]
    fn a_report_of_the_shape_in_the_design_is_written() {
        let json = serde_json::to_value(AttemptReport::default()).unwrap();
        for name in [
            "branch",
            "index",
            "params",
            "state",
            "reason",
            "exit_code",
            "passed",
            "score",
            "metrics",
            "verifier",
            "log",
            "out",
            "wall_s",
            "cpu_s",
            "peak_memory_bytes",
            "changed",
            "prepared",
            "excluded",
            "withheld",
            "dropped",
            "uncaptured",
            "retained",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
    }
}
