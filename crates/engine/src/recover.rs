//! Mending what a crash left, whenever a store is opened.
//!
//! Everything here can be interrupted and done again. Whoever still lives is left alone: a process
//! is recognised by boot, pid and start time, work in progress by the lock its owner holds.

use crate::branch::{Branch, identity, kill_recorded, name};
use crate::codes;
use crate::drive::Driver;
use crate::engine::Engine;
use crate::files::{MAKING_SCRATCH_LOCK, SCRATCH_LOCK};
use crate::lock;
use crate::options::CommitOptions;
use forkpoint_model::commit::{Coordinator, Event, Outcome};
use forkpoint_model::state::{BranchEvent, BranchState, ForkLayer};
use forkpoint_model::{CommitId, Result};
use forkpoint_sandbox::is_alive;
use forkpoint_store::{BranchRecord, CommitRecord, ExplorationRecord, ExplorationState};
use forkpoint_sys::clock;
use std::path::Path;

/// Runs recovery; says what it did, one line each.
pub(crate) fn run(engine: &Engine) -> Result<Vec<String>> {
    let mut said = Vec::new();
    if nothing_to_do(engine)? {
        return Ok(said);
    }
    let guard = engine.paths().store().join("recover.lock");
    let Ok(_lock) = lock::file(&guard, || {
        codes::BUSY.error("another process is recovering")
    }) else {
        // Whoever holds it mends everything; what is locked below stays locked for us too.
        return Ok(said);
    };
    let explorations = engine.store().explorations(true)?;
    for exploration in explorations {
        end_orphan(engine, &exploration, &mut said)?;
    }
    forget_dead_processes(engine, &mut said)?;
    let in_doubt = engine.store().in_doubt()?;
    for commit in in_doubt {
        resume_commit(engine, &commit, &mut said)?;
    }
    let unfinished = engine.store().unfinished()?;
    for branch in unfinished {
        if matches!(
            branch.state,
            BranchState::Aborting | BranchState::Invalidated
        ) {
            finish_rollback(&Branch::new(engine.clone(), branch.id), &mut said)?;
        } else if branch.state.is_applying() && crate::git::git_ref(&branch).is_some() {
            engine.finish_git(&branch, &mut said);
        }
    }
    said.append(&mut sweep_scratch(engine)?);
    if let Some(boot) = new_boot(engine)? {
        sweep_stages(engine, &mut said)?;
        // Torn or lost, it is another boot's: then this is done once more.
        std::fs::write(engine.paths().boot(), boot)
            .map_err(|e| codes::IO.io("cannot record the boot", e))?;
    }
    Ok(said)
}

/// The present boot, if nothing was recovered in it before: power may have been lost since.
fn new_boot(engine: &Engine) -> Result<Option<String>> {
    let now = clock::boot_id().map_err(|e| codes::IO.io("cannot identify this boot", e))?;
    match std::fs::read_to_string(engine.paths().boot()) {
        Ok(known) if known == now => Ok(None),
        Ok(_) => Ok(Some(now)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Some(now)),
        Err(e) => Err(codes::IO.io("cannot read in which boot the store was used", e)),
    }
}

