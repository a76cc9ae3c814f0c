//! `forkpoint exec`.

use forkpoint_engine::{Child, ExitKind, ExitReport, Limits, Network, Stream};
use forkpoint_explore::spec::NetworkSpec;
use forkpoint_explore::units::{Size, Time};
use forkpoint_model::Result;
use rustix::event::{PollFd, PollFlags, poll};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::app::{App, Masks, variable};
use crate::signals::{Signals, die_of};
use crate::{codes, exit, output};

/// Run a command in a branch
///
/// Standard input, output and error are the caller's, and so is the exit status: what the command
/// exits with, or the signal that killed it. Signals are passed on.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: the command's; 124 if --timeout ended it; 125 if Forkpoint itself \
    failed; 126 if the command cannot be executed; 127 if it was not found."
)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// The directory to start in, as the branch sees it. Default: the base
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// A variable: NAME=VALUE, or NAME for the caller's value even if it is a secret (may be repeated)
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// loopback or host, instead of what the branch was forked with
    #[arg(long, value_name = "NETWORK", value_parser = super::explore::network)]
    network: Option<NetworkSpec>,
    /// A time limit
    #[arg(long, value_name = "T")]
    timeout: Option<Time>,
    /// Memory of everything in the branch
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    #[command(flatten)]
    masks: Masks,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    // Before the engine starts any thread: they inherit the mask.
    let signals = Signals::forwarded()?;
    let engine = app.engine(&args.masks)?;
    let branch = app.branch(&engine, &args.branch)?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(codes::USAGE.error("there is no command to run"));
    };
    let mut command = branch.command(program);
    command
        .args(rest)
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit);
    for text in &args.env {
        let (name, value) =
            variable(text).map_err(|why| codes::USAGE.error(format!("--env: {why}")))?;
        if let Some(value) = value.or_else(|| std::env::var_os(&name)) {
            command.env(name, value);
        }
    }
    if let Some(dir) = args.cwd {
        command.current_dir(dir);
    }
    if let Some(network) = args.network {
        command.network(match network {
            NetworkSpec::Loopback => Network::Loopback,
            NetworkSpec::Host => Network::Host,
        });
    }
    command.limits(Limits {
        wall_ms: args
            .timeout
            .map(|t| u64::try_from(t.0.as_millis()).unwrap_or(u64::MAX)),
        memory_bytes: args.memory.map(|m| m.0),
        ..Limits::default()
    });
    let mut child = command.spawn()?;
    for warning in child.warnings() {
        app.say(&format!("warning: {warning}"));
    }
    pass_signals(&child, &signals)?;
    match child.wait() {
        Ok(report) => {
            if report.left_running > 0 && std::io::stdin().is_terminal() {
                app.say(&format!(
                    "warning: {} processes are left running in the branch; they can read what is \
                     typed on this terminal",
                    report.left_running
                ));
            }
            Ok(status(&report))
        }
        Err(error) if error.code == forkpoint_engine::codes::COMMAND.text => {
            output::fail(&error, false);
            Ok(start_status(&error.message))
        }
        Err(error) => Err(error),
    }
}

/// Passes signals on until the command has ended.
fn pass_signals(child: &Child, signals: &Signals) -> Result<()> {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(child.wait_fd()?, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(codes::SIGNALS.io("cannot wait for the command", e)),
        }
        for (signal, _) in signals.take() {
            // It may have ended in between; then there is nobody to tell.
            child.signal(signal).unwrap_or(());
        }
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
    }
}

fn status(report: &ExitReport) -> u8 {
    match &report.status {
        ExitKind::Code(code) => u8::try_from(*code & 0xff).unwrap_or(exit::INTERNAL),
        ExitKind::Signal(signal) => {
            die_of(*signal);
            u8::try_from(128 + signal).unwrap_or(exit::INTERNAL)
        }
        ExitKind::LimitHit(forkpoint_engine::Limit::Wall) => {
            output::say("forkpoint: the command ran into its time limit");
            exit::TIMEOUT
        }
        ExitKind::LimitHit(limit) => {
            output::say(
                &format!("forkpoint: the command ran into its {limit:?} limit").to_lowercase(),
            );
            128 + 9
        }
        ExitKind::StartFailed { errno, .. } => start_errno(*errno),
    }
}

fn start_errno(errno: i32) -> u8 {
    let not_found = [rustix::io::Errno::NOENT, rustix::io::Errno::NOTDIR];
    if not_found.iter().any(|e| e.raw_os_error() == errno) {
        exit::NOT_FOUND
    } else {
        exit::CANNOT_EXECUTE
    }
}

/// 127 or 126, out of the words of the error: the number of the system error ends them.
fn start_status(message: &str) -> u8 {
    let number = message
        .rsplit_once("(os error ")
        .and_then(|(_, n)| n.trim_end_matches(')').parse().ok());
    number.map_or(exit::CANNOT_EXECUTE, start_errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_missing_and_one_that_cannot_be_run_differ() {
        assert_eq!(
            start_status("cannot run x: No such file or directory (os error 2)"),
            127
        );
        assert_eq!(
            start_status("cannot run x: Permission denied (os error 13)"),
            126
        );
        assert_eq!(start_status("something else"), 126);
    }
}
