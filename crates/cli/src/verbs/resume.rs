//! `forkpoint resume`.

use forkpoint_model::Result;

use crate::app::App;

/// Let paused branches go on
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The branches
    #[arg(value_name = "BRANCH", required = true)]
    branches: Vec<String>,
}

/// Resumes.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    super::stop::each(app, &args.branches, "forkpoint.resume/1", |branch| {
        branch.resume()?;
        Ok("goes on")
    })
}
