//! Steps: how a branch was before each command, to go back to. A step is a checkpoint with a name of
//! its own kind; taking one costs the same whatever was written, since the live upper becomes a
//! sealed layer under a new one. Where processes run they are held and the upper is cloned. Where
//! branches are whole copies a step is a copy too (sharing blocks where the file system can).

use crate::branch::{Branch, name};
use crate::codes;
use crate::detail::Detail;
use crate::engine::Engine;
use crate::layers::is_sealed;
use crate::options::{GcOptions, GcReport};
use crate::summary::Summary;
use forkpoint_model::state::BranchState;
use forkpoint_model::{BranchId, CheckpointId, Epoch, LayerId, Result};
use forkpoint_store::{
    BranchRecord, CheckpointRecord, Durability, HistoryFilter, LayerKind, LayerRecord, SharedRecord,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The newest so many steps of a branch are kept.
pub const STEPS_KEPT: usize = 100;
/// A branch takes no step of itself beyond this number: each is a line of the log.
const MOST_BY_ITSELF: u64 = 10_000;
/// Nor any while those that are kept hold more than this, as far as they were cloned.
const MOST_BYTES_BY_ITSELF: u64 = 4 << 30;
/// The log is searched this far back for what steps were taken for.
const LOG_SEARCHED: u32 = 1000;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its number, growing from 1.
    pub number: u64,
    /// When it was taken, in nanoseconds since 1970.
    pub at_ns: i64,
    /// The command that was about to run, or `rewind to N`.
    pub command: String,
    /// Taken by a rewind, of what it went back from.
    pub rewind: bool,
    /// What the command changed, where that was noted.
    pub changed: Option<Summary>,
    #[serde(skip)]
    checkpoint: CheckpointId,
    #[serde(skip)]
    stacks: Vec<Vec<LayerId>>,
    #[serde(skip)]
    shared: SharedRecord,
}

/// What a step keeps: which uppers become layers of their own, the stacks, and keys and events.
type Kept = (Vec<(LayerId, usize)>, Vec<Vec<LayerId>>, SharedRecord);

/// What the log keeps of a step, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Logged {
    number: u64,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    changed: Option<Summary>,
    /// The step that a rewind went to; `number` is the one it took before.
    #[serde(default)]
    to: Option<u64>,
}

impl Logged {
    fn text(&self) -> Result<Option<String>> {
        serde_json::to_string(self)
            .map(Some)
            .map_err(|e| codes::INTERNAL.io("cannot write a step", e))
    }
}

impl Branch {
    fn step_prefix(&self) -> String {
        format!("step:{}:", self.id)
    }

