//! Running commands in a branch, in the manner of `std::process::Command`.

use crate::branch::Branch;
use crate::codes;
use crate::relay::{self, Relay};
use forkpoint_model::Result;
use forkpoint_sandbox::{
    ExecRequest, ExitKind, ExitReport, FinalUsage, Limits, Network, Running, Sandbox, Terminal,
    TerminalSpec, Usage,
};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Where a command's standard stream leads.
#[derive(Debug, Default)]
pub enum Stream {
    /// `/dev/null`.
    #[default]
    Null,
    /// The caller's own stream. A file is not passed on, since the command could open it again in
    /// another way, nor is a terminal, since what the command leaves behind could read what is typed
    /// there later: it is read, or written, by a thread of the caller's, until [`Child::wait`].
    Inherit,
    /// A pipe whose other end the [`Child`] holds.
    Piped,
    /// This descriptor, as it is. What it refers to is in the command's reach: through
    /// `/proc/self/fd` it can be opened again, for whatever its mode allows the caller.
    Fd(OwnedFd),
    /// A terminal of the branch's own, the same one for every stream that asks for it: the command
    /// leads a session and has it as its controlling terminal. [`Child::terminal`] is its other end.
    Terminal,
}

/// A command to run in a branch. The environment is the caller's less its secrets.
pub struct Command {
    branch: Branch,
    argv: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    cwd: Option<PathBuf>,
    stdin: Stream,
    stdout: Stream,
    stderr: Stream,
    proposal: Option<OwnedFd>,
    pub(crate) start: StartOptions,
    new_session: bool,
    terminal: TerminalSpec,
}

/// How the branch is started, if it is not running yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StartOptions {
    pub(crate) limits: Limits,
    pub(crate) network: Option<Network>,
    pub(crate) lifeline: bool,
}

