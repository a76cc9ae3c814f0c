//! Build, test, demonstrate and measure Forkpoint.
#![forbid(unsafe_code)]

fn main() {}
