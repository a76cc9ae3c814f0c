//! What callers ask for and what they get back. Plain data.

use crate::cancel::Cancel;
use forkpoint_fs::conflict::{Budget, Drift};
use forkpoint_fs::delta::ChangeSet;
use forkpoint_model::participant::{ChangeSummary, Conflict};
use forkpoint_model::state::BranchState;
use forkpoint_model::{BranchId, CommitId, ExplorationId, Generation, GroupId, LayerId, WorldId};
use forkpoint_sandbox::{ExitReport, Limits, Network};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where the store is and who the caller is. The library reads neither the environment nor `$HOME`
/// by itself.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// The store's directory; made with mode 0700 if it is missing.
    pub store: PathBuf,
    /// The caller's home directory, below which well-known credentials are masked.
    pub home: Option<PathBuf>,
    /// The caller's environment. Variables known to hold secrets are dropped.
    pub env: Vec<(OsString, OsString)>,
    /// Paths that are not masked although they would be.
    pub expose: Vec<PathBuf>,
    /// Further paths to mask.
    pub hide: Vec<PathBuf>,
    /// Devices of the host that everything started here is shown. What a branch does with one is
    /// captured by nothing.
    pub devices: Vec<PathBuf>,
}

/// How a directory becomes a world.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorldOptions {
    /// Fork from a reflink or plain copy of the directory instead of the directory itself.
    pub snapshot: bool,
}

/// At which layer a branch is forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Layer {
    /// The branch may have effects; they land in what it owns.
    #[default]
    Effect,
    /// The branch has no effect path at all. Refused for a source that has one.
    Reasoning,
}

/// How to fork.
#[derive(Debug, Clone, Default)]
pub struct ForkOptions {
    /// A name, unique among live branches; `-1`, `-2`… is appended when `count` is above 1.
    pub name: Option<String>,
    /// How many; 0 means 1.
    pub count: u32,
    /// Whether the branch survives a power loss. Attempts of an exploration need not.
    pub durable: bool,
    /// Effect or reasoning layer.
    pub layer: Layer,
    /// The network a command inside will see.
    pub network: Network,
    /// Devices of the host that a command inside will be shown.
    pub devices: Vec<PathBuf>,
    /// Names of the caller's variables that commands of people are given though they hold secrets. Only
    /// the names are kept.
    pub secrets: Vec<String>,
    /// The exploration it belongs to and the index of the first.
    pub exploration: Option<(ExplorationId, u32)>,
    /// The sibling group. `None` with a count above 1 makes a fresh one.
    pub group: Option<GroupId>,
    /// Sealed layers of a preparation to put under it.
    pub over: Option<PreparedLayers>,
    /// For a fork of a branch: it is no child of that branch but a sibling, which goes on from what
    /// that one left. It commits where the source would, with everything of the source that it has.
    pub beside: bool,
}

/// What a preparation left: sealed layers per disk and of the system root, topmost first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedLayers {
    /// For each disk of the world.
    pub disks: Vec<Vec<LayerId>>,
    /// Of the system root.
    pub root: Vec<LayerId>,
}

/// How to seal.
#[derive(Debug, Clone, Default)]
pub struct SealOptions {
    /// Globs of paths that are made exactly what the base has, added ones removed, before sealing.
    pub protect: Vec<String>,
}

/// What sealing did.
#[derive(Debug, Clone, Default)]
pub struct SealReport {
    /// The protected paths that had been changed and were restored.
    pub restored: Vec<PathBuf>,
}

/// A branch's delta in its two parts.
#[derive(Debug, Clone, Default)]
pub struct Deltas {
    /// What the branch itself changed.
    pub attempt: ChangeSet,
    /// What its preparation changed.
    pub prepared: ChangeSet,
}

/// What was written outside the world's disks, which is thrown away.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Dropped {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first hundred paths, absolute.
    pub paths: Vec<PathBuf>,
}

