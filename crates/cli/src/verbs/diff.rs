//! `forkpoint diff`.

use forkpoint_engine::{Against, Change, ChangeKind, ChangeSet, Comparison, FileType, KvChange};
use forkpoint_model::Result;
use forkpoint_model::state::BranchState;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, IsTerminal};
use std::os::fd::AsFd;

use crate::app::{App, Masks};
use crate::style::Style;
use crate::table::Table;
use crate::verbs::kv::bytes_json;
use crate::{codes, exit, output, records};

/// Show what a branch changes, or in what two branches differ
///
/// One line for each path, and below them one for each key: A added, M modified, D removed, T of another type, P only mode, owner, times
/// or attributes. With a second branch: what would have to change in the first to make it the second.
///
/// --patch is a patch for `git apply`, with binary files, modes and symbolic links. What git has no
/// notion of (empty directories, FIFOs, owners, attributes, exact permissions) is told on standard error.
/// On a terminal binary files are only named. Paths are relative to the branch's directory: where that
/// lies inside a repository, use `git apply --directory`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// Another branch: show what makes the first one into this
    #[arg(value_name = "OTHER", conflicts_with = "own")]
    other: Option<String>,
    /// How much changed, path by path
    #[arg(long, conflicts_with = "patch")]
    stat: bool,
    /// A patch for `git apply`
    #[arg(long, short)]
    patch: bool,
    /// Only what the branch itself changed, without its preparation
    #[arg(long)]
    own: bool,
}

/// Shows.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    if args.patch && app.json() {
        return Err(codes::USAGE
            .error("a patch is not JSON: --patch and --json exclude each other")
            .hint("leave one of them out"));
    }
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    // Its changes are in what it would be compared with, unless they went into git.
    let record = branch.record()?;
    if record.state == BranchState::Committed && forkpoint_engine::git_ref(&record).is_none() {
        return Err(codes::NOTHING
            .error(format!(
                "{} is committed: there is no difference to show any more",
                args.branch
            ))
            .hint("`forkpoint history` names the commit, `forkpoint undo` takes it back"));
    }
    let other = match &args.other {
        Some(name) => Some(app.branch(&engine, name)?),
        None => None,
    };
    let found = match &other {
        Some(other) => other.compare(Against::Branch(&branch))?,
        None if args.own => branch.compare(Against::Preparation)?,
        None => branch.compare(Against::Base)?,
    };
    let changes = &found.changes;
    // Between two branches files alone are compared.
    let (keys, more) = match &other {
        None => branch.kv_changes(None, KEYS_LISTED)?,
        Some(_) => (Vec::new(), None),
    };
    if app.json() {
        let rows: Vec<_> = changes.changes.iter().map(change_json).collect();
        output::print_json(&json!({
            "schema": "forkpoint.diff/1", "branch": branch.id(),
            "other": other.as_ref().map(forkpoint_engine::Branch::id),
            "changed": {
                "files": changes.changes.len(), "bytes": changes.bytes,
                "keys": match more {
                    Some(_) => branch.kv_changed()?,
                    None => keys.len() as u64,
                },
            },
            "changes": rows, "keys": keys.iter().map(key_json).collect::<Vec<_>>(),
            "keys_cut": more.is_some(),
        }))?;
    } else if args.patch {
        patch(&found)?;
        if !keys.is_empty() {
            output::say("# not in the patch: keys");
        }
    } else if args.stat {
        stat(changes)?;
        list_keys(&keys, more.is_some())?;
    } else {
        let text: String = changes
            .changes
            .iter()
            .map(|c| format!("{} {}\n", letter(c.kind), shown_path(c)))
            .collect();
        output::print(&text)?;
        list_keys(&keys, more.is_some())?;
    }
    Ok(exit::DONE)
}

/// No more keys than this are listed.
const KEYS_LISTED: usize = 1000;

