//! The hidden verb that serves the socket of what a command left behind: started by `exec` and `shell`
//! when they end, it goes with the last process inside.

use forkpoint_engine::Branch;
use forkpoint_model::Result;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::app::{App, Masks};
use crate::{codes, detach, exit};

/// Its name.
const VERB: &str = "serve-socket";

/// Serve the socket of a branch for as long as anything runs in it
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
}

/// Serves.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    detach::leave_session()?;
    let engine = app.engine(&Masks::default())?;
    engine.branch(&args.branch)?.serve()?;
    Ok(exit::DONE)
}

/// Starts a server for what is left in a branch; nothing of the caller's stays open in it. It needs
/// no waiting for: where one serves already it ends at once.
pub(crate) fn start(app: &App, branch: &Branch) -> Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("forkpoint")
        .arg(VERB)
        .arg("--store")
        .arg(app.store()?)
        .arg(branch.id().to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
        .spawn()
        .map(drop)
        .map_err(|e| codes::DETACH.io("cannot serve the branch's socket any longer", e))
}
