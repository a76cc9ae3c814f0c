//! The coordinator: which command follows which event.
//!
//! Every phase has a set of commands that are unanswered, computed from the phase and the
//! participants still pending ([`Coordinator::outstanding`]). Entering a phase issues that set, a
//! time-out issues what is left of it again, and an answer to anything else is late and ignored.

use super::types::*;
use crate::{Conflict, Digest, Error, ParticipantId, Vote, codes};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sealing,
    Validating,
    Reserving,
    Staging,
    Deciding,
    /// The decision's outcome could not be told.
    Inquiring,
    /// Aborting: the abort is being recorded.
    Unreserving,
    AbortingStaged,
    Applying,
    MarkingApplied,
    MarkingBlocked,
    /// Waits for `resolve`.
    Blocked,
    Releasing,
    MarkingUndoing,
    Undoing,
    MarkingUndoBlocked,
    /// Waits for `resolve`; the direction is settled.
    UndoBlocked,
    MarkingUndone,
    Ending,
    Closing,
    Ended,
}

/// Drives one commit. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Coordinator {
    plan: CommitPlan,
    phase: Phase,
    /// Participants that have not answered in this phase.
    pending: BTreeSet<ParticipantId>,
    votes: BTreeMap<ParticipantId, Vote>,
    /// Participants whose redo is known to be done.
    applied: BTreeSet<ParticipantId>,
    conflicts: Vec<Conflict>,
    blocked: Vec<Conflict>,
    /// What the abort under way will be reported as.
    verdict: Option<Outcome>,
    /// Whether this commit was published before, so that a refused undo leaves it so.
    published: bool,
    outcome: Option<Outcome>,
    last_error: Option<Error>,
}

impl Coordinator {
    /// Begins a commit.
    pub fn new(plan: CommitPlan) -> (Self, Vec<Command>) {
        let mut this = Self::at(plan, Vec::new());
        let commands = this.enter(Phase::Sealing);
        (this, commands)
    }

    /// Continues a transaction that a crash interrupted, from what the store knows of it. Without a
    /// decision it is aborted; with one, exactly what was voted for is driven on.
    pub fn recover(durable: DurableTxn) -> (Self, Vec<Command>) {
        let generation = durable.plan.target();
        let mut this = Self::at(durable.plan, durable.votes);
        let commands = match durable.phase {
            DurablePhase::Reserved => this.abort(Outcome::Aborted { why: interrupted() }),
            DurablePhase::Aborted => {
                this.outcome = Some(Outcome::Aborted { why: interrupted() });
                this.enter(Phase::AbortingStaged)
            }
            DurablePhase::Applying => this.enter(Phase::Applying),
            DurablePhase::ApplyBlocked { items } => {
                this.outcome = Some(Outcome::ApplyBlocked {
                    items: items.clone(),
                });
                this.blocked = items;
                this.enter(Phase::Blocked)
            }
            DurablePhase::Applied => {
                this.outcome = Some(Outcome::Committed { generation });
                this.enter(Phase::Releasing)
            }
            DurablePhase::Undoing => this.enter(Phase::Undoing),
            DurablePhase::Undone => {
                this.outcome = Some(Outcome::DrivenBack);
                this.enter(Phase::Ending)
            }
        };
        (this, commands)
    }

    /// Takes back a commit that was published (`forkpoint undo`) or is blocked (`resolve --back`).
    /// The store refuses one that was overtaken, by failing [`Command::MarkUndoing`].
    pub fn undo(durable: DurableTxn) -> (Self, Vec<Command>) {
        let mut this = Self::at(durable.plan, durable.votes);
        this.published = durable.phase == DurablePhase::Applied;
        let commands = this.enter(Phase::MarkingUndoing);
        (this, commands)
    }

    fn at(plan: CommitPlan, votes: Vec<(ParticipantId, Vote)>) -> Self {
        Self {
            plan,
            phase: Phase::Sealing,
            pending: BTreeSet::new(),
            votes: votes.into_iter().collect(),
            applied: BTreeSet::new(),
            conflicts: Vec::new(),
            blocked: Vec::new(),
            verdict: None,
            published: false,
            outcome: None,
            last_error: None,
        }
    }

    /// What is being committed.
    pub fn plan(&self) -> &CommitPlan {
        &self.plan
    }

