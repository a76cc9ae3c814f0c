//! The command line as a whole: the verbs, and how a mistake in it is told.

use clap::{Parser, Subcommand};
use forkpoint_model::Error;
use std::ffi::OsString;

use crate::app::{App, Common};
use crate::verbs;
use crate::{codes, complete, exit, output};

/// Fork an environment into isolated branches, try, verify, and commit exactly one
///
/// Every branch sees the whole machine; what it writes stays in it. A winner is committed at once and
/// whole; of everything else nothing is left.
#[derive(Parser, Debug)]
#[command(
    name = "forkpoint",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
#[command(
    after_help = "Wherever BRANCH is asked for: a name, an identifier or the beginning of one, \
    EXPLORATION/2 for an attempt, last/2 for one of the last exploration in this directory."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs.
#[derive(Subcommand, Debug)]
enum Verb {
    Explore(Box<verbs::explore::Args>),
    Explain(Box<verbs::explain::Args>),
    Fork(verbs::fork::Args),
    Exec(verbs::exec::Args),
    Shell(verbs::shell::Args),
    Rewind(verbs::rewind::Args),
    Port(verbs::port::Args),
    Stop(verbs::stop::Args),
    Pause(verbs::pause::Args),
    Resume(verbs::resume::Args),
    Diff(verbs::diff::Args),
    List(verbs::list::Args),
    Report(verbs::report::Args),
    Show(verbs::show::Args),
    Tree(verbs::tree::Args),
    History(verbs::history::Args),
    Logs(verbs::logs::Args),
    Verify(verbs::verify::Args),
    Commit(verbs::commit::Args),
    Abort(verbs::abort::Args),
    Resolve(verbs::resolve::Args),
    Effect(verbs::effect::Args),
    Bus(verbs::bus::Args),
    Audit(verbs::audit::Args),
    Kv(verbs::kv::Args),
    Export(verbs::export::Args),
    Checkpoint(verbs::checkpoint::Args),
    Attempt(verbs::attempt::Args),
    Rebase(verbs::rebase::Args),
    Undo(verbs::undo::Args),
    Wait(verbs::wait::Args),
    Gc(verbs::gc::Args),
    Doctor(verbs::doctor::Args),
    Completions(verbs::completions::Args),
    Man(verbs::man::Args),
    #[command(hide = true)]
    ServeSocket(verbs::serve_socket::Args),
}

/// Runs the command line; returns the exit status.
pub(crate) fn main(args: Vec<OsString>) -> u8 {
    if let Some(status) = complete::asked(&args) {
        return status;
    }
    let json = asks_for_json(&args);
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return told(&error, json),
    };
    let own = matches!(cli.verb, Verb::Exec(_) | Verb::Shell(_));
    let json = cli.common.json;
    match App::new(cli.common).and_then(|app| run(&app, cli.verb)) {
        Ok(status) => status,
        Err(error) => {
            let status = output::fail(&error, json);
            // An exec passes its command's status on, so its own failures have a status of their own.
            if own { exit::INTERNAL } else { status }
        }
    }
}

fn run(app: &App, verb: Verb) -> forkpoint_model::Result<u8> {
    match verb {
        Verb::Explore(args) => verbs::explore::run(app, *args),
        Verb::Explain(args) => verbs::explain::run(app, *args),
        Verb::Fork(args) => verbs::fork::run(app, &args),
        Verb::Exec(args) => verbs::exec::run(app, args),
        Verb::Shell(args) => verbs::shell::run(app, args),
        Verb::Rewind(args) => verbs::rewind::run(app, &args),
        Verb::Port(args) => verbs::port::run(app, &args),
        Verb::Stop(args) => verbs::stop::run(app, &args),
        Verb::Pause(args) => verbs::pause::run(app, &args),
        Verb::Resume(args) => verbs::resume::run(app, &args),
        Verb::Diff(args) => verbs::diff::run(app, &args),
        Verb::List(args) => verbs::list::run(app, &args),
        Verb::Report(args) => verbs::report::run(app, &args),
        Verb::Show(args) => verbs::show::run(app, &args),
        Verb::Tree(args) => verbs::tree::run(app, &args),
        Verb::History(args) => verbs::history::run(app, &args),
        Verb::Logs(args) => verbs::logs::run(app, &args),
        Verb::Verify(args) => verbs::verify::run(app, args),
        Verb::Commit(args) => verbs::commit::run(app, args),
        Verb::Abort(args) => verbs::abort::run(app, &args),
        Verb::Resolve(args) => verbs::resolve::run(app, &args),
        Verb::Effect(args) => verbs::effect::run(app, &args),
        Verb::Bus(args) => verbs::bus::run(app, args),
        Verb::Audit(args) => verbs::audit::run(app, &args),
        Verb::Kv(args) => verbs::kv::run(app, args),
        Verb::Export(args) => verbs::export::run(app, &args),
        Verb::Checkpoint(args) => verbs::checkpoint::run(app, &args),
        Verb::Attempt(args) => verbs::attempt::run(app, &args),
        Verb::Rebase(args) => verbs::rebase::run(app, &args),
        Verb::Undo(args) => verbs::undo::run(app, &args),
        Verb::Wait(args) => verbs::wait::run(app, &args),
        Verb::Gc(args) => verbs::gc::run(app, &args),
        Verb::Doctor(args) => verbs::doctor::run(app, &args),
        Verb::Completions(args) => verbs::completions::run(app, &args),
        Verb::Man(args) => verbs::man::run(app, &args),
        Verb::ServeSocket(args) => verbs::serve_socket::run(app, &args),
    }
}

