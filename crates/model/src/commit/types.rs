//! What goes in and out of the coordinator.

use crate::{
    BranchId, CommitId, Conflict, Digest, Error, Generation, GroupId, ParticipantId, Vote, WorldId,
};
use serde::{Deserialize, Serialize};

/// What is to be committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitPlan {
    /// The transaction, drawn by the caller.
    pub txn: CommitId,
    /// The world whose head moves.
    pub world: WorldId,
    /// The branch that becomes the head.
    pub branch: BranchId,
    /// The generation the branch is based on; the head must still be there at the decision.
    pub parent_generation: Generation,
    /// The sibling group, if the branch has siblings.
    pub group: Option<GroupId>,
    /// Every participant of the world, without repetition.
    pub participants: Vec<ParticipantId>,
}

impl CommitPlan {
    /// The generation this commit would publish.
    pub fn target(&self) -> Generation {
        Generation(self.parent_generation.0 + 1)
    }
}

/// What the driver must do. Each names the event that answers it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// Seal the branch (idempotent). Answer: [`Event::Sealed`].
    Seal {
        /// The branch.
        branch: BranchId,
    },
    /// Ask a participant for conflicts. Answer: [`Event::Validated`].
    Validate {
        /// The participant.
        participant: ParticipantId,
        /// The branch.
        branch: BranchId,
        /// The generation to publish on top of.
        parent: Generation,
    },
    /// Insert the one active reservation of the world, durably, with the participants. Answer:
    /// [`Event::Reserved`] or [`Event::Beaten`].
    Reserve {
        /// The transaction.
        txn: CommitId,
    },
    /// Ask a participant to stage and vote. Answer: [`Event::Voted`] or [`Event::VotedNo`].
    Stage {
        /// The participant.
        participant: ParticipantId,
        /// The transaction.
        txn: CommitId,
        /// The branch.
        branch: BranchId,
        /// The generation to be published.
        target: Generation,
    },
    /// The deciding transaction: compare-and-swap of the head, decision row, branch states and
    /// votes, durable as one. Refused unless the reservation of `txn` is still active; answered
    /// again if `txn` was decided before. Answer: [`Event::Decided`] or [`Event::Beaten`].
    Decide {
        /// The transaction.
        txn: CommitId,
        /// What each participant staged, in the plan's order.
        votes: Vec<(ParticipantId, Vote)>,
    },
    /// Find out whether `txn` was decided, after a decision whose outcome could not be told.
    /// Answer: [`Event::Inquired`].
    Inquire {
        /// The transaction.
        txn: CommitId,
    },
    /// Redo exactly what was staged under `digest`. Answer: [`Event::Applied`] or
    /// [`Event::Blocked`].
    Apply {
        /// The participant.
        participant: ParticipantId,
        /// The transaction.
        txn: CommitId,
        /// The digest the participant voted with.
        digest: Digest,
    },
    /// Record that every redo is done: the branch is committed and the world is free for the next
    /// reservation. Answer: [`Event::MarkedApplied`].
    MarkApplied {
        /// The transaction.
        txn: CommitId,
    },
    /// Record what blocks the redo. Answer: [`Event::MarkedBlocked`].
    MarkBlocked {
        /// The transaction.
        txn: CommitId,
        /// What blocks it.
        items: Vec<Conflict>,
    },
    /// Send the held effects, at least once, with their idempotency keys. Answer:
    /// [`Event::Released`].
    Release {
        /// The transaction.
        txn: CommitId,
    },
    /// Tell a participant that the transaction is over; it keeps its undo. To be refused while the
    /// transaction is being taken back: it is a late one of before. Answer: [`Event::Ended`].
    End {
        /// The participant.
        participant: ParticipantId,
        /// The transaction.
        txn: CommitId,
    },
    /// Record that nothing is left to do. Answer: [`Event::TxnEnded`].
    EndTxn {
        /// The transaction.
        txn: CommitId,
    },
    /// Record the abort, which frees the reservation and makes a late [`Command::Decide`] fail.
    /// Refused if `txn` was decided ([`Event::Decided`]). Answer: [`Event::Unreserved`].
    Unreserve {
        /// The transaction.
        txn: CommitId,
    },
    /// Make a participant forget what it staged. Answer: [`Event::StagedAborted`].
    AbortStaged {
        /// The participant.
        participant: ParticipantId,
        /// The transaction.
        txn: CommitId,
    },
    /// Record that the redo is to be taken back, before anything is. Answer:
    /// [`Event::MarkedUndoing`].
    MarkUndoing {
        /// The transaction.
        txn: CommitId,
    },
    /// Take back what was applied. Answer: [`Event::Undone`] or [`Event::Blocked`].
    Undo {
        /// The participant.
        participant: ParticipantId,
        /// The transaction.
        txn: CommitId,
        /// The digest the participant voted with.
        digest: Digest,
    },
    /// Record that the base is as it was: the head moves on to a generation equal to the parent,
    /// the branch is sealed and stale. Answer: [`Event::MarkedUndone`].
    MarkUndone {
        /// The transaction.
        txn: CommitId,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The branch is sealed.
    Sealed,
    /// A participant compared.
    Validated {
        /// The participant.
        participant: ParticipantId,
        /// What stands in the way.
        conflicts: Vec<Conflict>,
    },
    /// The reservation is durable.
    Reserved,
    /// Another commit has the world, was decided first, or fenced this branch.
    Beaten {
        /// By what.
        why: Lost,
    },
    /// A participant staged, durably and invisibly.
    Voted {
        /// The participant.
        participant: ParticipantId,
        /// Its vote.
        vote: Vote,
    },
    /// A participant found conflicts while staging.
    VotedNo {
        /// The participant.
        participant: ParticipantId,
        /// The conflicts.
        conflicts: Vec<Conflict>,
    },
    /// The decision is durable.
    Decided,
    /// Whether it was decided.
    Inquired {
        /// The answer.
        decided: bool,
    },
    /// A participant's redo is done and durable.
    Applied {
        /// The participant.
        participant: ParticipantId,
    },
    /// Something blocks a participant's redo or undo.
    Blocked {
        /// The participant.
        participant: ParticipantId,
        /// What.
        items: Vec<Conflict>,
    },
    /// Recorded.
    MarkedApplied,
    /// Recorded.
    MarkedBlocked,
    /// Held effects are out.
    Released,
    /// A participant has ended the transaction.
    Ended {
        /// The participant.
        participant: ParticipantId,
    },
    /// Recorded.
    TxnEnded,
    /// The abort is durable.
    Unreserved,
    /// A participant forgot what it staged.
    StagedAborted {
        /// The participant.
        participant: ParticipantId,
    },
    /// Recorded.
    MarkedUndoing,
    /// A participant took back what was applied.
    Undone {
        /// The participant.
        participant: ParticipantId,
    },
    /// Recorded.
    MarkedUndone,
    /// A command could not be carried out: disk full, an I/O error, a crash of its executor.
    Failed {
        /// The command.
        command: Command,
        /// Why.
        error: Error,
    },
    /// Answers are overdue: send again what is unanswered.
    Timeout,
    /// `resolve`: try a blocked redo (or a blocked undo) again.
    ResolveForward,
    /// `resolve --back`: take a blocked redo back.
    ResolveBack,
}