    /// The outcome, as soon as it is certain. Ending may still be under way: see
    /// [`Coordinator::is_ended`].
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Whether nothing is left to do. A commit that has an outcome and has not ended is ended by
    /// time-outs or by recovery.
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// The last failure that did not decide the outcome: why a commit without an outcome is stuck,
    /// or why one with an outcome has not ended.
    pub fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    /// The commands that are unanswered, in order.
    pub fn outstanding(&self) -> Vec<Command> {
        let txn = self.plan.txn;
        let branch = self.plan.branch;
        let one = |command| vec![command];
        match self.phase {
            Phase::Sealing => one(Command::Seal { branch }),
            Phase::Validating => self.each_pending(|participant| Command::Validate {
                participant,
                branch,
                parent: self.plan.parent_generation,
            }),
            Phase::Reserving => one(Command::Reserve { txn }),
            Phase::Staging => self.each_pending(|participant| Command::Stage {
                participant,
                txn,
                branch,
                target: self.plan.target(),
            }),
            Phase::Deciding => one(Command::Decide {
                txn,
                votes: self.votes_in_order(),
            }),
            Phase::Inquiring => one(Command::Inquire { txn }),
            Phase::Unreserving => one(Command::Unreserve { txn }),
            Phase::AbortingStaged => {
                self.each_pending(|participant| Command::AbortStaged { participant, txn })
            }
            Phase::Applying => self.each_pending(|participant| Command::Apply {
                digest: self.digest(&participant),
                participant,
                txn,
            }),
            Phase::MarkingApplied => one(Command::MarkApplied { txn }),
            Phase::MarkingBlocked | Phase::MarkingUndoBlocked => one(Command::MarkBlocked {
                txn,
                items: self.blocked.clone(),
            }),
            Phase::Releasing => one(Command::Release { txn }),
            Phase::MarkingUndoing => one(Command::MarkUndoing { txn }),
            Phase::Undoing => self.each_pending(|participant| Command::Undo {
                digest: self.digest(&participant),
                participant,
                txn,
            }),
            Phase::MarkingUndone => one(Command::MarkUndone { txn }),
            Phase::Ending => self.each_pending(|participant| Command::End { participant, txn }),
            Phase::Closing => one(Command::EndTxn { txn }),
            Phase::Blocked | Phase::UndoBlocked | Phase::Ended => Vec::new(),
        }
    }

    /// Takes in what happened; returns what to do next, in this order.
    pub fn handle(&mut self, event: Event) -> Vec<Command> {
        match event {
            Event::Timeout => self.outstanding(),
            Event::Failed { command, error } => {
                if self.outstanding().contains(&command) {
                    self.failed(command, error)
                } else {
                    Vec::new()
                }
            }
            event => self.answered(event),
        }
    }

