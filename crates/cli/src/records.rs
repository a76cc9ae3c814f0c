//! The store's records in words and in JSON.

use forkpoint_engine::records::{BranchRecord, ExplorationRecord, NetworkKind};
use forkpoint_engine::{Activity, Engine};
use forkpoint_explore::text::OsText;
use forkpoint_explore::units::{human_bytes, human_time};
use forkpoint_model::state::BranchState;
use forkpoint_model::{
    BranchId, CheckpointId, ExplorationId, Generation, GroupId, Result, Source, WorldId,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds since 1970.
pub(crate) fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// How long ago, in words.
pub(crate) fn ago(now_ns: i64, then_ns: i64) -> String {
    let ns = u64::try_from(now_ns.saturating_sub(then_ns)).unwrap_or(0);
    let time = Duration::from_nanos(ns);
    match time.as_secs() {
        0 => "now".into(),
        s if s >= 86_400 => format!("{} days ago", s / 86_400),
        _ => format!("{} ago", human_time(Duration::from_secs(time.as_secs()))),
    }
}

/// How many keys, in words.
pub(crate) fn keys(count: u64) -> String {
    match count {
        1 => "1 key".into(),
        n => format!("{n} keys"),
    }
}

/// How much changed, in words.
pub(crate) fn changed(files: u64, bytes: u64) -> String {
    let noun = if files == 1 { "path" } else { "paths" };
    format!("{files} {noun}, {}", human_bytes(bytes))
}

/// A path for a person: control characters and bytes that are not UTF-8 are escaped.
pub(crate) fn shown_path(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    match path.to_str() {
        Some(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => path.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}

/// A path in JSON: a string, or its bytes where it is not UTF-8.
pub(crate) fn path_json(path: &Path) -> Value {
    json!(OsText::from(path))
}

/// `x…/2` of an attempt, else nothing.
pub(crate) fn attempt_name(branch: &BranchRecord) -> String {
    branch
        .exploration
        .map(|(x, index)| format!("{x}/{index}"))
        .unwrap_or_default()
}

/// A branch's state in words.
pub(crate) fn state_words(branch: &BranchRecord) -> String {
    let mut words = branch.state.as_str().replace('_', " ");
    if let Some(to) = forkpoint_engine::git_ref(branch) {
        words.push_str(&format!(" as git {}", to.branch));
    }
    if branch.stale {
        words.push_str(", stale");
    }
    if branch.ended_ns.is_some() && branch.retained {
        words.push_str(", kept");
    }
    words
}

/// As [`state_words`], with what its processes are doing, where there are any.
pub(crate) fn state_now(engine: &Engine, branch: &BranchRecord) -> Result<String> {
    let mut words = state_words(branch);
    match engine.activity(branch)? {
        Activity::Stopped => {}
        other => words.push_str(&format!(", {other}")),
    }
    Ok(words)
}

/// What a branch was forked from, in words.
pub(crate) fn source_words(source: &Source) -> String {
    match source {
        Source::Head(generation) => format!("generation {}", generation.0),
        Source::Branch(id) => id.to_string(),
        Source::Checkpoint(id) => id.to_string(),
    }
}

/// The directories of worlds, each looked up once.
pub(crate) struct Bases<'e> {
    engine: &'e Engine,
    known: HashMap<WorldId, PathBuf>,
}

impl<'e> Bases<'e> {
    pub(crate) fn new(engine: &'e Engine) -> Self {
        Self {
            engine,
            known: HashMap::new(),
        }
    }

    /// The directory of a world.
    pub(crate) fn of(&mut self, world: WorldId) -> Result<&Path> {
        Ok(match self.known.entry(world) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.engine.world_by_id(world)?.base().to_path_buf()),
        })
    }
}

/// The directory of one world.
pub(crate) fn base_of(engine: &Engine, world: WorldId) -> Result<String> {
    Ok(engine.world_by_id(world)?.base().display().to_string())
}

