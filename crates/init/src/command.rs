//! Starting a command inside: a fork of init that enters the branch's namespaces, gives up what
//! it must not keep, and executes.

use crate::inner::{self, Inner};
use crate::protocol::ExecMessage;
use crate::spec::{Identity, Limits};
use forkpoint_sys::clone::{self, c_text};
use forkpoint_sys::seccomp::Filter;
use forkpoint_sys::{keyring, ns, signal};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Above every descriptor number that a command is given.
const ABOVE: i32 = 64;

/// Where a program without a slash is looked for when `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The steps of a start that can fail, as a byte on the pipe.
const STEPS: &[&str] = &[
    "arrange its descriptors",
    "enter the branch",
    "take the caller's ids",
    "enter the working directory",
    "leave the session's keys",
    "set resource limits",
    "set signals",
    "install the system-call filter",
    "execute",
];

/// What every command of a sandbox has in common.
pub struct Commands {
    /// Whose they are.
    pub identity: Identity,
    /// What bounds them.
    pub limits: Limits,
    /// Keep the caller's further groups: a device may be open to one of them alone.
    pub keep_groups: bool,
    /// Assembled once.
    pub filter: Filter,
    /// The starter's.
    pub umask: Mode,
}

/// A command that was forked; whether it got as far as executing is on the pipe.
pub struct Started {
    /// The process.
    pub child: clone::Child,
    failure: OwnedFd,
}

impl Started {
    /// Why it did not execute, once it has ended: the error number and what was tried.
    pub fn failure(&self, program: &OsStr) -> Option<(i32, String)> {
        let mut report = [0u8; 5];
        match rustix::io::read(&self.failure, &mut report) {
            Ok(5) => {
                let errno = i32::from_ne_bytes([report[0], report[1], report[2], report[3]]);
                let step = STEPS.get(usize::from(report[4])).unwrap_or(&"start");
                let what = format!("cannot {step} {}", program.to_string_lossy());
                Some((errno, what))
            }
            _ => None,
        }
    }
}

/// The descriptors of a command: 0, 1, 2 and perhaps 3.
pub type Streams = Vec<OwnedFd>;

impl Commands {
    /// Forks a command.
    pub fn start(
        &self,
        request: ExecMessage,
        streams: Streams,
        inner: &Inner,
    ) -> io::Result<Started> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let prepared = Prepared::new(request)?;
        match clone::fork(0)? {
            Some(child) => Ok(Started {
                child,
                failure: read,
            }),
            None => {
                let (step, e) = self.become_command(&prepared, &streams, inner);
                let mut report = [0u8; 5];
                report[..4].copy_from_slice(&e.raw_os_error().unwrap_or(0).to_ne_bytes());
                report[4] = step;
                // Nobody is left to tell where even this fails; the status says enough.
                rustix::io::write(&write, &report).unwrap_or(0);
                clone::exit_now(127)
            }
        }
    }

    fn become_command(
        &self,
        prepared: &Prepared,
        streams: &Streams,
        inner: &Inner,
    ) -> (u8, io::Error) {
        let steps: [&dyn Fn() -> io::Result<()>; 8] = [
            &|| arrange(streams, prepared),
            &|| inner::enter(inner),
            &|| self.take_ids(),
            &|| Ok(rustix::process::chdir(&prepared.cwd)?),
            &|| keyring::join_new_session().map(drop),
            &|| self.limit(),
            &|| reset_signals(self.umask),
            &|| self.filter.install(),
        ];
        for (number, step) in (0u8..).zip(&steps) {
            if let Err(e) = step() {
                return (number, e);
            }
        }
        (8, prepared.execute())
    }

    fn take_ids(&self) -> io::Result<()> {
        let (uid, gid) = self.identity.inside();
        // Groups that are not mapped mean nothing but access the user has anyway.
        let keep = self.keep_groups && self.identity.rootless();
        match if keep { Ok(()) } else { ns::drop_groups() } {
            Ok(()) => {}
            // A user who maps no ids may not change groups; those that are not mapped mean
            // nothing but access the user has anyway.
            Err(e) if e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {}
            Err(e) => return Err(e),
        }
        ns::become_ids(uid, gid)
    }

    fn limit(&self) -> io::Result<()> {
        let set = |resource, value| {
            let limit = Rlimit {
                current: Some(value),
                maximum: Some(value),
            };
            rustix::process::setrlimit(resource, limit)
        };
        // Exactly 1 keeps the kernel from handing a dump to a program of the host.
        set(Resource::Core, 1)?;
        if let Some(pids) = self.limits.pids {
            set(Resource::Nproc, pids)?;
        }
        Ok(())
    }
}

