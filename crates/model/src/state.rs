//! The life of a branch as a pure state machine. It must not know where states are stored, nor how
//! what an event reports came about.
//!
//! `Invalidated` and `Aborting` are on the way to an end; the five ends of a rollback differ in what
//! may be claimed (law 5): only a branch whose participants left nothing, and which had no effect
//! path that nothing captures, is `RolledBack`.

use crate::{Conflict, Epoch, Error, Result, codes};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Where a branch is in its life. Whether it is stale is kept beside it ([`BranchContext::stale`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BranchState {
    /// Writable.
    Open,
    /// Its processes are over and its overlay is immutable.
    Sealed,
    /// Judged by a verifier, on the sealed overlay.
    Verified {
        /// Whether the verifier passed.
        passed: bool,
    },
    /// Reserved and staging for a commit.
    Staged,
    /// Decided; an in-place participant is being redone.
    Applying,
    /// Decided; something blocks the redo. `resolve` drives it forward or back.
    ApplyBlocked,
    /// Published. An end.
    Committed,
    /// A sibling was committed; this one is fenced and waits to be rolled back.
    Invalidated,
    /// Being rolled back.
    Aborting,
    /// Rolled back: nothing of it is left anywhere. An end.
    RolledBack,
    /// Rolled back as far as anything captured goes; it had an uncaptured effect path. An end.
    Abandoned,
    /// A reasoning-layer branch that was dropped: there was nothing to undo. An end.
    Discarded,
    /// Some effect is left. `resolve` continues.
    RollbackIncomplete,
}

use BranchState::*;

impl BranchState {
    /// Every state.
    pub const ALL: [Self; 14] = [
        Open,
        Sealed,
        Verified { passed: true },
        Verified { passed: false },
        Staged,
        Applying,
        ApplyBlocked,
        Committed,
        Invalidated,
        Aborting,
        RolledBack,
        Abandoned,
        Discarded,
        RollbackIncomplete,
    ];

    /// The text that the store and JSON use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Open => "open",
            Sealed => "sealed",
            Verified { passed: true } => "verified_passed",
            Verified { passed: false } => "verified_failed",
            Staged => "staged",
            Applying => "applying",
            ApplyBlocked => "apply_blocked",
            Committed => "committed",
            Invalidated => "invalidated",
            Aborting => "aborting",
            RolledBack => "rolled_back",
            Abandoned => "abandoned",
            Discarded => "discarded",
            RollbackIncomplete => "rollback_incomplete",
        }
    }

    /// Whether nothing more will happen to the branch.
    pub const fn is_end(self) -> bool {
        matches!(self, Committed | RolledBack | Abandoned | Discarded)
    }

    /// Whether the branch can still be committed (perhaps after a seal or a rebase).
    pub const fn is_live(self) -> bool {
        matches!(self, Open | Sealed | Verified { .. } | Staged)
    }

    /// Whether a commit of this branch was decided and its redo is not finished.
    pub const fn is_applying(self) -> bool {
        matches!(self, Applying | ApplyBlocked)
    }
}

impl fmt::Display for BranchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for BranchState {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        (Self::ALL.into_iter().find(|s| s.as_str() == text))
            .ok_or_else(|| codes::IMPOSSIBLE.error(format!("unknown branch state {text:?}")))
    }
}

