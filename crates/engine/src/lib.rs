//! World, Branch, Checkpoint: the library.
#![forbid(unsafe_code)]
