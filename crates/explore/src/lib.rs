//! Explorations: prepare once, attempt in isolated forks, verify and score each, commit one and roll
//! the rest back.
//!
//! [`run`] drives an [`ExploreSpec`] to a [`Report`]. What it decides comes from
//! `forkpoint_model::strategy`; what it does goes through two small traits ([`backend`]), whose real
//! implementation is the engine.
//!
//! **Architecture invariant:** nothing here knows of terminals, `$HOME` or the environment of this
//! process: what it needs of them comes in.
#![forbid(unsafe_code)]

pub mod backend;
pub mod budget;
mod claims;
pub mod codes;
pub mod collect;
pub mod cost;
mod driver;
pub mod events;
pub mod explain;
#[cfg(test)]
mod fake;
mod files;
pub mod globs;
pub mod html;
mod jobs;
pub mod logs;
mod meter;
pub mod observer;
pub mod params;
mod real;
pub mod redact;
pub mod report;
pub mod rerun;
pub mod resolve;
mod rounds;
pub mod score;
pub mod search;
mod settle;
pub mod spec;
pub mod spec_file;
pub mod text;
mod trials;
pub mod units;
mod vars;
pub mod waiting;
mod watch;

pub use forkpoint_engine::Cancel;

pub use driver::run;
pub use jobs::words;
pub use observer::{Observer, Progress, Silent};
pub use real::EngineBackend;
pub use report::{AttemptReport, AttemptState, Outcome, Reason, Report};
pub use spec::ExploreSpec;
pub use vars::{Caller, seed};
