//! The forkpoint command.
#![forbid(unsafe_code)]

fn main() {}
