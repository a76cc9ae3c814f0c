//! The stable error codes of sandboxes, FP03xx, shared with init.

pub use forkpoint_init::codes::*;
