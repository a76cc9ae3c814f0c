//! A command in a branch that is the caller's own for a while: `exec` and `shell`. Its streams,
//! signals and exit status are passed on as faithfully as can be.

use forkpoint_engine::{
    Branch, Child, Command, ExitKind, ExitReport, Limit, Limits, Mark, Network, Stream,
};
use forkpoint_explore::redact::Secrets;
use forkpoint_explore::spec::NetworkSpec;
use forkpoint_explore::units::{Size, Time};
use forkpoint_model::Result;
use forkpoint_sys::signal;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::app::{App, Masks, variable};
use crate::signals::{self, Signals, die_of};
use crate::terminal::{self, Ending, Streams};
use crate::verbs::rewind;
use crate::{codes, exit, output, proposal, records};

/// How a command is started.
#[derive(clap::Args, Debug)]
pub(crate) struct Start {
    /// The directory to start in, as the branch sees it. Default: the base
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// A variable: NAME=VALUE, or NAME for the caller's value even if it is a secret (may be repeated)
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// A variable of the caller that the command is given although it is a secret. Its value goes
    /// nowhere else: not into the store, not into the words that a step is remembered by (may be
    /// repeated)
    #[arg(long = "secret", value_name = "NAME")]
    secrets: Vec<String>,
    /// loopback or host, instead of what the branch was forked with
    #[arg(long, value_name = "NETWORK", value_parser = crate::flags::network)]
    network: Option<NetworkSpec>,
    /// A time limit
    #[arg(long, value_name = "T")]
    timeout: Option<Time>,
    /// Memory of everything in the branch
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// A terminal of the branch's own, whatever the streams are. Default: where standard output is a
    /// terminal; and for input and errors alone where standard input is one and output goes to a file.
    /// Where it goes into a pipe, whoever reads that may be at the terminal (a pager): then only with
    /// this
    #[arg(long, short = 't', conflicts_with = "no_tty")]
    tty: bool,
    /// No terminal: streams that are one are relayed through pipes
    #[arg(long, short = 'T')]
    no_tty: bool,
    #[command(flatten)]
    pub(crate) masks: Masks,
}

impl Start {
    /// The secrets: those asked for, and those the branch was forked with as far as they are set.
    ///
    /// # Errors
    /// `FP0001` where one that is asked for is not set, or too short to be told from ordinary text.
    pub(crate) fn secrets(&self, app: &App, branch: &Branch) -> Result<Secrets> {
        let mut names = self.secrets.clone();
        for name in branch.defaults()?.secrets {
            if names.contains(&name) {
                continue;
            }
            match std::env::var_os(&name) {
                Some(_) => names.push(name),
                None => app.say(&format!("note: the branch's secret {name} is not set here")),
            }
        }
        Secrets::read(&names, &|name| std::env::var_os(name))
            .map_err(|e| codes::USAGE.error(e.message).hint(e.hint))
    }

    /// The command, with everything as asked for.
    ///
    /// # Errors
    /// `FP0001` for a variable without a name.
    pub(crate) fn command(
        &self,
        branch: &Branch,
        program: &OsString,
        secrets: &Secrets,
    ) -> Result<(Command, Streams)> {
        let streams = Streams::of(self.tty, self.no_tty);
        let mut command = branch.command(program);
        let stream = |number: usize| match streams.0[number] {
            true => Stream::Terminal,
            false => Stream::Inherit,
        };
        command
            .stdin(stream(0))
            .stdout(stream(1))
            .stderr(stream(2))
            .terminal(terminal::spec())
            .new_session(true);
        // Nothing else comes of such a branch than what it says.
        if branch.effect_paths()?.is_empty()
            && let Some(to) = proposal::take()
        {
            command.proposal(to);
        }
        for text in &self.env {
            let (name, value) =
                variable(text).map_err(|why| codes::USAGE.error(format!("--env: {why}")))?;
            if let Some(value) = value.or_else(|| std::env::var_os(&name)) {
                command.env(name, value);
            }
        }
        for (name, value) in secrets.vars() {
            command.env(name, value);
        }
        if let Some(dir) = &self.cwd {
            command.current_dir(dir);
        }
        if let Some(network) = self.network {
            command.network(match network {
                NetworkSpec::Loopback => Network::Loopback,
                NetworkSpec::Host => Network::Host,
            });
        }
        command.limits(Limits {
            wall_ms: self
                .timeout
                .map(|t| u64::try_from(t.0.as_millis()).unwrap_or(u64::MAX)),
            memory_bytes: self.memory.map(|m| m.0),
            ..Limits::default()
        });
        Ok((command, streams))
    }
}

/// What a command changed: told when it has ended.
pub(crate) struct Told {
    mark: Option<Mark>,
    step: Option<u64>,
    show: bool,
}