/// Why a commit lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// Another transaction of the world is under way.
    Reserved {
        /// Which.
        by: CommitId,
    },
    /// The head is no longer the branch's parent generation.
    HeadMoved {
        /// Where it is.
        head: Generation,
    },
    /// A sibling was decided.
    Sibling {
        /// Which branch.
        winner: Option<BranchId>,
    },
    /// The branch was aborted, or its transaction was, by someone else.
    Fenced,
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Published at this generation, and applied where that was needed.
    Committed {
        /// The new head.
        generation: Generation,
    },
    /// Refused for conflicts, before the decision; the branch is sealed.
    Refused {
        /// The list, of all participants.
        conflicts: Vec<Conflict>,
    },
    /// Another commit came first.
    Lost {
        /// Which way.
        why: Lost,
    },
    /// Failed before the decision; the old generation stands.
    Aborted {
        /// Why.
        why: Error,
    },
    /// Decided, and the redo is blocked. `ResolveForward` or `ResolveBack` goes on.
    ApplyBlocked {
        /// By what.
        items: Vec<Conflict>,
    },
    /// Decided, blocked, and taken back by `ResolveBack`.
    DrivenBack,
}

/// What the store knows of a transaction after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableTxn {
    /// The plan, as reserved.
    pub plan: CommitPlan,
    /// How far it got.
    pub phase: DurablePhase,
    /// The votes, recorded by the decision; empty before it.
    pub votes: Vec<(ParticipantId, Vote)>,
}

/// How far a transaction durably got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurablePhase {
    /// Reserved, not decided: presumed aborted.
    Reserved,
    /// Aborted; staged sets may be left.
    Aborted,
    /// Decided; redo is to be driven again.
    Applying,
    /// Decided; the redo is blocked by these.
    ApplyBlocked {
        /// What blocks it.
        items: Vec<Conflict>,
    },
    /// Published; effects are to be released and participants ended.
    Applied,
    /// Being taken back.
    Undoing,
    /// Taken back; participants are to be ended.
    Undone,
}

impl DurablePhase {
    /// Whether the decision stands (it may be on its way back).
    pub fn is_decided(&self) -> bool {
        !matches!(self, Self::Reserved | Self::Aborted)
    }
}

/// What recovery tells a participant that holds something of a transaction and knows no outcome of
/// it. `known` is what the store has of the transaction and whether it has ended there. A
/// transaction that has not ended is left to [`super::Coordinator::recover`]; one that the store does
/// not know is presumed aborted; one that ended is ended again, with the outcome it had, since the
/// participant's forgetting may have been lost with the power.
pub fn settle_in_doubt(
    participant: ParticipantId,
    txn: CommitId,
    known: Option<(&DurablePhase, bool)>,
) -> Option<Command> {
    match known {
        Some((_, false)) => None,
        Some((phase, true)) if phase.is_decided() => Some(Command::End { participant, txn }),
        _ => Some(Command::AbortStaged { participant, txn }),
    }
}
