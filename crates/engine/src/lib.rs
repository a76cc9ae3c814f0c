//! Fork a directory into isolated branches, run things in them, judge them, and commit exactly one.
//!
//! [`Engine`] is an open store, [`World`] a directory that branches are forked from, [`Branch`] one
//! of them. Everything here blocks; handles are cheap to clone and can be sent between threads.
//! Nothing here reads the environment, `$HOME` or a terminal: [`EngineOptions`] says it all.
#![forbid(unsafe_code)]

mod abort;
mod apply;
mod base;
mod branch;
mod cancel;
mod checkpoint;
pub mod codes;
mod command;
mod commit;
mod detail;
mod disk;
mod drive;
mod engine;
mod env;
mod files;
mod forking;
mod gc;
mod inputs;
mod judge;
mod layers;
mod lock;
mod nested;
mod options;
mod paths;
mod prepare;
mod recover;
mod tail;
mod view;
mod wait;
mod world;

pub use branch::{Branch, NETWORK_HOST, OUT_INSIDE, SOCK_INSIDE};
pub use cancel::Cancel;
pub use checkpoint::Checkpoint;
pub use command::{Child, Command, Output, Stream};
pub use engine::{Engine, process_identity};
pub use forkpoint_fs::conflict::{Budget, Drift};
pub use forkpoint_fs::delta::{Change, ChangeKind, ChangeSet, FileType};
pub use forkpoint_model::participant::{ChangeSummary, Conflict};
pub use forkpoint_model::state::BranchState;
pub use forkpoint_model::{
    BranchId, CheckpointId, Code, CommitId, Digest, Epoch, Error, ExplorationId, Generation,
    GroupId, Kind, LayerId, ParticipantId, Result, Source, WorldId,
};
pub use forkpoint_sandbox::{
    Check, CheckState, ExitKind, ExitReport, Limit, Limits, Network, Usage, is_secret_env,
};
pub use forkpoint_store as records;
pub use gc::{DEFAULT_MAX_AGE_S, DEFAULT_MAX_BYTES};
pub use options::*;
pub use prepare::words;
pub use view::View;
pub use world::World;