impl Told {
    /// Takes a step before `command` where one is wanted, and notes how the branch is now where
    /// something is to be told, or kept with the step. `asked`: also where that costs as much as the
    /// whole directory.
    ///
    /// # Errors
    /// As [`Branch::step`] and [`Branch::mark`].
    pub(crate) fn before(
        branch: &Branch,
        step: Option<&str>,
        show: bool,
        asked: bool,
    ) -> Result<Self> {
        let step = step.map(|command| branch.step(command)).transpose()?;
        let mark = match show || step.is_some() {
            true => branch.mark(asked || step.is_some())?,
            false => None,
        };
        Ok(Self { mark, step, show })
    }

    /// Tells it on standard error.
    ///
    /// # Errors
    /// When the branch's layers cannot be read.
    pub(crate) fn after(&self, app: &App, branch: &Branch) -> Result<()> {
        let since = self.mark.as_ref().map(Mark::since).transpose()?;
        let Some(summary) = since.flatten() else {
            return Ok(());
        };
        if let Some(step) = self.step {
            branch.step_changed(step, &summary)?;
        }
        if !self.show {
            return Ok(());
        }
        if app.json() {
            let mut document = rewind::summary_json(&summary);
            document["schema"] = json!("forkpoint.changed/1");
            document["branch"] = json!(branch.id());
            document["step"] = json!(self.step);
            output::say(&document.to_string());
            return Ok(());
        }
        if summary.total() == 0 {
            return Ok(());
        }
        app.say(&format!("changed: {}", rewind::counts(&summary)));
        for (letter, path) in summary.paths.iter().take(SHOWN) {
            app.say(&format!("  {letter} {}", records::shown_path(path)));
        }
        let label = branch.label()?;
        let more = summary.total() - summary.paths.len().min(SHOWN) as u64;
        if more > 0 {
            app.say(&format!("  and {more} more: forkpoint diff {label}"));
        }
        if let Some(step) = self.step {
            app.say(&format!("to undo: forkpoint rewind {label} {step}"));
        }
        Ok(())
    }
}

/// The most paths a summary names.
const SHOWN: usize = 5;

/// A command in words, as a step remembers it. A secret's value is taken out while it is whole.
pub(crate) fn in_words(command: &[OsString], secrets: &Secrets) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let words = secrets.clean(&words.join(" "));
    words.chars().take(MAX_WORDS).collect()
}

/// So many characters of a command are remembered.
const MAX_WORDS: usize = 500;

/// How a command that was waited for ended.
pub(crate) enum Done {
    /// Its report.
    Ended(ExitReport),
    /// It was never executed; the error is told already. The exit status.
    NotStarted(u8),
    /// The caller's terminal went, or this process was told to end by this signal.
    HungUp(i32),
}

/// Runs it to its end. `term_ends`: see [`terminal::relay`].
pub(crate) fn run(
    app: &App,
    command: &mut Command,
    streams: Streams,
    signals: &Signals,
    term_ends: bool,
) -> Result<Done> {
    let mut child = command.spawn()?;
    for warning in child.warnings() {
        app.say(&format!("warning: {warning}"));
    }
    match child.terminal.take() {
        Some(master) => {
            if let Ending::HungUp(number) =
                terminal::relay(&child, master, signals, streams, term_ends)?
            {
                return Ok(Done::HungUp(number));
            }
        }
        None => pass_signals(&child, signals)?,
    }
    match child.wait() {
        Ok(report) => Ok(Done::Ended(report)),
        Err(error) if error.code == forkpoint_engine::codes::COMMAND.text => {
            output::fail(&error, false);
            Ok(Done::NotStarted(start_status(&error.message)))
        }
        Err(error) => Err(error),
    }
}

/// Passes signals on until the command has ended: what a key sends goes to all of its group, as on a
/// terminal of its own.
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
        for (number, from_kernel) in signals.take() {
            // It may have ended in between; then there is nobody to tell.
            match number {
                signals::TSTP => {
                    child.signal_group(signal::SIGSTOP).unwrap_or(());
                    signals::stop_self();
                }
                signal::SIGCONT => child.signal_group(number).unwrap_or(()),
                _ if from_kernel => child.signal_group(number).unwrap_or(()),
                _ => child.signal(number).unwrap_or(()),
            }
        }
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
    }
}

/// The exit status that tells the same as the command's end; dies of its signal.
pub(crate) fn status(report: &ExitReport) -> u8 {
    match &report.status {
        ExitKind::Code(code) => u8::try_from(*code & 0xff).unwrap_or(exit::INTERNAL),
        ExitKind::Signal(signal) => {
            die_of(*signal);
            u8::try_from(128 + signal).unwrap_or(exit::INTERNAL)
        }
        ExitKind::LimitHit(Limit::Wall) => {
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
