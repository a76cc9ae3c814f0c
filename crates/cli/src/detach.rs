//! `explore --detach`: the command starts itself once more as a supervisor in a session of its own,
//! waits until that one has begun, and leaves. The supervisor holds no stream of the caller's: its
//! input is empty, its log is in the store, and its output ends with the exploration's identifier.

use forkpoint_explore::{Observer, Progress};
use forkpoint_model::Result;
use serde_json::json;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::app::App;
use crate::{codes, exit, output};

/// Says to the command that it is the supervisor.
const SUPERVISED: &str = "--supervised";

/// Starts the supervisor; returns once it has begun, with its own status if it could not.
pub(crate) fn start(app: &App) -> Result<u8> {
    let io = |e| codes::DETACH.io("cannot start a supervisor", e);
    let place = app.store()?.join("explorations");
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(&place)
        .map_err(io)?;
    let first = place.join(format!("detached-{}.log", std::process::id()));
    let log = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&first)
        .map_err(io)?;
    let mut child = Command::new("/proc/self/exe")
        .args(supervised(std::env::args_os().skip(1)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(io)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(io)?;
    }
    let id = line.trim();
    if id.is_empty() {
        let status = child.wait().map_err(io)?;
        output::say(std::fs::read_to_string(&first).map_err(io)?.trim_end());
        std::fs::remove_file(&first).map_err(io)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.unwrap_or(exit::INTERNAL));
    }
    let own = place.join(id);
    builder.create(&own).map_err(io)?;
    let log = own.join("supervisor.log");
    std::fs::rename(&first, &log).map_err(io)?;
    said(app, id, &log)?;
    Ok(exit::DONE)
}

fn said(app: &App, id: &str, log: &Path) -> Result<()> {
    if app.json() {
        let log = log.display().to_string();
        return output::print_json(
            &json!({"schema": "forkpoint.detached/1", "exploration": id, "log": log}),
        );
    }
    output::print(&format!("{id}\n"))
}

/// The same arguments, but for the one that detaches.
fn supervised(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let end = args.iter().position(|a| a == "--").unwrap_or(args.len());
    if let Some(at) = args[..end].iter().position(|a| a == "--detach") {
        args[at] = SUPERVISED.into();
    }
    args
}

/// What the supervisor does first: leaves the caller's session, so that no terminal's end reaches it.
pub(crate) fn leave_session() -> Result<()> {
    match rustix::process::setsid() {
        // It leads its session already: it was started that way.
        Ok(_) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(e) => Err(codes::DETACH.io("cannot begin a session", e)),
    }
}

/// Tells whoever started the supervisor that the exploration has begun, then lets go of its output.
pub(crate) struct Begun;

impl Observer for Begun {
    fn on(&mut self, progress: &Progress<'_>) {
        if let Progress::Begin { exploration, .. } = progress {
            let told = writeln!(std::io::stdout(), "{exploration}")
                .and_then(|()| std::io::stdout().flush())
                .and_then(|()| File::options().write(true).open("/dev/null"))
                .and_then(|null| rustix::stdio::dup2_stdout(&null).map_err(Into::into));
            if let Err(error) = told {
                output::say(&format!("nobody could be told that it began: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flag_is_replaced_and_nothing_of_the_command() {
        let args = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let of = |line: &str| supervised(args(line).into_iter());
        assert_eq!(
            of("explore --detach -n 2 -- x"),
            args("explore --supervised -n 2 -- x")
        );
        assert_eq!(of("explore -- x --detach"), args("explore -- x --detach"));
    }
}
