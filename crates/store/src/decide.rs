//! The deciding transaction: the only commit point of a world (laws 7 and 8).

use crate::{
    CommitState, Durability, Race, Store, codes,
    commits::{contender, wrong_state},
    row::{key, list_json, signed, sql},
};
use forkpoint_model::commit::Lost;
use forkpoint_model::state::{BranchEvent, BranchState};
use forkpoint_model::{BranchId, CommitId, Generation, ParticipantId, Result, Vote};
use rusqlite::params;

/// What is to be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The transaction, which must hold the world's reservation.
    pub txn: CommitId,
    /// What each participant of the reservation voted.
    pub votes: Vec<(ParticipantId, Vote)>,
    /// The redo journals of in-place participants.
    pub journals: Vec<(ParticipantId, Vec<u8>)>,
    /// The engine's summary, as JSON.
    pub summary: Option<String>,
}

/// A decision that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The new head.
    pub generation: Generation,
    /// The siblings that this decision invalidated: to be killed and rolled back.
    pub invalidated: Vec<BranchId>,
    /// Whether a participant is to be redone before the world is free again.
    pub in_place: bool,
}

impl Store {
    /// Decides a commit, in one durable transaction: the head moves if it is still the parent
    /// generation; the decision row, the votes and the journals are written; the branch is applying
    /// or committed; its siblings are invalidated. Independent branches of the old generation are
    /// stale by that alone and cost nothing here. Deciding again what was decided answers the same.
    pub fn decide(&self, decision: &Decision, now_ns: i64) -> Result<Race<Decided>> {
        self.write(Durability::Full, |_| {
            let Some(commit) = self.opt_commit(decision.txn)? else {
                return Ok(Race::Lost(Lost::Fenced));
            };
            match commit.state {
                CommitState::Reserved => {}
                CommitState::Aborted => return Ok(Race::Lost(Lost::Fenced)),
                CommitState::Undoing | CommitState::Undone => {
                    return Err(wrong_state(&commit, commit.state, "decided again"));
                }
                CommitState::Applying | CommitState::ApplyBlocked | CommitState::Applied => {
                    return Ok(Race::Won(Decided {
                        generation: commit.to,
                        invalidated: self.invalidated_by(commit.group)?,
                        in_place: commit.votes.iter().any(|(_, v)| v.in_place),
                    }));
                }
            }
            let voted: Vec<_> = decision.votes.iter().map(|(p, _)| p).collect();
            if !commit.participants.iter().eq(voted) {
                return Err(codes::COMMIT_STATE
                    .error(format!("commit {} has not the vote of every participant", commit.id)));
            }
            if let Some(why) = self.beaten(&commit)? {
                return Ok(Race::Lost(why));
            }

            let in_place = decision.votes.iter().any(|(_, v)| v.in_place);
            self.move_head(&commit)?;
            self.cached(
                "INSERT INTO decisions (world, from_generation, contender, txn) VALUES (?, ?, ?, ?)",
            )?
            .execute(params![
                key(commit.world.bits()),
                signed(commit.from.0),
                contender(&commit),
                key(commit.id.bits()),
            ])
            .map_err(sql("writing a decision"))?;
            let state = if in_place { CommitState::Applying } else { CommitState::Applied };
            self.cached(
                "UPDATE commits SET state = ?, votes = ?, decided_ns = ?, \
                 summary = coalesce(?, summary) WHERE id = ?",
            )?
            .execute(params![
                state.as_str(),
                list_json(&decision.votes)?,
                now_ns,
                decision.summary,
                key(commit.id.bits()),
            ])
            .map_err(sql("writing a decision"))?;
            self.put_journals(decision)?;
            self.publish_shared(&commit, now_ns)?;
            self.transition(commit.branch, &BranchEvent::Decided { in_place }, now_ns)?;
            if let Some(group) = commit.group {
                for sibling in self.siblings(group)? {
                    if sibling.id != commit.branch && sibling.state.is_live() {
                        self.transition_with(
                            sibling.id,
                            &BranchEvent::SiblingCommitted,
                            now_ns,
                            |b| b.reason = b.reason.take().or(Some("sibling_committed".into())),
                        )?;
                    }
                }
            }
            Ok(Race::Won(Decided {
                generation: commit.to,
                invalidated: self.invalidated_by(commit.group)?,
                in_place,
            }))
        })
    }

    fn move_head(&self, commit: &crate::CommitRecord) -> Result<()> {
        let moved = self
            .cached("UPDATE worlds SET head = ? WHERE id = ? AND head = ?")?
            .execute(params![
                signed(commit.to.0),
                key(commit.world.bits()),
                signed(commit.from.0)
            ])
            .map_err(sql("moving a head"))?;
        if moved == 1 {
            return Ok(());
        }
        Err(codes::FAILED.error(format!(
            "the head of world {} moved by itself",
            commit.world
        )))
    }

    fn put_journals(&self, decision: &Decision) -> Result<()> {
        let mut insert =
            self.cached("INSERT INTO journals (txn, participant, journal) VALUES (?, ?, ?)")?;
        for (participant, journal) in &decision.journals {
            insert
                .execute(params![key(decision.txn.bits()), participant.0, journal])
                .map_err(sql("writing a redo journal"))?;
        }
        Ok(())
    }

    fn invalidated_by(&self, group: Option<forkpoint_model::GroupId>) -> Result<Vec<BranchId>> {
        let Some(group) = group else {
            return Ok(Vec::new());
        };
        let siblings = self.siblings(group)?;
        Ok(siblings
            .into_iter()
            .filter(|b| b.state == BranchState::Invalidated)
            .map(|b| b.id)
            .collect())
    }
}
