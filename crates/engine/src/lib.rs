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
mod activity;
mod apply;
mod audit;
mod base;
mod branch;
mod bus;
mod cancel;
mod checkpoint;
mod client;
pub mod codes;
mod command;
mod commit;
mod compare;
mod detail;
mod device;
mod disk;
mod drive;
mod effect_paths;
mod effects;
mod engine;
mod env;
mod export;
mod files;
mod forking;
mod gc;
mod git;
mod inputs;
mod judge;
mod keys;
mod kv;
mod layers;
mod lock;
mod nested;
mod nested_copies;
mod options;
mod origin;
mod outlook;
mod paths;
mod port;
mod prepare;
mod rebase;
mod recover;
pub mod redact;
mod relay;
mod rerun;
mod serve;
mod settle;
mod spare;
mod start;
mod steps;
mod summary;
mod tail;
mod usage;
mod view;
mod wait;
mod world;

pub use activity::Activity;
pub use audit::{AuditCheck, AuditReport};
pub use branch::{Branch, NETWORK_HOST, OUT_INSIDE, SOCK_INSIDE};
pub use bus::{Bus, WorldBus};
pub use cancel::Cancel;
pub use checkpoint::Checkpoint;
pub use client::Client;
pub use command::{Child, Command, Output, Stream};
pub use compare::{Against, Comparison};
pub use effect_paths::EffectPath;
pub use effects::{COMMAND, CommandEffect, Performed, Remote, ResolveOptions, ResolveReport, Sent};
pub use engine::{Engine, process_identity};
pub use export::{ExportReport, Packing};
pub use forkpoint_fs::conflict::{Budget, Drift};
pub use forkpoint_fs::delta::{Change, ChangeKind, ChangeSet, FileType};
pub use forkpoint_fs::patch::{Left, PatchReport, What};
pub use forkpoint_fs::select::glob_fault;
pub use forkpoint_model::effect::{Answer, EffectClass, EffectState};
pub use forkpoint_model::participant::{ChangeSummary, Conflict};
pub use forkpoint_model::state::BranchState;
pub use forkpoint_model::{
    BranchId, CheckpointId, Code, CommitId, Digest, Epoch, Error, ExplorationId, Generation,
    GroupId, Kind, LayerId, ParticipantId, Result, Source, WorldId,
};
pub use forkpoint_sandbox::{
    Check, CheckState, ExitKind, ExitReport, Limit, Limits, Modes, Network, TerminalSpec, Usage,
    default_masks, is_secret_env,
};
pub use forkpoint_store as records;
pub use forkpoint_store::{KvChange, KvEntry, KvPage, KvWritten};
pub use gc::{DEFAULT_MAX_AGE_S, DEFAULT_MAX_BYTES};
pub use git::{GitOptions, GitRef, GitReport, git_ref};
pub use judge::COMPARED;
pub use kv::{Kv, KvView, WorldKv};
pub use options::*;
pub use origin::Origin;
pub use outlook::{Obstacle, Outlook, Preview};
pub use port::Forward;
pub use prepare::words;
pub use redact::Redactor;
pub use serve::{COST_FILE, COST_LIMIT, PROGRESS_FILE, SCORE_FILE};
pub use start::{Defaults, defaults};
pub use steps::{STEPS_KEPT, Step};
pub use summary::{Mark, Summary};
pub use view::View;
pub use world::World;
