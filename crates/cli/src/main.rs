//! The `forkpoint` command. One file per verb under `verbs`: an `Args` struct, whose comments are the
//! help text and the reference in docs/command.md, and one function. What can be tested without a
//! terminal lives in the libraries.
#![forbid(unsafe_code)]

mod app;
mod args;
mod codes;
mod exit;
mod output;
mod patch;
mod progress;
mod records;
#[cfg(test)]
mod reference;
mod signals;
mod style;
mod table;
mod verbs;

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(args::main(std::env::args_os().collect()))
}
