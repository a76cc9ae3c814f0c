//! The steps of the simulation: what users, branches' processes, other commands and bad luck do.

use crate::{
    disk::{Fault, TxnPhase, overlaid},
    oracle::Writer,
    rows::{BranchRow, TxnRow},
    sim::{Live, Sim},
};
use forkpoint_model::commit::{CommitPlan, Coordinator, DurablePhase, DurableTxn, Event, Outcome};
use forkpoint_model::state::{BranchContext, BranchEvent, BranchState, ForkLayer};
use forkpoint_model::{BranchId, CommitId, Epoch, GroupId, Participant, Source, WorldId};
use std::collections::BTreeMap;

/// Live branches that are enough.
const BRANCHES: usize = 10;

impl Sim {
    pub(crate) fn pick_branch(
        &mut self,
        wanted: impl Fn(&BranchRow) -> bool,
    ) -> Option<(BranchId, BranchRow)> {
        let rows = self.store.now.branches.iter();
        let all: Vec<_> = rows
            .filter(|(_, row)| wanted(row))
            .map(|(id, _)| *id)
            .collect();
        let id = *self.rng.pick(&all)?;
        Some((id, self.store.now.branches[&id].clone()))
    }

    /// Whether an operation on the branch is under way or in doubt: its lock is held, or recovery
    /// comes first.
    pub(crate) fn is_busy(&self, branch: BranchId) -> bool {
        self.lives
            .values()
            .any(|live| live.coordinator.plan().branch == branch)
            || self
                .store
                .now
                .txns
                .values()
                .any(|t| t.plan.branch == branch && !t.ended)
    }

    /// The transaction of a world that is decided and not yet applied (or taken back).
    pub(crate) fn applying(&self, world: WorldId) -> Option<&TxnRow> {
        let rows = self.store.now.txns.values();
        let mut active = rows.filter(|t| t.plan.world == world && t.is_active());
        active.find(|t| t.phase.is_decided())
    }

    pub(crate) fn fork(&mut self) {
        let live = self
            .store
            .now
            .branches
            .values()
            .filter(|b| b.ctx.state.is_live())
            .count();
        if live >= BRANCHES {
            return;
        }
        let nested = self.rng.one_in(4);
        let parent = if nested {
            self.pick_branch(|b| b.ctx.state.is_live())
        } else {
            None
        };
        let world = match &parent {
            Some((_, row)) => self.index(row.world),
            None => self.rng.below(self.worlds.len()),
        };
        let id = self.worlds[world].id;
        if self.applying(id).is_some() {
            return;
        }
        let count = 1 + self.rng.below(3);
        let group = (count > 1).then(|| GroupId::from_bits(self.fresh()));
        let head = self.store.now.heads[&id];
        let generation = parent.as_ref().map_or(head, |(_, row)| row.generation);
        let layer = if self.rng.one_in(8) {
            ForkLayer::Reasoning
        } else {
            ForkLayer::Effect
        };
        for _ in 0..count {
            let branch = BranchId::from_bits(self.fresh());
            let source = parent
                .as_ref()
                .map_or(Source::Head(head), |(b, _)| Source::Branch(*b));
            for place in 0..self.worlds[world].parts.len() {
                if let Err(error) = self.worlds[world].parts[place].fork(source, branch) {
                    return self.note(|| format!("fork {branch} fails: {error}"));
                }
                // What it must see: the parent as it is at this very step.
                let (on, written) = match parent {
                    Some((p, _)) => (
                        self.oracle.forked_on[&(p, place)].clone(),
                        self.oracle.written[&(p, place)].clone(),
                    ),
                    None => {
                        let overlay = &self.worlds[world].parts[place].now.overlays[&branch];
                        (overlay.lower.clone(), BTreeMap::new())
                    }
                };
                self.oracle.forked_on.insert((branch, place), on);
                self.oracle.written.insert((branch, place), written);
            }
            let mut ctx = BranchContext {
                layer,
                ..BranchContext::new()
            };
            ctx.stale = generation != head;
            if layer == ForkLayer::Effect && self.rng.one_in(6) {
                ctx.uncaptured.push("network host".into());
            }
            let row = BranchRow {
                ctx,
                world: id,
                generation,
                group,
            };
            let added = self.store.write(false, |rows| {
                rows.branches.insert(branch, row);
                Ok(())
            });
            self.stats.forks += u64::from(added.is_ok());
            self.note(|| {
                format!("fork {branch} of {source:?} in {id}, group {group:?}: {added:?}")
            });
        }
    }

