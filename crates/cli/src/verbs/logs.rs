//! `forkpoint logs`.

use forkpoint_model::Result;
use serde_json::json;
use std::io::{ErrorKind, Read};

use crate::app::{App, Masks};
use crate::{codes, exit, output};

/// Show what a branch's commands wrote to standard output and error
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// What its verifier wrote instead
    #[arg(long, conflicts_with = "score")]
    verify: bool,
    /// What its score command wrote instead
    #[arg(long)]
    score: bool,
}

/// Shows.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    let log = branch.log_path();
    let path = match (args.verify, args.score) {
        (true, _) => log.with_file_name("verify.log"),
        (_, true) => log.with_file_name("score.log"),
        _ => log,
    };
    let label = branch.label()?;
    let mut file = std::fs::File::open(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => codes::NOTHING
            .error(format!("{label} has no such log"))
            .hint("a log exists once something has run, and until the branch is collected"),
        _ => codes::OUTPUT.io(format!("cannot read {}", path.display()), e),
    })?;
    if app.json() {
        output::print_json(
            &json!({"schema": "forkpoint.logs/1", "branch": branch.id(), "path": path}),
        )?;
        return Ok(exit::DONE);
    }
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(exit::DONE),
            Ok(n) => output::print_foreign(&buffer[..n])?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(codes::OUTPUT.io(format!("cannot read {}", path.display()), e)),
        }
    }
}
