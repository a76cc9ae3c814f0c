//! The host-side handle of one running sandbox.

use crate::ahead;
use crate::cgroup::{self, CgroupSet};
use crate::codes::{BAD_SPEC, GONE, HOST_IO, PROTOCOL, SETUP};
use crate::door::Asked;
use crate::exec::{self, ExecRequest, Running};
use crate::launch::{self, Started};
use crate::process;
use forkpoint_init::conn::{self, Conn, MAX_CONTROL};
use forkpoint_init::protocol::{FromInit, Ready, Setup, ToInit};
use forkpoint_init::{FinalUsage, ProcessIdentity, SandboxSpec, Usage};
use forkpoint_model::{Error, Result};
use forkpoint_sys::clone;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// How long a kill waits for init's last account of what was taken.
const LAST_WORD_MS: u64 = 100;

/// One running sandbox. Dropping it lets the sandbox run on until its last process ends, unless
/// it was started with `lifeline`: then everything inside is killed.
#[derive(Debug)]
pub struct Sandbox {
    process: ProcessIdentity,
    pidfd: OwnedFd,
    warnings: Vec<String>,
    control: Mutex<OwnedFd>,
    cgroups: Mutex<CgroupSet>,
    last: Mutex<FinalUsage>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is guarded here is left half-changed by a panic.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Inits that were started here and whose handles went before they did: reaped when the next
/// sandbox starts or is dropped.
static ORPHANS: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

fn reap_orphans() {
    lock(&ORPHANS).retain(|pidfd| {
        let over = process::ended(pidfd.as_fd()).unwrap_or(true);
        if over {
            // An error would mean that it is no child of ours any more, which is as good.
            clone::reap(pidfd.as_fd()).unwrap_or(None);
        }
        !over
    });
}

impl Sandbox {
    /// Starts a sandbox; returns when its views are mounted.
    pub fn start(spec: SandboxSpec) -> Result<Sandbox> {
        Self::start_known(spec, |_| Ok(()))
    }

    /// As [`Sandbox::start`], and says which process it is as soon as there is one that has been
    /// told what to build: `known` is called while the views are being mounted. If it fails, the
    /// process is killed and the error returned; if the views cannot be mounted, the process that
    /// was made known is dead.
    pub fn start_known(
        spec: SandboxSpec,
        known: impl FnOnce(&ProcessIdentity) -> Result<()>,
    ) -> Result<Sandbox> {
        check(&spec)?;
        reap_orphans();
        let mut warnings = Vec::new();
        let cgroups = CgroupSet::make(spec.branch, &spec.limits, &mut warnings);
        let listener = spec.control_socket.as_deref().map(listen).transpose()?;
        let ahead = match cgroups.kinds().is_empty() {
            true => ahead::taken(&spec.identity),
            // Init is a member of its cgroups before it has any child.
            false => None,
        };
        let begun = ahead.is_some();
        let started = ahead.map_or_else(
            || {
                let near = Some(spec.root_upper.as_path());
                launch::start("init", &spec.identity, cgroups.v2(), near)
            },
            Ok,
        );
        let started = started.inspect_err(|_| cgroups.remove())?;
        match begin(spec, started, begun, listener, &cgroups, known) {
            Ok((process, pidfd, control, more)) => {
                warnings.extend(more);
                Ok(Sandbox {
                    process,
                    pidfd,
                    warnings,
                    control: Mutex::new(control),
                    cgroups: Mutex::new(cgroups),
                    last: Mutex::default(),
                })
            }
            Err(e) => {
                cgroups.remove();
                Err(e)
            }
        }
    }

    /// Takes hold of a sandbox that another process started. `None`: it is gone.
    pub fn attach(process: &ProcessIdentity, control_socket: &Path) -> Result<Option<Sandbox>> {
        let Some(pidfd) = process::open(process)? else {
            return Ok(None);
        };
        let Some(control) = connect(control_socket)? else {
            return Ok(None);
        };
        let mut sandbox = Sandbox {
            process: process.clone(),
            pidfd,
            warnings: Vec::new(),
            control: Mutex::new(control),
            cgroups: Mutex::default(),
            last: Mutex::default(),
        };
        match sandbox.call(&ToInit::Warnings, None) {
            Ok(FromInit::Warnings(warnings)) => sandbox.warnings = warnings,
            Ok(_) => return Err(unexpected()),
            Err(e) if e.code == GONE.text => return Ok(None),
            Err(e) => return Err(e),
        }
        Ok(Some(sandbox))
    }