    fn answered(&mut self, event: Event) -> Vec<Command> {
        use Phase as P;
        let generation = self.plan.target();
        match (self.phase, event) {
            (P::Sealing, Event::Sealed) => self.enter(P::Validating),
            (
                P::Validating,
                Event::Validated {
                    participant,
                    conflicts,
                },
            ) => self.validated(participant, conflicts),
            (P::Reserving, Event::Reserved) => self.enter(P::Staging),
            // Nothing of this transaction is recorded: there is nothing to take back.
            (P::Reserving, Event::Beaten { why }) => self.end_with(Outcome::Lost { why }),
            (P::Staging, Event::Voted { participant, vote }) => self.voted(participant, vote),
            (
                P::Staging,
                Event::VotedNo {
                    participant,
                    conflicts,
                },
            ) if self.pending.contains(&participant) => self.abort(Outcome::Refused { conflicts }),
            (P::Deciding, Event::Beaten { why }) => self.abort(Outcome::Lost { why }),
            (P::Deciding | P::Unreserving, Event::Decided)
            | (P::Inquiring, Event::Inquired { decided: true }) => self.decided(),
            (P::Inquiring, Event::Inquired { decided: false }) => {
                let why = self.last_error.clone().unwrap_or_else(interrupted);
                self.abort(Outcome::Aborted { why })
            }
            (P::Unreserving, Event::Unreserved) => {
                self.outcome = self.verdict.take().or(self.outcome.take());
                self.enter(P::AbortingStaged)
            }
            (P::AbortingStaged, Event::StagedAborted { participant }) => {
                self.one_less(&participant, P::Closing)
            }
            (P::Applying, Event::Applied { participant }) => {
                if self.pending.remove(&participant) {
                    self.applied.insert(participant);
                }
                self.after_redo()
            }
            (P::Applying | P::Undoing, Event::Blocked { participant, items }) => {
                if self.pending.remove(&participant) {
                    self.blocked.extend(items);
                }
                self.after_redo()
            }
            (P::MarkingApplied, Event::MarkedApplied) => {
                self.outcome = Some(Outcome::Committed { generation });
                self.enter(P::Releasing)
            }
            (P::MarkingBlocked, Event::MarkedBlocked) => self.enter(P::Blocked),
            (P::MarkingUndoBlocked, Event::MarkedBlocked) => self.enter(P::UndoBlocked),
            (P::Blocked, Event::ResolveForward) => self.redo(P::Applying),
            (P::Blocked, Event::ResolveBack) => self.enter(P::MarkingUndoing),
            (P::UndoBlocked, Event::ResolveForward | Event::ResolveBack) => self.redo(P::Undoing),
            (P::Releasing, Event::Released) => self.enter(P::Ending),
            (P::MarkingUndoing, Event::MarkedUndoing) => self.redo(P::Undoing),
            (P::Undoing, Event::Undone { participant }) => {
                self.pending.remove(&participant);
                self.after_redo()
            }
            (P::MarkingUndone, Event::MarkedUndone) => {
                self.outcome = Some(Outcome::DrivenBack);
                self.enter(P::Ending)
            }
            (P::Ending, Event::Ended { participant }) => self.one_less(&participant, P::Closing),
            (P::Closing, Event::TxnEnded) => self.enter(P::Ended),
            // Late or repeated.
            _ => Vec::new(),
        }
    }

    /// A command of this phase could not be carried out.
    fn failed(&mut self, command: Command, error: Error) -> Vec<Command> {
        match (self.phase, command) {
            (Phase::Sealing | Phase::Validating, _) => {
                self.end_with(Outcome::Aborted { why: error })
            }
            // Whether the row was written is unknown, so it is taken back as if it had been.
            (Phase::Reserving | Phase::Staging, _) => self.abort(Outcome::Aborted { why: error }),
            (Phase::Deciding, _) => {
                self.last_error = Some(error);
                self.enter(Phase::Inquiring)
            }
            (
                Phase::Applying | Phase::Undoing,
                Command::Apply { participant, .. } | Command::Undo { participant, .. },
            ) => {
                self.pending.remove(&participant);
                self.blocked.push(Conflict {
                    participant,
                    item: error.code.clone(),
                    why: error.message.clone(),
                });
                self.last_error = Some(error);
                self.after_redo()
            }
            (Phase::MarkingUndoing, _) => {
                self.last_error = Some(error.clone());
                if self.published || self.blocked.is_empty() {
                    // `undo` was refused or could not begin: the commit stands as it was.
                    return self.end_with(Outcome::Aborted { why: error });
                }
                self.enter(Phase::Blocked)
            }
            // The outcome does not hang on it: sent again at the next time-out, or by recovery.
            _ => {
                self.last_error = Some(error);
                Vec::new()
            }
        }
    }

    fn validated(&mut self, participant: ParticipantId, conflicts: Vec<Conflict>) -> Vec<Command> {
        if self.pending.remove(&participant) {
            self.conflicts.extend(conflicts);
        }
        if !self.pending.is_empty() {
            return Vec::new();
        }
        if self.conflicts.is_empty() {
            return self.enter(Phase::Reserving);
        }
        let conflicts = std::mem::take(&mut self.conflicts);
        self.end_with(Outcome::Refused { conflicts })
    }

    fn voted(&mut self, participant: ParticipantId, vote: Vote) -> Vec<Command> {
        if let Some(first) = self.votes.get(&participant) {
            if *first != vote {
                // What is staged is no longer what was voted for: nothing pins it.
                let why = codes::IMPOSSIBLE.error(format!(
                    "{participant} voted twice, for two different change sets"
                ));
                return self.abort(Outcome::Aborted { why });
            }
            return Vec::new();
        }
        if !self.pending.remove(&participant) {
            return Vec::new();
        }
        self.votes.insert(participant, vote);
        if self.pending.is_empty() {
            self.enter(Phase::Deciding)
        } else {
            Vec::new()
        }
    }

