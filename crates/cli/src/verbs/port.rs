//! `forkpoint port`.

use forkpoint_engine::Cancel;
use forkpoint_model::Result;
use serde_json::json;

use crate::app::{App, Masks};
use crate::signals::Signals;
use crate::style::Style;
use crate::{exit, output};

/// Make a TCP port of a branch reachable from this machine, until interrupted
///
/// Connections to 127.0.0.1 at the host's port are passed on to the branch's 127.0.0.1 (else ::1) at
/// PORT, as long as this command runs. What goes through is captured by nothing: a branch that had a
/// port ends abandoned, not rolled back.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Every user of this machine can connect to the host's port while it is open. What \
    listens inside may be started before or after."
)]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// The port inside, and the host's: the same one if not given, any that is free if 0
    #[arg(value_name = "PORT[:HOST_PORT]", value_parser = ports)]
    port: (u16, u16),
}

fn ports(text: &str) -> std::result::Result<(u16, u16), String> {
    let (inside, outside) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("{text:?} is no port: a number up to 65535"))
    };
    match (number(inside)?, number(outside)?) {
        (0, _) => Err("the port inside cannot be 0".into()),
        both => Ok(both),
    }
}

/// Serves.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    // Before any thread is started: they inherit the mask.
    let signals = Signals::ending()?;
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, &args.branch)?;
    let forward = branch.forward(args.port.1, args.port.0)?;
    let local = forward.local_port();
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.port/1", "branch": branch.id(), "port": args.port.0,
            "host": "127.0.0.1", "host_port": local,
        }))?;
    } else {
        let label = branch.label()?;
        output::print(&format!("127.0.0.1:{local} -> {label}:{}\n", args.port.0))?;
        app.say("until ^C");
    }
    let stop = Cancel::new()?;
    signals.raise(stop.clone());
    forward.run(stop.fd(), &|error| {
        app.say(&output::error_lines(error, Style::of_stderr()));
    })?;
    Ok(exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read() {
        assert_eq!(ports("80"), Ok((80, 80)));
        assert_eq!(ports("80:8080"), Ok((80, 8080)));
        assert_eq!(ports("80:0"), Ok((80, 0)));
        for bad in ["", "0", "0:80", "80:", "x", "65536", "80:-1", "1:2:3"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
