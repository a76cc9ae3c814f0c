//! The laws as invariants.

use crate::{
    Violation,
    disk::{Txn, TxnPhase, digest, overlaid},
    oracle::Writer,
    rows::{BranchRow, TxnRow},
    sim::Sim,
};
use forkpoint_model::commit::DurablePhase;
use forkpoint_model::state::BranchState as S;
use forkpoint_model::{CommitId, Source, WorldId};

type Checked = Result<(), Box<Violation>>;

impl Sim {
    /// Every law, as things now stand.
    pub(crate) fn check(&mut self) -> Checked {
        self.take_in_decisions()?;
        self.law_07_first_commit_wins()?;
        self.law_02_effect_isolation()?;
        self.law_08_atomic_visibility()?;
        self.law_08_recovery_redoes_what_was_pinned()?;
        self.law_09_sealed_is_immutable()?;
        self.law_03_barrier()?;
        self.law_05_rolled_back_means_undone()?;
        self.law_10_nothing_is_lost_silently()?;
        self.law_10_no_edit_is_overwritten()
    }

    /// What the user wrote into a base stays, until a commit that was made on top of it is decided.
    fn law_10_no_edit_is_overwritten(&mut self) -> Checked {
        let mut gone = Vec::new();
        for (&(world, place, key), value) in &self.oracle.edits {
            let base = &self.worlds[self.index(world)].parts[place].now.base;
            if base.get(&key) == value.as_ref() {
                continue;
            }
            let on_top = self.store.now.decisions.iter().any(|(w, _, _, txn)| {
                let pinned = self.oracle.pinned.get(&(*txn, place));
                *w == world && pinned.is_some_and(|t| t.before.get(&key) == Some(value))
            });
            // A mend takes the change's side: an undo may then move on from it.
            let mended = self.store.now.decisions.iter().any(|(w, _, _, txn)| {
                let pinned = self.oracle.pinned.get(&(*txn, place));
                *w == world && pinned.is_some_and(|t| t.changes.get(&key) == Some(value))
            });
            if !on_top && !mended {
                let message = format!("an edit of {key} at {place} of {world} is gone");
                return Err(self.violation("law_10_no_edit_is_overwritten", message));
            }
            gone.push((world, place, key));
        }
        self.oracle.edits.retain(|key, _| !gone.contains(key));
        Ok(())
    }

    /// Learns of new decisions, and of commits taken back, and checks what they decided.
    fn take_in_decisions(&mut self) -> Checked {
        for n in self.oracle.decisions..self.store.now.decisions.len() {
            let (world, from, _, txn) = self.store.now.decisions[n].clone();
            let row = self.store.now.txns[&txn].clone();
            let mut contents = self.oracle.contents[&(world, from)].clone();
            for (place, content) in contents.iter_mut().enumerate() {
                let Some(pinned) = self.oracle.pinned.get(&(txn, place)).cloned() else {
                    let message = format!("{txn} was decided without the vote of {place}");
                    return Err(self.violation("law_08_atomic_visibility", message));
                };
                self.law_06_gate_on_the_overlay(&row, place)?;
                self.law_01_snapshot_dominance(&row, place)?;
                *content = overlaid(content, &pinned.changes);
            }
            self.oracle
                .contents
                .insert((world, row.plan.target()), contents);
            self.stats.decisions += 1;
            let invalid = self.store.now.branches.values();
            let fenced =
                |b: &&BranchRow| b.ctx.state == S::Invalidated && b.group == row.plan.group;
            self.stats.invalidated += invalid.filter(fenced).count() as u64;
        }
        if self.store.now.decisions.len() < self.oracle.decisions {
            let message = "a decision was lost with the power".to_owned();
            return Err(self.violation("law_10_nothing_is_lost_silently", message));
        }
        self.oracle.decisions = self.store.now.decisions.len();
        let rows: Vec<TxnRow> = self.store.now.txns.values().cloned().collect();
        for row in rows {
            let txn = row.plan.txn;
            if row.phase != DurablePhase::Undone || !self.oracle.undone.insert(txn) {
                continue;
            }
            let (world, target) = (row.plan.world, row.plan.target());
            let mut contents = self.oracle.contents[&(world, target)].clone();
            for (place, content) in contents.iter_mut().enumerate() {
                *content = overlaid(content, &self.oracle.pinned[&(txn, place)].before);
            }
            let next = forkpoint_model::Generation(target.0 + 1);
            self.oracle.contents.insert((world, next), contents);
            self.stats.undone += 1;
        }
        Ok(())
    }

