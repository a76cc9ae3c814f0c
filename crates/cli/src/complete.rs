//! Completing what is typed: verbs and options by their definition, and the names of branches, attempts,
//! explorations and checkpoints out of the store, which is only read. A shell asks by starting the
//! command with [`VARIABLE`] set, as the script of `forkpoint completions` does.

use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Zsh};
use forkpoint_engine::records::Names;
use std::ffi::OsStr;
use std::path::PathBuf;

use crate::{app, exit, output};

/// What says that a completion is asked for, and by which shell.
const VARIABLE: &str = "FORKPOINT_COMPLETE";
/// So many names of each kind are read, the newest.
const MOST: u32 = 2000;
/// The name that scripts start.
const PROGRAM: &str = "forkpoint";

/// The shells that can ask.
pub(crate) const SHELLS: [&dyn EnvCompleter; 3] = [&Bash, &Zsh, &Fish];

/// Answers a shell that asks for a completion; `None`: nobody does.
pub(crate) fn asked(args: &[std::ffi::OsString]) -> Option<u8> {
    let shell = std::env::var_os(VARIABLE)?;
    let known = SHELLS
        .iter()
        .any(|s| shell.to_str().is_some_and(|name| s.is(name)));
    if !known {
        output::say(&format!(
            "{VARIABLE} names no shell that can be completed for"
        ));
        return Some(exit::USAGE);
    }
    let cwd = std::env::current_dir().ok();
    let env = CompleteEnv::with_factory(command)
        .var(VARIABLE)
        .bin(PROGRAM);
    match env.try_complete(args.to_vec(), cwd.as_deref()) {
        Ok(true) => Some(exit::DONE),
        Ok(false) => None,
        // Nobody reads messages while somebody types.
        Err(_) => Some(exit::INTERNAL),
    }
}

/// The script that makes a shell ask.
pub(crate) fn script(shell: &dyn EnvCompleter) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut text)?;
    Ok(text)
}

/// The command line, with what completes each name.
fn command() -> Command {
    crate::args::Cli::command().mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        verb.mut_subcommands(|below| below.mut_args(|arg| completed(arg, "")))
            .mut_args(|arg| completed(arg, &name))
    })
}

/// An argument by what its value is called in the help.
fn completed(arg: Arg, verb: &str) -> Arg {
    let kind = arg
        .get_value_names()
        .and_then(|names| names.first())
        .map(ToString::to_string)
        .unwrap_or_default();
    let wanted = match (kind.as_str(), verb) {
        ("BRANCH", "stop" | "abort") => Wanted {
            explorations: true,
            ..Wanted::BRANCHES
        },
        ("BRANCH" | "OTHER", _) => Wanted::BRANCHES,
        ("SOURCE", _) => Wanted {
            checkpoints: true,
            directories: true,
            ..Wanted::BRANCHES
        },
        ("NAME", "show") => Wanted {
            explorations: true,
            ..Wanted::BRANCHES
        },
        ("SPEC.toml", "explain") => Wanted {
            files: true,
            ..Wanted::BRANCHES
        },
        ("EXPLORATION", _) => Wanted {
            explorations: true,
            ..Wanted::NOTHING
        },
        ("CHECKPOINT", _) => Wanted {
            checkpoints: true,
            ..Wanted::NOTHING
        },
        _ => return arg,
    };
    arg.add(ArgValueCompleter::new(wanted))
}

/// What can stand somewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wanted {
    branches: bool,
    explorations: bool,
    checkpoints: bool,
    directories: bool,
    files: bool,
}

impl Wanted {
    const NOTHING: Self = Self {
        branches: false,
        explorations: false,
        checkpoints: false,
        directories: false,
        files: false,
    };
    const BRANCHES: Self = Self {
        branches: true,
        ..Self::NOTHING
    };

