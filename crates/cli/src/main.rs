//! The `forkpoint` command. One file per verb under `verbs`: an `Args` struct, whose comments are the
//! help text and the reference in docs/command.md, and one function. What can be tested without a
//! terminal lives in the libraries.
#![forbid(unsafe_code)]

mod app;
mod args;
mod codes;
mod complete;
mod detach;
mod exit;
mod flags;
mod live;
mod outlook;
mod output;
mod outputs;
mod progress;
mod proposal;
mod records;
#[cfg(test)]
mod reference;
mod searching;
mod session;
mod signals;
mod style;
mod table;
mod terminal;
mod verbs;

fn main() -> std::process::ExitCode {
    proposal::keep();
    std::process::ExitCode::from(args::main(std::env::args_os().collect()))
}