impl Serialize for BranchState {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for BranchState {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Which layer a branch was forked at (law 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ForkLayer {
    /// At the last side-effecting boundary: the default, always sound.
    #[default]
    Effect,
    /// A pure function of its input whose only output is a proposal.
    Reasoning,
}

/// What the state machine needs to know of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchContext {
    /// Its state.
    pub state: BranchState,
    /// Whether an independent commit moved the head since it was forked.
    pub stale: bool,
    /// Its fencing number.
    pub epoch: Epoch,
    /// The layer it was forked at.
    pub layer: ForkLayer,
    /// Effect paths that were open and that nothing captures, in words (`network host`).
    pub uncaptured: Vec<String>,
}

impl BranchContext {
    /// A new branch at the effect layer.
    pub fn new() -> Self {
        Self {
            state: Open,
            stale: false,
            epoch: Epoch(0),
            layer: ForkLayer::Effect,
            uncaptured: Vec::new(),
        }
    }
}

impl Default for BranchContext {
    fn default() -> Self {
        Self::new()
    }
}

/// What happened to a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BranchEvent {
    /// No process of it lives, and its overlay is immutable.
    Sealed,
    /// Its processes may run again, over a new upper layer; what was verified no longer holds.
    Resumed,
    /// A verifier judged it.
    Verified {
        /// Whether it passed.
        passed: bool,
    },
    /// The base moved underneath, so that a verification no longer holds.
    DriftFound,
    /// A commit of it reserved the target.
    StageBegan {
        /// Commit although the verifier failed.
        force: bool,
    },
    /// The commit was refused or aborted before its decision.
    StageAborted,
    /// The commit's decision is durable.
    Decided {
        /// Whether a participant needs a redo.
        in_place: bool,
    },
    /// The redo is blocked.
    ApplyBlocked,
    /// `resolve` drives a blocked redo forward.
    ApplyResumed,
    /// The redo is finished and durable.
    Applied,
    /// `resolve` drove a blocked redo back: the base is as it was before.
    DrivenBack,
    /// A sibling's commit was decided.
    SiblingCommitted,
    /// The commit of a branch that is not a sibling was decided.
    IndependentCommitted,
    /// Someone wants it rolled back.
    AbortRequested,
    /// Every participant has aborted, and this is what is left.
    Drained {
        /// What is left, item by item.
        left: Vec<Conflict>,
    },
    /// It was moved onto the present head.
    Rebased,
}

/// What a branch becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// The state.
    pub state: BranchState,
    /// Whether it is stale.
    pub stale: bool,
    /// Its fencing number.
    pub epoch: Epoch,
}

/// What `event` makes of a branch. An event that cannot follow is an error; an event that says what
/// is already so changes nothing, so that each can be delivered again after a crash.
pub fn step(branch: &BranchContext, event: &BranchEvent) -> Result<Next> {
    use BranchEvent as E;
    let now = Next {
        state: branch.state,
        stale: branch.stale,
        epoch: branch.epoch,
    };
    let to = |state| Ok(Next { state, ..now });
    let fenced = |state| {
        Ok(Next {
            state,
            epoch: Epoch(now.epoch.0 + 1),
            ..now
        })
    };
    match (branch.state, event) {
        (Open, E::Sealed) => fenced(Sealed),
        (Sealed | Verified { .. }, E::Sealed) => Ok(now),

        (Open | Sealed | Verified { .. }, E::Resumed) => to(Open),

        (Sealed | Verified { .. }, E::Verified { passed }) => to(Verified { passed: *passed }),

        (Verified { .. }, E::DriftFound) => to(Sealed),
        (Open | Sealed, E::DriftFound) => Ok(now),

        (Sealed | Verified { .. }, E::StageBegan { force }) => {
            may_commit(branch, *force)?;
            to(Staged)
        }
        (Staged, E::StageBegan { .. }) => Ok(now),
        (Staged, E::StageAborted) => to(Sealed),
        (Sealed | Verified { .. }, E::StageAborted) => to(Sealed),
        (Invalidated | Aborting, E::StageAborted) => Ok(now),

        (Staged, E::Decided { in_place: true }) => to(Applying),
        (Staged, E::Decided { in_place: false }) => to(Committed),
        (Applying | ApplyBlocked | Committed, E::Decided { .. }) => Ok(now),

        (Applying | ApplyBlocked, E::ApplyBlocked) => to(ApplyBlocked),
        (Applying | ApplyBlocked, E::ApplyResumed) => to(Applying),
        (Applying | ApplyBlocked, E::Applied) => to(Committed),
        (Committed, E::Applied) => Ok(now),
        (Applying | ApplyBlocked, E::DrivenBack) => Ok(Next {
            state: Sealed,
            stale: true,
            ..now
        }),

        (Open | Sealed | Verified { .. } | Staged, E::SiblingCommitted) => fenced(Invalidated),
        (Applying | ApplyBlocked, E::SiblingCommitted) => {
            Err(codes::IMPOSSIBLE.error("two siblings of one generation were decided"))
        }
        (_, E::SiblingCommitted) => Ok(now),

        (Staged, E::IndependentCommitted) => Ok(Next {
            state: Sealed,
            stale: true,
            ..now
        }),
        (Open | Sealed | Verified { .. }, E::IndependentCommitted) => {
            Ok(Next { stale: true, ..now })
        }
        (Applying | ApplyBlocked, E::IndependentCommitted) => Err(codes::IMPOSSIBLE
            .error("a commit was decided while another of the same world was being applied")),
        (_, E::IndependentCommitted) => Ok(now),

        (Open, E::AbortRequested) => fenced(Aborting),
        (
            Sealed | Verified { .. } | Staged | Invalidated | Aborting | RollbackIncomplete,
            E::AbortRequested,
        ) => to(Aborting),

        (Aborting, E::Drained { left }) => to(end_of_rollback(branch, left)),

        (Sealed | Verified { .. }, E::Rebased) => Ok(Next {
            state: Sealed,
            stale: false,
            ..now
        }),
        (Open, E::Rebased) => Ok(Next {
            stale: false,
            ..now
        }),

        _ => Err(refused(branch.state, event)),
    }
}

