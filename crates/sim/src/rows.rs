//! A fake store: the rows, those that are synced apart from those that are not. It follows the
//! contracts of the real one (`forkpoint-store`), which has tests of its own.

use crate::{
    Breakage,
    disk::{CRASH, DISK_FULL, Fault},
};
use forkpoint_model::commit::{CommitPlan, DurablePhase, Lost};
use forkpoint_model::state::{BranchContext, BranchEvent, BranchState, step};
use forkpoint_model::{
    BranchId, Code, CommitId, Conflict, Generation, GroupId, Kind, ParticipantId, Result, Vote,
    WorldId,
};
use std::collections::BTreeMap;

const WRONG: Code = Code::new("FP9904", Kind::Conflict, "simulated: wrong state");

#[derive(Debug, Clone)]
pub(crate) struct BranchRow {
    pub(crate) ctx: BranchContext,
    pub(crate) world: WorldId,
    pub(crate) generation: Generation,
    pub(crate) group: Option<GroupId>,
}

#[derive(Debug, Clone)]
pub(crate) struct TxnRow {
    pub(crate) plan: CommitPlan,
    pub(crate) phase: DurablePhase,
    pub(crate) votes: Vec<(ParticipantId, Vote)>,
    pub(crate) verified: bool,
    pub(crate) ended: bool,
}