    /// Its init.
    pub fn process(&self) -> &ProcessIdentity {
        &self.process
    }

    /// What could not be captured or limited, said plainly.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Starts a command inside. Why it could not be executed is told by [`Running::wait`].
    pub fn exec(&self, request: ExecRequest) -> Result<Running> {
        if request.argv.is_empty() {
            return Err(BAD_SPEC.error("a command needs a program"));
        }
        let terminal = request.terminal.is_some();
        let (message, streams) = exec::message(request);
        let mut running = Running::new(self.ask(&message, &streams)?);
        if terminal {
            running.expect_terminal()?;
        }
        Ok(running)
    }

    /// Stops every process inside; returns when none can make progress.
    pub fn freeze(&self) -> Result<()> {
        self.done(&ToInit::Freeze)
    }

    /// As [`Sandbox::freeze`], until [`Sandbox::thaw`] or the end of this handle, however it comes:
    /// what is held does not stay so because its holder died.
    pub fn hold(&self) -> Result<()> {
        self.done(&ToInit::Hold)
    }

    /// Lets what [`Sandbox::freeze`] stopped go on.
    pub fn thaw(&self) -> Result<()> {
        self.done(&ToInit::Thaw)
    }

    /// Stops every process inside until [`Sandbox::resume`], whatever becomes of this handle.
    pub fn pause(&self) -> Result<()> {
        self.done(&ToInit::Pause)
    }

