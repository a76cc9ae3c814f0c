//! Committing a branch, and taking a commit back.

use crate::branch::{Branch, kill_recorded, name};
use crate::codes;
use crate::disk::summary;
use crate::drive::Driver;
use crate::engine::Engine;
use crate::git::git_ref;
use crate::options::{CommitOptions, CommitOutcome, CommitReport, SealOptions, UndoReport};
use crate::world::World;
use forkpoint_fs::conflict::Drift;
use forkpoint_model::commit::{Coordinator, Lost, Outcome};
use forkpoint_model::participant::{ChangeSummary, Participant};
use forkpoint_model::state::BranchState;
use forkpoint_model::{BranchId, CommitId, Conflict, Result, Source};
use forkpoint_store::{BranchRecord, CommitState, HistoryRecord};
use std::path::Path;

/// How many of the branches that a commit made stale are named.
const STALE_LISTED: u32 = 20;

impl Branch {
    /// Commits it: into its base, or into the branch it was forked from. Seals it first. What does
    /// not lead to a commit but is no failure of Forkpoint (conflicts, drift, a sibling that was
    /// first) is in the report's outcome.
    ///
    /// # Errors
    /// `FP0407` and `FP0408` when the base cannot be changed now, `FP00xx` when the branch cannot be
    /// committed in its state, and whatever fails before the decision: then nothing was committed.
    pub fn commit(&self, options: &CommitOptions) -> Result<CommitReport> {
        let lock = self.lock()?;
        let record = self.record()?;
        if let Some(parent) = self.committed_into(&record)? {
            return self.commit_into(&lock, parent, options);
        }
        let world = self.world()?;
        self.seal_locked(&lock, &SealOptions::default())?;
        forkpoint_model::state::may_commit(&self.record()?.context(), options.force)?;
        let engine = &self.engine;
        let mut driver = Driver::new(engine, &world, self.id, Some(&lock), options)?;
        let txn = engine.draw(CommitId::from_bits);
        let mut report = CommitReport::new(txn, record.generation);
        // Whoever held the base until now may have been a sibling, or have made this branch stale.
        let now = self.record()?;
        if now.state == BranchState::Invalidated {
            report.outcome = CommitOutcome::Lost {
                why: lost(&Lost::Sibling { winner: None }),
            };
            return Ok(report);
        }
        forkpoint_model::state::may_commit(&now.context(), options.force)?;
        quiet(engine, &world, &record, options.stop_others)?;
        driver.with_keys()?;

        if let Some(outcome) = self.consider(&mut driver, options, &mut report)? {
            report.outcome = outcome;
            return Ok(report);
        }
        let plan = driver.plan(&world, txn)?;
        driver.summary(summary_json(&report.changed)?);
        let (coordinator, first) = Coordinator::new(plan);
        let outcome = driver.run(coordinator, first)?;
        report.losers = std::mem::take(&mut driver.invalidated);
        for disk in &mut driver.disks {
            report.notes.append(&mut disk.notes);
        }
        report.notes.append(&mut driver.notes);
        drop(driver);
        self.conclude(&world, outcome, &mut report)?;
        Ok(report)
    }

    /// The branch that a commit would go into; none where it goes into the base. What was forked off a
    /// branch that was committed since goes where that one went, as long as it is there: not where it
    /// became a git branch, or was undone.
    pub(crate) fn committed_into(&self, record: &BranchRecord) -> Result<Option<BranchId>> {
        let store = self.engine.store();
        let mut source = record.parent;
        while let Source::Branch(id) = source {
            let parent = store.branch(id)?;
            if parent.state != BranchState::Committed || git_ref(&parent).is_some() {
                return Ok(Some(id));
            }
            let commits = store.commits(parent.world)?;
            let own = commits
                .iter()
                .find(|c| c.branch == id && c.decided_ns.is_some());
            let there = match own {
                Some(commit) => commit.state == CommitState::Applied,
                None => matches!(parent.parent, Source::Branch(_)),
            };
            if !there {
                return Ok(Some(id));
            }
            source = parent.parent;
        }
        Ok(None)
    }