/// Which side of a branch to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What the branch sees.
    Branch,
    /// What lies under it.
    Base,
}

/// A command that judges a sealed branch in a throwaway fork of it.
#[derive(Clone)]
pub struct JudgeSpec {
    /// The command.
    pub argv: Vec<OsString>,
    /// Variables added to the caller's environment.
    pub env: Vec<(OsString, OsString)>,
    /// Wall time after which it is killed.
    pub timeout: Option<Duration>,
    /// Other limits.
    pub limits: Limits,
    /// The network it sees.
    pub network: Network,
    /// Files no attempt could see, mounted read-only: source on the host, place inside.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// Where its standard output and error are written.
    pub log: Option<PathBuf>,
    /// What is not written to the log.
    pub redactor: crate::Redactor,
    /// How many bytes of the end of its standard output are returned.
    pub capture_limit: usize,
    /// Give it descriptor 3 and `FORKPOINT_SCORE_FILE` for a score.
    pub score: bool,
    /// Ends it early.
    pub cancel: Cancel,
}

/// What a judge said.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// How it ended.
    pub exit: ExitReport,
    /// The end of its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to descriptor 3, or else to the score file.
    pub score_text: Option<Vec<u8>>,
}

/// How to commit.
#[derive(Clone)]
pub struct CommitOptions {
    /// Globs of paths that are left out, and listed.
    pub exclude: Vec<String>,
    /// Whether the preparation's changes are committed too.
    pub include_prepared: bool,
    /// Whether changes that would make the host run something (git hooks and configuration) go in.
    pub allow_host_exec: bool,
    /// Refuse any drift of the base, wherever it is.
    pub strict: bool,
    /// Commit even if nothing changed.
    pub allow_empty: bool,
    /// Commit although the verifier failed on it.
    pub force: bool,
    /// Run this again on the base as it now is, when the base drifted outside the delta.
    pub reverify: Option<JudgeSpec>,
    /// Stop running independent branches of the same base instead of refusing.
    pub stop_others: bool,
    /// How far the base is scanned for drift.
    pub drift_budget: Budget,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            exclude: Vec::new(),
            include_prepared: true,
            allow_host_exec: false,
            strict: false,
            allow_empty: false,
            force: false,
            reverify: None,
            stop_others: false,
            drift_budget: Budget {
                entries: 500_000,
                millis: 1000,
            },
        }
    }
}

/// How a commit ended.
#[derive(Debug, Clone)]
pub enum CommitOutcome {
    /// The base is at the new generation.
    Committed,
    /// Paths that both sides changed. The branch is sealed again; nothing was committed.
    Conflict(Vec<Conflict>),
    /// A sibling was first, or the head moved.
    Lost {
        /// By whom or what.
        why: String,
    },
    /// Decided, but something blocks the end of it; `resolve` or the next command goes on.
    ApplyBlocked(Vec<Conflict>),
    /// The base drifted and nothing could verify the result again.
    Drift(Vec<PathBuf>),
    /// The branch changes nothing.
    Empty,
    /// Verified again on the drifted base, it did not pass.
    ReverifyFailed(Box<Judgement>),
}