    /// Some process of a branch writes, though it may be sealed by now.
    pub(crate) fn write(&mut self) {
        let Some((branch, row)) = self.pick_branch(|_| true) else {
            return;
        };
        let world = self.index(row.world);
        let place = self.rng.below(self.worlds[world].parts.len());
        let key = self.rng.below(crate::sim::KEYS) as u8;
        let value = self.oracle.value(Writer::Branch(branch));
        let part = &mut self.worlds[world].parts[place];
        let sealed = part.now.overlays.get(&branch).is_some_and(|o| o.sealed);
        let done = part.write(branch, Epoch(0), key, value);
        if done.is_ok() && !sealed {
            let now = part.now.overlays[&branch].writes[&key];
            if let Some(written) = self.oracle.written.get_mut(&(branch, place)) {
                written.insert(key, now);
            }
        }
        self.note(|| format!("{branch} writes {key}={value} at {place}: {}", done.is_ok()));
    }

    /// The user edits an in-place base.
    pub(crate) fn edit(&mut self) {
        let world = self.rng.below(self.worlds.len());
        let place = self.rng.below(self.worlds[world].parts.len());
        if self.worlds[world].parts[place].in_place {
            let key = self.rng.below(crate::sim::KEYS) as u8;
            let value = self.oracle.value(Writer::User);
            self.edit_to(world, place, key, Some(value));
        }
    }

    pub(crate) fn edit_to(&mut self, world: usize, place: usize, key: u8, value: Option<u64>) {
        let id = self.worlds[world].id;
        let under_way = self.applying(id).map(|t| t.plan.txn);
        let head = self.store.now.heads[&id];
        let mut shown = value;
        if let Some(txn) = under_way
            && let Some(pinned) = self.oracle.pinned.get_mut(&(txn, place))
            && let Some(after) = pinned.changes.get(&key)
        {
            // Before the redo has come by, the edit blocks it, and the change is what will be shown
            // once the user has mended that; after it, the edit is one of what was committed.
            match self.worlds[world].parts[place]
                .now
                .txns
                .get(&txn)
                .map(|t| t.phase)
            {
                Some(TxnPhase::Applied) => {}
                Some(TxnPhase::Undone) => {
                    pinned.before.insert(key, value);
                    shown = *after;
                }
                _ => shown = *after,
            }
        }
        if let Some(contents) = self.oracle.contents.get_mut(&(id, head)) {
            contents[place] = overlaid(&contents[place], &BTreeMap::from([(key, shown)]));
        }
        self.worlds[world].parts[place].edit(key, value);
        self.oracle.edits.insert((id, place, key), value);
        self.note(|| format!("the user edits {key}={value:?} at {place} of {id}"));
    }

    pub(crate) fn verify(&mut self) {
        let ready = |b: &BranchRow| {
            matches!(
                b.ctx.state,
                BranchState::Sealed | BranchState::Verified { .. }
            )
        };
        let Some((branch, row)) = self.pick_branch(ready) else {
            return;
        };
        if self.is_busy(branch) {
            return;
        }
        let world = self.index(row.world);
        let digests = (self.worlds[world].parts.iter())
            .filter_map(|part| part.now.overlays.get(&branch))
            .map(|overlay| crate::disk::digest(&overlay.writes))
            .collect();
        let passed = !self.rng.one_in(4);
        // It was judged, whether or not the row says so.
        self.oracle.verified.insert(branch, digests);
        let done = self
            .store
            .transition(branch, &BranchEvent::Verified { passed });
        self.note(|| format!("verify {branch}: {passed} {done:?}"));
    }

