//! What the driver needs of the engine, as two small traits, so that every rule of an exploration can
//! be tested without kernel features. The real ones are in `real`; the tests' are in `fake`.

use forkpoint_engine::Redactor;
use forkpoint_model::participant::Conflict;
use forkpoint_model::{BranchId, CommitId, ExplorationId, Result, WorldId};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::cost::Cost;
use crate::report::{Changed, DroppedReport};
use crate::spec::{LimitSpec, NetworkSpec};
use crate::{Cancel, Report};

/// Where a piece of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// By its time limit.
    TimeLimit,
    /// By another limit, named.
    Limit(String),
    /// It could not be started; why.
    NotStarted(String),
}

impl Ended {
    /// As a shell would report it; none where the command never ran or a limit ended it.
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(*code),
            Self::Signal(signal) => Some(128 + signal),
            Self::TimeLimit | Self::Limit(_) | Self::NotStarted(_) => None,
        }
    }
}

/// How a command ended and what it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// How.
    pub ended: Ended,
    /// How long it took.
    pub wall: Duration,
    /// Processor time of everything in it.
    pub cpu: Duration,
    /// The most memory it held at once, in bytes; 0 where nothing measured it.
    pub peak_memory_bytes: u64,
    /// Effect paths that nothing captured, and limits that nothing enforced, in words.
    pub uncaptured: Vec<String>,
}

/// What an attempt uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time so far.
    pub cpu: Duration,
    /// Memory now.
    pub memory_bytes: u64,
    /// What it has written and keeps; 0 unless it was asked for.
    pub disk_bytes: u64,
}

/// How far an attempt says it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// In words.
    pub text: String,
    /// How much is done, from 0 to 1.
    pub fraction: Option<f64>,
}

/// A command to run in an attempt.
#[derive(Clone)]
pub struct RunRequest {
    /// What.
    pub argv: Vec<OsString>,
    /// Variables added to the caller's.
    pub env: Vec<(OsString, OsString)>,
    /// Its time limit.
    pub timeout: Option<Duration>,
    /// Its other limits.
    pub limits: LimitSpec,
    /// What it can reach.
    pub network: NetworkSpec,
    /// Kills it and everything it started.
    pub cancel: Cancel,
}

/// A preparation to run or find.
#[derive(Clone)]
pub struct PrepareRequest {
    /// The command.
    pub run: RunRequest,
    /// What its result depends on.
    pub inputs: Vec<String>,
    /// What is not written to its log.
    pub redactor: Redactor,
}

/// What a preparation gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Whether an earlier one served.
    pub cached: bool,
    /// What it changed.
    pub changed: Changed,
    /// Where its output is.
    pub log: Option<PathBuf>,
}

/// A command that judges.
#[derive(Clone)]
pub struct JudgeRequest {
    /// The command.
    pub run: RunRequest,
    /// What it alone sees, read-only: on the host, and inside.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// The name of its log file.
    pub log: String,
    /// What is not written to its log.
    pub redactor: Redactor,
    /// Whether it gives a score.
    pub score: bool,
}

/// What a judge said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// How it ended.
    pub exit: Exit,
    /// The end of its standard output.
    pub stdout: Vec<u8>,
    /// What came over descriptor 3 or the score file.
    pub metrics: Option<Vec<u8>>,
    /// Where its output is.
    pub log: Option<PathBuf>,
}

/// What an attempt changed, once sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// By the attempt itself.
    pub changed: Changed,
    /// By the preparation under it.
    pub prepared: Changed,
    /// Written outside the disks.
    pub dropped: DroppedReport,
}

/// A commit to make.
#[derive(Clone)]
pub struct CommitRequest {
    /// Paths left out.
    pub exclude: Vec<String>,
    /// Whether the preparation's changes go in.
    pub include_prepared: bool,
    /// Whether changes that make the host run something go in.
    pub allow_host_exec: bool,
    /// Refuse any drift.
    pub strict: bool,
    /// Commit an empty change.
    pub allow_empty: bool,
    /// What judges it again where the base has drifted.
    pub reverify: Option<JudgeRequest>,
}

/// How a commit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// It is in the base.
    Committed,
    /// Both sides changed something.
    Conflict(Vec<Conflict>),
    /// Another was first.
    Lost(String),
    /// Decided, but something blocks the end of it.
    Blocked(Vec<Conflict>),
    /// The base changed elsewhere, and nothing may judge it again.
    Drift(Vec<PathBuf>),
    /// It changes nothing.
    Empty,
    /// It did not pass on the base as it now is.
    ReverifyFailed(Box<Judged>),
}

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its identity.
    pub commit: CommitId,
    /// How it ended.
    pub outcome: CommitOutcome,
    /// Left out by the caller's globs.
    pub excluded: Vec<PathBuf>,
    /// Left out because the host would run something.
    pub withheld: Vec<PathBuf>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// How a branch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The branch's state.
    pub state: forkpoint_model::state::BranchState,
    /// What is left of it.
    pub left: Vec<Conflict>,
}

