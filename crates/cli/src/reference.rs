//! docs/command.md is made from the definition of the command line, and a test holds it to that.
//! `FORKPOINT_UPDATE=1 cargo test -p forkpoint-cli reference` writes it anew.

use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const HEAD: &str = "# The command

This page is made from the command's own help; do not edit it by hand.

## Exit status

| status | meaning                                                                         |
| ------ | ------------------------------------------------------------------------------- |
| 0      | done: a winner is committed, or chosen under `--no-commit`                      |
| 1      | no attempt passed; a verifier said no                                           |
| 2      | usage, or a specification that makes no sense                                   |
| 3      | conflict, drift or stale                                                        |
| 4      | something is left to resolve, also when the winner is committed                 |
| 5      | this machine cannot do it; what is missing and what mends it is said            |
| 124    | the total time is over                                                          |
| 125    | internal error                                                                  |
| 130    | interrupted                                                                     |

`exec` passes the command's own status on and keeps 124 (`--timeout`), 125 (Forkpoint failed), 126 (the command cannot
be executed) and 127 (it was not found) for itself. A command that died of a signal makes `exec` die of the same.

## Names

Wherever BRANCH is asked for, give a name, an identifier or an unambiguous beginning of one, `EXPLORATION/2` for an
attempt, or `last/2` for one of the last exploration started in this directory.

## What an attempt sees

| variable                | meaning                                                                       |
| ----------------------- | ----------------------------------------------------------------------------- |
| `FORKPOINT_BRANCH`      | its branch                                                                    |
| `FORKPOINT_EXPLORATION` | its exploration                                                               |
| `FORKPOINT_ATTEMPT`     | its number, from 0                                                            |
| `FORKPOINT_SEED`        | a number of 32 bits, different for each attempt                               |
| `FORKPOINT_DEADLINE`    | when its time is over, in seconds since 1970; only where there is a limit     |
| `FORKPOINT_DEPTH`       | how many attempts it goes on from, one after the other: 0 in the first round  |
| `FORKPOINT_PARENT`      | the number of the attempt it goes on from; only where there is one            |
| `FORKPOINT_FEEDBACK`    | a file with what was said of that one ([strategies.md](strategies.md))        |
| `FORKPOINT_COST_FILE`   | a file to append lines like `{\"cost\":0.12}` to                              |
| `FORKPOINT_PARAM_NAME`  | the value of the parameter `name`: upper case, `-` as `_`                     |
| `FORKPOINT_OUT`         | a directory that is kept even when it loses                                   |
| `FORKPOINT_SOCK`        | the branch's socket ([socket.md](socket.md)); none at the reasoning layer     |

The rest of the environment is the caller's, less its secrets, plus `--env`. Standard input is empty. A verifier and a
score see the same, but for the deadline, the feedback and the cost file, and their socket only reads; a score also has
descriptor 3 and `FORKPOINT_SCORE_FILE`.

## Values

A time (T) is a number of seconds, or a number with `ms`, `s`, `m`, `h` or `d`: `90`, `1.5s`, `1h30m`. A size is a number
of bytes, or a number with `K`, `M`, `G` or `T`, powers of 1024: `512M`. A GLOB is relative to the directory; `**` stands
for any directories. Output read by a program: `--json` ([json.md](json.md)).
";

/// The whole page.
fn page() -> String {
    let mut root = crate::args::Cli::command();
    root.build();
    let mut text = String::from(HEAD);
    let globals: Vec<&Arg> = root.get_arguments().filter(|a| a.is_global_set()).collect();
    text.push_str("\n## Options of every command\n\n");
    options(&mut text, &globals);
    for verb in root.get_subcommands().filter(|v| !v.is_hide_set()) {
        section(&mut text, verb, "forkpoint");
        for below in verb.get_subcommands().filter(|c| c.get_name() != "help") {
            section(&mut text, below, &format!("forkpoint {}", verb.get_name()));
        }
    }
    text
}

fn section(text: &mut String, verb: &Command, above: &str) {
    let name = verb.get_name();
    write!(text, "\n## {above} {name}\n\n").unwrap();
    let usage = verb.clone().render_usage().to_string();
    let usage = usage
        .trim_start_matches("Usage: ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let about = verb
        .get_long_about()
        .or(verb.get_about())
        .map(ToString::to_string)
        .unwrap_or_default();
    write!(text, "```\n{usage}\n```\n\n{}\n\n", about.trim()).unwrap();
    let shown =
        |a: &&Arg| !a.is_global_set() && !["help", "version"].contains(&a.get_id().as_str());
    let own: Vec<&Arg> = verb.get_arguments().filter(shown).collect();
    options(text, &own);
    if let Some(after) = verb.get_after_help() {
        write!(text, "\n{}\n", after.to_string().trim()).unwrap();
    }
}

fn options(text: &mut String, args: &[&Arg]) {
    for arg in args {
        let value = arg
            .get_value_names()
            .filter(|_| arg.get_action().takes_values())
            .map(|names| {
                names
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" ")
            });
        let mut names = Vec::new();
        names.extend(arg.get_short().map(|s| format!("-{s}")));
        names.extend(arg.get_long().map(|l| format!("--{l}")));
        let mut head = names.join(", ");
        if let Some(value) = value {
            head = if head.is_empty() {
                value
            } else {
                format!("{head} {value}")
            };
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let default: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|v| v.to_string_lossy())
            .collect();
        let default = match default.is_empty() || !arg.get_action().takes_values() {
            true => String::new(),
            false => format!(". Default: `{}`", default.join(", ")),
        };
        writeln!(text, "- `{head}`: {help}{default}").unwrap();
    }
}

#[test]
fn the_reference_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command.md");
    let page = page();
    if std::env::var_os("FORKPOINT_UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/command.md is not what the command's help says: FORKPOINT_UPDATE=1 cargo test -p forkpoint-cli reference"
    );
}
