//! Init.
#![forbid(unsafe_code)]
