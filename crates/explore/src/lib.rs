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
pub mod codes;
mod driver;
#[cfg(test)]
mod fake;
mod jobs;
pub mod logs;
pub mod observer;
pub mod params;
mod real;
pub mod report;
pub mod resolve;
mod rounds;
pub mod score;
mod settle;
pub mod spec;
pub mod text;
pub mod units;
mod vars;
mod watch;

pub use forkpoint_engine::Cancel;

pub use driver::run;
pub use jobs::words;
pub use observer::{Observer, Progress, Silent};
pub use real::EngineBackend;
pub use report::{AttemptReport, AttemptState, Outcome, Reason, Report};
pub use spec::ExploreSpec;
pub use vars::{Caller, seed};
