//! The records of the store, as plain data. All times are nanoseconds since the epoch, given by the
//! caller; all paths are bytes.

use crate::SharedRecord;
use forkpoint_model::state::{BranchContext, BranchState, ForkLayer};
use forkpoint_model::{
    BranchId, CheckpointId, CommitId, Conflict, Digest, Epoch, ExplorationId, Generation, GroupId,
    LayerId, ParticipantId, Source, Vote, WorldId,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// The text that the store and JSON use.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            pub(crate) fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

text_enum!(
    /// How a disk's base is used.
    DiskKind {
        /// The directory itself is the bottom layer; a commit is applied into it.
        InPlace = "in_place",
        /// A snapshot taken into the store is the bottom layer.
        Snapshot = "snapshot",
    }
);

/// One disk of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRecord {
    /// The canonical path at which branches see it, and of its base.
    pub path: PathBuf,
    /// Device number of the base when the world was made.
    pub dev: u64,
    /// Inode number of the base when the world was made.
    pub ino: u64,
    /// How the base is used.
    pub kind: DiskKind,
    /// The layer that holds the snapshot.
    pub snapshot_layer: Option<LayerId>,
}

/// A world: one unit of logical state. There is one per base path and kind of its first disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldRecord {
    /// Its identifier.
    pub id: WorldId,
    /// Its disks; the first is the base. At least one.
    pub disks: Vec<DiskRecord>,
    /// The generation of its head.
    pub head: Generation,
    /// When it was made.
    pub created_ns: i64,
}

/// A process, recognisable after a crash or a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The boot it belongs to.
    pub boot_id: String,
    /// Its process id, in the namespace of the store's user.
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub start_time: u64,
}

/// A verifier's judgement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VerifiedRecord {
    /// Whether it passed.
    pub passed: bool,
    /// The command, readable.
    pub command: String,
    /// When.
    pub at_ns: i64,
}

text_enum!(
    /// The network of a branch.
    NetworkKind {
        /// Its own loopback only.
        Loopback = "loopback",
        /// The host's: an effect path that nothing captures.
        Host = "host",
    }
);

/// A branch context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchRecord {
    /// Its identifier.
    pub id: BranchId,
    /// Its name, unique among the branches of the store that have not ended.
    pub name: Option<String>,
    /// Its world.
    pub world: WorldId,
    /// What it was forked from.
    pub parent: Source,
    /// The generation of the world it is based on.
    pub generation: Generation,
    /// Its sibling group.
    pub group: Option<GroupId>,
    /// The exploration it is an attempt of, and the attempt's index.
    pub exploration: Option<(ExplorationId, u32)>,
    /// Its state. Changed by [`crate::Store::transition`] and the commit functions only.
    pub state: BranchState,
    /// Whether the head moved on since. Never stored: it is so when the branch could still be
    /// committed and `generation` is not the world's head, so that a commit costs nothing per
    /// independent branch.
    pub stale: bool,
    /// Its fencing number. Changed with the state only.
    pub epoch: Epoch,
    /// Per disk, the sealed layers below its upper, topmost first, without the base.
    pub stacks: Vec<Vec<LayerId>>,
    /// The sealed layers of the system root, topmost first.
    pub root_layers: Vec<LayerId>,
    /// What it sees of the world's keys and events.
    pub shared: SharedRecord,
    /// The stamp taken at the fork: a path of the base changed at or after it changed underneath.
    pub stamp_ns: i64,
    /// Whether it survives a power loss (an exploration's attempts do not).
    pub durable: bool,
    /// The layer it was forked at.
    pub layer: ForkLayer,
    /// Its network.
    pub network: NetworkKind,
    /// Effect paths that were open and nothing captures, in words.
    pub uncaptured: Vec<String>,
    /// The last judgement.
    pub verified: Option<VerifiedRecord>,
    /// Why it ended, from the documented list of reasons.
    pub reason: Option<String>,
    /// The init that runs it now.
    pub process: Option<ProcessRecord>,
    /// When it was forked.
    pub created_ns: i64,
    /// When it ended.
    pub ended_ns: Option<i64>,
    /// Whether its sealed delta and logs are still there after its end.
    pub retained: bool,
    /// The size of its delta on disk, where known.
    pub bytes: Option<u64>,
    /// Whatever else the engine keeps of it, as JSON.
    pub detail: Option<String>,
}

