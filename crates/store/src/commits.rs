//! Commit rows: the reservation, and what follows the decision. The decision itself is in
//! [`crate::decide`].

use crate::{
    CommitRecord, CommitState, Durability, Store, codes,
    row::{Reader, key, list_json, rows, signed, sql},
};
use forkpoint_model::commit::{CommitPlan, DurablePhase, DurableTxn, Lost};
use forkpoint_model::state::{BranchEvent, BranchState};
use forkpoint_model::{
    BranchId, CommitId, Conflict, Generation, GroupId, ParticipantId, Result, WorldId,
};
use rusqlite::params;

pub(crate) const COMMIT: &str = "SELECT id, world, branch, from_generation, to_generation, \
    group_id, participants, state, votes, blocked, verified, summary, created_ns, decided_ns, \
    ended_ns FROM commits";

/// The result of a step that another commit may have beaten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Race<T> {
    /// It is done, durably.
    Won(T),
    /// Another commit came first; nothing was changed.
    Lost(Lost),
}

impl CommitRecord {
    /// A reservation to be made for `plan`.
    pub fn reservation(plan: &CommitPlan, now_ns: i64) -> Self {
        Self {
            id: plan.txn,
            world: plan.world,
            branch: plan.branch,
            from: plan.parent_generation,
            to: plan.target(),
            group: plan.group,
            participants: plan.participants.clone(),
            state: CommitState::Reserved,
            votes: Vec::new(),
            blocked: Vec::new(),
            verified: false,
            summary: None,
            created_ns: now_ns,
            decided_ns: None,
            ended_ns: None,
        }
    }

    /// What [`forkpoint_model::commit::Coordinator::recover`] needs to know of it.
    pub fn durable(&self) -> DurableTxn {
        DurableTxn {
            plan: CommitPlan {
                txn: self.id,
                world: self.world,
                branch: self.branch,
                parent_generation: self.from,
                group: self.group,
                participants: self.participants.clone(),
            },
            phase: match self.state {
                CommitState::Reserved => DurablePhase::Reserved,
                CommitState::Aborted => DurablePhase::Aborted,
                CommitState::Applying => DurablePhase::Applying,
                CommitState::ApplyBlocked => DurablePhase::ApplyBlocked {
                    items: self.blocked.clone(),
                },
                CommitState::Applied => DurablePhase::Applied,
                CommitState::Undoing => DurablePhase::Undoing,
                CommitState::Undone => DurablePhase::Undone,
            },
            votes: self.votes.clone(),
        }
    }
}

impl Store {
    /// Makes the one active reservation of the world, and lets the branch's stage begin. Whether the
    /// branch had passed its verifier is recorded here. Doing it again for the same transaction
    /// changes nothing.
    ///
    /// # Errors
    /// Those of the state machine for a branch that cannot be committed: `force` permits one that
    /// failed its verifier.
    pub fn reserve(&self, commit: &CommitRecord, force: bool, now_ns: i64) -> Result<Race<()>> {
        // Durable unless the caller's batch says otherwise, since what a participant stages is found
        // through this row: or by a sweep that finds no row.
        self.write(self.durability(Durability::Full), |_| {
            match self.opt_commit(commit.id)?.map(|c| c.state) {
                Some(CommitState::Reserved) => return Ok(Race::Won(())),
                Some(_) => return Ok(Race::Lost(Lost::Fenced)),
                None => {}
            }
            if let Some(why) = self.beaten(commit)? {
                return Ok(Race::Lost(why));
            }
            if let Some(by) = self.active_commit(commit.world)? {
                return Ok(Race::Lost(Lost::Reserved { by }));
            }
            let branch = self.branch(commit.branch)?;
            let verified = branch.state == (BranchState::Verified { passed: true });
            self.transition(branch.id, &BranchEvent::StageBegan { force }, now_ns)?;
            self.insert_commit(&CommitRecord {
                verified,
                ..commit.clone()
            })?;
            Ok(Race::Won(()))
        })
    }

