//! A directory, a store, and the real binary. `FORKPOINT_TEST_BIN` names another binary, for runs as
//! an ordinary user from a place that user can read.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

pub mod pages;

use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

pub struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    /// With these files in the base.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lab = Self { dir };
        std::fs::create_dir(lab.base()).unwrap();
        for (name, text) in files {
            let path = lab.base().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        lab
    }

    pub fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.base().join(name)).ok()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let binary = std::env::var_os("FORKPOINT_TEST_BIN")
            .unwrap_or_else(|| OsString::from(env!("CARGO_BIN_EXE_forkpoint")));
        let mut command = Command::new(binary);
        command
            .args(args)
            .current_dir(self.base())
            .env("FORKPOINT_HOME", self.store());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    pub fn run(&self, args: &[&str]) -> Done {
        Done::of(args, self.command(args).output().unwrap())
    }

    /// Runs with `--json`; the whole of standard output must be one document.
    pub fn json(&self, args: &[&str]) -> (Value, Done) {
        let (verb, rest) = args.split_first().unwrap();
        let all: Vec<&str> = [*verb, "--json"].iter().chain(rest).copied().collect();
        let done = self.run(&all);
        let document =
            serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}\n{done:?}"));
        (document, done)
    }

    /// Waits until the base or the store holds `path`.
    pub fn wait_for(&self, path: &Path) {
        wait_until(Duration::from_secs(20), || path.exists())
            .unwrap_or_else(|| panic!("{} never came", path.display()));
    }
}

#[derive(Debug)]
pub struct Done {
    pub args: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    pub fn of(args: &[&str], output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            args: args.join(" "),
            status: output.status,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }
}

/// Looks every few milliseconds, by waiting on a pipe that nobody writes to.
pub fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> Option<Duration> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if done() {
            return Some(begun.elapsed());
        }
        let mut fds = [PollFd::new(&reader, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 5_000_000,
            }),
        )
        .unwrap();
    }
    None
}

/// Processes of this machine whose arguments contain `mark`.
pub fn processes_with(mark: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if pid != std::process::id() && String::from_utf8_lossy(&line).contains(mark) {
            found.push(pid);
        }
    }
    found
}

/// Those among them that are a shell with it as its script. What a command of ours has forked shows
/// the command's arguments until it has executed something else.
pub fn shells_with(mark: &str) -> Vec<u32> {
    let mut found = processes_with(mark);
    found.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"sh\0-c\0") || line.starts_with(b"/bin/sh\0-c\0")
    });
    found
}

pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}
