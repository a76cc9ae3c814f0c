//! `forkpoint shell`.

use forkpoint_model::Result;
use std::ffi::OsString;
use std::path::Path;

use crate::app::App;
use crate::exit;
use crate::session::{self, Done, Start, Told};
use crate::signals::{Signals, die_of};
use crate::verbs::exec::left_running;
use crate::verbs::serve_socket;

/// Open a shell in a branch
///
/// The shell is $SHELL, or /bin/sh; it has a terminal of the branch's own, so that its jobs, ^C, ^Z
/// and ^\ work as usual. FORKPOINT_BRANCH is set in it, and the host is named as the branch is, for a
/// prompt that says where one is.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: the shell's, as with exec. When the terminal goes away, or this command \
    is told to end, the shell and its foreground job are sent SIGHUP, as when a connection is lost; \
    what ignores it (nohup) runs on in the branch until `forkpoint stop`."
)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    #[command(flatten)]
    start: Start,
    /// A command in place of the shell
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the shell.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    let signals = Signals::forwarded()?;
    forkpoint_engine::Engine::start_ahead(&app.store()?);
    let engine = app.engine(&args.start.masks)?;
    let branch = app.branch(&engine, &args.branch)?;
    let label = branch.label()?;
    let shell = [shell(std::env::var_os("SHELL"))];
    let (program, rest) = args.command.split_first().unwrap_or((&shell[0], &[]));
    let secrets = args.start.secrets(app, &branch)?;
    let (mut command, streams) = args.start.command(&branch, program, &secrets)?;
    command.args(rest);
    if args.command.is_empty() {
        // What a plain sh shows; other shells set their own, in which \h or FORKPOINT_BRANCH tells.
        command.env("PS1", format!("({label}) $ "));
        if streams.0[0] {
            app.say(&format!("a shell in {label}; leave it with `exit`"));
        }
    }
    let told = Told::before(&branch, None, !app.common.quiet, false)?;
    match session::run(app, &mut command, streams, &signals, true)? {
        Done::Ended(report) => {
            told.after(app, &branch)?;
            if report.left_running > 0 {
                serve_socket::start(app, &branch)?;
                app.say(&left_running(report.left_running, &args.branch));
            }
            Ok(session::status(&report))
        }
        Done::NotStarted(status) => Ok(status),
        Done::HungUp(number) => {
            serve_socket::start(app, &branch)?;
            die_of(number);
            Ok(exit::INTERNAL)
        }
    }
}

/// The caller's shell where it names one that is there, else the one that always is.
fn shell(named: Option<OsString>) -> OsString {
    named
        .filter(|path| Path::new(path).is_absolute() && Path::new(path).is_file())
        .unwrap_or_else(|| "/bin/sh".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_that_is_not_there_is_not_taken() {
        assert_eq!(shell(Some("/bin/sh".into())), "/bin/sh");
        assert_eq!(shell(Some("/nonexistent/zsh".into())), "/bin/sh");
        assert_eq!(shell(Some("zsh".into())), "/bin/sh");
        assert_eq!(shell(None), "/bin/sh");
    }
}