    /// Whether another decision already stands against `commit`.
    pub(crate) fn beaten(&self, commit: &CommitRecord) -> Result<Option<Lost>> {
        let winners = rows(
            &mut *self.cached(
                "SELECT c.branch FROM decisions d JOIN commits c ON c.id = d.txn \
                 WHERE d.world = ? AND d.from_generation = ? AND d.contender = ?",
            )?,
            params![
                key(commit.world.bits()),
                signed(commit.from.0),
                contender(commit)
            ],
            |r| r.id(BranchId::from_bits),
        )?;
        if let Some(&winner) = winners.first() {
            return Ok(Some(Lost::Sibling {
                winner: Some(winner),
            }));
        }
        let head = self.world(commit.world)?.head;
        if head != commit.from {
            return Ok(Some(Lost::HeadMoved { head }));
        }
        Ok(match self.branch(commit.branch)?.state {
            BranchState::Invalidated => Some(Lost::Sibling { winner: None }),
            state if state.is_live() => None,
            _ => Some(Lost::Fenced),
        })
    }

    /// The transaction that holds a world's reservation.
    pub fn active_commit(&self, world: WorldId) -> Result<Option<CommitId>> {
        let text = "SELECT id FROM commits WHERE world = ? \
                    AND state IN ('reserved', 'applying', 'apply_blocked', 'undoing')";
        let found = rows(&mut *self.cached(text)?, [key(world.bits())], |r| {
            r.id(CommitId::from_bits)
        })?;
        Ok(found.first().copied())
    }

    /// What a fork of a world's head has to know, in one look: the head, and the transaction that
    /// holds the world's reservation, with its state. FP0108 if there is no such world.
    pub fn fork_point(
        &self,
        world: WorldId,
    ) -> Result<(Generation, Option<(CommitId, CommitState)>)> {
        let text = "SELECT w.head, c.id, c.state FROM worlds w LEFT JOIN commits c \
                    ON c.world = w.id \
                    AND c.state IN ('reserved', 'applying', 'apply_blocked', 'undoing') \
                    WHERE w.id = ?";
        rows(&mut *self.cached(text)?, [key(world.bits())], |r| {
            let head = Generation(r.unsigned()?);
            let active = r.opt_id(CommitId::from_bits)?;
            let state = match active {
                Some(_) => Some(r.text(CommitState::parse)?),
                None => None,
            };
            Ok((head, active.zip(state)))
        })?
        .pop()
        .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no world {world}")))
    }

    /// Records that a transaction is aborted, which frees the reservation, makes a late decision
    /// fail and returns the branch to `sealed`. False if it was decided, which stands. One that
    /// was never reserved counts as aborted.
    pub fn abort_commit(&self, txn: CommitId, now_ns: i64) -> Result<bool> {
        self.write(Durability::Normal, |_| {
            let Some(commit) = self.opt_commit(txn)? else {
                return Ok(true);
            };
            match commit.state {
                CommitState::Reserved => {}
                CommitState::Aborted => return Ok(true),
                _ => return Ok(false),
            }
            self.set_commit_state(txn, CommitState::Aborted, &[])?;
            if self.branch(commit.branch)?.state == BranchState::Staged {
                self.transition(commit.branch, &BranchEvent::StageAborted, now_ns)?;
            }
            Ok(true)
        })
    }

    /// Records that every redo is done: the branch is committed, the world free again.
    pub fn mark_applied(&self, txn: CommitId, now_ns: i64) -> Result<()> {
        self.write(Durability::Full, |_| {
            let commit = self.commit(txn)?;
            match commit.state {
                CommitState::Applied => return Ok(()),
                CommitState::Applying | CommitState::ApplyBlocked => {}
                state => return Err(wrong_state(&commit, state, "marked as applied")),
            }
            self.set_commit_state(txn, CommitState::Applied, &[])?;
            self.transition(commit.branch, &BranchEvent::Applied, now_ns)?;
            Ok(())
        })
    }

    /// Records what blocks a redo, or the taking back of one.
    pub fn mark_blocked(&self, txn: CommitId, items: &[Conflict], now_ns: i64) -> Result<()> {
        self.write(Durability::Full, |_| {
            let commit = self.commit(txn)?;
            match commit.state {
                CommitState::Applying | CommitState::ApplyBlocked => {
                    self.set_commit_state(txn, CommitState::ApplyBlocked, items)?;
                    self.transition(commit.branch, &BranchEvent::ApplyBlocked, now_ns)?;
                    Ok(())
                }
                CommitState::Undoing => self.set_commit_state(txn, CommitState::Undoing, items),
                state => Err(wrong_state(&commit, state, "marked as blocked")),
            }
        })
    }

