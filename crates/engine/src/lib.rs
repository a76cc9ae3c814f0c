//! Fork a directory into isolated branches, run things in them, judge them, and commit exactly one.
//!
//! [`Engine`] is an open store, [`World`] a directory that branches are forked from, [`Branch`] one
//! of them. Everything here blocks; handles are cheap to clone and can be sent between threads.
//! Nothing here reads the environment, `$HOME` or a terminal: [`EngineOptions`] says it all.
//!
//! # Example
//!
//! Three tries at once on one directory; the first whose check passes is committed, and the rest are
//! as if they had never been.
//!
//! ```
//! use forkpoint_engine::*;
//!
//! # fn main() -> Result<()> {
//! # let dir = tempfile::tempdir().expect("a directory");
//! # let (store, project) = (dir.path().join("store"), dir.path().join("project"));
//! # std::fs::create_dir(&project).expect("a project");
//! # std::fs::write(project.join("answer"), "41").expect("a file");
//! let engine = Engine::open(EngineOptions {
//!     store,
//!     env: std::env::vars_os().collect(),
//!     ..EngineOptions::default()
//! })?;
//! let world = engine.world(&project, WorldOptions::default())?;
//!
//! // One call, a count, one result for each fork.
//! let forks = world.fork(&ForkOptions { count: 3, ..ForkOptions::default() })?;
//! let check = JudgeSpec::new("grep", ["-qx", "42", "answer"])?;
//! for (n, fork) in forks.into_iter().enumerate() {
//!     let fork = fork?;
//!     // Like `std::process::Command`, inside the fork.
//!     let exit = fork
//!         .command("sh")
//!         .args(["-c", &format!("echo {} > answer", 41 + n)])
//!         .status()?;
//!     assert_eq!(exit.status, ExitKind::Code(0));
//!     fork.seal(&SealOptions::default())?;
//!     if fork.verify(&check)?.passed() {
//!         assert_eq!(fork.diff()?.changes.len(), 1);
//!         let report = fork.commit(&CommitOptions::default())?;
//!         assert!(matches!(report.outcome, CommitOutcome::Committed));
//!         for loser in report.losers {
//!             engine.branch_by_id(loser)?.abort(&AbortOptions::default())?;
//!         }
//!         break;
//!     }
//! }
//! assert_eq!(std::fs::read_to_string(project.join("answer")).unwrap(), "42\n");
//! // And back again.
//! engine.undo(None, &project)?;
//! assert_eq!(std::fs::read_to_string(project.join("answer")).unwrap(), "41");
//! # Ok(())
//! # }
//! ```
//!
//! A branch can be forked again to any depth ([`Branch::fork`]), kept as a [`Checkpoint`], read
//! through a directory descriptor ([`Branch::view`]), and made fresh when its base moved on
//! ([`Branch::rebase`]).
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
mod relay;
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
