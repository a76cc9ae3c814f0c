//! The thread that serves: one poll loop over every listener and connection of the branches that
//! this process runs. One request of each connection is served per round, so that nobody's flood
//! keeps another waiting for more than a round, and everything it keeps is bounded per branch.

use super::connection::{Connection, Got};
use super::request::{self, Id, Request};
use super::workers::{Job, Workers, full};
use super::{Capability, Init, Letter, Mail, locked, ops};
use crate::codes;
use crate::engine::Inner;
use forkpoint_model::Result;
use forkpoint_sandbox::{Asked, Door};
use forkpoint_sys::{clock, scm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

/// The most connections of one branch; a further one takes the place of the one that was idle for
/// longest.
const MAX_CONNECTIONS: usize = 16;
/// So many are accepted of one branch per round.
const ACCEPTED_AT_ONCE: usize = 4;
/// The most bytes that are kept for one branch: lines that came in and answers that are not read.
const MAX_KEPT: usize = 8 << 20;
/// How long the rest of a line, or the reading of an answer, may take.
const PATIENCE_NS: u64 = 30_000_000_000;
/// What is read of one connection at a time.
const SCRATCH: usize = 64 << 10;

/// One branch that is served.
struct Served {
    capability: Capability,
    init: Init,
    state: State,
    connections: Vec<Connection>,
}

enum State {
    /// Init was asked for the listener.
    Asked(Asked),
    Open(Door),
    /// It has ended.
    Over,
}

struct Table {
    engine: Weak<Inner>,
    mail: Arc<Mail>,
    workers: Workers,
    served: Vec<Served>,
    /// The number of connections ever made.
    made: u64,
}

/// What a poll entry stands for.
#[derive(Clone, Copy)]
enum Source {
    Bell,
    Asked(usize),
    Listener(usize),
    End(usize),
    Connection(usize, u64),
}

/// Serves until it is told to stop.
pub(super) fn run(engine: Weak<Inner>, mail: Arc<Mail>) {
    let mut table = Table {
        workers: Workers::new(engine.clone(), mail.clone()),
        engine,
        mail,
        served: Vec::new(),
        made: 0,
    };
    let mut scratch = vec![0; SCRATCH];
    loop {
        // Nothing can be waited for any more: the connections close, which tells whoever asks.
        let Ok(ready) = table.wait() else { return };
        let now = clock::monotonic_ns();
        for (source, flags) in ready {
            match source {
                Source::Bell => {
                    if !table.letters() {
                        return;
                    }
                }
                Source::Asked(at) => table.opened(at),
                Source::Listener(at) => table.accept(at, now),
                Source::End(at) => table.served[at].state = State::Over,
                Source::Connection(at, key) => {
                    table.served[at].hear(key, flags, &mut scratch, now);
                }
            }
        }
        table.answer_round(now);
        table.sweep(now);
    }
}

impl Table {
    fn wait(&self) -> rustix::io::Result<Vec<(Source, PollFlags)>> {
        let mut sources = vec![Source::Bell];
        let mut fds = vec![PollFd::new(&self.mail.bell, PollFlags::IN)];
        let (mut more, mut due) = (false, None);
        for (at, served) in self.served.iter().enumerate() {
            match &served.state {
                State::Asked(asked) => {
                    sources.push(Source::Asked(at));
                    fds.push(PollFd::from_borrowed_fd(asked.fd(), PollFlags::IN));
                }
                State::Open(door) => {
                    sources.extend([Source::Listener(at), Source::End(at)]);
                    fds.push(PollFd::new(&door.listener, PollFlags::IN));
                    fds.push(PollFd::new(&door.ended, PollFlags::IN));
                }
                State::Over => {}
            }
            for connection in &served.connections {
                more |= connection.has_request();
                if connection.waits() {
                    let end = connection.active_ns.saturating_add(PATIENCE_NS);
                    due = Some(due.map_or(end, |due: u64| due.min(end)));
                }
                let mut wanted = PollFlags::empty();
                wanted.set(PollFlags::IN, connection.wants_input());
                wanted.set(PollFlags::OUT, connection.wants_output());
                // Without a wish there is nothing to be told, not even that it hung up.
                if !wanted.is_empty() {
                    sources.push(Source::Connection(at, connection.key));
                    fds.push(PollFd::new(&connection.socket, wanted));
                }
            }
        }
        let timeout = match (more, due) {
            (true, _) => Some(0),
            (false, Some(due)) => Some(due.saturating_sub(clock::monotonic_ns())),
            (false, None) => None,
        };
        let timeout = timeout.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        rustix::io::retry_on_intr(|| poll(&mut fds, timeout.as_ref()))?;
        let ready = fds.iter().zip(sources);
        Ok(ready
            .filter(|(fd, _)| !fd.revents().is_empty())
            .map(|(fd, source)| (source, fd.revents()))
            .collect())
    }

    /// Reads what was told. `false`: to stop.
    fn letters(&mut self) -> bool {
        // Its only failure is that nothing is there to be read, which is as good.
        rustix::io::read(&self.mail.bell, &mut [0; 8]).ok();
        let letters = std::mem::take(&mut *locked(&self.mail.letters));
        let now = clock::monotonic_ns();
        for letter in letters {
            match letter {
                Letter::Stop => return false,
                Letter::Serve {
                    capability,
                    init,
                    asked,
                } => self.served.push(Served {
                    capability,
                    init,
                    state: State::Asked(asked),
                    connections: Vec::new(),
                }),
                Letter::Done {
                    connection,
                    id,
                    result,
                } => self.done(connection, id.as_ref(), &result, now),
            }
        }
        true
    }

    fn done(&mut self, key: u64, id: Option<&Id>, result: &Result<serde_json::Value>, now: u64) {
        // The connection, or its branch, may be gone.
        for served in &mut self.served {
            if let Some(at) = served.connections.iter().position(|c| c.key == key) {
                served.connections[at].busy = false;
                served.answer(at, id, result, now);
            }
        }
    }

    /// Init has answered.
    fn opened(&mut self, at: usize) {
        let served = &mut self.served[at];
        if let State::Asked(asked) = std::mem::replace(&mut served.state, State::Over) {
            // Where there is none, the branch has ended, or it has no socket: nobody is waiting.
            if let Ok(door) = asked.take() {
                let now = clock::wall_ns();
                let left = door.left_ms.and_then(|ms| i64::try_from(ms).ok());
                served.capability.deadline_ns =
                    left.map(|ms| now.saturating_add(ms.saturating_mul(1_000_000)));
                served.state = State::Open(door);
            }
        }
    }

    fn accept(&mut self, at: usize, now: u64) {
        let served = &mut self.served[at];
        for _ in 0..ACCEPTED_AT_ONCE {
            let State::Open(door) = &served.state else {
                return;
            };
            // Another engine may have been faster, or whoever connected has gone.
            let Some(socket) = accepted(&door.listener) else {
                return;
            };
            if served.connections.len() >= MAX_CONNECTIONS {
                served.make_room();
            }
            self.made += 1;
            let connection = Connection::new(self.made, socket, now);
            served.connections.push(connection);
        }
    }

    /// Serves one request of each connection that has one.
    fn answer_round(&mut self, now: u64) {
        for at in 0..self.served.len() {
            for index in 0..self.served[at].connections.len() {
                if self.served[at].connections[index].has_request() {
                    self.serve_one(at, index, now);
                }
            }
        }
    }

    fn serve_one(&mut self, at: usize, index: usize, now: u64) {
        let served = &mut self.served[at];
        let capability = served.capability.clone();
        let connection = &mut served.connections[index];
        let key = connection.key;
        let (id, result) = match connection.take(request::read) {
            None => return,
            Some(Err((id, error))) => (id, Err(error)),
            Some(Ok(Request { id, op })) if op.is_slow() => {
                let job = Job {
                    capability,
                    connection: key,
                    id: id.clone(),
                    op,
                };
                match self.workers.take(job) {
                    Ok(()) => {
                        connection.busy = true;
                        return;
                    }
                    Err(error) => (id, Err(error)),
                }
            }
            Some(Ok(Request { id, op })) => match self.engine.upgrade() {
                Some(inner) => (id, ops::caught(&inner, &capability, &op)),
                None => (id, Err(codes::CANCELLED.error("the engine is closing"))),
            },
        };
        served.answer(index, id.as_ref(), &result, now);
    }

    /// Drops what is over: connections, and branches in which nothing lives.
    fn sweep(&mut self, now: u64) {
        for served in &mut self.served {
            served.connections.retain_mut(|connection| {
                let since = now.saturating_sub(connection.active_ns);
                !(connection.is_over() || connection.waits() && since >= PATIENCE_NS)
            });
        }
        let mail = &self.mail;
        self.served.retain(|served| {
            let over = matches!(served.state, State::Over);
            if over {
                let mut known = locked(&mail.served);
                // The branch may run again already, under another init.
                if known.get(&served.capability.branch) == Some(&served.init) {
                    known.remove(&served.capability.branch);
                }
            }
            !over
        });
    }
}

fn accepted(listener: &OwnedFd) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = accept_with(listener, flags).ok()?;
    scm::refuse_descriptors(socket.as_fd()).ok()?;
    Some(socket)
}