    /// Records that nothing is left to do for a transaction. Its journals are kept for `undo`.
    pub fn end_commit(&self, txn: CommitId, now_ns: i64) -> Result<()> {
        // May be lost: recovery would end it again.
        self.write(Durability::Normal, |_| {
            let Some(commit) = self.opt_commit(txn)? else {
                return Ok(());
            };
            match commit.state {
                CommitState::Applied | CommitState::Aborted | CommitState::Undone => {}
                state => return Err(wrong_state(&commit, state, "ended")),
            }
            self.cached("UPDATE commits SET ended_ns = coalesce(ended_ns, ?) WHERE id = ?")?
                .execute(params![now_ns, key(txn.bits())])
                .map_err(sql("ending a commit"))?;
            Ok(())
        })
    }

    /// Records that a commit is to be taken back, before anything is: one whose redo is under way
    /// or blocked (`resolve --back`), or one that was published and not overtaken (`undo`). Holds the
    /// world's reservation until [`Store::mark_undone`].
    pub fn begin_undo(&self, txn: CommitId) -> Result<CommitRecord> {
        self.write(Durability::Full, |_| {
            let commit = self.commit(txn)?;
            match commit.state {
                CommitState::Undoing => return Ok(commit),
                CommitState::Applying | CommitState::ApplyBlocked => {}
                CommitState::Applied => self.check_undoable(&commit)?,
                state => return Err(wrong_state(&commit, state, "undone")),
            }
            self.check_keys_undoable(&commit)?;
            self.set_commit_state(txn, CommitState::Undoing, &[])?;
            self.cached("UPDATE commits SET ended_ns = NULL WHERE id = ?")?
                .execute([key(txn.bits())])
                .map_err(sql("undoing a commit"))?;
            self.commit(txn)
        })
    }

    fn check_undoable(&self, commit: &CommitRecord) -> Result<()> {
        if let Some(by) = self.active_commit(commit.world)? {
            return Err(codes::COMMIT_STATE
                .error(format!("commit {by} of the same world is under way"))
                .hint("wait for it; if it is blocked, forkpoint history says by what"));
        }
        let later = self.commits(commit.world)?.into_iter().find(|c| {
            c.to > commit.to && !matches!(c.state, CommitState::Undone | CommitState::Aborted)
        });
        match later {
            None => Ok(()),
            Some(later) => Err(codes::COMMIT_STATE
                .error(format!(
                    "commit {} was overtaken by {}",
                    commit.id, later.id
                ))
                .hint(format!("forkpoint undo {} first", later.id))),
        }
    }

    /// Records that a commit is taken back: the head moves on to a generation that equals the
    /// parent; a branch whose redo had not finished is sealed again, and stale.
    pub fn mark_undone(&self, txn: CommitId, now_ns: i64) -> Result<Generation> {
        self.write(Durability::Full, |_| {
            let commit = self.commit(txn)?;
            match commit.state {
                CommitState::Undone => return Ok(self.world(commit.world)?.head),
                CommitState::Undoing => {}
                state => return Err(wrong_state(&commit, state, "marked as undone")),
            }
            self.set_commit_state(txn, CommitState::Undone, &[])?;
            self.undo_keys(&commit)?;
            self.cached("UPDATE worlds SET head = head + 1 WHERE id = ?")?
                .execute([key(commit.world.bits())])
                .map_err(sql("moving a head"))?;
            // The branch may be forgotten by now, if it was committed long ago.
            if self
                .opt_branch(commit.branch)?
                .is_some_and(|b| b.state.is_applying())
            {
                self.transition(commit.branch, &BranchEvent::DrivenBack, now_ns)?;
            }
            Ok(self.world(commit.world)?.head)
        })
    }

    /// A commit. FP0108 if there is none.
    pub fn commit(&self, txn: CommitId) -> Result<CommitRecord> {
        self.opt_commit(txn)?
            .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no commit {txn}")))
    }