    pub(crate) fn commit(&mut self) {
        let Some((branch, row)) = self.pick_branch(|b| b.ctx.state.is_live()) else {
            return;
        };
        if self.is_busy(branch) {
            return;
        }
        if self.rng.one_in(3) {
            // Only sealed for now, so that it can be verified.
            let sealed = self.seal(branch);
            return self.note(|| format!("seal {branch}: {sealed:?}"));
        }
        let world = self.index(row.world);
        let plan = CommitPlan {
            txn: CommitId::from_bits(self.fresh()),
            world: row.world,
            branch,
            parent_generation: row.generation,
            group: row.group,
            participants: self.worlds[world]
                .parts
                .iter()
                .map(|part| part.id())
                .collect(),
        };
        self.note(|| {
            format!(
                "commit {branch} as {} on {:?}",
                plan.txn, plan.parent_generation
            )
        });
        self.launch(Coordinator::new(plan));
    }

    pub(crate) fn abort(&mut self) {
        let Some((branch, _)) = self.pick_branch(|b| b.ctx.state.is_live()) else {
            return;
        };
        if self.is_busy(branch) || !self.rng.one_in(2) {
            return;
        }
        let done = self.roll_back(branch);
        self.note(|| format!("abort {branch}: {done:?}"));
    }

    pub(crate) fn drive_rollback(&mut self) {
        use BranchState as S;
        let due = |b: &BranchRow| {
            matches!(
                b.ctx.state,
                S::Invalidated | S::Aborting | S::RollbackIncomplete
            )
        };
        let Some((branch, _)) = self.pick_branch(due) else {
            return;
        };
        if !self.is_busy(branch) {
            let done = self.roll_back(branch);
            self.note(|| format!("roll back {branch}: {done:?}"));
        }
    }

    pub(crate) fn rebase(&mut self) {
        let Some((branch, row)) = self.pick_branch(|b| b.ctx.state.is_live() && b.ctx.stale) else {
            return;
        };
        if self.is_busy(branch)
            || row.ctx.state == BranchState::Open
            || self.applying(row.world).is_some()
        {
            return;
        }
        let world = self.index(row.world);
        let head = self.store.now.heads[&row.world];
        for place in 0..self.worlds[world].parts.len() {
            let part = &mut self.worlds[world].parts[place];
            if let Err(error) = part.rebase(branch, head) {
                // The row stays stale, so it cannot be committed half rebased.
                return self.note(|| format!("rebase {branch} at {place}: {error}"));
            }
            let on = part.now.overlays[&branch].lower.clone();
            self.oracle.forked_on.insert((branch, place), on);
        }
        let done = self.store.transition(branch, &BranchEvent::Rebased);
        self.note(|| format!("rebase {branch} onto {head:?}: {done:?}"));
    }

    /// The user mends what blocks a redo, and has it driven on or back.
    pub(crate) fn resolve(&mut self) {
        let blocked = |live: &Live| {
            matches!(
                live.coordinator.outcome(),
                Some(Outcome::ApplyBlocked { .. })
            ) && live.coordinator.outstanding().is_empty()
        };
        let ids: Vec<u32> = self
            .lives
            .iter()
            .filter(|(_, live)| blocked(live))
            .map(|(id, _)| *id)
            .collect();
        let Some(&id) = self.rng.pick(&ids) else {
            return;
        };
        let plan = self.lives[&id].coordinator.plan().clone();
        let world = self.index(plan.world);
        for place in 0..self.worlds[world].parts.len() {
            let Some(txn) = self.oracle.pinned.get(&(plan.txn, place)).cloned() else {
                continue;
            };
            if !self.worlds[world].parts[place].in_place {
                continue;
            }
            for (&key, &after) in &txn.changes {
                let now = self.worlds[world].parts[place].now.base.get(&key).copied();
                if now != after && now != txn.before[&key] {
                    self.edit_to(world, place, key, txn.before[&key]);
                }
            }
        }
        let back = self.rng.one_in(2);
        self.note(|| {
            format!(
                "resolve {} {}",
                plan.txn,
                if back { "back" } else { "forward" }
            )
        });
        let event = if back {
            Event::ResolveBack
        } else {
            Event::ResolveForward
        };
        self.tell(id, event);
    }