    fn decided(&mut self) -> Vec<Command> {
        self.verdict = None;
        self.outcome = None;
        if self.votes.len() < self.plan.participants.len() {
            // A recovery that began before the decision: what was voted is in the store only.
            self.last_error = Some(interrupted().hint("run recovery again"));
            return Vec::new();
        }
        if self.votes.values().any(|vote| vote.in_place) {
            return self.enter(Phase::Applying);
        }
        self.outcome = Some(Outcome::Committed {
            generation: self.plan.target(),
        });
        self.enter(Phase::Releasing)
    }

    /// Begins a redo or an undo afresh.
    fn redo(&mut self, phase: Phase) -> Vec<Command> {
        self.blocked.clear();
        self.outcome = None;
        self.enter(phase)
    }

    /// Goes on once every participant has answered a redo or an undo.
    fn after_redo(&mut self) -> Vec<Command> {
        if !self.pending.is_empty() {
            return Vec::new();
        }
        let undoing = self.phase == Phase::Undoing;
        if self.blocked.is_empty() {
            return self.enter(if undoing {
                Phase::MarkingUndone
            } else {
                Phase::MarkingApplied
            });
        }
        // Certain even if it cannot be recorded: the durable state is then still "applying".
        self.outcome = Some(Outcome::ApplyBlocked {
            items: self.blocked.clone(),
        });
        self.enter(if undoing {
            Phase::MarkingUndoBlocked
        } else {
            Phase::MarkingBlocked
        })
    }

    fn one_less(&mut self, participant: &ParticipantId, next: Phase) -> Vec<Command> {
        self.pending.remove(participant);
        if self.pending.is_empty() {
            self.enter(next)
        } else {
            Vec::new()
        }
    }

    /// Aborts before the decision. The outcome is certain once the abort is recorded; it is certain
    /// at once where no decision was asked for.
    fn abort(&mut self, verdict: Outcome) -> Vec<Command> {
        if matches!(
            self.phase,
            Phase::Sealing | Phase::Reserving | Phase::Staging
        ) {
            self.outcome = Some(verdict);
        } else {
            self.verdict = Some(verdict);
        }
        self.enter(Phase::Unreserving)
    }

    fn end_with(&mut self, outcome: Outcome) -> Vec<Command> {
        self.outcome = Some(outcome);
        self.enter(Phase::Ended)
    }

    /// Enters a phase; one in which nobody has anything to do is passed through.
    fn enter(&mut self, phase: Phase) -> Vec<Command> {
        self.phase = phase;
        self.pending = match phase {
            Phase::Validating
            | Phase::Staging
            | Phase::AbortingStaged
            | Phase::Undoing
            | Phase::Ending => self.plan.participants.iter().cloned().collect(),
            Phase::Applying => (self.votes.iter())
                .filter(|(p, vote)| vote.in_place && !self.applied.contains(*p))
                .map(|(p, _)| p.clone())
                .collect(),
            _ => return self.outstanding(),
        };
        if !self.pending.is_empty() {
            return self.outstanding();
        }
        match phase {
            Phase::Validating => self.enter(Phase::Reserving),
            Phase::Staging => self.enter(Phase::Deciding),
            Phase::Applying | Phase::Undoing => self.after_redo(),
            _ => self.enter(Phase::Closing),
        }
    }

    fn each_pending(&self, command: impl Fn(ParticipantId) -> Command) -> Vec<Command> {
        let in_order = self
            .plan
            .participants
            .iter()
            .filter(|p| self.pending.contains(*p));
        in_order.cloned().map(command).collect()
    }

    fn votes_in_order(&self) -> Vec<(ParticipantId, Vote)> {
        let vote = |p: &ParticipantId| Some((p.clone(), self.votes.get(p)?.clone()));
        self.plan.participants.iter().filter_map(vote).collect()
    }

    /// What a participant voted for. Only asked for after the decision, which has every vote; a
    /// digest of nothing, which no participant honours, stands for a vote that is missing.
    fn digest(&self, participant: &ParticipantId) -> Digest {
        self.votes
            .get(participant)
            .map_or(Digest([0; 32]), |vote| vote.digest)
    }
}

fn interrupted() -> Error {
    codes::INTERRUPTED
        .error("the commit was interrupted before its decision; the old generation stands")
        .hint("commit the branch again")
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