    pub(crate) fn opt_commit(&self, txn: CommitId) -> Result<Option<CommitRecord>> {
        let text = format!("{COMMIT} WHERE id = ?");
        Ok(rows(&mut *self.cached(&text)?, [key(txn.bits())], read_commit)?.pop())
    }

    /// The commits of a world, newest first, with those that were aborted or undone.
    pub fn commits(&self, world: WorldId) -> Result<Vec<CommitRecord>> {
        let text = format!("{COMMIT} WHERE world = ? ORDER BY to_generation DESC, created_ns DESC");
        rows(&mut *self.cached(&text)?, [key(world.bits())], read_commit)
    }

    /// The commits that have not ended: what recovery drives on.
    pub fn in_doubt(&self) -> Result<Vec<CommitRecord>> {
        let text = format!("{COMMIT} WHERE ended_ns IS NULL ORDER BY created_ns");
        rows(&mut *self.cached(&text)?, [], read_commit)
    }

    /// The journal a participant staged, as recorded by the decision.
    pub fn journal(&self, txn: CommitId, participant: &ParticipantId) -> Result<Option<Vec<u8>>> {
        let text = "SELECT journal FROM journals WHERE txn = ? AND participant = ?";
        Ok(rows(
            &mut *self.cached(text)?,
            params![key(txn.bits()), participant.0],
            |r| r.get(),
        )?
        .pop())
    }

    /// Forgets the journals of an ended commit, which cannot be undone from then on.
    pub fn drop_undo(&self, txn: CommitId) -> Result<()> {
        self.write(Durability::Normal, |_| {
            let commit = self.commit(txn)?;
            if commit.ended_ns.is_none() {
                return Err(wrong_state(&commit, commit.state, "made final"));
            }
            self.cached("DELETE FROM journals WHERE txn = ?")?
                .execute([key(txn.bits())])
                .map_err(sql("removing a journal"))?;
            Ok(())
        })
    }

    pub(crate) fn set_commit_state(
        &self,
        txn: CommitId,
        state: CommitState,
        blocked: &[Conflict],
    ) -> Result<()> {
        self.cached("UPDATE commits SET state = ?, blocked = ? WHERE id = ?")?
            .execute(params![
                state.as_str(),
                list_json(blocked)?,
                key(txn.bits())
            ])
            .map_err(sql("changing a commit"))?;
        Ok(())
    }

    fn insert_commit(&self, c: &CommitRecord) -> Result<()> {
        self.cached(
            "INSERT INTO commits (id, world, branch, from_generation, to_generation, group_id, \
             participants, state, verified, summary, created_ns) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            key(c.id.bits()),
            key(c.world.bits()),
            key(c.branch.bits()),
            signed(c.from.0),
            signed(c.to.0),
            c.group.map(|g| key(g.bits())),
            list_json(&c.participants)?,
            c.state.as_str(),
            c.verified,
            c.summary,
            c.created_ns,
        ])
        .map_err(sql("reserving a commit"))?;
        Ok(())
    }
}

/// Who competes for a parent generation: a sibling group as one, else the branch.
pub(crate) fn contender(commit: &CommitRecord) -> String {
    match commit.group {
        Some(group) => group.to_string(),
        None => commit.branch.to_string(),
    }
}

pub(crate) fn wrong_state(
    commit: &CommitRecord,
    state: CommitState,
    wanted: &str,
) -> forkpoint_model::Error {
    codes::COMMIT_STATE.error(format!(
        "commit {} is {state} and cannot be {wanted}",
        commit.id
    ))
}

fn read_commit(r: &mut Reader<'_, '_>) -> Result<CommitRecord> {
    Ok(CommitRecord {
        id: r.id(CommitId::from_bits)?,
        world: r.id(WorldId::from_bits)?,
        branch: r.id(BranchId::from_bits)?,
        from: Generation(r.unsigned()?),
        to: Generation(r.unsigned()?),
        group: r.opt_id(GroupId::from_bits)?,
        participants: r.list()?,
        state: r.text(CommitState::parse)?,
        votes: r.list()?,
        blocked: r.list()?,
        verified: r.get()?,
        summary: r.get()?,
        created_ns: r.get()?,
        decided_ns: r.get()?,
        ended_ns: r.get()?,
    })
}
