//! The coordinator.

use super::types::*;

/// Drives one commit. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Coordinator {
    plan: CommitPlan,
    outcome: Option<Outcome>,
    ended: bool,
}

impl Coordinator {
    /// Begins a commit.
    pub fn new(plan: CommitPlan) -> (Self, Vec<Command>) {
        let first = vec![Command::Seal {
            branch: plan.branch,
        }];
        (
            Self {
                plan,
                outcome: None,
                ended: false,
            },
            first,
        )
    }

    /// Continues a transaction that a crash interrupted.
    pub fn recover(durable: DurableTxn) -> (Self, Vec<Command>) {
        (
            Self {
                plan: durable.plan,
                outcome: None,
                ended: false,
            },
            Vec::new(),
        )
    }

    /// Takes in what happened; returns what to do next, in this order.
    pub fn handle(&mut self, _event: Event) -> Vec<Command> {
        Vec::new()
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

    /// Whether nothing is left to do.
    pub fn is_ended(&self) -> bool {
        self.ended
    }
}