/// Moves the streams to their numbers; everything else is closed by the exec.
fn arrange(streams: &Streams, prepared: &Prepared) -> io::Result<()> {
    let mut moved = Vec::with_capacity(streams.len());
    for stream in streams {
        moved.push(clone::copy_above(stream.as_fd(), ABOVE)?);
    }
    for (number, stream) in (0..).zip(&moved) {
        clone::place(stream.as_fd(), number)?;
    }
    clone::close_on_exec_from(u32::try_from(moved.len()).unwrap_or(3).max(3))?;
    if prepared.new_session {
        rustix::process::setsid()?;
    }
    if let Some(terminal) = prepared.terminal.and_then(|number| moved.get(number)) {
        // Leading a session without one, it takes a terminal that no session has.
        rustix::process::ioctl_tiocsctty(terminal)?;
    }
    Ok(())
}

fn reset_signals(umask: Mode) -> io::Result<()> {
    rustix::process::umask(umask);
    signal::reset(&[signal::SIGPIPE, signal::SIGCHLD])
}

/// A command's texts in the form of the kernel.
struct Prepared {
    argv: Vec<CString>,
    env: Vec<CString>,
    candidates: Vec<CString>,
    cwd: PathBuf,
    new_session: bool,
    /// Which stream becomes the controlling terminal.
    terminal: Option<usize>,
}

impl Prepared {
    fn new(request: ExecMessage) -> io::Result<Self> {
        let streams = request.terminal.map(|terminal| terminal.streams);
        let argv: Vec<OsString> = request.argv.into_iter().map(Into::into).collect();
        let program = argv.first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut path = OsString::from(DEFAULT_PATH);
        let mut env = Vec::with_capacity(request.env.len());
        for (name, value) in request.env {
            let (name, value): (OsString, OsString) = (name.into(), value.into());
            if name == "PATH" {
                path.clone_from(&value);
            }
            let mut text = name.into_vec();
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
            env.push(c_text(OsStr::from_bytes(&text))?);
        }
        Ok(Self {
            candidates: candidates(program, &path)?,
            argv: argv
                .iter()
                .map(|arg| c_text(arg))
                .collect::<io::Result<_>>()?,
            env,
            cwd: OsString::from(request.cwd).into(),
            new_session: request.new_session || streams.is_some(),
            terminal: streams.and_then(|all| all.iter().position(|&one| one)),
        })
    }

    /// Tries each candidate. A permission that is missing on one does not end the search, but is
    /// what is reported when nothing else is found.
    fn execute(&self) -> io::Error {
        let mut denied = None;
        let mut last = io::Error::from(Errno::NOENT);
        for candidate in &self.candidates {
            last = clone::execute(candidate, &self.argv, &self.env);
            match Errno::from_io_error(&last) {
                Some(Errno::NOENT | Errno::NOTDIR) => last = Errno::NOENT.into(),
                Some(Errno::ACCESS) => denied = Some(Errno::ACCESS),
                _ => return last,
            }
        }
        denied.map_or(last, Into::into)
    }
}

fn candidates(program: &OsStr, path: &OsStr) -> io::Result<Vec<CString>> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return Ok(vec![c_text(program)?]);
    }
    let dirs = path.as_bytes().split(|&b| b == b':');
    dirs.map(|dir| {
        // An empty entry means the working directory.
        let mut full = if dir.is_empty() {
            b".".to_vec()
        } else {
            dir.to_vec()
        };
        full.push(b'/');
        full.extend_from_slice(program.as_bytes());
        c_text(OsStr::from_bytes(&full))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_in_path() {
        let find = |program: &str, path: &str| -> Vec<String> {
            candidates(OsStr::new(program), OsStr::new(path))
                .expect("candidates")
                .into_iter()
                .map(|c| c.into_string().expect("text"))
                .collect()
        };
        assert_eq!(find("sh", "/a:/b"), vec!["/a/sh", "/b/sh"]);
        assert_eq!(find("sh", ":/b"), vec!["./sh", "/b/sh"]);
        assert_eq!(find("./sh", "/a"), vec!["./sh"]);
    }
}