/// What the record of an exploration begins with.
#[derive(Clone, Debug)]
pub struct NewExploration {
    /// The strategy's name.
    pub strategy: &'static str,
    /// The specification, as JSON.
    pub spec: String,
    /// How many attempts.
    pub attempts: u32,
}

/// What the record of an attempt begins with.
#[derive(Clone, Debug)]
pub struct NewAttempt {
    /// Its index.
    pub index: u32,
    /// Its branch; none where it could not be forked.
    pub branch: Option<BranchId>,
    /// What it runs.
    pub command: String,
    /// Its parameters.
    pub params: BTreeMap<String, String>,
}

/// One world that can be prepared, judged and forked.
pub trait Backend: Sync {
    /// The world's id.
    fn world(&self) -> WorldId;
    /// The wall clock, in nanoseconds since 1970.
    fn wall_ns(&self) -> i64;
    /// What a person should know of the world (a copy instead of an overlay, mounts below it).
    fn notes(&self) -> Vec<String>;
    /// Writes the exploration's first record.
    fn begin(&self, exploration: &NewExploration) -> Result<ExplorationId>;
    /// Prepares, or finds an earlier preparation that still holds. Later calls build on it.
    fn prepare(
        &self,
        exploration: ExplorationId,
        request: &PrepareRequest,
        output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Prepared>;
    /// Judges the prepared base itself.
    fn judge_base(&self, exploration: ExplorationId, request: &JudgeRequest) -> Result<Judged>;
    /// Forks siblings, with a result for each.
    fn fork(&self, exploration: ExplorationId, count: u32)
    -> Result<Vec<Result<Box<dyn Attempt>>>>;
    /// Runs a command that sees the trees of two sealed attempts, in a throwaway fork.
    fn compare(
        &self,
        exploration: ExplorationId,
        pair: [&dyn Attempt; 2],
        request: &JudgeRequest,
    ) -> Result<Judged>;
    /// Writes the attempts' first records.
    fn attempts(&self, exploration: ExplorationId, rows: &[NewAttempt]) -> Result<()>;
    /// Writes what became of it all. Called also when `error` ended it early.
    fn end(&self, report: &Report, error: Option<&forkpoint_model::Error>) -> Result<()>;
}

/// One forked branch.
pub trait Attempt: Send + Sync {
    /// Its branch.
    fn id(&self) -> BranchId;
    /// Where its output is written.
    fn log(&self) -> PathBuf;
    /// The directory it may leave reports in.
    fn out(&self) -> PathBuf;
    /// Runs its command to the end; `output` is given everything it writes, as it comes.
    fn run(&self, request: &RunRequest, output: &mut dyn FnMut(Stream, &[u8])) -> Result<Exit>;
    /// Kills what is left inside, makes protected paths what the base has, and seals. Returns the
    /// protected paths that had been changed.
    fn seal(&self, protect: &[String]) -> Result<Vec<PathBuf>>;
    /// What it changed; after the seal.
    fn delta(&self) -> Result<Delta>;
    /// Forks an attempt off it, once it is sealed, that goes on from what it left and is its sibling:
    /// one commit takes the changes of both.
    fn fork(&self, exploration: ExplorationId, index: u32) -> Result<Box<dyn Attempt>>;
    /// What it uses now, and on disk if `disk`.
    fn usage(&self, disk: bool) -> Result<Usage>;
    /// What it says that it has cost so far.
    fn cost(&self) -> Result<Cost>;
    /// What it says its score is.
    fn claimed_score(&self) -> Result<Option<f64>>;
    /// How far it says it is.
    fn progress(&self) -> Result<Option<Told>>;
    /// How a command inside names a file of the directory it may leave reports in.
    fn inside(&self, name: &str) -> OsString;
    /// Leaves a file in that directory, before its command is run; returns its name inside.
    fn leave(&self, name: &str, text: &[u8]) -> Result<OsString>;
    /// Judges it in a throwaway fork.
    fn judge(&self, request: &JudgeRequest) -> Result<Judged>;
    /// Makes a verdict the branch's own.
    fn record_verdict(&self, passed: bool, request: &JudgeRequest) -> Result<()>;
    /// Commits it.
    fn commit(&self, request: &CommitRequest) -> Result<Committed>;
    /// Rolls it back, keeping its sealed delta and logs to look at if `retain`.
    fn abort(&self, reason: &str, retain: bool) -> Result<RolledBack>;
}