    /// What is to be known before the protocol starts: whether anything changed, conflicts, drift.
    pub(crate) fn consider(
        &self,
        driver: &mut Driver<'_>,
        options: &CommitOptions,
        report: &mut CommitReport,
    ) -> Result<Option<CommitOutcome>> {
        let in_the_way = self.effects_in_the_way()?;
        if !in_the_way.is_empty() {
            return Ok(Some(CommitOutcome::Conflict(in_the_way)));
        }
        report.effects = self.effects_to_commit()?;
        let mut reverified = false;
        loop {
            let (conflicts, drift) = self.validate(driver, report)?;
            if !conflicts.is_empty() {
                return Ok(Some(CommitOutcome::Conflict(conflicts)));
            }
            if report.is_empty() && !options.allow_empty {
                return Ok(Some(CommitOutcome::Empty));
            }
            report.drift = drift;
            let paths = match &report.drift {
                Drift::None => return Ok(None),
                Drift::Unknown { why, .. } if options.strict => {
                    let why = format!("whether the base drifted is unknown: {why}");
                    report.notes.push(why);
                    return Ok(Some(CommitOutcome::Drift(Vec::new())));
                }
                Drift::Unknown { .. } => return Ok(None),
                Drift::Paths(paths) => paths.clone(),
            };
            // Drift voids a verification (law 1): the winner is judged again on the base as it is.
            let was_verified = self.record()?.verified.is_some();
            if options.strict || (was_verified && options.reverify.is_none()) {
                return Ok(Some(CommitOutcome::Drift(paths)));
            }
            let Some(spec) = options.reverify.as_ref().filter(|_| !reverified) else {
                return Ok(None);
            };
            let judgement = self.judge(spec)?;
            self.record_verdict(judgement.passed(), spec)?;
            if !judgement.passed() {
                return Ok(Some(CommitOutcome::ReverifyFailed(Box::new(judgement))));
            }
            report
                .notes
                .push("the base drifted; the branch passed again on it as it now is".into());
            reverified = true;
        }
    }

    fn validate(
        &self,
        driver: &mut Driver<'_>,
        report: &mut CommitReport,
    ) -> Result<(Vec<Conflict>, Drift)> {
        let generation = report.generation;
        let mut conflicts = Vec::new();
        let mut drift = Drift::None;
        report.changed = ChangeSummary::default();
        report.excluded.clear();
        report.withheld.clear();
        for disk in &mut driver.disks {
            let found = disk.validate(self.id, generation)?;
            conflicts.extend(found.iter().cloned());
            let Some(selection) = &disk.selected else {
                continue;
            };
            let sum = summary(&selection.commit);
            report.changed.items += sum.items;
            report.changed.bytes += sum.bytes;
            report.excluded.extend(selection.excluded.iter().cloned());
            report.withheld.extend(selection.withheld.iter().cloned());
            drift = worse(drift, selection.drift.clone());
            disk.keep_validation(found);
        }
        if let Some(keys) = driver.keys() {
            conflicts.extend(keys.validate(self.id, generation)?);
            report.keys = keys.changes(self.id)?.items;
        }
        Ok((conflicts, drift))
    }

    fn conclude(&self, world: &World, outcome: Outcome, report: &mut CommitReport) -> Result<()> {
        let engine = &self.engine;
        report.outcome = match outcome {
            Outcome::Committed { generation } => {
                report.generation = generation;
                CommitOutcome::Committed
            }
            Outcome::Refused { conflicts } => CommitOutcome::Conflict(conflicts),
            Outcome::Lost { why } => CommitOutcome::Lost { why: lost(&why) },
            Outcome::Aborted { why } => return Err(why.context("nothing was committed")),
            Outcome::ApplyBlocked { items } => CommitOutcome::ApplyBlocked(items),
            Outcome::DrivenBack => {
                return Err(codes::INTERNAL.error("a commit was taken back unasked"));
            }
        };
        if !matches!(report.outcome, CommitOutcome::Committed) {
            return Ok(());
        }
        engine.settle_descendants(self.id, world, report.generation)?;
        let stale = engine.store().stale_branches(world.id(), STALE_LISTED)?;
        report.stale = stale.into_iter().map(|b| b.id).collect();
        engine.log(HistoryRecord {
            seq: 0,
            at_ns: engine.now(),
            verb: "commit".into(),
            world: Some(world.id()),
            branch: Some(self.id),
            commit: Some(report.commit),
            text: format!(
                "committed {} into {}: {} paths{}",
                self.label()?,
                world.base().display(),
                report.changed.items,
                match report.keys {
                    0 => String::new(),
                    n => format!(", {n} keys"),
                }
            ),
            json: None,
        })?;
        // The delta is in the base and its outcome is durable: its layers may go.
        engine.release_layers(&self.record()?)
    }
}

