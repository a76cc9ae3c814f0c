//! `forkpoint exec`.

use forkpoint_model::Result;
use std::ffi::OsString;

use crate::app::App;
use crate::session::{self, Done, Start, Told};
use crate::signals::{Signals, die_of};
use crate::verbs::serve_socket;
use crate::{codes, exit};

/// Run a command in a branch
///
/// Standard input, output and error are the caller's, and so is the exit status: what the command
/// exits with, or the signal that killed it. Signals are passed on. On a terminal the command gets one
/// of the branch's own, and what goes through it is passed on: nothing in the branch ever holds the
/// caller's.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: the command's; 124 if --timeout ended it; 125 if Forkpoint itself \
    failed; 126 if the command cannot be executed; 127 if it was not found. When the terminal goes \
    away the command is sent SIGHUP; what ignores it runs on in the branch."
)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    #[command(flatten)]
    start: Start,
    /// Keep how the branch is before the command, to go back to: forkpoint rewind BRANCH
    #[arg(long)]
    step: bool,
    /// Tell on standard error what the command changed, as on a terminal; with --json as one JSON
    /// document on one line there
    #[arg(long)]
    summary: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    // Before the engine starts any thread: they inherit the mask.
    let signals = Signals::forwarded()?;
    forkpoint_engine::Engine::start_ahead(&app.store()?);
    let engine = app.engine(&args.start.masks)?;
    let branch = app.branch(&engine, &args.branch)?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(codes::USAGE.error("there is no command to run"));
    };
    let secrets = args.start.secrets(app, &branch)?;
    let (mut command, streams) = args.start.command(&branch, program, &secrets)?;
    command.args(rest);
    let words = session::in_words(&args.command, &secrets);
    let quiet = app.common.quiet || app.json();
    let show = args.summary || (streams.0[0] && streams.0[1] && !quiet);
    let told = Told::before(&branch, args.step.then_some(&words), show, args.summary)?;
    match session::run(app, &mut command, streams, &signals, false)? {
        Done::Ended(report) => {
            told.after(app, &branch)?;
            if report.left_running > 0 {
                serve_socket::start(app, &branch)?;
            }
            if report.left_running > 0 && streams.0[0] {
                app.say(&left_running(report.left_running, &args.branch));
            }
            Ok(session::status(&report))
        }
        Done::NotStarted(status) => Ok(status),
        Done::HungUp(number) => {
            // What ignores the hang-up runs on.
            serve_socket::start(app, &branch)?;
            die_of(number);
            Ok(exit::INTERNAL)
        }
    }
}

/// What to say of processes that go on.
pub(crate) fn left_running(count: u32, branch: &str) -> String {
    let what = match count {
        1 => "a process is".to_owned(),
        n => format!("{n} processes are"),
    };
    format!("{what} left running in the branch; to end: forkpoint stop {branch}")
}
