//! `forkpoint diff`.

use forkpoint_engine::{Branch, Change, ChangeKind, ChangeSet, FileType, Side};
use forkpoint_model::Result;
use serde_json::{Value, json};

use crate::app::{App, Masks};
use crate::style::Style;
use crate::table::Table;
use crate::{exit, output, patch, records};

/// Show what a branch changes
///
/// One line for each path: A added, M modified, D removed, T of another type, P only mode, owner, times
/// or attributes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// How much changed, path by path
    #[arg(long, conflicts_with = "patch")]
    stat: bool,
    /// The changed lines of text files
    #[arg(long, short)]
    patch: bool,
    /// Only what the branch itself changed, without its preparation
    #[arg(long)]
    own: bool,
}

/// A file is compared line by line up to this size.
const PATCH_LIMIT: u64 = 8 << 20;

/// Shows.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    let changes = if args.own {
        branch.deltas()?.attempt
    } else {
        branch.diff()?
    };
    if app.json() {
        let rows: Vec<_> = changes.changes.iter().map(change_json).collect();
        output::print_json(&json!({
            "schema": "forkpoint.diff/1", "branch": branch.id(),
            "changed": {"files": changes.changes.len(), "bytes": changes.bytes}, "changes": rows,
        }))?;
    } else if args.patch {
        for change in &changes.changes {
            output::print_foreign(&file_patch(&branch, change)?)?;
        }
    } else if args.stat {
        stat(&changes)?;
    } else {
        let text: String = changes
            .changes
            .iter()
            .map(|c| format!("{} {}\n", letter(c.kind), shown_path(c)))
            .collect();
        output::print(&text)?;
    }
    Ok(exit::DONE)
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

fn file_patch(branch: &Branch, change: &Change) -> Result<Vec<u8>> {
    let path = shown_path(change);
    let read = |side, wanted: bool| match wanted {
        true => branch.read_file(&change.path, side, PATCH_LIMIT + 1),
        false => Ok(None),
    };
    let old_type = change
        .old_type
        .or((change.kind != ChangeKind::Added).then_some(change.file_type));
    let had = change.kind != ChangeKind::Added && old_type == Some(FileType::File);
    let has = change.kind != ChangeKind::Removed && change.file_type == FileType::File;
    if !had && !has || change.kind == ChangeKind::Metadata {
        return Ok(format!("{} {path}\n", letter(change.kind)).into_bytes());
    }
    let (old, new) = (read(Side::Base, had)?, read(Side::Branch, has)?);
    let too_large =
        |side: &Option<Vec<u8>>| side.as_ref().is_some_and(|s| s.len() as u64 > PATCH_LIMIT);
    if too_large(&old) || too_large(&new) {
        return Ok(format!("Large files differ: {path}\n").into_bytes());
    }
    Ok(patch::unified(&path, old.as_deref(), new.as_deref()))
}
