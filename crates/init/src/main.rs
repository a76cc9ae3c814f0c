//! Entry of the init executable.
#![forbid(unsafe_code)]

fn main() {}