impl TxnRow {
    pub(crate) fn is_active(&self) -> bool {
        use DurablePhase as P;
        matches!(
            self.phase,
            P::Reserved | P::Applying | P::ApplyBlocked { .. } | P::Undoing
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contender {
    Group(GroupId),
    Branch(BranchId),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    pub(crate) heads: BTreeMap<WorldId, Generation>,
    pub(crate) branches: BTreeMap<BranchId, BranchRow>,
    pub(crate) txns: BTreeMap<CommitId, TxnRow>,
    /// Never overwritten by a correct store; a list, so that a broken one can be seen.
    pub(crate) decisions: Vec<(WorldId, Generation, Contender, CommitId)>,
}

#[derive(Debug)]
pub(crate) struct FakeStore {
    pub(crate) now: Rows,
    pub(crate) synced: Rows,
    pub(crate) fuse: Option<(u32, Fault)>,
    pub(crate) broken: Option<Breakage>,
}

impl FakeStore {
    pub(crate) fn new(broken: Option<Breakage>) -> Self {
        let rows = Rows::default();
        Self {
            now: rows.clone(),
            synced: rows,
            fuse: None,
            broken,
        }
    }

    fn is(&self, breakage: Breakage) -> bool {
        self.broken == Some(breakage)
    }

    pub(crate) fn power_loss(&mut self) {
        self.now = self.synced.clone();
        self.fuse = None;
    }

    /// One transaction: all of `work` or nothing; `full` makes it and all before it durable.
    pub(crate) fn write<T>(
        &mut self,
        full: bool,
        work: impl FnOnce(&mut Rows) -> Result<T>,
    ) -> Result<T> {
        let mut strikes = None;
        if let Some((left, fault)) = &mut self.fuse {
            if *left == 0 {
                strikes = Some(*fault);
                self.fuse = None;
            } else {
                *left -= 1;
            }
        }
        match strikes {
            Some(Fault::Full) => return Err(DISK_FULL.error("the store's disk is full")),
            Some(Fault::Crash) => return Err(CRASH.error("killed in a transaction")),
            Some(Fault::Ambiguous) | None => {}
        }
        let mut rows = self.now.clone();
        let value = work(&mut rows)?;
        self.now = rows;
        if full {
            self.synced = self.now.clone();
        }
        match strikes {
            Some(_) => Err(DISK_FULL.error("an error after the fact")),
            None => Ok(value),
        }
    }

    pub(crate) fn transition(&mut self, b: BranchId, event: &BranchEvent) -> Result<()> {
        // The end of an abort is not synced: what is found aborting is drained again.
        let full = *event == BranchEvent::AbortRequested && !self.is(Breakage::AbortNotDurable);
        self.write(full, |rows| rows.transition(b, event))
    }

    pub(crate) fn reserve(&mut self, plan: &CommitPlan) -> Result<Result<(), Lost>> {
        let looks = !self.is(Breakage::DecideWithoutLooking);
        let unique = !self.is(Breakage::ReservationNotUnique) && looks;
        // Not synced: what is staged without a row is in doubt, and aborted.
        self.write(false, |rows| {
            match rows.txns.get(&plan.txn).map(|t| &t.phase) {
                Some(DurablePhase::Reserved) => return Ok(Ok(())),
                Some(_) => return Ok(Err(Lost::Fenced)),
                None => {}
            }
            if let (Some(why), true) = (rows.beaten(plan), looks) {
                return Ok(Err(why));
            }
            let active = rows
                .txns
                .values()
                .find(|t| t.plan.world == plan.world && t.is_active());
            if let (Some(by), true) = (active, unique) {
                return Ok(Err(Lost::Reserved { by: by.plan.txn }));
            }
            let verified =
                rows.branch(plan.branch)?.ctx.state == (BranchState::Verified { passed: true });
            rows.transition(plan.branch, &BranchEvent::StageBegan { force: false })?;
            let row = TxnRow {
                plan: plan.clone(),
                phase: DurablePhase::Reserved,
                votes: Vec::new(),
                verified,
                ended: false,
            };
            rows.txns.insert(plan.txn, row);
            Ok(Ok(()))
        })
    }

    pub(crate) fn decide(
        &mut self,
        txn: CommitId,
        votes: &[(ParticipantId, Vote)],
    ) -> Result<Result<(), Lost>> {
        let broken = self.broken;
        let is = |b| broken == Some(b);
        self.write(!is(Breakage::DecisionNotDurable), |rows| {
            let Some(row) = rows.txns.get(&txn).cloned() else {
                return Ok(Err(Lost::Fenced));
            };
            match row.phase {
                DurablePhase::Reserved => {}
                DurablePhase::Aborted => return Ok(Err(Lost::Fenced)),
                DurablePhase::Undoing | DurablePhase::Undone => {
                    return Err(WRONG.error("it is being taken back"));
                }
                _ => return Ok(Ok(())),
            }
            let plan = &row.plan;
            if !is(Breakage::DecideWithoutLooking)
                && let Some(why) = rows.beaten(plan)
            {
                return Ok(Err(why));
            }
            let in_place = votes.iter().any(|(_, v)| v.in_place);
            rows.heads.insert(plan.world, plan.target());
            let decision = (plan.world, plan.parent_generation, contender(plan), txn);
            rows.decisions.push(decision);
            let phase = if in_place {
                DurablePhase::Applying
            } else {
                DurablePhase::Applied
            };
            let new = TxnRow {
                phase,
                votes: votes.to_vec(),
                ..row.clone()
            };
            rows.txns.insert(txn, new);
            if is(Breakage::DecideWithoutLooking)
                && let Some(row) = rows.branches.get_mut(&plan.branch)
            {
                row.ctx.state = BranchState::Staged;
            }
            rows.transition(plan.branch, &BranchEvent::Decided { in_place })?;
            let ids: Vec<BranchId> = rows.branches.keys().copied().collect();
            for id in ids {
                let b = rows.branch(id)?;
                let others = id != plan.branch && b.world == plan.world && b.ctx.state.is_live();
                let sibling = plan.group.is_some() && b.group == plan.group;
                let kill = match sibling {
                    true => !is(Breakage::SiblingsKept),
                    false => is(Breakage::IndependentsKilled),
                };
                if others && kill {
                    rows.transition(id, &BranchEvent::SiblingCommitted)?;
                } else if others && !sibling {
                    rows.transition(id, &BranchEvent::IndependentCommitted)?;
                }
            }
            Ok(Ok(()))
        })
    }

    /// False if it was decided.
    pub(crate) fn unreserve(&mut self, txn: CommitId) -> Result<bool> {
        self.write(false, |rows| {
            let Some(row) = rows.txns.get_mut(&txn) else {
                return Ok(true);
            };
            match row.phase {
                DurablePhase::Reserved => row.phase = DurablePhase::Aborted,
                DurablePhase::Aborted => return Ok(true),
                _ => return Ok(false),
            }
            let branch = row.plan.branch;
            if rows.branch(branch)?.ctx.state == BranchState::Staged {
                rows.transition(branch, &BranchEvent::StageAborted)?;
            }
            Ok(true)
        })
    }

    pub(crate) fn mark_applied(&mut self, txn: CommitId) -> Result<()> {
        self.write(true, |rows| {
            let row = rows.txn(txn)?;
            match row.phase {
                DurablePhase::Applied => return Ok(()),
                DurablePhase::Applying | DurablePhase::ApplyBlocked { .. } => {}
                _ => return Err(WRONG.error("not applying")),
            }
            row.phase = DurablePhase::Applied;
            let branch = row.plan.branch;
            rows.transition(branch, &BranchEvent::Applied)
        })
    }

    pub(crate) fn mark_blocked(&mut self, txn: CommitId, items: &[Conflict]) -> Result<()> {
        self.write(true, |rows| {
            let row = rows.txn(txn)?;
            match row.phase {
                DurablePhase::Applying | DurablePhase::ApplyBlocked { .. } => {}
                DurablePhase::Undoing => return Ok(()),
                _ => return Err(WRONG.error("not applying")),
            }
            row.phase = DurablePhase::ApplyBlocked {
                items: items.to_vec(),
            };
            let branch = row.plan.branch;
            rows.transition(branch, &BranchEvent::ApplyBlocked)
        })
    }

    pub(crate) fn begin_undo(&mut self, txn: CommitId) -> Result<()> {
        self.write(true, |rows| {
            let active = |t: &TxnRow, w| t.plan.world == w && t.is_active() && t.plan.txn != txn;
            let row = rows.txn(txn)?.clone();
            let world = row.plan.world;
            match row.phase {
                DurablePhase::Undoing => return Ok(()),
                DurablePhase::Applying | DurablePhase::ApplyBlocked { .. } => {}
                DurablePhase::Applied if rows.txns.values().any(|t| active(t, world)) => {
                    return Err(WRONG.error("another is under way"));
                }
                DurablePhase::Applied if rows.heads[&world] != row.plan.target() => {
                    return Err(WRONG.error("overtaken"));
                }
                DurablePhase::Applied => {}
                _ => return Err(WRONG.error("nothing to undo")),
            }
            let row = rows.txn(txn)?;
            row.phase = DurablePhase::Undoing;
            row.ended = false;
            Ok(())
        })
    }

    pub(crate) fn mark_undone(&mut self, txn: CommitId) -> Result<()> {
        self.write(true, |rows| {
            let row = rows.txn(txn)?;
            match row.phase {
                DurablePhase::Undone => return Ok(()),
                DurablePhase::Undoing => row.phase = DurablePhase::Undone,
                _ => return Err(WRONG.error("not being taken back")),
            }
            let plan = row.plan.clone();
            rows.heads
                .insert(plan.world, Generation(plan.target().0 + 1));
            if rows.branch(plan.branch)?.ctx.state.is_applying() {
                rows.transition(plan.branch, &BranchEvent::DrivenBack)?;
            }
            let ids: Vec<BranchId> = rows.branches.keys().copied().collect();
            for id in ids {
                let b = rows.branch(id)?;
                if b.world == plan.world && b.ctx.state.is_live() {
                    rows.transition(id, &BranchEvent::IndependentCommitted)?;
                }
            }
            Ok(())
        })
    }

    pub(crate) fn end(&mut self, txn: CommitId) -> Result<()> {
        self.write(false, |rows| {
            let Some(row) = rows.txns.get_mut(&txn) else {
                return Ok(());
            };
            if row.is_active() {
                return Err(WRONG.error("not over"));
            }
            row.ended = true;
            Ok(())
        })
    }
}

fn contender(plan: &CommitPlan) -> Contender {
    plan.group
        .map_or(Contender::Branch(plan.branch), Contender::Group)
}

impl Rows {
    pub(crate) fn branch(&self, id: BranchId) -> Result<&BranchRow> {
        self.branches
            .get(&id)
            .ok_or_else(|| WRONG.error(format!("no branch {id}")))
    }

    fn txn(&mut self, id: CommitId) -> Result<&mut TxnRow> {
        self.txns
            .get_mut(&id)
            .ok_or_else(|| WRONG.error(format!("no transaction {id}")))
    }

    fn transition(&mut self, id: BranchId, event: &BranchEvent) -> Result<()> {
        let head = self.heads[&self.branch(id)?.world];
        let row = self
            .branches
            .get_mut(&id)
            .ok_or_else(|| WRONG.error("no branch"))?;
        let next = step(&row.ctx, event)?;
        row.ctx.state = next.state;
        row.ctx.stale = next.stale;
        row.ctx.epoch = next.epoch;
        if *event == BranchEvent::Rebased {
            row.generation = head;
        }
        Ok(())
    }

    /// Whether another decision stands against the plan.
    fn beaten(&self, plan: &CommitPlan) -> Option<Lost> {
        let rival = self.decisions.iter().find(|(world, from, who, _)| {
            (*world, *from) == (plan.world, plan.parent_generation) && *who == contender(plan)
        });
        if let Some((_, _, _, txn)) = rival {
            let winner = self.txns.get(txn).map(|t| t.plan.branch);
            return Some(Lost::Sibling { winner });
        }
        let head = self.heads[&plan.world];
        if head != plan.parent_generation {
            return Some(Lost::HeadMoved { head });
        }
        match self.branches.get(&plan.branch).map(|b| b.ctx.state) {
            Some(BranchState::Invalidated) => Some(Lost::Sibling { winner: None }),
            Some(state) if state.is_live() => None,
            _ => Some(Lost::Fenced),
        }
    }

    /// The transaction that published a generation.
    pub(crate) fn published_by(&self, world: WorldId, generation: Generation) -> Option<CommitId> {
        let by = |t: &&TxnRow| {
            t.plan.world == world && t.plan.target() == generation && t.phase.is_decided()
        };
        self.txns.values().find(by).map(|t| t.plan.txn)
    }
}