fn key_letter(change: &KvChange) -> (char, &'static str) {
    match (change.was, change.size) {
        (_, None) => ('D', "removed"),
        (false, Some(_)) => ('A', "added"),
        (true, Some(_)) => ('M', "modified"),
    }
}

fn key_json(change: &KvChange) -> Value {
    let mut row = bytes_json("key", &change.key);
    row["kind"] = json!(key_letter(change).1);
    row["size"] = json!(change.size);
    row
}

/// The keys, below the paths.
fn list_keys(keys: &[KvChange], more: bool) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut text = String::from("keys:\n");
    for change in keys {
        text += &format!("{} {}\n", key_letter(change).0, change.key.escape_ascii());
    }
    if more {
        text += "and more\n";
    }
    output::print(&text)
}

/// Writes the patch to standard output, and what it leaves out to standard error. A terminal is shown
/// nothing that it would obey, and no base-85 text.
fn patch(found: &Comparison) -> Result<()> {
    let stdout = std::io::stdout();
    let report = match stdout.is_terminal() {
        false => found.patch(stdout.as_fd())?,
        true => {
            let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .map_err(|e| codes::OUTPUT.io("cannot make a pipe", e))?;
            let (reader, writer) = pipe;
            std::thread::scope(|scope| {
                let shown = scope.spawn(|| show(std::fs::File::from(reader)));
                let report = found.patch(writer.as_fd());
                drop(writer);
                match shown.join() {
                    Ok(done) => done.and(report),
                    Err(_) => Err(codes::INTERNAL.error("the patch could not be shown")),
                }
            })?
        }
    };
    for left in &report.left {
        let paths: Vec<_> = left.paths.iter().map(|p| records::shown_path(p)).collect();
        let more = left.count - paths.len() as u64;
        let more = match more {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let line = format!(
            "# not in the patch: {}: {}{more}",
            left.what.words(),
            paths.join(", ")
        );
        output::say(&forkpoint_explore::logs::printable(&line));
    }
    Ok(())
}

fn show(from: impl std::io::Read) -> Result<()> {
    let broken = |e| codes::OUTPUT.io("cannot read the patch", e);
    let mut binary = false;
    for line in BufReader::new(from).split(b'\n') {
        let line = line.map_err(broken)?;
        if line.starts_with(b"diff --git ") {
            binary = false;
        } else if line == b"GIT binary patch" {
            binary = true;
            output::print("Binary files differ\n")?;
        }
        if !binary {
            output::print_foreign(&[&line[..], b"\n"].concat())?;
        }
    }
    Ok(())
}

fn letter(kind: ChangeKind) -> char {
    match kind {
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Removed => 'D',
        ChangeKind::TypeChanged => 'T',
        ChangeKind::Metadata => 'P',
    }
}

fn shown_path(change: &Change) -> String {
    let mut text = records::shown_path(&change.path);
    if text.is_empty() {
        text.push('.');
    }
    if change.file_type == FileType::Dir {
        text.push('/');
    }
    text
}

fn change_json(change: &Change) -> Value {
    json!({
        "path": records::path_json(&change.path), "kind": change.kind, "type": change.file_type,
        "old_type": change.old_type, "size": change.size, "mode": format!("{:04o}", change.mode),
        "subtree": change.subtree, "withheld": change.withheld,
    })
}

fn stat(changes: &ChangeSet) -> Result<()> {
    let mut table = Table::new(&["", "PATH", ">BYTES"]);
    for change in &changes.changes {
        let size = if change.size > 0 {
            change.size.to_string()
        } else {
            String::new()
        };
        table.row(vec![
            letter(change.kind).to_string(),
            shown_path(change),
            size,
        ]);
    }
    if !table.is_empty() {
        output::print(&table.render(Style::of_stdout()))?;
    }
    let sum = records::changed(changes.changes.len() as u64, changes.bytes);
    output::print(&format!("{sum}\n"))
}
