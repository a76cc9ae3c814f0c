//! Where the events and the collected files of an exploration go.

use forkpoint_explore::Report;
use forkpoint_explore::collect;
use forkpoint_explore::events::Events;
use forkpoint_model::Result;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use crate::app::App;
use crate::codes;
use crate::verbs::explore::Args;

type Clock = fn() -> i64;
pub(crate) type EventWriter = Events<Box<dyn Write + Send>, Clock>;

/// What was asked for.
pub(crate) struct Outputs {
    events: Option<PathBuf>,
    collect: Option<PathBuf>,
}

impl Outputs {
    pub(crate) fn new(args: &Args) -> Self {
        Self {
            events: args.events.clone(),
            collect: args.collect.clone(),
        }
    }

    /// Whether standard output is taken by events.
    pub(crate) fn on_stdout(&self) -> bool {
        self.events.as_ref().is_some_and(|e| e.as_os_str() == "-")
    }

    /// Opens what events go to.
    ///
    /// # Errors
    /// `FP0001` for `-` beside `--json`, `FP0003` where it cannot be opened.
    pub(crate) fn events(&self, app: &App) -> Result<Option<EventWriter>> {
        let Some(path) = &self.events else {
            return Ok(None);
        };
        if self.on_stdout() && app.json() {
            return Err(codes::USAGE
                .error("--events - and --json both want standard output")
                .hint("write the events to a file or to fd:N"));
        }
        let writer: Box<dyn Write + Send> = match path.to_str() {
            Some("-") => Box::new(std::io::stdout()),
            text => {
                let number = text.and_then(|t| t.strip_prefix("fd:"));
                let number = number.and_then(|n| n.parse::<u16>().ok());
                // A descriptor is opened anew by its name: no other process can do that to it.
                let path = match number {
                    Some(number) => PathBuf::from(format!("/proc/self/fd/{number}")),
                    None => app.cwd.join(path),
                };
                let file = File::options()
                    .create(number.is_none())
                    .append(true)
                    .open(&path)
                    .map_err(|e| {
                        codes::OUTPUT.io(format!("cannot write events to {}", path.display()), e)
                    })?;
                Box::new(file)
            }
        };
        Ok(Some(Events::new(writer, forkpoint_sys::clock::wall_ns)))
    }

    /// Copies what the attempts left.
    ///
    /// # Errors
    /// `FP0503` for the first that cannot be copied.
    pub(crate) fn collect(&self, app: &App, report: &Report) -> Result<()> {
        match &self.collect {
            Some(dir) => collect::collect(report, &app.cwd.join(dir)),
            None => Ok(()),
        }
    }
}