impl BranchRecord {
    /// A new open branch of `world`, forked from `parent`; every other field as if nothing had
    /// happened yet.
    pub fn new(id: BranchId, world: WorldId, parent: Source, generation: Generation) -> Self {
        Self {
            id,
            name: None,
            world,
            parent,
            generation,
            group: None,
            exploration: None,
            state: BranchState::Open,
            stale: false,
            epoch: Epoch(0),
            stacks: Vec::new(),
            root_layers: Vec::new(),
            shared: SharedRecord::default(),
            stamp_ns: 0,
            durable: true,
            layer: ForkLayer::Effect,
            network: NetworkKind::Loopback,
            uncaptured: Vec::new(),
            verified: None,
            reason: None,
            process: None,
            created_ns: 0,
            ended_ns: None,
            retained: false,
            bytes: None,
            detail: None,
        }
    }

    /// What the state machine needs to know of it.
    pub fn context(&self) -> BranchContext {
        BranchContext {
            state: self.state,
            stale: self.stale,
            epoch: self.epoch,
            layer: self.layer,
            uncaptured: self.uncaptured.clone(),
        }
    }
}

text_enum!(
    /// What a layer is.
    LayerKind {
        /// A sealed upper of a disk.
        Sealed = "sealed",
        /// A snapshot of a base.
        Snapshot = "snapshot",
        /// A preparation's change of a disk.
        Prepare = "prepare",
        /// A preparation's change of the system root.
        PrepareRoot = "prepare_root",
        /// Several adjacent layers merged into one.
        Compacted = "compacted",
        /// The replaced originals of a commit.
        Undo = "undo",
    }
);

/// A sealed layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerRecord {
    /// Its identifier, which is also the name of its directory.
    pub id: LayerId,
    /// What it is.
    pub kind: LayerKind,
    /// Bytes on disk.
    pub bytes: u64,
    /// Directory entries.
    pub entries: u64,
    /// How many layers were merged into it; 1 for one that was not compacted.
    pub merged: u32,
    /// When it was sealed.
    pub created_ns: i64,
}

text_enum!(
    /// How far a commit durably got. The first four keep the world reserved.
    CommitState {
        /// Reserved: validated, perhaps staged, not decided.
        Reserved = "reserved",
        /// Decided; in-place participants are being redone.
        Applying = "applying",
        /// Decided; something blocks the redo.
        ApplyBlocked = "apply_blocked",
        /// Being taken back; what blocks it, if anything, is in `blocked`.
        Undoing = "undoing",
        /// Published, and applied where that was needed.
        Applied = "applied",
        /// Not decided, and it never will be.
        Aborted = "aborted",
        /// Taken back.
        Undone = "undone",
    }
);

/// A commit, from its reservation on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitRecord {
    /// Its identifier, which is also the transaction's.
    pub id: CommitId,
    /// The world.
    pub world: WorldId,
    /// The branch.
    pub branch: BranchId,
    /// The generation it was made on.
    pub from: Generation,
    /// The generation it publishes.
    pub to: Generation,
    /// The branch's sibling group.
    pub group: Option<GroupId>,
    /// Every participant.
    pub participants: Vec<ParticipantId>,
    /// How far it got.
    pub state: CommitState,
    /// What the participants voted; empty before the decision.
    pub votes: Vec<(ParticipantId, Vote)>,
    /// What blocks it.
    pub blocked: Vec<Conflict>,
    /// Whether the branch had passed a verifier.
    pub verified: bool,
    /// The engine's summary, as JSON.
    pub summary: Option<String>,
    /// When it was reserved.
    pub created_ns: i64,
    /// When it was decided.
    pub decided_ns: Option<i64>,
    /// When nothing was left to do. None: in doubt, recovery has to look at it.
    pub ended_ns: Option<i64>,
}

