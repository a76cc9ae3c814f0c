//! The branch's socket, `FORKPOINT_SOCK`: the only way from inside a branch to the engine.
//!
//! A process that runs something in a branch takes the listening end of the branch's socket from its
//! init and answers what comes through it, on one thread for all its branches. The listener is the
//! capability: what comes through it comes from that branch, and every request is checked against the
//! epoch that the branch had when the listener was taken, in the transaction that serves it.
//! `docs/design-socket.md` gives the reasons; `docs/socket.md` the protocol.

pub(crate) mod bus;
pub(crate) mod bytes;
mod connection;
mod hub;
mod kv;
mod look;
mod ops;
mod reports;
mod request;
mod workers;

use crate::branch::{Branch, identity};
use crate::codes;
use crate::engine::{Engine, Inner};
use crate::lock;
use forkpoint_model::{BranchId, Epoch, Result};
use forkpoint_sandbox::{Asked, Sandbox};
use forkpoint_store::BranchRecord;
use request::Id;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use look::Look;
pub use reports::{COST_FILE, COST_LIMIT, PROGRESS_FILE, SCORE_FILE};

/// The stack of the serving thread: what it calls is the store and the disk.
const STACK_BYTES: usize = 512 << 10;

/// For whom a connection speaks, and nothing else it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) branch: BranchId,
    pub(crate) epoch: Epoch,
    /// When the branch's time is over, in nanoseconds since 1970.
    pub(crate) deadline_ns: Option<i64>,
    /// For a judge: what it may look at, and it does no more than that.
    pub(crate) look: Option<Arc<Look>>,
}

impl Capability {
    /// When the branch's time is over, in seconds.
    fn deadline(&self) -> Option<f64> {
        self.deadline_ns.map(|ns| ns as f64 / 1e9)
    }
}

/// The thread that serves, as the engine holds it. It ends when this is dropped.
pub(crate) struct Hub {
    mail: Arc<Mail>,
}

/// What is told to the thread.
enum Letter {
    /// Serve another branch.
    Serve {
        capability: Capability,
        init: Init,
        asked: Asked,
    },
    /// A request that took long is done.
    Done {
        connection: u64,
        id: Option<Id>,
        result: Result<serde_json::Value>,
    },
    /// Nobody needs it any more.
    Stop,
}

/// An init: its pid and its start time.
type Init = (u32, u64);

/// Where letters are left.
struct Mail {
    letters: Mutex<Vec<Letter>>,
    /// Readable when there are any.
    bell: OwnedFd,
    /// The branches that are served, with the init of each.
    served: Mutex<HashMap<BranchId, Init>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is guarded here is left half-changed by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mail {
    fn post(&self, letter: Letter) {
        locked(&self.letters).push(letter);
        // The only failure is a counter at its maximum, which is readable already.
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).ok();
    }
}

impl Hub {
    fn start(engine: &Engine) -> Result<Self> {
        let io = |e: std::io::Error| codes::IO.io("cannot serve branches' sockets", e);
        let bell =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| io(e.into()))?;
        let mail = Arc::new(Mail {
            letters: Mutex::default(),
            bell,
            served: Mutex::default(),
        });
        let (inner, post) = (Arc::downgrade(&engine.inner), mail.clone());
        std::thread::Builder::new()
            .name("forkpoint-serve".into())
            .stack_size(STACK_BYTES)
            .spawn(move || hub::run(inner, post))
            .map_err(io)?;
        Ok(Self { mail })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.mail.post(Letter::Stop);
    }
}

impl Engine {
    /// Serves the socket of a branch whose processes run, until they are dead. Does not wait.
    pub(crate) fn serve(&self, record: &BranchRecord, sandbox: &Sandbox) -> Result<()> {
        let capability = Capability {
            branch: record.id,
            epoch: record.epoch,
            deadline_ns: None,
            look: None,
        };
        self.post(capability, sandbox)
    }

    /// Serves the socket of a judge, until it is dead. Does not wait.
    pub(crate) fn serve_judge(
        &self,
        branch: BranchId,
        look: Look,
        sandbox: &Sandbox,
    ) -> Result<()> {
        let capability = Capability {
            branch,
            epoch: Epoch(0),
            deadline_ns: None,
            look: Some(Arc::new(look)),
        };
        self.post(capability, sandbox)
    }

    fn post(&self, capability: Capability, sandbox: &Sandbox) -> Result<()> {
        let process = sandbox.process();
        let init = (process.pid, process.start_time);
        let mut hub = locked(&self.inner.hub);
        let hub = match &mut *hub {
            Some(hub) => hub,
            none => none.insert(Hub::start(self)?),
        };
        // A judge is started once; there may be several of one branch.
        let again = capability.look.is_none()
            && locked(&hub.mail.served).insert(capability.branch, init) == Some(init);
        if again {
            return Ok(());
        }
        let asked = sandbox.ask_for_socket()?;
        hub.mail.post(Letter::Serve {
            capability,
            init,
            asked,
        });
        Ok(())
    }
}

impl Inner {
    /// An engine of it, for as long as somebody has one.
    fn engine(self: &Arc<Self>) -> Engine {
        Engine {
            inner: self.clone(),
        }
    }
}

impl Branch {
    /// Serves its socket for as long as anything runs in it: for what a command leaves behind when
    /// the process that ran it ends. `false`: nothing runs in it, or another process does this
    /// already.
    ///
    /// # Errors
    /// When the store cannot be read, or the socket not be taken.
    pub fn serve(&self) -> Result<bool> {
        let file = self.engine.paths().servers();
        let busy = || codes::BUSY.error("it is served already");
        let _only = match lock::byte(&file, self.id.bits(), busy) {
            Ok(lock) => lock,
            Err(e) if e.code == codes::BUSY.text => return Ok(false),
            Err(e) => return Err(e),
        };
        let record = self.record()?;
        let Some(process) = &record.process else {
            return Ok(false);
        };
        let process = identity(process);
        let Some(ended) = forkpoint_sandbox::process_end(&process)? else {
            return Ok(false);
        };
        // The handle itself would keep init waiting for requests: it goes at once.
        match self.attach(&record)? {
            Some(sandbox) => self.engine.serve(&record, &sandbox)?,
            None => return Ok(false),
        }
        let mut fds = [PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, None))
            .map_err(|e| codes::IO.io("cannot wait for the branch's end", e))?;
        Ok(true)
    }
}