/// What a commit did.
#[derive(Debug, Clone)]
pub struct CommitReport {
    /// The commit's identity.
    pub commit: CommitId,
    /// The base's generation after it.
    pub generation: Generation,
    /// How it ended.
    pub outcome: CommitOutcome,
    /// What was written to the disks.
    pub changed: ChangeSummary,
    /// How many keys were changed.
    pub keys: u64,
    /// Effects that become part of the world with it: held events and commands, and performed ones.
    pub effects: u64,
    /// Paths left out by the caller's globs.
    pub excluded: Vec<PathBuf>,
    /// Paths left out because the host would run something.
    pub withheld: Vec<PathBuf>,
    /// What else changed in the base since the fork.
    pub drift: Drift,
    /// Siblings that lost by it, dead when this returns.
    pub losers: Vec<BranchId>,
    /// Independent branches that are stale now; the first twenty.
    pub stale: Vec<BranchId>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// How to abort.
#[derive(Debug, Clone, Default)]
pub struct AbortOptions {
    /// Why, for the record.
    pub reason: String,
    /// Keep the sealed delta and the log for people to look at, until they are collected.
    pub retain: bool,
}

/// What an abort did.
#[derive(Debug, Clone)]
pub struct AbortReport {
    /// How the branch ended.
    pub state: BranchState,
    /// What is left, when the rollback is incomplete.
    pub left: Vec<Conflict>,
}

/// What a rebase did.
#[derive(Debug, Clone)]
pub struct RebaseReport {
    /// Paths and keys both changed; empty when the branch is fresh now.
    pub conflicts: Vec<Conflict>,
    /// The generation it is on.
    pub generation: Generation,
}

/// What to collect.
#[derive(Debug, Clone, Copy, Default)]
pub struct GcOptions {
    /// Only say what would be freed.
    pub dry_run: bool,
    /// Retained deltas older than this many seconds go.
    pub max_age_s: Option<u64>,
    /// The oldest retained deltas go until the rest fit in this many bytes.
    pub max_bytes: Option<u64>,
    /// At most this many branches are freed, and as many records; the rest waits for the next time.
    pub at_most: Option<usize>,
}

/// What was collected of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freed {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was collected.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GcReport {
    /// Retained branches freed.
    pub branches: u64,
    /// Layers removed.
    pub layers: u64,
    /// Undo layers removed.
    pub undo_layers: u64,
    /// Bytes freed.
    pub bytes: u64,
    /// By kind: `retained` (deltas of ended branches), `records` (logs, output and rows), `layers`
    /// (nobody uses them), `undo` (originals that commits replaced), `keys` (keys that nobody sees), `crashed` (left by a
    /// crash).
    #[serde(default)]
    pub kinds: std::collections::BTreeMap<String, Freed>,
    /// One line each.
    pub items: Vec<String>,
}

impl GcReport {
    pub(crate) fn add(&mut self, kind: &str, bytes: u64, item: String) {
        let freed = self.kinds.entry(kind.to_owned()).or_default();
        freed.count += 1;
        freed.bytes += bytes;
        self.bytes += bytes;
        self.items.push(item);
    }
}

/// What an undo did.
#[derive(Debug, Clone)]
pub struct UndoReport {
    /// The commit that was undone.
    pub commit: CommitId,
    /// Paths put back.
    pub restored: u64,
    /// What it sent or published, which an undo does not take back, in words.
    pub kept: Vec<String>,
    /// Keys that were given what they had before.
    pub keys: u64,
}

/// Which branches to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct BranchFilter {
    /// Only those of this world.
    pub world: Option<WorldId>,
    /// Ended ones too.
    pub ended: bool,
}

/// How to prepare.
#[derive(Clone)]
pub struct PrepareOptions {
    /// The command.
    pub argv: Vec<OsString>,
    /// Variables added to the caller's environment; part of the cache's key.
    pub env: Vec<(OsString, OsString)>,
    /// The network it sees.
    pub network: Network,
    /// Its limits.
    pub limits: Limits,
    /// Globs of the base's files its result depends on. None: it is never cached.
    pub inputs: Vec<String>,
    /// Where its output is written.
    pub log: Option<PathBuf>,
    /// What is not written to the log.
    pub redactor: crate::Redactor,
    /// Ends it early.
    pub cancel: Cancel,
}

/// A preparation's result.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Its sealed layers.
    pub layers: PreparedLayers,
    /// Whether an earlier run served.
    pub cached: bool,
    /// How the command ended; `None` when cached.
    pub exit: Option<ExitReport>,
    /// What it changed on the disks.
    pub changes: ChangeSummary,
}