impl Engine {
    /// Takes back the last commit of a base's world, or the one named, if nothing overtook it.
    ///
    /// # Errors
    /// `FP0410` when there is none or a path it wrote was edited since, `FP0111` when a later commit
    /// stands or a key it wrote was changed since, `FP0408` when branches of the base run. Nothing is changed then.
    pub fn undo(&self, commit: Option<CommitId>, base: &Path) -> Result<UndoReport> {
        let txn = match commit {
            Some(txn) => txn,
            None => self.last_commit(base)?,
        };
        let record = self.store().commit(txn)?;
        let world = self.world_by_id(record.world)?;
        let options = CommitOptions::default();
        let mut driver = Driver::new(self, &world, record.branch, None, &options)?;
        quiet_world(self, &world, None, &[], false)?;
        // Looked at before anything is recorded: an undo that cannot be finished is not begun.
        for disk in &driver.disks {
            let Some(digest) = record.digest(&disk.id()) else {
                continue;
            };
            let blocked = disk.check_undo(txn, digest)?;
            if let Some(first) = blocked.first() {
                return Err(codes::UNDO
                    .error(format!(
                        "{}: {} ({} in all)",
                        first.item,
                        first.why,
                        blocked.len()
                    ))
                    .hint(
                        "put these paths back as the commit left them, or restore them by hand",
                    ));
            }
        }
        let keys = self.store().kv_committed(&record)?;
        let durable = self.store().begin_undo(txn)?.durable();
        let restored = driver
            .disks
            .iter()
            .map(|d| d.journal_len(txn))
            .sum::<Result<u64>>()?;
        let (coordinator, first) = Coordinator::recover(durable);
        match driver.run(coordinator, first)? {
            Outcome::DrivenBack => {}
            Outcome::ApplyBlocked { items } => {
                let first = items
                    .first()
                    .map_or(String::new(), |c| format!("{}: {}", c.item, c.why));
                return Err(codes::UNDO.error(format!("the undo is blocked: {first}")));
            }
            other => return Err(codes::INTERNAL.error(format!("an undo ended as {other:?}"))),
        }
        self.log(HistoryRecord {
            seq: 0,
            at_ns: self.now(),
            verb: "undo".into(),
            world: Some(world.id()),
            branch: Some(record.branch),
            commit: Some(txn),
            text: format!("took back {txn} from {}", world.base().display()),
            json: None,
        })?;
        Ok(UndoReport {
            commit: txn,
            restored,
            kept: self.sent_with(record.branch)?,
            keys,
        })
    }

    /// The last commit into a directory that stands.
    ///
    /// # Errors
    /// `FP0410` when there is none.
    pub fn last_commit(&self, base: &Path) -> Result<CommitId> {
        let none = || {
            codes::UNDO
                .error(format!("nothing was committed into {}", base.display()))
                .hint("")
        };
        let world = self.find_world(base)?.ok_or_else(none)?;
        let commits = self.store().commits(world.id())?;
        let done = |state| {
            matches!(
                state,
                CommitState::Applied | CommitState::Undoing | CommitState::ApplyBlocked
            )
        };
        commits
            .iter()
            .find(|c| done(c.state))
            .map(|c| c.id)
            .ok_or_else(none)
    }
}

impl CommitReport {
    /// Whether there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.items == 0 && self.keys == 0 && self.effects == 0
    }

    pub(crate) fn new(commit: CommitId, generation: forkpoint_model::Generation) -> Self {
        Self {
            commit,
            generation,
            outcome: CommitOutcome::Empty,
            changed: ChangeSummary::default(),
            keys: 0,
            effects: 0,
            excluded: Vec::new(),
            withheld: Vec::new(),
            drift: Drift::None,
            losers: Vec::new(),
            stale: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Refuses (or stops) independent branches of the world that run: a mounted lower must not change.
fn quiet(engine: &Engine, world: &World, own: &BranchRecord, stop: bool) -> Result<()> {
    quiet_world(engine, world, own.group, &[own.id], stop)
}

pub(crate) fn quiet_world(
    engine: &Engine,
    world: &World,
    group: Option<forkpoint_model::GroupId>,
    except: &[BranchId],
    stop: bool,
) -> Result<()> {
    let mut running = Vec::new();
    let all = engine.store().running()?;
    for other in all {
        let sibling = group.is_some() && other.group == group;
        if other.world != world.id() || sibling || except.contains(&other.id) {
            continue;
        }
        if !engine.is_running(&other)? {
            continue;
        }
        if stop {
            kill_recorded(engine, &other)?;
        } else {
            running.push(name(&other));
        }
    }
    if running.is_empty() {
        return Ok(());
    }
    Err(codes::OTHERS_RUN
        .error(format!(
            "running on {}: {}",
            world.base().display(),
            running.join(", ")
        ))
        .hint("stop them, or commit with --stop-others"))
}

fn worse(a: Drift, b: Drift) -> Drift {
    match (a, b) {
        (Drift::Paths(mut a), Drift::Paths(b)) => {
            a.extend(b);
            Drift::Paths(a)
        }
        (Drift::None, b) => b,
        (a, Drift::None) => a,
        (Drift::Paths(paths), _) | (_, Drift::Paths(paths)) => Drift::Paths(paths),
        (a, _) => a,
    }
}

pub(crate) fn lost(why: &Lost) -> String {
    match why {
        Lost::Reserved { by } => format!("commit {by} of the same base is under way"),
        Lost::HeadMoved { head } => format!("the base is at generation {} now", head.0),
        Lost::Sibling {
            winner: Some(winner),
        } => format!("its sibling {winner} was committed first"),
        Lost::Sibling { winner: None } => "a sibling was committed first".into(),
        Lost::Fenced => "it was aborted meanwhile".into(),
    }
}

fn summary_json(changed: &ChangeSummary) -> Result<String> {
    serde_json::to_string(changed).map_err(|e| codes::INTERNAL.io("cannot write a summary", e))
}