/// A command's result with its output.
#[derive(Debug, Clone)]
pub struct Output {
    /// How it ended.
    pub exit: ExitReport,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

impl Command {
    pub(crate) fn new(branch: Branch, program: &OsStr) -> Self {
        Self {
            branch,
            argv: vec![program.to_owned()],
            env: Vec::new(),
            cwd: None,
            stdin: Stream::Null,
            stdout: Stream::Inherit,
            stderr: Stream::Inherit,
            proposal: None,
            start: StartOptions::default(),
            new_session: false,
            terminal: TerminalSpec::default(),
        }
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.argv
            .extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.env
            .push((key.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes a variable.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Self {
        self.env.push((key.as_ref().to_owned(), None));
        self
    }

    /// The directory to start in; the base when not set.
    pub fn current_dir(&mut self, dir: impl Into<PathBuf>) -> &mut Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Standard input; empty when not set.
    pub fn stdin(&mut self, stream: Stream) -> &mut Self {
        self.stdin = stream;
        self
    }

    /// Standard output; inherited when not set.
    pub fn stdout(&mut self, stream: Stream) -> &mut Self {
        self.stdout = stream;
        self
    }

    /// Standard error; inherited when not set.
    pub fn stderr(&mut self, stream: Stream) -> &mut Self {
        self.stderr = stream;
        self
    }

    /// Descriptor 3, on which a command of a branch at the reasoning layer can say its proposal apart
    /// from what else it prints; not there when not set. A file is not passed on itself, as with
    /// [`Stream::Inherit`].
    pub fn proposal(&mut self, to: OwnedFd) -> &mut Self {
        self.proposal = Some(to);
        self
    }

    /// Limits of everything in the branch. They count from the start of the branch's processes: a
    /// branch that is running already keeps the ones it has.
    pub fn limits(&mut self, limits: Limits) -> &mut Self {
        self.start.limits = limits;
        self
    }

    /// The network, instead of what the branch was forked with.
    pub fn network(&mut self, network: Network) -> &mut Self {
        self.start.network = Some(network);
        self
    }

    /// What its terminal is like at first, where a stream is one ([`Stream::Terminal`]).
    pub fn terminal(&mut self, spec: TerminalSpec) -> &mut Self {
        self.terminal = spec;
        self
    }

    /// Runs it in a session of its own, without a controlling terminal.
    pub fn new_session(&mut self, yes: bool) -> &mut Self {
        self.new_session = yes;
        self
    }

    /// Ends everything in the branch when this process ends.
    pub fn lifeline(&mut self, yes: bool) -> &mut Self {
        self.start.lifeline = yes;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the branch is not open, when its processes cannot be started on this machine (kind
    /// `Unavailable`), or when the streams cannot be made. A program that does not exist is reported
    /// by [`Child::wait`].
    pub fn spawn(&mut self) -> Result<Child> {
        let streams = [&self.stdin, &self.stdout, &self.stderr]
            .map(|stream| matches!(stream, Stream::Terminal));
        let terminal = streams.contains(&true).then(|| Terminal {
            spec: self.terminal.clone(),
            streams,
        });
        let (stdin, keep_in, relay_in) = open(std::mem::take(&mut self.stdin), Direction::In)?;
        let (stdout, keep_out, relay_out) = open(std::mem::take(&mut self.stdout), Direction::Out)?;
        let (stderr, keep_err, relay_err) = open(std::mem::take(&mut self.stderr), Direction::Err)?;
        let (proposal, relay_proposal) = match self.proposal.take() {
            Some(own) => {
                let (theirs, relay) = relay::guard(own, Direction::Out)?;
                (Some(theirs), relay)
            }
            None => (None, None),
        };
        let cwd = match &self.cwd {
            Some(dir) => dir.clone(),
            None => self.branch.base()?,
        };
        let (sandbox, layer) = self.branch.running(self.start)?;
        let env = self.branch.environment(layer, &self.env);
        let mut running = sandbox.exec(ExecRequest {
            argv: self.argv.clone(),
            env,
            cwd,
            stdin,
            stdout,
            stderr,
            score_fd: proposal,
            new_session: self.new_session,
            terminal,
        })?;
        Ok(Child {
            sandbox,
            terminal: running.take_terminal(),
            running: Some(running),
            stdin: keep_in,
            stdout: keep_out,
            stderr: keep_err,
            relays: [relay_in, relay_out, relay_err, relay_proposal]
                .into_iter()
                .flatten()
                .collect(),
            killed: OnceLock::new(),
        })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait`].
    pub fn status(&mut self) -> Result<ExitReport> {
        self.spawn()?.wait()
    }

    /// Runs it to its end and collects its output.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait`].
    pub fn output(&mut self) -> Result<Output> {
        self.stdout = Stream::Piped;
        self.stderr = Stream::Piped;
        let mut child = self.spawn()?;
        let collect = |file: Option<File>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut file) = file {
                    file.read_to_end(&mut bytes)?;
                }
                Ok::<_, std::io::Error>(bytes)
            })
        };
        let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let exit = child.wait()?;
        let joined = |thread: std::thread::JoinHandle<std::io::Result<Vec<u8>>>| {
            thread
                .join()
                .map_err(|_| codes::INTERNAL.error("a reading thread panicked"))?
                .map_err(|e| codes::IO.io("cannot read a command's output", e))
        };
        Ok(Output {
            exit,
            stdout: joined(out)?,
            stderr: joined(err)?,
        })
    }
}

/// A command that was started in a branch.
pub struct Child {
    sandbox: Sandbox,
    running: Option<Running>,
    /// The writing end of its standard input, when it was piped.
    pub stdin: Option<File>,
    /// The reading end of its standard output, when it was piped.
    pub stdout: Option<File>,
    /// The reading end of its standard error, when it was piped.
    pub stderr: Option<File>,
    /// The controlling end of its terminal, when it has one. What the command writes there has to be
    /// read until its end, or it waits. Closing it hangs the terminal up: the command and its
    /// foreground jobs are sent `SIGHUP`.
    pub terminal: Option<OwnedFd>,
    relays: Vec<Relay>,
    /// What everything in the branch had used when [`Child::kill`] ended it: nobody is left to say so.
    killed: OnceLock<FinalUsage>,
}

impl Child {
    fn running(&self) -> Result<&Running> {
        self.running
            .as_ref()
            .ok_or_else(|| codes::STATE.error("this command was waited for already"))
    }