/// Whether a branch may be committed as it is: it has not failed its verifier, is not stale, and
/// has effects to commit.
pub fn may_commit(branch: &BranchContext, force: bool) -> Result<()> {
    if branch.layer == ForkLayer::Reasoning {
        return Err(codes::WRONG_STATE
            .error("a reasoning-layer branch has no effects to commit")
            .hint("fork at the effect layer what is to be committed"));
    }
    if branch.stale {
        return Err(codes::STALE
            .error("another commit moved the head since this branch was forked")
            .hint("forkpoint rebase BRANCH, then verify and commit it again"));
    }
    if branch.state == (Verified { passed: false }) && !force {
        return Err(codes::FAILED_VERIFY
            .error("the verifier failed on this branch")
            .hint("look at its log, or fork it to go on from there"));
    }
    Ok(())
}

/// Whether a fork at `layer` is sound, given the effect paths the source or the new branch has (law
/// 4). Called before anything happens.
pub fn check_fork_point(layer: ForkLayer, effect_paths: &[String]) -> Result<()> {
    if layer == ForkLayer::Effect || effect_paths.is_empty() {
        return Ok(());
    }
    Err(codes::UNSAFE_FORK_POINT
        .error(format!(
            "a reasoning-layer fork must have no effect path, and this one has: {}",
            effect_paths.join(", ")
        ))
        .hint("use --layer effect"))
}

/// Law 5: what a drained branch may call itself.
fn end_of_rollback(branch: &BranchContext, left: &[Conflict]) -> BranchState {
    if !left.is_empty() {
        RollbackIncomplete
    } else if !branch.uncaptured.is_empty() {
        Abandoned
    } else if branch.layer == ForkLayer::Reasoning {
        Discarded
    } else {
        RolledBack
    }
}

fn refused(state: BranchState, event: &BranchEvent) -> Error {
    use BranchEvent as E;
    let wanted = match event {
        E::Sealed => "be sealed",
        E::Resumed => "run again",
        E::Verified { .. } => "be verified",
        E::StageBegan { .. } => "be committed",
        E::AbortRequested => "be aborted",
        E::Rebased => "be rebased",
        E::ApplyResumed | E::DrivenBack => "be resolved",
        // The others are facts that a driver reports, never wishes.
        _ => return codes::IMPOSSIBLE.error(format!("{event:?} cannot follow {state}")),
    };
    let message = format!("the branch is {} and cannot {wanted}", words(state));
    let hint = match state {
        Open => "seal it first: end what runs in it",
        Applying | ApplyBlocked | RollbackIncomplete => {
            "remove what is in the way (forkpoint history says what): the next command goes on by itself"
        }
        Staged => "another command is committing it: wait for that one",
        Committed => "forkpoint undo takes a commit back; fork the directory for new work",
        Sealed | Verified { .. } => "",
        _ => "fork a new branch; a retained one can be looked at and forked from",
    };
    let code = if state.is_end() || matches!(state, Invalidated | Aborting) {
        codes::BRANCH_ENDED
    } else {
        codes::WRONG_STATE
    };
    code.error(message).hint(hint)
}

/// The state as a person would say it after "the branch is".
fn words(state: BranchState) -> &'static str {
    match state {
        Open => "open",
        Sealed => "sealed",
        Verified { passed: true } => "verified",
        Verified { passed: false } => "verified as failing",
        Staged => "being committed",
        Applying => "being applied",
        ApplyBlocked => "decided but blocked while being applied",
        Committed => "already committed",
        Invalidated => "invalidated by a sibling's commit",
        Aborting => "being rolled back",
        RolledBack => "rolled back",
        Abandoned => "abandoned",
        Discarded => "discarded",
        RollbackIncomplete => "rolled back incompletely",
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
