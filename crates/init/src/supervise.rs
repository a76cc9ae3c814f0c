//! Pid 1's life: one poll loop that takes requests, starts commands, reaps, watches limits, and
//! knows when it is over. Single-threaded; nothing in it waits for a peer.

mod holding;

use crate::codes::{GONE, PROTOCOL, SETUP};
use crate::command::{Commands, Started, Streams};
use crate::conn::{self, Conn, MAX_CONTROL};
use crate::freeze::Frozen;
use crate::inner::Inner;
use crate::procs;
use crate::protocol::{ExecMessage, FromInit, ToCommand, ToInit};
use crate::spec::{ExitKind, ExitReport, Limit};
use crate::tty::Terminals;
use crate::watch::Watch;
use forkpoint_model::Error;
use forkpoint_sys::clone::{Ended, Found, Reaped, reap_any};
use forkpoint_sys::{clock, scm, signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The most control connections and commands at a time.
const MAX_CONTROLS: usize = 64;
const MAX_COMMANDS: usize = 1024;
/// Mounts that are no longer needed are let go of one by one, each after this long without work.
const SPENT_AFTER_NS: u64 = 10_000_000;

/// A command that runs.
struct Running {
    started: Started,
    program: OsString,
    reply: Conn,
    began_ns: u64,
    /// Nobody waits for it any more.
    abandoned: bool,
    /// Its end of its terminal: while it is held the other end reads no hang-up, however often the
    /// command closes and opens its terminal.
    terminal: Option<OwnedFd>,
}

/// Everything init holds while commands run.
pub struct Init {
    /// The starter's connection, until it closes.
    pub starter: Option<Conn>,
    /// End everything when the starter's connection closes.
    pub lifeline: bool,
    /// Where others attach.
    pub listener: Option<OwnedFd>,
    /// The branch's own socket, which engines accept from.
    pub branch: Option<OwnedFd>,
    /// The namespaces of commands.
    pub inner: Inner,
    /// Init's own `/proc`.
    pub proc: OwnedFd,
    /// What commands have in common.
    pub commands: Commands,
    /// The watcher.
    pub watch: Watch,
    /// What could not be captured.
    pub warnings: Vec<String>,
    /// Mounts that building the view needed, let go of while the first command runs.
    pub spent: Vec<OwnedFd>,
    /// Readable when a child ended.
    pub signals: OwnedFd,
    /// Where terminals are made.
    pub terminals: Terminals,
    controls: Vec<Conn>,
    running: HashMap<u32, Running>,
    frozen: Option<Frozen>,
    /// Frozen until told to resume, not for a moment only.
    paused: bool,
    /// How many connections hold everything.
    holders: usize,
    limit: Option<Limit>,
}

/// What a poll entry stands for.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Starter,
    Listener,
    Control(usize),
    Command(u32),
}

/// The parts of [`Init`] that setting up provides.
pub struct Parts {
    /// See [`Init::starter`].
    pub starter: Conn,
    /// See [`Init::lifeline`].
    pub lifeline: bool,
    /// See [`Init::listener`].
    pub listener: Option<OwnedFd>,
    /// See [`Init::branch`].
    pub branch: Option<OwnedFd>,
    /// See [`Init::inner`].
    pub inner: Inner,
    /// See [`Init::proc`].
    pub proc: OwnedFd,
    /// See [`Init::commands`].
    pub commands: Commands,
    /// See [`Init::watch`].
    pub watch: Watch,
    /// See [`Init::warnings`].
    pub warnings: Vec<String>,
    /// See [`Init::spent`].
    pub spent: Vec<OwnedFd>,
    /// See [`Init::signals`].
    pub signals: OwnedFd,
    /// See [`Init::terminals`].
    pub terminals: Terminals,
}

impl Init {
    /// Takes over from setting up.
    pub fn new(parts: Parts) -> Self {
        Self {
            starter: Some(parts.starter),
            lifeline: parts.lifeline,
            listener: parts.listener,
            branch: parts.branch,
            inner: parts.inner,
            proc: parts.proc,
            commands: parts.commands,
            watch: parts.watch,
            warnings: parts.warnings,
            spent: parts.spent,
            signals: parts.signals,
            terminals: parts.terminals,
            controls: Vec::new(),
            running: HashMap::new(),
            frozen: None,
            paused: false,
            holders: 0,
            limit: None,
        }
    }

