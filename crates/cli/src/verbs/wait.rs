//! `forkpoint wait`.

use forkpoint_engine::Cancel;
use forkpoint_explore::resolve;
use forkpoint_explore::units::Time;
use forkpoint_explore::waiting::{self, Waited};
use forkpoint_model::Result;

use crate::app::{App, Masks};
use crate::exit;
use crate::signals::Signals;

/// Wait until an exploration is over, and say what came of it
///
/// Prints what explore would have printed, and exits with its status. An interrupt ends the waiting and
/// not the exploration: forkpoint abort EXPLORATION does that.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: that of the exploration; 124 when the time is over before it is."
)]
pub(crate) struct Args {
    /// The exploration, or last
    #[arg(value_name = "EXPLORATION")]
    exploration: String,
    /// Wait no longer than this
    #[arg(long, value_name = "T")]
    timeout: Option<Time>,
}

/// Waits.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let signals = Signals::ending()?;
    let cancel = Cancel::new()?;
    signals.raise(cancel.clone());
    let engine = app.engine(&Masks::default())?;
    let id = resolve::exploration(&engine.store(), &args.exploration, &app.cwd)?.id;
    match waiting::wait(&engine, id, args.timeout.map(|t| t.0), &cancel)? {
        Waited::Over(report) => {
            super::explore::answer(app, &report)?;
            Ok(exit::of_report(&report))
        }
        Waited::Failed(error) => Err(error),
        Waited::TimedOut => {
            app.say(&format!("exploration {id} still runs"));
            Ok(exit::TIMEOUT)
        }
        Waited::Cancelled => Ok(exit::INTERRUPTED),
    }
}