/// A branch in JSON (docs/json.md).
pub(crate) fn branch_json(engine: &Engine, branch: &BranchRecord) -> Result<Value> {
    let line = BranchLine::new(&mut Bases::new(engine), branch)?;
    serde_json::to_value(line).map_err(|e| crate::codes::INTERNAL.io("cannot write JSON", e))
}

/// The same, to be written as it is: a list may be long. Its fields are in the order of their names, as
/// everywhere.
#[derive(Serialize)]
pub(crate) struct BranchLine<'b> {
    activity: Activity,
    attempt: Option<u32>,
    base: OsText,
    branch: BranchId,
    created: f64,
    devices: Vec<OsText>,
    durable: bool,
    ended: Option<f64>,
    exploration: Option<ExplorationId>,
    generation: Generation,
    git: Option<Value>,
    group: Option<GroupId>,
    name: Option<&'b str>,
    network: NetworkKind,
    parent: Parent,
    reason: Option<&'b str>,
    retained: bool,
    secrets: Vec<String>,
    stale: bool,
    state: BranchState,
    uncaptured: &'b [String],
    verified: Option<Value>,
    world: WorldId,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Parent {
    Generation(Generation),
    Branch(BranchId),
    Checkpoint(CheckpointId),
}

impl<'b> BranchLine<'b> {
    pub(crate) fn new(bases: &mut Bases<'_>, branch: &'b BranchRecord) -> Result<Self> {
        let verified = branch.verified.as_ref();
        let defaults = forkpoint_engine::defaults(branch)?;
        let devices = defaults.devices.iter();
        Ok(Self {
            activity: bases.engine.activity(branch)?,
            attempt: branch.exploration.map(|(_, index)| index),
            base: OsText::from(bases.of(branch.world)?),
            branch: branch.id,
            created: seconds(branch.created_ns),
            devices: devices.map(|path| OsText::from(path.as_path())).collect(),
            durable: branch.durable,
            ended: branch.ended_ns.map(seconds),
            exploration: branch.exploration.map(|(x, _)| x),
            generation: branch.generation,
            git: forkpoint_engine::git_ref(branch)
                .map(|g| json!({"branch": g.branch, "commit": g.commit})),
            group: branch.group,
            name: branch.name.as_deref(),
            network: branch.network,
            parent: match branch.parent {
                Source::Head(generation) => Parent::Generation(generation),
                Source::Branch(id) => Parent::Branch(id),
                Source::Checkpoint(id) => Parent::Checkpoint(id),
            },
            reason: branch.reason.as_deref(),
            retained: branch.retained,
            secrets: defaults.secrets,
            stale: branch.stale,
            state: branch.state,
            uncaptured: &branch.uncaptured,
            verified: verified.map(|v| json!({"passed": v.passed, "command": v.command})),
            world: branch.world,
        })
    }
}

/// An exploration in JSON, without its result (docs/json.md).
pub(crate) fn exploration_json(x: &ExplorationRecord) -> Value {
    json!({
        "exploration": x.id,
        "world": x.world,
        "cwd": path_json(&x.cwd),
        "state": x.state,
        "outcome": outcome(x),
        "created": seconds(x.created_ns),
        "ended": x.ended_ns.map(seconds),
    })
}

/// How an exploration ended, out of its result.
pub(crate) fn outcome(x: &ExplorationRecord) -> Option<String> {
    let result: Value = serde_json::from_str(x.result.as_deref()?).ok()?;
    match result.get("outcome").and_then(Value::as_str) {
        Some(outcome) => Some(outcome.to_owned()),
        None => result
            .get("code")
            .and_then(Value::as_str)
            .map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn times_and_paths_are_fit_for_people() {
        assert_eq!(ago(5_000_000_000, 5_000_000_000), "now");
        assert_eq!(ago(65_000_000_000, 0), "1m05s ago");
        assert_eq!(ago(0, 5), "now");
        assert_eq!(ago(172_800_000_000_000, 0), "2 days ago");
        assert_eq!(
            shown_path(Path::new(OsStr::from_bytes(b"a\xff\x1b"))),
            r"a\xff\x1b"
        );
        assert_eq!(changed(1, 0), "1 path, 0 B");
    }
}