/// Whether `--json` is among the options, for a command line that cannot be parsed.
fn asks_for_json(args: &[OsString]) -> bool {
    args.iter()
        .skip(1)
        .take_while(|a| *a != "--")
        .any(|a| a == "--json")
}

fn told(error: &clap::Error, json: bool) -> u8 {
    use clap::error::ErrorKind as K;
    match error.kind() {
        K::DisplayHelp | K::DisplayVersion => match output::print(&error.render().to_string()) {
            Ok(()) => exit::DONE,
            Err(error) => output::fail(&error, json),
        },
        K::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::say(error.render().to_string().trim_end());
            exit::USAGE
        }
        _ => output::fail(&usage(error), json),
    }
}

/// What clap says, as an error of ours: its first paragraph in one line, and where to look.
fn usage(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let tip = text
        .split("\n\n")
        .find_map(|p| p.trim().strip_prefix("tip: "))
        .map(|t| t.split_whitespace().collect::<Vec<_>>().join(" "));
    let usage = text.split("Usage: ").nth(1).and_then(|u| u.lines().next());
    let verb = usage
        .and_then(|u| u.split_whitespace().nth(1))
        .filter(|v| !v.starts_with(['[', '<']));
    let help = match verb {
        Some(verb) => format!("forkpoint {verb} --help"),
        None => "forkpoint --help".to_owned(),
    };
    codes::USAGE
        .error(words.join(" "))
        .hint(tip.map_or(help.clone(), |tip| format!("{tip} ({help})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn refused(line: &str) -> Error {
        let args: Vec<OsString> = std::iter::once("forkpoint")
            .chain(line.split_whitespace())
            .map(OsString::from)
            .collect();
        match Cli::try_parse_from(args) {
            Ok(cli) => panic!("{line} was taken: {cli:?}"),
            Err(error) => usage(&error),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mistakes_are_one_line_and_name_the_help() {
        for line in [
            "explore --strategy nope -- true",
            "explore --timeout NaN -- true",
            "explore --timeout -3 -- true",
            "explore --memory 3Q -- true",
            "explore --jobs 0 -- true",
            "explore -n -1 -- true",
            "explore -n 0 -- true",
            "explore --minimize --maximize --score s -- true",
            "explore --minimize -- true",
            "explore --keep some -- true",
            "explore --frobnicate",
            "fork . -n x",
            "exec",
            "exec b1",
            "diff b1 --stat --patch",
            "commit",
            "abort",
            "frobnicate",
            "gc --max-age never",
        ] {
            let error = refused(line);
            assert_eq!(error.code, "FP0001", "{line}");
            assert!(
                !error.message.contains('\n') && !error.message.is_empty(),
                "{line}: {error}"
            );
            assert!(error.hint.contains("--help"), "{line}: {}", error.hint);
        }
        assert!(
            refused("explore --strategy nope -- true")
                .message
                .contains("first-wins")
        );
        assert!(refused("exec b1").hint.contains("forkpoint exec --help"));
    }

    #[test]
    fn json_is_seen_in_a_line_that_cannot_be_parsed() {
        let args = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(asks_for_json(&args("forkpoint explore --bad --json")));
        assert!(!asks_for_json(&args("forkpoint exec b -- x --json")));
    }

    #[test]
    fn every_code_has_its_page() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        for code in codes::ALL.iter().chain(forkpoint_explore::codes::ALL) {
            let path = dir.join(format!("{}.md", code.text));
            let page = std::fs::read_to_string(&path)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let title = format!("# {}: {}\n", code.text, code.title);
            assert!(
                page.starts_with(&title),
                "{} begins with {title:?}",
                path.display()
            );
        }
    }
}
