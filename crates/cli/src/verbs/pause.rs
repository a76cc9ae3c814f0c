//! `forkpoint pause`.

use forkpoint_model::Result;

use crate::app::App;

/// Hold everything that runs in branches where it is, until resume
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A paused branch stays in memory and takes no processor time; it stays paused when this \
    command and whatever started it have ended. A --timeout does not run meanwhile. It can be forked and \
    looked at; nothing can be started in it until `forkpoint resume`."
)]
pub(crate) struct Args {
    /// The branches
    #[arg(value_name = "BRANCH", required = true)]
    branches: Vec<String>,
}

/// Pauses.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    super::stop::each(app, &args.branches, "forkpoint.pause/1", |branch| {
        branch.pause()?;
        Ok("is paused")
    })
}