    /// Waits for its end. Its standard input is closed first.
    ///
    /// # Errors
    /// `FP0411` when it could not be started; kind `Closed` when the branch was killed from elsewhere
    /// before anything could be said of the command.
    pub fn wait(&mut self) -> Result<ExitReport> {
        self.stdin = None;
        let running = self
            .running
            .take()
            .ok_or_else(|| codes::STATE.error("this command was waited for already"))?;
        let report = running.wait();
        // The output is complete before the end is told of.
        for relay in self.relays.drain(..) {
            relay.finish()?;
        }
        let mut report = report?;
        if let Some(last) = self.killed.get() {
            report.cpu_ns = report.cpu_ns.max(last.usage.cpu_ns);
            let peak = report.peak_memory_bytes.max(last.usage.peak_memory_bytes);
            report.peak_memory_bytes = peak;
        }
        if let ExitKind::StartFailed { errno, what } = &report.status {
            let cause = std::io::Error::from_raw_os_error(*errno);
            return Err(codes::COMMAND.io(what, cause));
        }
        Ok(report)
    }

    /// Readable when it has ended.
    ///
    /// # Errors
    /// When it was waited for already.
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.running()?.wait_fd())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.running()?.signal(signal)
    }

    /// Sends a signal to its process group, as a key on a terminal would; to it alone where it leads
    /// no group ([`Command::new_session`] makes it lead one).
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal_group(&self, signal: i32) -> Result<()> {
        self.running()?.signal_group(signal)
    }

    /// Kills everything in its branch and waits until all of it is dead.
    ///
    /// # Errors
    /// When that cannot be made certain.
    pub fn kill(&self) -> Result<()> {
        let last = self.sandbox.kill()?;
        self.killed.get_or_init(|| last);
        Ok(())
    }

    /// What its branch uses at the moment.
    ///
    /// # Errors
    /// When the branch has ended.
    pub fn usage(&self) -> Result<Usage> {
        self.sandbox.usage()
    }

    /// What could not be captured or limited, said plainly.
    pub fn warnings(&self) -> &[String] {
        self.sandbox.warnings()
    }

    /// The sandbox it runs in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Direction {
    In,
    Out,
    Err,
}

/// The command's end of a stream, and ours where there is one.
fn open(stream: Stream, direction: Direction) -> Result<(OwnedFd, Option<File>, Option<Relay>)> {
    let io = |what: &'static str| move |e: rustix::io::Errno| codes::IO.io(what, e);
    match stream {
        Stream::Fd(fd) => Ok((fd, None, None)),
        // Init puts the terminal in its place.
        Stream::Null | Stream::Terminal => Ok((null()?, None, None)),
        Stream::Inherit => {
            let own = match direction {
                Direction::In => std::io::stdin().as_fd().try_clone_to_owned(),
                Direction::Out => std::io::stdout().as_fd().try_clone_to_owned(),
                Direction::Err => std::io::stderr().as_fd().try_clone_to_owned(),
            };
            // A caller whose stream is closed gives its command an empty one.
            let (theirs, relay) = relay::guard(own.or_else(|_| null())?, direction)?;
            Ok((theirs, None, relay))
        }
        Stream::Piped => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(io("cannot make a pipe"))?;
            Ok(match direction {
                Direction::In => (read, Some(File::from(write)), None),
                Direction::Out | Direction::Err => (write, Some(File::from(read)), None),
            })
        }
    }
}

pub(crate) fn null() -> Result<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| codes::IO.io("cannot open /dev/null", e))
}