impl CommitRecord {
    /// The digest a participant voted with.
    pub fn digest(&self, participant: &ParticipantId) -> Option<Digest> {
        self.votes
            .iter()
            .find(|(p, _)| p == participant)
            .map(|(_, v)| v.digest)
    }
}

text_enum!(
    /// Where an exploration is.
    ExplorationState {
        /// Under way.
        Running = "running",
        /// Over, with a result.
        Done = "done",
        /// Interrupted or timed out, with a result.
        Interrupted = "interrupted",
        /// Its supervisor died; recovery ended it.
        Crashed = "crashed",
    }
);

/// An exploration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplorationRecord {
    /// Its identifier.
    pub id: ExplorationId,
    /// Its world.
    pub world: WorldId,
    /// The canonical directory it was started in; `last` looks it up.
    pub cwd: PathBuf,
    /// The specification, as JSON.
    pub spec: String,
    /// Where it is.
    pub state: ExplorationState,
    /// The process that supervises it.
    pub supervisor: Option<ProcessRecord>,
    /// When it began.
    pub created_ns: i64,
    /// When it ended.
    pub ended_ns: Option<i64>,
    /// The result, as JSON.
    pub result: Option<String>,
}

/// An attempt of an exploration.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRecord {
    /// The exploration.
    pub exploration: ExplorationId,
    /// Its index, from 0.
    pub index: u32,
    /// Its branch, once forked.
    pub branch: Option<BranchId>,
    /// Its parameters, as a JSON object.
    pub params: String,
    /// Its state, in the words of the result document.
    pub state: String,
    /// Its reason, in the words of the result document.
    pub reason: Option<String>,
    /// Exit status of its command (128 + signal for a signal).
    pub exit_code: Option<i32>,
    /// Its score.
    pub score: Option<f64>,
    /// Whether it passed the verifier.
    pub passed: Option<bool>,
    /// Everything else, as JSON.
    pub detail: Option<String>,
}

/// An immutable, named generation of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Its identifier.
    pub id: CheckpointId,
    /// Its name, unique in the store.
    pub name: Option<String>,
    /// The world.
    pub world: WorldId,
    /// The generation it is based on.
    pub generation: Generation,
    /// Per disk, the sealed layers, topmost first, without the base.
    pub stacks: Vec<Vec<LayerId>>,
    /// The sealed layers of the system root, topmost first.
    pub root_layers: Vec<LayerId>,
    /// What it sees of the world's keys and events; nothing in it is written to.
    pub shared: SharedRecord,
    /// The stamp of the base it was taken over.
    pub stamp_ns: i64,
    /// When it was taken.
    pub created_ns: i64,
}

/// A preparation that can be used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepareRecord {
    /// Digest of its declared inputs.
    pub key: Digest,
    /// The canonical path of the world's base.
    pub base: PathBuf,
    /// Per disk, its layers, topmost first.
    pub disk_layers: Vec<Vec<LayerId>>,
    /// Its layers of the system root, topmost first.
    pub root_layers: Vec<LayerId>,
    /// The base paths it changed or copied, as they were; in the engine's own form.
    pub pinned: Vec<u8>,
    /// When it was made.
    pub created_ns: i64,
    /// When it was last used.
    pub used_ns: i64,
}

/// One line of the operation log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRecord {
    /// Its number, growing; 0 in a record that is about to be appended.
    pub seq: u64,
    /// When.
    pub at_ns: i64,
    /// What was done: a verb of the command.
    pub verb: String,
    /// To which world.
    pub world: Option<WorldId>,
    /// To which branch.
    pub branch: Option<BranchId>,
    /// By which commit.
    pub commit: Option<CommitId>,
    /// One line for people.
    pub text: String,
    /// The same for programs, as JSON.
    pub json: Option<String>,
}