    /// Runs until it is over; the caller then exits, and with it everything inside.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            let anybody = self.reap()?;
            if self.over(anybody) {
                return Ok(());
            }
            let ready = self.wait()?;
            if ready.is_empty() {
                // Letting go of a mount waits for every processor, so only while nobody waits for us.
                drop(self.spent.pop());
            }
            for source in ready {
                self.serve(source)?;
            }
            if self.limit.is_none()
                && let Some(limit) = self.watch.look(self.proc.as_fd())?
            {
                self.hit(limit)?;
            }
        }
    }

    /// Over: the lifeline broke; or nothing runs and nobody holds on.
    fn over(&self, anybody: bool) -> bool {
        if self.starter.is_none() && self.lifeline {
            return true;
        }
        !anybody && self.starter.is_none() && self.controls.is_empty()
    }

    /// Reaps all that ended, reports commands. `false`: no process is left inside.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            match reap_any()? {
                Found::Dead(reaped) => self.ended(reaped)?,
                Found::Alive => return Ok(true),
                Found::Nobody => return Ok(false),
            }
        }
    }

    fn ended(&mut self, reaped: Reaped) -> io::Result<()> {
        let killed = reaped.ended == Ended::Signal(signal::SIGKILL);
        if killed
            && self.limit.is_none()
            && let Some(limit) = self.watch.blame()
        {
            self.hit(limit)?;
        }
        // Orphans of commands are reaped without a word.
        let Some(mut command) = self.running.remove(&reaped.pid) else {
            return Ok(());
        };
        drop(command.terminal.take());
        let status = self.status(&command, &reaped);
        let left = procs::pids(self.proc.as_fd()).map_or(0, |pids| pids.len());
        let report = ExitReport {
            status,
            wall_ns: clock::monotonic_ns().saturating_sub(command.began_ns),
            cpu_ns: reaped.cpu_ns,
            peak_memory_bytes: self.watch.peak().max(reaped.max_rss_bytes),
            left_running: u32::try_from(left).unwrap_or(u32::MAX),
        };
        answer(&command.reply, &FromInit::Exited(report));
        Ok(())
    }

    fn status(&self, command: &Running, reaped: &Reaped) -> ExitKind {
        if let Some((errno, what)) = command.started.failure(&command.program) {
            return ExitKind::StartFailed { errno, what };
        }
        if let Some(limit) = self.limit {
            return ExitKind::LimitHit(limit);
        }
        match reaped.ended {
            Ended::Signal(signal) => ExitKind::Signal(signal),
            Ended::Code(code) => ExitKind::Code(code),
        }
    }

    fn hit(&mut self, limit: Limit) -> io::Result<()> {
        self.limit = Some(limit);
        signal::send_all_from_init(signal::SIGKILL)?;
        Ok(())
    }

    /// Waits for something to do.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Signals];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(starter) = &self.starter {
            sources.push(Source::Starter);
            fds.push(PollFd::new(starter, PollFlags::IN));
        }
        if let Some(listener) = &self.listener {
            sources.push(Source::Listener);
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        for (index, control) in self.controls.iter().enumerate() {
            sources.push(Source::Control(index));
            fds.push(PollFd::new(control, PollFlags::IN));
        }
        for (pid, command) in self.running.iter().filter(|(_, c)| !c.abandoned) {
            sources.push(Source::Command(*pid));
            fds.push(PollFd::new(&command.reply, PollFlags::IN));
        }
        let due = if self.limit.is_none() {
            self.watch.due_in()
        } else {
            None
        };
        let due = match self.spent.is_empty() {
            true => due,
            false => Some(due.map_or(SPENT_AFTER_NS, |due| due.min(SPENT_AFTER_NS))),
        };
        let timeout = due.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready = fds
            .iter()
            .zip(sources)
            .filter(|(fd, _)| !fd.revents().is_empty());
        // Highest index first: dropping one must not move another that is still to be served.
        let mut ready: Vec<Source> = ready.map(|(_, source)| source).collect();
        ready.reverse();
        Ok(ready)
    }

    fn serve(&mut self, source: Source) -> io::Result<()> {
        match source {
            Source::Signals => signal::drain(self.signals.as_fd())?,
            Source::Starter => {
                if let Some(mut starter) = self.starter.take()
                    && self.requests(&mut starter)
                {
                    self.starter = Some(starter);
                }
            }
            Source::Listener => self.attach(),
            Source::Control(index) => {
                let mut control = self.controls.swap_remove(index);
                if self.requests(&mut control) {
                    self.controls.push(control);
                }
            }
            Source::Command(pid) => self.command_message(pid),
        }
        Ok(())
    }

    /// A new control connection. The socket lies outside of every branch and only its owner and
    /// root may connect (its file's mode says so); a process of this branch never may, even if it
    /// were to reach it.
    fn attach(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(listener, flags) else {
            return;
        };
        let outside = scm::peer(socket.as_fd()).is_ok_and(|peer| peer.pid == 0);
        if outside && self.controls.len() < MAX_CONTROLS {
            self.controls.push(Conn::new(socket, MAX_CONTROL));
        }
    }

    /// Serves what a control connection sent. `false`: it closed, or does not speak our language; what
    /// it held goes on.
    fn requests(&mut self, control: &mut Conn) -> bool {
        let open = self.read_requests(control);
        if !open && control.holds {
            self.holders -= 1;
            // Nobody is there to be told what could not be continued.
            self.thaw().unwrap_or(());
        }
        open
    }

    fn read_requests(&mut self, control: &mut Conn) -> bool {
        match control.fill() {
            Ok(true) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Ok(false) | Err(_) => return false,
        }
        loop {
            match control.take::<ToInit>() {
                Ok(Some((request, fds))) => {
                    match request {
                        ToInit::Hold if !control.holds => {
                            control.holds = true;
                            self.holders += 1;
                        }
                        ToInit::Thaw if control.holds => {
                            control.holds = false;
                            self.holders -= 1;
                        }
                        _ => {}
                    }
                    self.request(request, fds);
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn request(&mut self, request: ToInit, mut fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            return;
        }
        let reply = fds.remove(0);
        if rustix::io::ioctl_fionbio(&reply, true).is_err() {
            return;
        }
        let reply = Conn::new(reply, MAX_CONTROL);
        if let ToInit::Exec(message) = request {
            self.exec(message, fds, reply);
            return;
        }
        let result = match request {
            ToInit::Exec(_) => return,
            ToInit::Freeze | ToInit::Hold => self.freeze().map(|()| FromInit::Done),
            ToInit::Thaw => self.thaw().map(|()| FromInit::Done),
            ToInit::Usage { walk } => self.usage(walk),
            ToInit::Warnings => Ok(FromInit::Warnings(self.warnings.clone())),
            ToInit::Pause => self.pause().map(|()| FromInit::Done),
            ToInit::Resume => self.resume().map(|()| FromInit::Done),
            ToInit::IsPaused => Ok(FromInit::Paused(self.paused)),
            ToInit::Connect { port, ipv6 } => return self.connect(&reply, port, ipv6),
            ToInit::BranchSocket => return self.hand_over(&reply),
        };
        answer(&reply, &result.unwrap_or_else(FromInit::Failed));
    }

    fn usage(&mut self, walk: bool) -> Result<FromInit, Error> {
        let proc = self.proc.as_fd();
        let taken = if walk {
            self.watch.usage(proc)
        } else {
            self.watch.usage_now(proc)
        };
        let usage = taken.map_err(|e| SETUP.io("cannot look at the branch's processes", e))?;
        let limit = self.limit;
        Ok(FromInit::Usage { usage, limit })
    }

    fn exec(&mut self, message: ExecMessage, mut streams: Streams, reply: Conn) {
        let refused = |why: &str| FromInit::Failed(GONE.error(why));
        if self.frozen.is_some() {
            return answer(
                &reply,
                &refused("the branch is paused: forkpoint resume lets it go on"),
            );
        }
        if self.limit.is_some() {
            return answer(&reply, &refused("the branch hit a limit and was ended"));
        }
        if self.running.len() >= MAX_COMMANDS {
            return answer(&reply, &refused("too many commands at once"));
        }
        if streams.len() != 3 + usize::from(message.score) {
            let error = PROTOCOL.error("a command needs three streams");
            return answer(&reply, &FromInit::Failed(error));
        }
        let program: OsString = message
            .argv
            .first()
            .map_or_else(OsString::new, |first| first.clone().into());
        let pair = match &message.terminal {
            Some(terminal) => match self.terminals.open(terminal, &mut streams) {
                Ok(pair) => Some(pair),
                Err(e) => return answer(&reply, &FromInit::Exited(not_started(&e))),
            },
            None => None,
        };
        match self.commands.start(message, streams, &self.inner) {
            Ok(started) => {
                let terminal = pair.map(|pair| {
                    // Who asked may have gone; then the terminal hangs up at once.
                    let master = [pair.master.as_fd()];
                    conn::send(reply.as_fd(), &FromInit::Terminal, &master).unwrap_or(());
                    pair.slave
                });
                let running = Running {
                    program,
                    reply,
                    began_ns: clock::monotonic_ns(),
                    abandoned: false,
                    started,
                    terminal,
                };
                self.running.insert(running.started.child.pid, running);
            }
            Err(e) => answer(&reply, &FromInit::Exited(not_started(&e))),
        }
    }

    fn command_message(&mut self, pid: u32) {
        let Some(command) = self.running.get_mut(&pid) else {
            return;
        };
        match command.reply.fill() {
            Ok(true) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            Ok(false) | Err(_) => {
                command.abandoned = true;
                return;
            }
        }
        while let Ok(Some((message, _))) = command.reply.take::<ToCommand>() {
            let child = &command.started.child;
            let sent = match message {
                ToCommand::Signal(number) => signal::send(child.pidfd.as_fd(), number),
                // Not reaped yet, so that its number is still its own.
                ToCommand::SignalGroup(number) => signal::send_group(child.pid, number)
                    .or_else(|_| signal::send(child.pidfd.as_fd(), number)),
            };
            // It may have ended already: then there is nobody to signal.
            if sent.is_err() {
                return;
            }
        }
    }
}

fn not_started(e: &io::Error) -> ExitReport {
    ExitReport {
        status: ExitKind::StartFailed {
            errno: e.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()),
            what: format!("cannot start a process: {e}"),
        },
        wall_ns: 0,
        cpu_ns: 0,
        peak_memory_bytes: 0,
        left_running: 0,
    }
}

/// Answers; whoever asked may have gone, and then nobody is told.
fn answer(reply: &Conn, message: &FromInit) {
    conn::send(reply.as_fd(), message, &[]).unwrap_or(());
}
