//! How init begins: makes the namespaces of commands, takes its description, builds the view, and
//! supervises.

use crate::branch_socket;
use crate::cgroup::Cgroups;
use crate::codes::{PROTOCOL, SETUP};
use crate::command::Commands;
use crate::conn::{self, Conn, MAX_CONTROL};
use crate::inner::Inner;
use crate::protocol::{Begin, Ready, Setup};
use crate::spec::Identity;
use crate::supervise::{Init, Parts};
use crate::tty::Terminals;
use crate::view;
use crate::watch::Watch;
use forkpoint_model::{Error, Result};
use forkpoint_sys::seccomp::Filter;
use forkpoint_sys::{clone, openat, signal};
use rustix::fs::Mode;
use rustix::process::DumpableBehavior;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The descriptor a launcher leaves its socket at.
pub const SOCKET: i32 = 3;

/// Runs init. Returns the exit status.
pub fn run() -> i32 {
    // The number stays taken: nothing that a command's start still needs may ever be at it, since
    // a command's score is placed there.
    let Ok(reserved) = clone::inherited(SOCKET) else {
        return 125;
    };
    let Ok(socket) = clone::copy_above(reserved.as_fd(), SOCKET + 1) else {
        return 125;
    };
    let mut starter = Conn::new(socket, MAX_CONTROL);
    let begun = match starter.receive::<Begin>() {
        Ok(Some((begin, _))) => begin_with(begin.identity),
        Ok(None) => return 0,
        Err(e) => Err(PROTOCOL.io("init was not told whose branch it is", e)),
    };
    // Whatever went wrong so far is told when somebody asks for something to be built.
    let (setup, fds) = match starter.receive::<Setup>() {
        Ok(Some(message)) => message,
        Ok(None) => return 0,
        Err(e) => return refuse(&starter, PROTOCOL.io("init was not told what to build", e)),
    };
    match begun.and_then(|begun| set_up(begun, setup, fds)) {
        Ok(parts) => supervise(starter, parts),
        Err(e) => refuse(&starter, e),
    }
}

fn refuse(starter: &Conn, error: Error) -> i32 {
    conn::send(starter.as_fd(), &Ready::Failed(error), &[]).map_or(125, |()| 1)
}

fn supervise(starter: Conn, parts: impl FnOnce(Conn) -> Parts) -> i32 {
    let parts = parts(starter);
    let ready = Ready::Started(parts.warnings.clone());
    if conn::send(parts.starter.as_fd(), &ready, &[]).is_err()
        || rustix::io::ioctl_fionbio(&parts.starter, true).is_err()
    {
        return 0;
    }
    // Ending is the safe answer to a fault of init: everything inside ends with it.
    Init::new(parts).run().map_or(125, |()| 0)
}

fn fault(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |e| SETUP.io(format!("cannot {what}"), e)
}

/// What is there before it is known what to build.
struct Begun {
    identity: Identity,
    umask: Mode,
    signals: OwnedFd,
    proc: OwnedFd,
    inner: Inner,
}

fn begin_with(identity: Identity) -> Result<Begun> {
    let umask = rustix::process::umask(Mode::empty());
    let signals = signal::descriptor(&[signal::SIGCHLD]).map_err(fault("watch for children"))?;
    signal::ignore(signal::SIGPIPE);
    view::make_private()?;
    let proc = view::mount_proc()?;
    let inner = Inner::make(&identity, proc.as_fd())?;
    Ok(Begun {
        identity,
        umask,
        signals,
        proc,
        inner,
    })
}

fn set_up(begun: Begun, setup: Setup, fds: Vec<OwnedFd>) -> Result<impl FnOnce(Conn) -> Parts> {
    let Begun {
        identity,
        umask,
        signals,
        proc,
        mut inner,
    } = begun;
    let spec = setup.spec;
    if spec.identity != identity {
        return Err(PROTOCOL.error("the branch is another user's than init was begun for"));
    }
    // The other namespaces come into being while the view is built.
    inner.isolate(spec.network, &spec.hostname)?;
    let mut fds = fds.into_iter();
    let listener = if setup.listener { fds.next() } else { None };
    let cgroups = Cgroups::new(setup.cgroups.into_iter().zip(fds).collect());
    let mut uppers = Vec::new();
    for path in Watch::upper_paths(&spec) {
        uppers.push(openat::directory(&path).map_err(fault("open an upper directory"))?);
    }
    let view = view::build(&spec, inner.user.as_fd(), proc.as_fd())?;
    let branch = if spec.branch_socket {
        Some(branch_socket::make().map_err(fault("bind the branch's socket"))?)
    } else {
        None
    };
    // The commands' mount namespace is a copy made now: everything must be in place.
    inner.complete(proc.as_fd(), spec.network)?;
    inner.join_network()?;
    // From here on nobody inside can look into init. Not earlier: a process that is not dumpable
    // cannot write its children's id maps.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| fault("close init to others")(e.into()))?;
    let watch =
        Watch::new(&spec, cgroups, view.in_memory, uppers).map_err(fault("look at the disks"))?;
    let terminals = Terminals::new(view.terminals, &spec.identity);
    let commands = Commands {
        identity: spec.identity,
        limits: spec.limits,
        keep_groups: !spec.devices.is_empty(),
        filter: Filter::new(),
        umask,
    };
    Ok(move |starter| Parts {
        starter,
        lifeline: spec.lifeline,
        listener,
        branch,
        inner,
        proc,
        commands,
        watch,
        warnings: view.warnings,
        spent: view.spent,
        signals,
        terminals,
    })
}
