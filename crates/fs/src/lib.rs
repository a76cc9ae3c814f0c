//! Layers, views, diff, apply, conflict and undo.
//!
//! A _stack_ of one disk is a list of layers under one writable upper directory; a _view_ is a
//! kernel overlay mount of a stack; a _delta_ is what the topmost layers change against the rest.
//! Nothing here knows of processes or of the store: callers give directories and get results.
//! `docs/design-files.md` explains the layout and the algorithms.
#![forbid(unsafe_code)]

pub mod apply;
pub mod apply_ops;
pub mod archive;
pub mod blobs;
mod bytes;
pub mod codes;
pub mod compact;
pub mod conflict;
mod crew;
pub mod delta;
pub mod export;
pub mod ops;
pub mod patch;
pub mod probe;
pub mod protect;
pub mod select;
pub mod stack;
pub mod stamp;
pub mod stream;
pub mod tree;
pub mod view;
pub mod written;

pub use stack::{MountOptions, Stack};