impl Served {
    fn kept(&self) -> usize {
        self.connections.iter().map(Connection::kept).sum()
    }

    /// Drops the connection that was idle for longest; the one that was silent for longest where
    /// none is.
    fn make_room(&mut self) {
        let oldest = self.connections.iter().enumerate();
        let oldest = oldest.min_by_key(|(_, c)| (!c.is_idle(), c.active_ns));
        if let Some((at, _)) = oldest {
            self.connections.remove(at);
        }
    }

    /// Reads and writes what a connection is ready for.
    fn hear(&mut self, key: u64, flags: PollFlags, scratch: &mut [u8], now: u64) {
        let room = MAX_KEPT.saturating_sub(self.kept());
        let Some(at) = self.connections.iter().position(|c| c.key == key) else {
            return;
        };
        let connection = &mut self.connections[at];
        if connection.wants_output() && !connection.flush(now) {
            self.connections.remove(at);
            return;
        }
        let hangs = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        if !connection.wants_input() || !flags.intersects(hangs) {
            return;
        }
        let error = match connection.read(scratch, room, now) {
            Got::Nothing | Got::Something => return,
            Got::Gone => {
                self.connections.remove(at);
                return;
            }
            Got::TooLong => codes::SOCKET_REQUEST
                .error(format!("a line of {} bytes or more", request::MAX_LINE))
                .hint("send smaller values"),
            Got::TooMuch => full("too much of this branch waits at once"),
        };
        self.answer(at, None, &Err(error), now);
        if let Some(connection) = self.connections.iter_mut().find(|c| c.key == key) {
            connection.close();
        }
    }

    /// Answers connection `at`; one that is gone, or that lets too much lie unread, is dropped.
    fn answer(&mut self, at: usize, id: Option<&Id>, result: &Result<serde_json::Value>, now: u64) {
        let mut line = request::answer(id, result);
        let fits = line.len() <= MAX_KEPT.saturating_sub(self.kept());
        if !fits {
            line = request::answer(id, &Err(full("too many answers are not read")));
        }
        let connection = &mut self.connections[at];
        if !connection.answer(&line, now) {
            // Swept: it takes nothing more and keeps nothing.
            connection.drop_all();
        } else if !fits {
            connection.close();
        }
    }
}