    /// The names that begin as typed, with a word on each.
    fn of(self, names: &Names, typed: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if self.branches {
            all.extend(names.branches.iter().cloned());
            let (before, attempt) = match typed.split_once('/') {
                Some((before, _)) => (before, true),
                None => (typed, false),
            };
            for (id, _, attempts) in &names.explorations {
                let mut heads = vec![id.to_string()];
                if names.last == Some(*id) {
                    heads.insert(0, "last".to_owned());
                }
                for head in heads {
                    // Without a slash they would be most of what is listed.
                    if attempt && head == before || !attempt && head == "last" {
                        let one = |i| (format!("{head}/{i}"), "attempt".to_owned());
                        all.extend((0..*attempts).map(one));
                    }
                }
            }
        }
        if self.explorations {
            let last = names
                .last
                .map(|_| ("last".to_owned(), "exploration".to_owned()));
            all.extend(last);
            let one = |(id, state, _): &(forkpoint_model::ExplorationId, String, u32)| {
                (id.to_string(), format!("exploration, {state}"))
            };
            all.extend(names.explorations.iter().map(one));
        }
        if self.checkpoints {
            let one = |name: &String| (name.clone(), "checkpoint".to_owned());
            all.extend(names.checkpoints.iter().map(one));
        }
        all.retain(|(name, _)| name.starts_with(typed));
        all
    }
}

impl ValueCompleter for Wanted {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let text = typed.to_str().unwrap_or_default();
        let names = names().unwrap_or_default();
        let mut all: Vec<CompletionCandidate> = self
            .of(&names, text)
            .into_iter()
            .map(|(name, word)| CompletionCandidate::new(name).help(Some(word.into())))
            .collect();
        if self.files {
            all.extend(PathCompleter::file().complete(typed));
        } else if self.directories {
            all.extend(PathCompleter::dir().complete(typed));
        }
        all
    }
}

/// The names in the store that the line so far is about.
fn names() -> Option<Names> {
    let cwd = std::env::current_dir()
        .and_then(std::fs::canonicalize)
        .ok()?;
    let line: Vec<_> = std::env::args_os().collect();
    let given = line
        .windows(2)
        .find(|pair| pair[0] == "--store")
        .map(|pair| PathBuf::from(&pair[1]));
    let given = given.or_else(|| std::env::var_os("FORKPOINT_HOME").map(PathBuf::from));
    let store = app::place(given, |name| std::env::var_os(name)).ok()?;
    forkpoint_engine::records::names(&cwd.join(store), &cwd, MOST).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkpoint_model::ExplorationId;

    #[test]
    fn names_are_those_that_can_stand_there() {
        let x = ExplorationId::from_bits(1);
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let names = Names {
            branches: vec![pair("fix", "open"), pair("b00000001", "sealed")],
            explorations: vec![(x, "ended".into(), 2)],
            last: Some(x),
            checkpoints: vec!["first".into()],
        };
        let of = |wanted: Wanted, typed: &str| {
            let all = wanted.of(&names, typed).into_iter();
            all.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(
            of(Wanted::BRANCHES, ""),
            ["fix", "b00000001", "last/0", "last/1"]
        );
        assert_eq!(of(Wanted::BRANCHES, "f"), ["fix"]);
        assert_eq!(of(Wanted::BRANCHES, "last/1"), ["last/1"]);
        let by_id = format!("{x}/");
        assert_eq!(
            of(Wanted::BRANCHES, &by_id),
            [format!("{x}/0"), format!("{x}/1")]
        );
        let explorations = Wanted {
            explorations: true,
            ..Wanted::NOTHING
        };
        assert_eq!(of(explorations, ""), ["last".to_owned(), x.to_string()]);
        let source = Wanted {
            checkpoints: true,
            ..Wanted::BRANCHES
        };
        assert_eq!(of(source, "fi"), ["fix", "first"]);
    }

    #[test]
    fn the_definition_with_completers_is_sound() {
        command().debug_assert();
    }
}