    /// What was staged is what the branch wrote, and what was verified if it was.
    fn law_06_gate_on_the_overlay(&self, row: &TxnRow, place: usize) -> Checked {
        let branch = row.plan.branch;
        let staged = digest(&self.oracle.pinned[&(row.plan.txn, place)].changes);
        let written = digest(&self.oracle.written[&(branch, place)]);
        let verified = self
            .oracle
            .verified
            .get(&branch)
            .and_then(|all| all.get(place).copied());
        if staged != written || row.verified && verified != Some(staged) {
            let message = format!("{branch} was decided with other than its verified content");
            return Err(self.violation("law_06_gate_on_the_overlay", message));
        }
        Ok(())
    }

    /// A commit changes only what still is as the branch saw it, at the time of its vote.
    fn law_01_snapshot_dominance(&self, row: &TxnRow, place: usize) -> Checked {
        let pinned = &self.oracle.pinned[&(row.plan.txn, place)];
        let on = &self.oracle.forked_on[&(row.plan.branch, place)];
        for (key, before) in &pinned.before {
            if self.worlds[self.index(row.plan.world)].parts[place].in_place
                && on.get(key) != before.as_ref()
            {
                let message = format!(
                    "{} overwrites an edit of {key}: forked on {on:?}, staged {pinned:?}",
                    row.plan.txn
                );
                return Err(self.violation("law_01_snapshot_dominance", message));
            }
        }
        Ok(())
    }

    fn law_07_first_commit_wins(&self) -> Checked {
        const LAW: &str = "law_07_first_commit_wins";
        let rows = &self.store.now;
        for (n, (world, from, who, txn)) in rows.decisions.iter().enumerate() {
            if let Some(other) = rows.decisions[..n]
                .iter()
                .find(|d| d.0 == *world && d.1 == *from)
            {
                let message = format!("{txn} and {} were decided on {world} {from:?}", other.3);
                return Err(self.violation(LAW, message));
            }
            let plan = &rows.txns[txn].plan;
            for (id, b) in &rows.branches {
                let sibling = plan.group.is_some() && b.group == plan.group && *id != plan.branch;
                if sibling && (b.ctx.state.is_live() || b.ctx.state == S::Committed) {
                    let message = format!("{id} is {} though {who:?} has a winner", b.ctx.state);
                    return Err(self.violation(LAW, message));
                }
            }
        }
        let decided = |b: &BranchRow| {
            rows.decisions
                .iter()
                .any(|d| b.group.is_some() && rows.txns[&d.3].plan.group == b.group)
        };
        let invalid = rows
            .branches
            .iter()
            .filter(|(_, b)| b.ctx.state == S::Invalidated);
        for (id, b) in invalid {
            if !decided(b) {
                let message = format!("{id} was invalidated and has no winning sibling");
                return Err(self.violation(LAW, message));
            }
        }
        Ok(())
    }