/// Removes what was staged under reservations that a power loss took: these are not synced. A
/// process that stages now has its row in the store before its directory.
fn sweep_stages(engine: &Engine, said: &mut Vec<String>) -> Result<()> {
    for path in list(&engine.paths().commits())? {
        let name = path.file_name().and_then(|n| n.to_str());
        let Some(txn) = name.and_then(|n| n.parse::<CommitId>().ok()) else {
            continue;
        };
        let found = engine.store().commit(txn);
        match found {
            Ok(_) => {}
            Err(e) if e.code == forkpoint_store::codes::NOT_FOUND.text => {
                engine.remove_tree(&path)?;
                said.push(format!(
                    "what {txn} had staged was removed: it was not decided"
                ));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The usual case costs one short query, one directory listing and one small file. A process of this
/// boot that is dead is no reason to write: whoever asks for a branch's process looks whether it
/// lives, and the next start replaces it.
fn nothing_to_do(engine: &Engine) -> Result<bool> {
    let boot_id = forkpoint_sys::clock::boot_id()
        .map_err(|e| codes::IO.io("cannot identify this boot", e))?;
    let quiet = engine.store().quiet(&boot_id)?;
    Ok(quiet && list(&engine.paths().tmp())?.is_empty() && new_boot(engine)?.is_none())
}

/// An exploration whose supervisor died: its attempts are ended and rolled back.
fn end_orphan(engine: &Engine, x: &ExplorationRecord, said: &mut Vec<String>) -> Result<()> {
    if let Some(supervisor) = &x.supervisor
        && is_alive(&identity(supervisor))?
    {
        return Ok(());
    }
    let mut count = 0;
    let attempts = engine.store().exploration_branches(x.id)?;
    for record in attempts {
        let branch = Branch::new(engine.clone(), record.id);
        let Ok(lock) = branch.lock() else { continue };
        kill_recorded(engine, &record)?;
        let live = matches!(
            record.state,
            BranchState::Open | BranchState::Sealed | BranchState::Verified { .. }
        );
        if !live {
            continue;
        }
        let now = engine.now();
        engine
            .store()
            .transition_with(record.id, &BranchEvent::AbortRequested, now, |b| {
                b.retained = true;
                b.reason.get_or_insert("interrupted".into());
            })?;
        branch.drain(&lock)?;
        count += 1;
    }
    let mut ended = x.clone();
    ended.state = ExplorationState::Crashed;
    ended.ended_ns = Some(engine.now());
    engine.store().put_exploration(&ended)?;
    said.push(format!(
        "exploration {} had lost its supervisor: {count} attempts rolled back",
        x.id
    ));
    Ok(())
}

fn forget_dead_processes(engine: &Engine, said: &mut Vec<String>) -> Result<()> {
    let running = engine.store().running()?;
    for record in running {
        let Some(process) = &record.process else {
            continue;
        };
        if is_alive(&identity(process))? {
            continue;
        }
        let rebooted = process.boot_id != crate::engine::process_identity()?.boot_id;
        if rebooted {
            suspect_reads(engine, &record)?;
        }
        // Without the branch's lock, which whoever works on it must find free: a process started
        // meanwhile is another one and stays.
        let mut forgotten = false;
        engine.store().modify_branch(record.id, |b| {
            forgotten = b.process.as_ref() == Some(process);
            if forgotten {
                b.process = None;
            }
        })?;
        if forgotten && rebooted {
            said.push(format!(
                "{} was running when this machine went down",
                name(&record)
            ));
        }
    }
    Ok(())
}

/// The newest records of what a branch read are lost with the power: it counts as having read every key.
/// A sealed one has them all, since they were written before the seal.
fn suspect_reads(engine: &Engine, record: &BranchRecord) -> Result<()> {
    if record.state != BranchState::Open || record.layer != ForkLayer::Effect {
        return Ok(());
    }
    let marked = engine.store().kv_read_all(record.id);
    match marked {
        // Sealed meanwhile by another process, which runs in this boot.
        Err(e) if e.code == forkpoint_store::codes::FENCED.text => Ok(()),
        marked => marked,
    }
}

/// A commit that did not come to its end: forward if it was decided, else back.
fn resume_commit(engine: &Engine, commit: &CommitRecord, said: &mut Vec<String>) -> Result<()> {
    let world = engine.world_by_id(commit.world)?;
    let options = CommitOptions::default();
    // Its driver holds the base's lock as long as it lives.
    let mut driver = match Driver::new(engine, &world, commit.branch, None, &options) {
        Ok(driver) => driver,
        Err(error) => {
            if error.code != codes::BASE_BUSY.text {
                said.push(format!(
                    "commit {} could not be recovered: {error}",
                    commit.id
                ));
            }
            return Ok(());
        }
    };
    // Under the lock it may turn out to have ended.
    let commit = engine.store().commit(commit.id)?;
    if commit.ended_ns.is_some() {
        return Ok(());
    }
    if let Some(group) = commit.group {
        driver.invalidated = engine
            .store()
            .siblings(group)?
            .into_iter()
            .filter(|b| b.state == BranchState::Invalidated)
            .map(|b| b.id)
            .collect();
    }
    if commit.decided_ns.is_some()
        && let Err(why) =
            crate::commit::quiet_world(engine, &world, commit.group, &[commit.branch], false)
    {
        said.push(format!("commit {} waits: {}", commit.id, why.message));
        return Ok(());
    }
    let (mut coordinator, mut first) = Coordinator::recover(commit.durable());
    if matches!(coordinator.outcome(), Some(Outcome::ApplyBlocked { .. })) {
        // Whatever blocked it may be gone: a full disk, a worker that was killed. What still blocks
        // it is found before anything is changed.
        first.extend(coordinator.handle(Event::ResolveForward));
    }
    let line = match driver.run(coordinator, first) {
        Ok(Outcome::Committed { generation }) => {
            drop(driver);
            engine.settle_descendants(commit.branch, &world, generation)?;
            let record = engine.store().branch(commit.branch);
            if let Ok(record) = record {
                engine.release_layers(&record)?;
            }
            format!(
                "commit {} into {} was finished",
                commit.id,
                world.base().display()
            )
        }
        Ok(Outcome::ApplyBlocked { items }) => {
            let first = items
                .first()
                .map_or(String::new(), |c| format!("{}: {}", c.item, c.why));
            format!(
                "commit {} into {} is blocked: {first}",
                commit.id,
                world.base().display()
            )
        }
        Ok(Outcome::DrivenBack) => format!("commit {} was taken back", commit.id),
        Ok(_) => format!(
            "commit {} had not been decided and was discarded",
            commit.id
        ),
        Err(error) => format!("commit {} could not be recovered: {error}", commit.id),
    };
    said.push(line);
    Ok(())
}

fn finish_rollback(branch: &Branch, said: &mut Vec<String>) -> Result<()> {
    let Ok(lock) = branch.lock() else {
        return Ok(());
    };
    let record = branch.record()?;
    kill_recorded(&branch.engine, &record)?;
    if record.state == BranchState::Invalidated {
        let now = branch.engine.now();
        // Without its supervisor nobody says otherwise: what the attempt did is kept to be looked at.
        branch.engine.store().transition_with(
            branch.id,
            &BranchEvent::AbortRequested,
            now,
            |b| {
                b.retained = b.exploration.is_some();
            },
        )?;
    }
    if branch.record()?.state == BranchState::Aborting {
        branch.drain(&lock)?;
        said.push(format!("{} was rolled back", name(&record)));
    }
    Ok(())
}

/// Removes the scratch directories of processes that are gone, and the views they had made ahead.
/// Says what could not be removed.
pub(crate) fn sweep_scratch(engine: &Engine) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for (path, _lock) in dead_scratch(engine)? {
        let removed = engine.remove_tree(&path);
        // Its owner may have been removing it when we looked.
        if let Err(error) = removed
            && path.exists()
        {
            said.push(format!("{} could not be removed: {error}", path.display()));
        }
    }
    Ok(said)
}

/// Those whose lock can be taken, with it. None while somebody is making one: a directory whose
/// owner has not locked it yet looks like a dead one's.
fn dead_scratch(engine: &Engine) -> Result<Vec<(std::path::PathBuf, lock::Lock)>> {
    let guard = engine.paths().store().join(MAKING_SCRATCH_LOCK);
    let Ok(_alone) = lock::file(&guard, || codes::BUSY.error("in use")) else {
        return Ok(Vec::new());
    };
    let mut dead = Vec::new();
    let mut all = list(&engine.paths().tmp())?;
    all.extend(list(&engine.paths().spare())?);
    for path in all {
        let locked = path
            .is_dir()
            .then(|| lock::file(&path.join(SCRATCH_LOCK), || codes::BUSY.error("in use")));
        if let Some(Ok(lock)) = locked {
            dead.push((path, lock));
        }
    }
    Ok(dead)
}

pub(crate) fn list(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let io = |e| codes::IO.io(format!("cannot list {}", dir.display()), e);
    match std::fs::read_dir(dir) {
        Ok(entries) => entries.map(|e| e.map(|e| e.path()).map_err(io)).collect(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(io(e)),
    }
}