    /// Its steps, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn steps(&self) -> Result<Vec<Step>> {
        let record = self.record()?;
        let prefix = self.step_prefix();
        let mut logged: HashMap<u64, Logged> = HashMap::new();
        for one in self.logged()? {
            let rewind = one.to.map(|to| format!("rewind to {to}"));
            let entry = logged.entry(one.number).or_insert(Logged {
                number: one.number,
                command: None,
                changed: None,
                to: one.to,
            });
            entry.command = entry.command.take().or(one.command).or(rewind);
            entry.changed = entry.changed.take().or(one.changed);
        }
        let checkpoints = self.engine.store().checkpoints(Some(record.world))?;
        let mut steps: Vec<Step> = checkpoints
            .into_iter()
            .filter_map(|c| {
                let number = c.name.as_deref()?.strip_prefix(&prefix)?.parse().ok()?;
                let known = logged.remove(&number);
                Some(Step {
                    number,
                    at_ns: c.created_ns,
                    rewind: known.as_ref().is_some_and(|l| l.to.is_some()),
                    changed: known.as_ref().and_then(|l| l.changed.clone()),
                    command: known.and_then(|l| l.command).unwrap_or_default(),
                    checkpoint: c.id,
                    stacks: c.stacks,
                    shared: c.shared,
                })
            })
            .collect();
        steps.sort_by_key(|step| step.number);
        Ok(steps)
    }

    /// What the log says of steps, newest first.
    fn logged(&self) -> Result<Vec<Logged>> {
        let lines = self.engine.history(&HistoryFilter {
            branch: Some(self.id),
            limit: LOG_SEARCHED,
            ..HistoryFilter::default()
        })?;
        Ok(lines
            .iter()
            .filter(|line| line.verb == "step" || line.verb == "rewind")
            .filter_map(|line| serde_json::from_str(line.json.as_deref()?).ok())
            .collect())
    }

    /// Takes a step before `command` runs; returns its number. The oldest beyond [`STEPS_KEPT`] go.
    ///
    /// # Errors
    /// `FP0405` when it is not open, `FP0406` when another process works on it.
    pub fn step(&self, command: &str) -> Result<u64> {
        self.step_in(command, None)
    }

    /// As [`Branch::step`]; refused when the branch is not in `epoch` any more, where one is given.
    pub(crate) fn step_in(&self, command: &str, epoch: Option<Epoch>) -> Result<u64> {
        let _locks = match epoch {
            None => (Some(self.lock()?), None),
            Some(epoch) => {
                let own = self.lock_itself()?;
                self.engine.store().access(self.id, epoch)?;
                (None, Some(own))
            }
        };
        let _making = self.engine.making_layers()?;
        let record = self.steppable()?;
        if epoch.is_some() {
            self.may_take_a_step(&record)?;
        }
        let number = self.take_step(&record, None)?;
        let logged = Logged {
            number,
            command: Some(command.to_owned()),
            changed: None,
            to: None,
        };
        let text = format!("{}: step {number}, before {command}", name(&record));
        self.engine
            .log_branch("step", &record, text, logged.text()?)?;
        Ok(number)
    }

    /// Notes what the command of a step changed.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn step_changed(&self, number: u64, changed: &Summary) -> Result<()> {
        let record = self.record()?;
        let text = format!(
            "{}: after step {number}: {} added, {} modified, {} removed",
            name(&record),
            changed.added,
            changed.modified,
            changed.removed
        );
        let logged = Logged {
            number,
            command: None,
            changed: Some(changed.clone()),
            to: None,
        };
        self.engine
            .log_branch("step", &record, text, logged.text()?)
    }

    /// Goes back to how it was at a step; the newest before a command, one further back each time,
    /// when none is given. How it is now is kept as a step, so that one can go forward again. Costs
    /// the same whatever was written. Returns the step gone to and the one kept.
    ///
    /// # Errors
    /// `FP0405` when something runs in it, when it is not open, or when there is no such step.
    pub fn rewind(&self, to: Option<u64>) -> Result<(Step, u64)> {
        let _lock = self.lock()?;
        let _making = self.engine.making_layers()?;
        let record = self.steppable()?;
        if self.engine.is_running(&record)? {
            return Err(codes::STATE
                .error(format!("something runs in {}", name(&record)))
                .hint("end it first: forkpoint stop BRANCH"));
        }
        let steps = self.steps()?;
        let wanted = match to {
            Some(number) => steps.iter().find(|s| s.number == number),
            None => {
                // After a rewind the next one goes further back.
                let logged = self.logged()?;
                let at = logged.first().and_then(|last| last.to).unwrap_or(u64::MAX);
                steps.iter().rev().find(|s| !s.rewind && s.number < at)
            }
        };
        let Some(wanted) = wanted.cloned() else {
            let what = to.map_or("no step to go back to".into(), |n| format!("no step {n}"));
            return Err(codes::STATE
                .error(format!("{} has {what}", name(&record)))
                .hint("steps are taken by `forkpoint exec --step`; see `forkpoint rewind BRANCH --list`"));
        };
        let trees = match Detail::of(&record)?.copy {
            true => Some(self.copy_trees(&wanted.stacks)?),
            false => None,
        };
        let kept = self.take_step(&record, trees.as_ref())?;
        let stacks = trees.unwrap_or_else(|| self.above(&wanted.stacks));
        self.engine.store().modify_branch(self.id, |b| {
            b.stacks = stacks;
            b.shared = wanted.shared.clone();
            b.verified = None;
        })?;
        let logged = Logged {
            number: kept,
            command: None,
            changed: None,
            to: Some(wanted.number),
        };
        let text = format!(
            "{} is as it was at step {}; what it was is step {kept}",
            name(&record),
            wanted.number
        );
        self.engine
            .log_branch("rewind", &record, text, logged.text()?)?;
        Ok((wanted, kept))
    }

    /// A branch that takes steps of itself may fill neither the log nor the disk with them.
    fn may_take_a_step(&self, record: &BranchRecord) -> Result<()> {
        let refused = |why: String| {
            Err(codes::SOCKET_FULL
                .error(why)
                .hint("take steps from outside: forkpoint exec --step"))
        };
        if Detail::of(record)?.copy {
            return refused("where branches are whole copies, so are steps".into());
        }
        if self.logged()?.iter().any(|l| l.number >= MOST_BY_ITSELF) {
            return refused(format!("the branch has taken {MOST_BY_ITSELF} steps"));
        }
        let steps = self.steps()?;
        let store = self.engine.store();
        let mut bytes = 0u64;
        for top in steps
            .iter()
            .flat_map(|s| s.stacks.iter().filter_map(|s| s.first()))
        {
            if is_sealed(&store, *top)? {
                bytes = bytes.saturating_add(store.layer(*top)?.bytes);
            }
        }
        match bytes > MOST_BYTES_BY_ITSELF {
            true => refused(format!("the branch's steps hold {bytes} bytes")),
            false => Ok(()),
        }
    }

    fn steppable(&self) -> Result<BranchRecord> {
        let record = self.record()?;
        if record.state != BranchState::Open {
            return Err(codes::STATE
                .error(format!("{} is {}", name(&record), record.state))
                .hint("only an open branch has steps; fork it to go on from there"));
        }
        Ok(record)
    }

    /// A fresh upper above each stack.
    fn above(&self, stacks: &[Vec<LayerId>]) -> Vec<Vec<LayerId>> {
        let fresh = |below: &Vec<LayerId>| {
            let mut stack = vec![self.engine.draw(LayerId::from_bits)];
            stack.extend(below);
            stack
        };
        stacks.iter().map(fresh).collect()
    }

    /// In copy mode: the topmost trees, copied. Until one is whole it has another name.
    fn copy_trees(&self, stacks: &[Vec<LayerId>]) -> Result<Vec<Vec<LayerId>>> {
        let paths = self.engine.paths();
        let mut copies = Vec::with_capacity(stacks.len());
        for stack in stacks {
            let Some((&tree, below)) = stack.split_first() else {
                return Err(codes::INTERNAL.error("a copy without a tree"));
            };
            let id = self.engine.draw(LayerId::from_bits);
            let work = paths.work(id);
            self.engine.copy_tree(&paths.layer(tree), &work, false)?;
            self.engine.rename(&work, &paths.layer(id))?;
            copies.push([&[id], below].concat());
        }
        Ok(copies)
    }

    /// In copy mode: copies of how it is now.
    fn keep_trees(&self, record: &BranchRecord) -> Result<Kept> {
        let sandbox = match self.engine.is_running(record)? {
            true => self.attach(record)?,
            false => None,
        };
        if let Some(sandbox) = &sandbox {
            sandbox.hold()?;
        }
        let kept = self.copy_trees(&record.stacks);
        let shared = self.engine.store().seal_overlay(self.id);
        if let Some(sandbox) = &sandbox {
            sandbox.thaw()?;
        }
        Ok((Vec::new(), kept?, shared?))
    }

    /// Seals how it is now under the next number. `next`, in copy mode: the trees it gets in place of
    /// its own, which then need not be copied.
    fn take_step(&self, record: &BranchRecord, next: Option<&Vec<Vec<LayerId>>>) -> Result<u64> {
        let steps = self.steps()?;
        let last_logged = self.logged()?.iter().map(|l| l.number).max().unwrap_or(0);
        let last = steps.last().map_or(0, |s| s.number).max(last_logged);
        let copy = Detail::of(record)?.copy;
        let (own, stacks, shared) = match copy {
            true if next.is_some() => {
                let shared = self.engine.store().seal_overlay(self.id)?;
                (Vec::new(), record.stacks.clone(), shared)
            }
            true => self.keep_trees(record)?,
            false => self.keep_layers(record)?,
        };
        // What the branch goes on above is kept shallow; the step keeps the layers as they are.
        let below = match own.is_empty() {
            true => stacks.clone(),
            false => self.compacted(record, stacks.clone())?,
        };
        let now = self.engine.now();
        let number = last + 1;
        let checkpoint = CheckpointRecord {
            id: self.engine.draw(CheckpointId::from_bits),
            name: Some(format!("{}{number}", self.step_prefix())),
            world: record.world,
            generation: record.generation,
            stacks,
            root_layers: record.root_layers.clone(),
            shared,
            stamp_ns: record.stamp_ns,
            created_ns: now,
        };
        let sealed: Vec<LayerId> = match copy {
            true => checkpoint
                .stacks
                .iter()
                .filter_map(|s| s.first())
                .copied()
                .collect(),
            false => own.iter().map(|(id, _)| *id).collect(),
        };
        let old = (steps.len() + 1).saturating_sub(STEPS_KEPT);
        self.engine.store().batch(Durability::Normal, |store| {
            for &id in &sealed {
                if !is_sealed(store, id)? {
                    store.insert_layer(&LayerRecord {
                        id,
                        kind: LayerKind::Sealed,
                        bytes: 0,
                        entries: 0,
                        merged: 1,
                        created_ns: now,
                    })?;
                }
            }
            store.insert_checkpoint(&checkpoint)?;
            for step in &steps[..old] {
                store.remove_checkpoint(step.checkpoint)?;
            }
            store.modify_branch(self.id, |b| {
                if let Some(next) = next {
                    b.stacks.clone_from(next);
                }
                for &(_, disk) in &own {
                    let mut stack = vec![self.engine.draw(LayerId::from_bits)];
                    stack.extend(&below[disk]);
                    b.stacks[disk] = stack;
                }
            })?;
            Ok(())
        })?;
        for id in sealed {
            self.engine.drop_work(id)?;
        }
        Ok(number)
    }

    /// Which uppers become layers of their own, and how it is now.
    fn keep_layers(&self, record: &BranchRecord) -> Result<Kept> {
        let running = match self.engine.is_running(record)? {
            true => self.attach(record)?,
            false => None,
        };
        let Some(sandbox) = running else {
            let (own, stacks) = self.seal_uppers(record, &self.disks(record)?)?;
            return Ok((own, stacks, self.engine.store().seal_overlay(self.id)?));
        };
        sandbox.hold()?;
        let cloned = self.clone_uppers(record);
        let shared = self.engine.store().seal_overlay(self.id);
        sandbox.thaw()?;
        Ok((Vec::new(), cloned?, shared?))
    }
}

impl Engine {
    /// Steps of branches that have ended: nobody can go back to them.
    pub(crate) fn free_steps(&self, options: &GcOptions, report: &mut GcReport) -> Result<()> {
        let checkpoints = self.store().checkpoints(None)?;
        for checkpoint in checkpoints {
            let Some(of) = step_of(checkpoint.name.as_deref()) else {
                continue;
            };
            let found = self.store().branch(of);
            let needed = match found {
                Ok(record) => record.ended_ns.is_none(),
                Err(e) if e.code == forkpoint_store::codes::NOT_FOUND.text => false,
                Err(e) => return Err(e),
            };
            if needed {
                continue;
            }
            report.items.push(format!("a step of branch {of}"));
            if !options.dry_run {
                self.store().remove_checkpoint(checkpoint.id)?;
            }
        }
        Ok(())
    }
}

/// The branch whose step a checkpoint of this name is.
pub(crate) fn step_of(name: Option<&str>) -> Option<BranchId> {
    let (branch, _) = name?.strip_prefix("step:")?.split_once(':')?;
    branch.parse().ok()
}
