//! The records of what a world shares beside its disks: overlays, events, effects.

use forkpoint_model::effect::{EffectClass, EffectState};
use forkpoint_model::{BranchId, CommitId, Epoch, ParticipantId};

/// What a branch or a checkpoint sees of its world's shared state (keys and events).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharedRecord {
    /// Changes of the world's shared state up to this one are seen. `None` in the record of a new
    /// branch: up to the present one, as of the transaction that adds it.
    pub position: Option<u64>,
    /// The overlay it writes to, once it has.
    pub overlay: Option<u64>,
    /// The sealed overlays it stands on, topmost first.
    pub overlays: Vec<u64>,
}

impl SharedRecord {
    /// All its overlays, topmost first.
    pub fn stack(&self) -> Vec<u64> {
        let own = self.overlay.into_iter();
        own.chain(self.overlays.iter().copied()).collect()
    }

    /// The same with nothing that can still be written to.
    pub fn sealed(&self) -> Self {
        Self {
            position: self.position,
            overlay: None,
            overlays: self.stack(),
        }
    }
}

/// A place in the order of a world's events. The default is before all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventCursor {
    /// The position of the commit that published it; above all positions for one that is held.
    pub position: u64,
    /// Its number in that commit, from 1.
    pub n: u64,
}

/// An event of a world's bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Where in the order it is.
    pub cursor: EventCursor,
    /// Its topic.
    pub topic: String,
    /// The same whenever it is delivered again, so that a consumer can drop repeats.
    pub id: String,
    /// What it says.
    pub payload: Vec<u8>,
    /// The branch that published it; none from outside.
    pub branch: Option<BranchId>,
    /// The commit that made it visible.
    pub commit: Option<CommitId>,
    /// Not committed: the branch alone sees it.
    pub held: bool,
    /// When it was published, or held.
    pub at_ns: i64,
}

/// A row of the effect journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRecord {
    /// The branch that answers for it.
    pub branch: BranchId,
    /// Its number in that branch's journal.
    pub ordinal: u64,
    /// The branch that performed it.
    pub origin: BranchId,
    /// The overlay it belongs to: it is part of what a branch is whose stack holds that.
    pub overlay: u64,
    /// Its place among the effects of its line.
    pub place: u64,
    /// The epoch it was performed in.
    pub epoch: Epoch,
    /// Whose it is.
    pub participant: ParticipantId,
    /// How it is kept from being seen, or undone.
    pub class: EffectClass,
    /// How far it got.
    pub state: EffectState,
    /// Its idempotency key.
    pub key: String,
    /// What was to be done, in its canonical form.
    pub intent: Vec<u8>,
    /// What undoes it.
    pub inverse: Option<Vec<u8>>,
    /// What was answered.
    pub response: Option<Vec<u8>>,
    /// How often its inverse, or a question for it, was tried in vain.
    pub attempts: u32,
    /// Why it is not settled, or by whom it was.
    pub why: Option<String>,
    /// When it was written down.
    pub created_ns: i64,
    /// When nothing was left to do for it.
    pub settled_ns: Option<i64>,
}