    /// Lets a paused sandbox go on.
    pub fn resume(&self) -> Result<()> {
        self.done(&ToInit::Resume)
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> Result<bool> {
        match self.call(&ToInit::IsPaused, None)? {
            FromInit::Paused(paused) => Ok(paused),
            FromInit::Failed(e) => Err(e),
            _ => Err(unexpected()),
        }
    }

    /// Connects to a port of the loopback inside. The connection does not block and may still be in
    /// the making: writable when it is made or has failed.
    pub fn connect(&self, port: u16, ipv6: bool) -> Result<OwnedFd> {
        let mut conn = Conn::new(self.ask(&ToInit::Connect { port, ipv6 }, &[])?, MAX_CONTROL);
        match conn.receive::<FromInit>() {
            Ok(Some((FromInit::Connected, mut fds))) => fds.pop().ok_or_else(unexpected),
            Ok(Some((FromInit::Failed(e), _))) => Err(e),
            Ok(Some(_)) => Err(unexpected()),
            Ok(None) => Err(gone()),
            Err(e) => Err(HOST_IO.io("cannot hear init's answer", e)),
        }
    }

    /// Asks for the branch's socket. Does not wait: the answer is taken when it is there.
    pub fn ask_for_socket(&self) -> Result<Asked> {
        let io = |e| HOST_IO.io("cannot copy a descriptor", e);
        let ended = self.pidfd.try_clone().map_err(io)?;
        Ok(Asked::new(self.ask(&ToInit::BranchSocket, &[])?, ended))
    }

    /// What it takes now.
    pub fn usage(&self) -> Result<Usage> {
        self.usage_within(true, None)
    }

    /// As [`Sandbox::usage`], without a walk over what was written: its `disk_bytes` is 0 where nothing
    /// else asked for it.
    pub fn load(&self) -> Result<Usage> {
        self.usage_within(false, None)
    }

    /// Kills everything inside; returns when nothing lives. Can be called again.
    pub fn kill(&self) -> Result<FinalUsage> {
        if !process::ended(self.pidfd.as_fd())? {
            // What cannot be learned in time is not worth waiting for.
            if let Ok(usage) = self.usage_within(false, Some(LAST_WORD_MS)) {
                lock(&self.last).usage = usage;
            }
            lock(&self.cgroups).kill();
            process::kill(self.pidfd.as_fd())?;
        }
        let mut last = *lock(&self.last);
        let cgroups = std::mem::take(&mut *lock(&self.cgroups));
        if let Some(peak) = cgroups.peak_memory() {
            last.usage.peak_memory_bytes = last.usage.peak_memory_bytes.max(peak);
        }
        cgroups.remove();
        if let Ok(Some(reaped)) = clone::reap(self.pidfd.as_fd()) {
            last.usage.cpu_ns = last.usage.cpu_ns.max(reaped.cpu_ns);
            let peak = last.usage.peak_memory_bytes.max(reaped.max_rss_bytes);
            last.usage.peak_memory_bytes = peak;
        }
        *lock(&self.last) = last;
        Ok(last)
    }

    fn usage_within(&self, walk: bool, ms: Option<u64>) -> Result<Usage> {
        match self.call(&ToInit::Usage { walk }, ms)? {
            FromInit::Usage { usage, limit } => {
                lock(&self.last).limit = limit;
                Ok(usage)
            }
            FromInit::Failed(e) => Err(e),
            _ => Err(unexpected()),
        }
    }

    fn done(&self, request: &ToInit) -> Result<()> {
        match self.call(request, None)? {
            FromInit::Done => Ok(()),
            FromInit::Failed(e) => Err(e),
            _ => Err(unexpected()),
        }
    }

    /// Sends a request and waits for its answer, at most `ms`.
    fn call(&self, request: &ToInit, ms: Option<u64>) -> Result<FromInit> {
        let reply = self.ask(request, &[])?;
        if let Some(ms) = ms
            && !process::wait(reply.as_fd(), ms)?
        {
            return Err(HOST_IO.error("init does not answer in time"));
        }
        let mut conn = Conn::new(reply, MAX_CONTROL);
        match conn.receive::<FromInit>() {
            Ok(Some((answer, _))) => Ok(answer),
            Ok(None) => Err(gone()),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Err(gone()),
            Err(e) => Err(HOST_IO.io("cannot hear init's answer", e)),
        }
    }

    /// Sends a request; its answer comes on the returned socket.
    fn ask(&self, request: &ToInit, fds: &[OwnedFd]) -> Result<OwnedFd> {
        let (ours, theirs) = launch::pair()?;
        let mut all: Vec<BorrowedFd<'_>> = vec![theirs.as_fd()];
        all.extend(fds.iter().map(AsFd::as_fd));
        let control = lock(&self.control);
        match conn::send(control.as_fd(), request, &all) {
            Ok(()) => Ok(ours),
            Err(e) => match e.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Err(gone()),
                _ => Err(HOST_IO.io("cannot reach the sandbox's init", e)),
            },
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        reap_orphans();
        let over = process::ended(self.pidfd.as_fd()).unwrap_or(true);
        if over {
            lock(&self.cgroups).remove();
        }
        if !over || clone::reap(self.pidfd.as_fd()).is_err() {
            // It runs on; when it ends, somebody here has to reap it.
            if let Ok(copy) = self.pidfd.try_clone() {
                lock(&ORPHANS).push(copy);
            }
        }
    }
}

pub(crate) fn gone() -> Error {
    GONE.error("the sandbox has ended")
}

pub(crate) fn unexpected() -> Error {
    PROTOCOL.error("init answered with something else")
}

/// What cannot work is refused before anything is made.
fn check(spec: &SandboxSpec) -> Result<()> {
    let absolute = |path: &Path, what: &str| {
        if path.is_absolute() {
            return Ok(());
        }
        Err(BAD_SPEC.error(format!("{what} is not absolute: {}", path.display())))
    };
    absolute(&spec.root_upper, "the root's upper directory")?;
    for disk in &spec.disks {
        absolute(&disk.target, "a disk's path")?;
        if disk.target == Path::new("/") {
            return Err(BAD_SPEC
                .error("the whole root cannot be a disk")
                .hint("choose a directory below it"));
        }
    }
    for path in &spec.masks {
        absolute(path, "a path to mask")?;
    }
    for path in &spec.devices {
        absolute(path, "a device")?;
    }
    for (source, target) in &spec.verify_mounts {
        absolute(source, "a mount's source")?;
        absolute(target, "a mount's target")?;
    }
    Ok(())
}

type Begun = (ProcessIdentity, OwnedFd, OwnedFd, Vec<String>);

/// Tells a launched init, begun already or not, what to build and waits until it is built. On an
/// error it is dead.
fn begin(
    spec: SandboxSpec,
    mut started: Started,
    begun: bool,
    listener: Option<OwnedFd>,
    cgroups: &CgroupSet,
    known: impl FnOnce(&ProcessIdentity) -> Result<()>,
) -> Result<Begun> {
    let result = (|| {
        let pid = started.launched.child.pid;
        if !begun {
            cgroups.add(pid)?;
            launch::begin(&mut started, &spec.identity)?;
        }
        let process = process::identify(pid)?;
        tell(spec, started.socket.as_fd(), listener, cgroups)?;
        known(&process)?;
        Ok(process)
    })();
    let Started { launched, socket } = started;
    let mut conn = Conn::new(socket, MAX_CONTROL);
    let result = result.and_then(|process| Ok((process, built(&mut conn)?)));
    let pidfd = launched.child.pidfd;
    match result {
        Ok((process, warnings)) => Ok((process, pidfd, conn.into_socket(), warnings)),
        Err(e) => {
            process::kill(pidfd.as_fd())?;
            clone::reap(pidfd.as_fd()).map_err(|e| HOST_IO.io("cannot reap init", e))?;
            Err(e)
        }
    }
}

fn tell(
    spec: SandboxSpec,
    socket: BorrowedFd<'_>,
    listener: Option<OwnedFd>,
    cgroups: &CgroupSet,
) -> Result<()> {
    let setup = Setup {
        spec,
        listener: listener.is_some(),
        cgroups: cgroups.kinds(),
    };
    let mut fds: Vec<BorrowedFd<'_>> = listener.iter().map(AsFd::as_fd).collect();
    fds.extend(cgroups.fds());
    match conn::send(socket, &setup, &fds) {
        Ok(()) => Ok(()),
        // Its last words may be there to be read.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(HOST_IO.io("cannot tell init what to build", e)),
    }
}

/// Waits until it is built; what could not be captured is returned.
fn built(conn: &mut Conn) -> Result<Vec<String>> {
    let dead = |e: io::Error| match e.raw_os_error() {
        Some(_) => SETUP
            .io("init could not be executed", e)
            .hint("run `forkpoint doctor`"),
        None => PROTOCOL.io("init does not speak as it should", e),
    };
    match conn.receive::<Ready>().map_err(dead)? {
        Some((Ready::Started(warnings), _)) => Ok(warnings),
        Some((Ready::Failed(error), _)) => Err(error),
        None => Err(SETUP.error("init ended before the view was built")),
    }
}

/// Names a socket's path by its directory's descriptor: a path of any length fits its address.
fn address(path: &Path) -> io::Result<(SocketAddrUnix, OwnedFd)> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().unwrap_or(OsStr::new(""));
    let dir = forkpoint_sys::openat::directory_path(parent)?;
    let link = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string());
    Ok((SocketAddrUnix::new(link.join(name))?, dir))
}

fn unix_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Binds the control socket, for its owner only, replacing one that is left over.
fn listen(path: &Path) -> Result<OwnedFd> {
    let bound = (|| {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let (address, _dir) = address(path)?;
        let socket = unix_socket()?;
        // The file takes the mode of the socket: it is never open to others, not even shortly.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, 16)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(socket)
    })();
    bound.map_err(|e| HOST_IO.io(format!("cannot bind {}", path.display()), e))
}

/// Connects to a control socket. `None`: nobody listens.
fn connect(path: &Path) -> Result<Option<OwnedFd>> {
    let connected = (|| {
        let (address, _dir) = address(path)?;
        let socket = unix_socket()?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket)
    })();
    match connected {
        Ok(socket) => Ok(Some(socket)),
        Err(e) => match io::Error::kind(&e) {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(HOST_IO.io(format!("cannot connect to {}", path.display()), e)),
        },
    }
}

/// Removes the cgroups that dead runs left, except those of branches that `live` says yes to.
/// Returns how many were removed.
pub fn sweep(live: &dyn Fn(forkpoint_model::BranchId) -> bool) -> Result<u32> {
    cgroup::sweep(live)
}
