//! Running other programs: with a time limit that reaches their children, and through cargo.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// How a bounded program ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// None: the time limit was reached and its process group was killed.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) wall: Duration,
}

/// Runs `command` in a process group of its own, with empty input and its output kept in files (a pipe would be held
/// open by any process it leaves behind). At `limit`, and when it has ended, what is left of the group is killed.
pub(crate) fn run_bounded(command: &mut Command, limit: Duration) -> Result<Finished> {
    let program = command.get_program().to_owned();
    let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(err.try_clone()?)
        .process_group(0);
    let start = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let group = Pid::from_child(&child);
    let (send, receive) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        // The receiver is only gone when this function has returned early with an error.
        let _gone = send.send(child.wait());
    });
    let status = match receive.recv_timeout(limit) {
        Ok(status) => Some(status?),
        Err(_) => None,
    };
    let wall = start.elapsed();
    match kill_process_group(group, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(e) => bail!(
            "cannot kill the processes {} left behind: {e}",
            program.display()
        ),
    }
    if waiter.join().is_err() {
        bail!("the thread waiting for {} panicked", program.display());
    }
    Ok(Finished {
        status,
        stdout: read_back(&mut out)?,
        stderr: read_back(&mut err)?,
        wall,
    })
}

fn read_back(file: &mut File) -> io::Result<String> {
    use std::io::{Read, Seek};
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The top of the source tree, from cargo's own description of this package.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = manifest.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    here.parent().map(Path::to_path_buf).unwrap_or(here)
}

/// Runs with this program's own output; an error when it fails.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Standard output of a command that has to succeed.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let shown = shown(command);
    let out = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !out.status.success() {
        bail!("`{shown}` failed ({})", out.status);
    }
    Ok(out.stdout)
}

/// A command as a person would type it in a shell.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(|w| quoted(&w.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether a program can be found on the search path.
pub(crate) fn on_path(name: &str) -> bool {
    find_on_path(name).is_some()
}

pub(crate) fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    // Administrators' tools are not on every ordinary user's path.
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(extra)
        .map(|dir| dir.join(name))
        .find(|p| is_executable(p))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Builds with `arguments` and returns cargo's JSON messages about what it made.
pub(crate) fn artifacts(arguments: &[OsString]) -> Result<Vec<Artifact>> {
    let mut command = cargo();
    command
        .args(arguments)
        .arg("--message-format=json-render-diagnostics");
    let bytes = output(&mut command)?;
    let mut found = Vec::new();
    for line in bytes.split(|&b| b == b'\n').filter(|l| l.starts_with(b"{")) {
        let message: serde_json::Value = serde_json::from_slice(line)?;
        if message["reason"] == "compiler-artifact" {
            found.extend(Artifact::from_json(&message));
        }
    }
    Ok(found)
}

/// The `forkpoint` executable: `FORKPOINT_BIN` where that is set, else built in the given profile.
pub(crate) fn forkpoint(release: bool) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("FORKPOINT_BIN") {
        return Ok(std::path::absolute(given)?);
    }
    let mut arguments = vec!["build", "--package", "forkpoint-cli"];
    if release {
        arguments.push("--release");
    }
    println!(
        "building the command ({} profile)",
        if release { "release" } else { "development" }
    );
    let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
    let built = artifacts(&arguments)?;
    let found = built
        .into_iter()
        .find(|a| a.target == "forkpoint" && a.kind == "bin");
    Ok(found.context("cargo built no `forkpoint`")?.executable)
}

/// An executable that cargo built.
#[derive(Debug, Clone)]
pub(crate) struct Artifact {
    pub(crate) package: String,
    pub(crate) target: String,
    pub(crate) kind: String,
    pub(crate) is_test: bool,
    pub(crate) package_dir: PathBuf,
    pub(crate) executable: PathBuf,
}

impl Artifact {
    fn from_json(message: &serde_json::Value) -> Option<Artifact> {
        let executable = PathBuf::from(message["executable"].as_str()?);
        let package_dir = Path::new(message["manifest_path"].as_str()?)
            .parent()?
            .to_path_buf();
        let package = package_dir.file_name()?.to_str()?.to_owned();
        Some(Artifact {
            package,
            target: message["target"]["name"].as_str()?.to_owned(),
            kind: message["target"]["kind"][0].as_str()?.to_owned(),
            is_test: message["profile"]["test"].as_bool()?,
            package_dir,
            executable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_over_its_time_is_killed_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 600 & sleep 600; echo never"]);
        let finished = run_bounded(&mut command, Duration::from_millis(300)).unwrap();
        assert!(finished.status.is_none());
        assert_eq!(finished.stdout, "begun\n");
        assert!(finished.wall < Duration::from_secs(60));
    }

    #[test]
    fn a_shown_command_can_be_typed() {
        let mut command = Command::new("/usr/bin/x");
        command.args(["-a", "two words", "it's", ""]);
        assert_eq!(shown(&command), r"x -a 'two words' 'it'\''s' ''");
    }

    #[test]
    fn a_left_behind_child_does_not_keep_us_waiting() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo done; exit 3"]);
        let finished = run_bounded(&mut command, Duration::from_secs(60)).unwrap();
        assert_eq!(finished.status.and_then(|s| s.code()), Some(3));
        assert_eq!(finished.stdout, "done\n");
        assert!(finished.wall < Duration::from_secs(30));
    }
}