    /// Nothing of a branch is visible in the world, and no held effect is out, without its decision.
    fn law_02_effect_isolation(&self) -> Checked {
        const LAW: &str = "law_02_effect_isolation";
        let durable = &self.store.synced;
        for txn in &self.oracle.released {
            if !durable.decisions.iter().any(|d| d.3 == *txn) {
                let message = format!("effects of {txn} are out without a durable decision");
                return Err(self.violation(LAW, message));
            }
        }
        for world in &self.worlds {
            for part in &world.parts {
                let head = self.store.now.heads[&world.id];
                let txn = self.store.now.published_by(world.id, head);
                for (key, value) in part.read(head, txn).unwrap_or_default() {
                    if let Some(Writer::Branch(b)) = self.oracle.writers.get(&value)
                        && !self.is_decided(world.id, value)
                    {
                        let message = format!("{} shows {key} of undecided {b}", part.name);
                        return Err(self.violation(LAW, message));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a decided change set holds this value.
    fn is_decided(&self, world: WorldId, value: u64) -> bool {
        let holds = |txn: &Txn| txn.changes.values().any(|v| *v == Some(value));
        let decided = |id: &CommitId| {
            self.store
                .now
                .decisions
                .iter()
                .any(|d| d.0 == world && d.3 == *id)
        };
        self.oracle
            .pinned
            .iter()
            .any(|((id, _), txn)| holds(txn) && decided(id))
    }

    fn law_08_atomic_visibility(&self) -> Checked {
        const LAW: &str = "law_08_atomic_visibility";
        let rows = &self.store.now;
        for world in &self.worlds {
            let active = rows
                .txns
                .values()
                .filter(|t| t.plan.world == world.id && t.is_active());
            if active.count() > 1 {
                let message = format!("{} is reserved twice", world.id);
                return Err(self.violation(LAW, message));
            }
            let head = rows.heads[&world.id];
            let Some(contents) = self.oracle.contents.get(&(world.id, head)) else {
                let message = format!("{} is at {head:?}, which nobody decided", world.id);
                return Err(self.violation(LAW, message));
            };
            let applying = self.applying(world.id).map(|t| t.plan.txn);
            for (place, part) in world.parts.iter().enumerate() {
                let mut expected = contents[place].clone();
                let seen = part.read(head, rows.published_by(world.id, head));
                let mut seen = seen.unwrap_or_default();
                if part.in_place
                    && let Some(t) = applying.and_then(|txn| self.oracle.pinned.get(&(txn, place)))
                {
                    // Half-way is permitted at the keys of the change, while the state says so.
                    for (key, after) in &t.changes {
                        let now = seen.remove(key);
                        expected.remove(key);
                        let user = now.map(|v| self.oracle.writers[&v] == Writer::User);
                        if now != *after && now != t.before[key] && user != Some(true) {
                            let message = format!("{} has {now:?} at {key}", part.name);
                            return Err(self.violation(LAW, message));
                        }
                    }
                }
                if seen != expected {
                    let message = format!(
                        "{} of {} shows {seen:?} at {head:?} and should show {expected:?}",
                        part.name, world.id
                    );
                    return Err(self.violation(LAW, message));
                }
            }
        }
        Ok(())
    }

    fn law_08_recovery_redoes_what_was_pinned(&self) -> Checked {
        const LAW: &str = "law_08_recovery_redoes_what_was_pinned";
        for row in self.store.now.txns.values() {
            if !matches!(
                row.phase,
                DurablePhase::Applying | DurablePhase::ApplyBlocked { .. }
            ) {
                continue;
            }
            let world = &self.worlds[self.index(row.plan.world)];
            for ((_, vote), part) in row.votes.iter().zip(&world.parts) {
                let staged = part.now.txns.get(&row.plan.txn).map(|t| digest(&t.changes));
                if staged != Some(vote.digest) {
                    let message = format!(
                        "{} was decided, and {} has not what it voted for",
                        row.plan.txn, part.name
                    );
                    return Err(self.violation(LAW, message));
                }
            }
        }
        Ok(())
    }

    fn law_09_sealed_is_immutable(&self) -> Checked {
        for world in 0..self.worlds.len() {
            for place in 0..self.worlds[world].parts.len() {
                for (branch, overlay) in &self.worlds[world].parts[place].now.overlays {
                    let written = self.oracle.written.get(&(*branch, place));
                    if overlay.sealed && written.is_some_and(|w| *w != overlay.writes) {
                        let message = format!("the sealed overlay of {branch} changed");
                        return Err(self.violation("law_09_sealed_is_immutable", message));
                    }
                }
            }
        }
        Ok(())
    }

    /// Each branch sees what it was forked on and its own writes, and nothing else.
    fn law_03_barrier(&self) -> Checked {
        for world in &self.worlds {
            for (place, part) in world.parts.iter().enumerate() {
                for (branch, overlay) in &part.now.overlays {
                    let Some(on) = self.oracle.forked_on.get(&(*branch, place)) else {
                        continue;
                    };
                    let expected = overlaid(on, &self.oracle.written[&(*branch, place)]);
                    let seen = part.view(*branch).unwrap_or_default();
                    if seen == expected {
                        continue;
                    }
                    let foreign = seen.iter().find(|(key, v)| expected.get(key) != Some(v));
                    let writer = foreign.map(|(_, value)| self.oracle.writers[value]);
                    let from_parent = matches!((overlay.parent, writer),
                        (Source::Branch(p), Some(Writer::Branch(w))) if p == w);
                    let law = if from_parent {
                        "law_01_snapshot_dominance"
                    } else {
                        "law_03_barrier"
                    };
                    let message =
                        format!("{branch} sees {seen:?} by {writer:?}, and should {expected:?}");
                    return Err(self.violation(law, message));
                }
            }
        }
        Ok(())
    }

    fn law_05_rolled_back_means_undone(&self) -> Checked {
        const LAW: &str = "law_05_rolled_back_means_undone";
        for (id, b) in &self.store.now.branches {
            if !matches!(b.ctx.state, S::RolledBack | S::Abandoned | S::Discarded) {
                continue;
            }
            if b.ctx.state == S::RolledBack && !b.ctx.uncaptured.is_empty() {
                let message = format!("{id} is rolled back and had {:?}", b.ctx.uncaptured);
                return Err(self.violation(LAW, message));
            }
            for part in &self.worlds[self.index(b.world)].parts {
                let staged = part
                    .now
                    .txns
                    .values()
                    .any(|t| t.branch == *id && t.phase != TxnPhase::Undone && self.healed);
                if part.now.overlays.contains_key(id) || staged {
                    let message = format!("{id} is {} and {} still has it", b.ctx.state, part.name);
                    return Err(self.violation(LAW, message));
                }
            }
        }
        Ok(())
    }

    /// A delta is missing only where its outcome is durable.
    fn law_10_nothing_is_lost_silently(&self) -> Checked {
        for (id, b) in &self.store.now.branches {
            let outcome = self.store.synced.branches.get(id).map(|b| b.ctx.state);
            let over = outcome.is_some_and(|state| {
                state.is_end() || matches!(state, S::Aborting | S::RollbackIncomplete)
            });
            for part in &self.worlds[self.index(b.world)].parts {
                if !over && !part.now.overlays.contains_key(id) {
                    let message = format!(
                        "the delta of {id} is gone from {} and its durable state is {outcome:?}",
                        part.name
                    );
                    return Err(self.violation("law_10_nothing_is_lost_silently", message));
                }
            }
        }
        Ok(())
    }

    /// After everything was healed: nothing is under way and nothing is left behind.
    pub(crate) fn check_rest(&self) -> Checked {
        const LAW: &str = "law_10_recovery_comes_to_rest";
        if let Some(live) = self.lives.values().next() {
            let c = &live.coordinator;
            let message = format!("{:?} never ends: {:?}", c.plan(), c.last_error());
            return Err(self.violation(LAW, message));
        }
        if let Some(row) = self.store.now.txns.values().find(|row| !row.ended) {
            return Err(self.violation(LAW, format!("{} never ends", row.plan.txn)));
        }
        for part in self.worlds.iter().flat_map(|world| &world.parts) {
            if let Some((txn, _)) = part.now.txns.iter().next() {
                let message = format!("{} still has something of {txn}", part.name);
                return Err(self.violation(LAW, message));
            }
        }
        for (id, b) in &self.store.now.branches {
            let moving = !b.ctx.state.is_live() && !b.ctx.state.is_end();
            if moving || b.ctx.state == S::Staged {
                return Err(self.violation(LAW, format!("{id} is left {}", b.ctx.state)));
            }
        }
        Ok(())
    }
}
