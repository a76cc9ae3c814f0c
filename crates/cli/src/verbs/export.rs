//! `forkpoint export`.

use forkpoint_engine::Packing;
use forkpoint_explore::units::human_bytes;
use forkpoint_model::Result;
use serde_json::json;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::{exit, output, records};

/// Write a branch's files to a new directory or archive
///
/// All that the branch sees of its directory, with owners (where the caller may give them), modes, times,
/// attributes, hard links, holes and symbolic links. TARGET is an archive where it ends in .tar, .tar.gz,
/// .tgz, .tar.zst or .tzst, else a directory that is not there yet or is empty. It is made beside its place
/// and renamed when it is whole. What runs in the branch is stopped meanwhile.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// The directory or archive to make
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Only the files that the branch changed; what it removed is listed in .forkpoint-deleted
    #[arg(long)]
    changes: bool,
}

/// Exports.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    let target = app.cwd.join(&args.target);
    let report = branch.export(&target, args.changes)?;
    let packing = match report.packing {
        Packing::Directory => "directory",
        Packing::Tar => "tar",
        Packing::TarGz => "tar.gz",
        Packing::TarZst => "tar.zst",
    };
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.export/1", "branch": branch.id(),
            "target": records::path_json(&target), "packing": packing, "files": report.files,
            "dirs": report.dirs, "bytes": report.bytes, "deleted": report.deleted,
            "notes": report.notes,
        }))?;
        return Ok(exit::DONE);
    }
    output::print(&format!(
        "exported {} to {}: {} files, {} directories, {}\n",
        branch.label()?,
        records::shown_path(&target),
        report.files,
        report.dirs,
        human_bytes(report.bytes),
    ))?;
    for note in &report.notes {
        app.say(&format!("note: {note}"));
    }
    Ok(exit::DONE)
}