    pub(crate) fn tell(&mut self, id: u32, event: Event) {
        if let Some(live) = self.lives.get_mut(&id) {
            let commands = live.coordinator.handle(event);
            self.send(id, commands);
        }
    }

    pub(crate) fn undo(&mut self) {
        let done = |t: &&TxnRow| t.ended && t.phase == DurablePhase::Applied;
        let rows: Vec<TxnRow> = self.store.now.txns.values().filter(done).cloned().collect();
        let Some(row) = self.rng.pick(&rows).cloned() else {
            return;
        };
        if self.is_busy(row.plan.branch) {
            return;
        }
        self.note(|| format!("undo {}", row.plan.txn));
        self.launch(Coordinator::undo(DurableTxn {
            plan: row.plan,
            phase: row.phase,
            votes: row.votes,
        }));
    }

    pub(crate) fn time_out(&mut self) {
        let ids: Vec<u32> = self.lives.keys().copied().collect();
        if let Some(&id) = self.rng.pick(&ids) {
            self.note(|| format!("time-out of {id}"));
            self.tell(id, Event::Timeout);
        }
    }

    /// The next few writes somewhere go well, then one does not.
    pub(crate) fn arm(&mut self) {
        let after = self.rng.below(6) as u32;
        let fault = *self
            .rng
            .pick(&[Fault::Full, Fault::Crash, Fault::Ambiguous])
            .expect("three");
        self.note(|| format!("{fault:?} in {after} writes"));
        if self.rng.one_in(3) {
            self.store.fuse = Some((after, fault));
        } else {
            let world = self.rng.below(self.worlds.len());
            let place = self.rng.below(self.worlds[world].parts.len());
            let fault = if fault == Fault::Ambiguous {
                Fault::Full
            } else {
                fault
            };
            self.worlds[world].parts[place].fuse = Some((after, fault));
        }
    }

    pub(crate) fn kill_one(&mut self) {
        let ids: Vec<u32> = self.lives.keys().copied().collect();
        if let Some(&id) = self.rng.pick(&ids) {
            self.note(|| format!("kill -9 of {id}"));
            self.kill(id);
            self.stats.crashes += 1;
        }
    }

    pub(crate) fn power_loss(&mut self) {
        self.note(|| "power loss".into());
        self.lives.clear();
        self.msgs.clear();
        self.store.power_loss();
        for world in &mut self.worlds {
            for part in &mut world.parts {
                part.power_loss(&mut self.rng);
            }
            // It may cost what a branch wrote and did not sync; never what was sealed.
            for (place, part) in world.parts.iter().enumerate() {
                for (branch, overlay) in part.now.overlays.iter().filter(|(_, o)| !o.sealed) {
                    let lost = (*branch, place);
                    self.oracle.written.insert(lost, overlay.writes.clone());
                }
            }
        }
        self.stats.crashes += 1;
    }

    pub(crate) fn run_recovery(&mut self) {
        let done = self.recover();
        self.note(|| format!("recovery: {done:?}"));
    }

    /// Collects the delta of a branch whose commit has ended.
    pub(crate) fn collect(&mut self) {
        let done = |b: &BranchRow| b.ctx.state == BranchState::Committed;
        let Some((branch, row)) = self.pick_branch(done) else {
            return;
        };
        let durable = self.store.synced.branches.get(&branch).map(|b| b.ctx.state);
        if self.is_busy(branch) || durable != Some(BranchState::Committed) {
            return;
        }
        let world = self.index(row.world);
        for place in 0..self.worlds[world].parts.len() {
            let done = self.worlds[world].parts[place].discard(branch);
            self.note(|| format!("collect {branch} at {place}: {done:?}"));
        }
    }
}
