//! Starting the init executable in its namespaces, as init or as worker, with the caller's ids
//! mapped.

use crate::codes::{HOST_IO, NO_NAMESPACES};
use forkpoint_init::protocol::Begin;
use forkpoint_init::{IdRange, Identity, conn};
use forkpoint_model::Result;
use forkpoint_sys::clone::{self, Launch, Launched, namespace};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Command;

/// A started init or worker and the socket to speak to it.
pub(crate) struct Started {
    pub(crate) launched: Launched,
    pub(crate) socket: OwnedFd,
}

/// A connected pair of stream sockets.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| HOST_IO.io("cannot make a socket pair", e))
}

/// Starts the executable as `mode`. It executes only once [`Launched::go`] is called; its ids are
/// mapped by then. `near` is a directory for the executable where memory may not be executed.
pub(crate) fn start(
    mode: &str,
    identity: &Identity,
    cgroup: Option<BorrowedFd<'_>>,
    near: Option<&Path>,
) -> Result<Started> {
    let program = crate::image::program(near)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| HOST_IO.io("cannot open /dev/null", e))?;
    let (ours, theirs) = pair()?;
    let mut namespaces = namespace::PID | namespace::MOUNT;
    if identity.rootless() {
        namespaces |= namespace::USER;
    }
    let argv = [c"forkpoint-init".to_owned(), text(mode)?];
    let what = Launch {
        program: program.as_fd(),
        argv: &argv,
        namespaces,
        null: null.as_fd(),
        socket: theirs.as_fd(),
        cgroup,
        wait: true,
    };
    let launched = clone::launch(&what).map_err(|e| refused(identity, &e))?;
    if let Identity::User { uid, gid, sub } = identity
        && let Err(e) = map_user(launched.child.pid, *uid, *gid, sub)
    {
        // It still waits to be let go; the error of the map is the one to tell.
        if crate::process::kill(launched.child.pidfd.as_fd()).is_ok() {
            clone::reap(launched.child.pidfd.as_fd()).unwrap_or(None);
        }
        return Err(e);
    }
    Ok(Started {
        launched,
        socket: ours,
    })
}

/// Lets a started init execute, and begin with what depends on its identity alone.
pub(crate) fn begin(started: &mut Started, identity: &Identity) -> Result<()> {
    started
        .launched
        .go()
        .map_err(|e| HOST_IO.io("cannot let init go", e))?;
    let begin = Begin {
        identity: identity.clone(),
    };
    match conn::send(started.socket.as_fd(), &begin, &[]) {
        Ok(()) => Ok(()),
        // Its last words may be there to be read.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(HOST_IO.io("cannot tell init whose branch it is", e)),
    }
}

fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|e| HOST_IO.io("cannot name init's mode", e))
}

fn refused(identity: &Identity, e: &io::Error) -> forkpoint_model::Error {
    let error = NO_NAMESPACES.io("the kernel refuses new namespaces", e);
    if identity.rootless() {
        error.hint(format!(
            "{} (`forkpoint doctor` tries the rest)",
            crate::doctor::forbidden_by()
        ))
    } else {
        error.hint("root without CAP_SYS_ADMIN (a container?) cannot make them: run as an ordinary user, or with `--privileged`")
    }
}

/// In U1 the user is 0 and its subordinate ids follow.
fn map_user(pid: u32, uid: u32, gid: u32, sub: &[IdRange]) -> Result<()> {
    if !sub.is_empty() {
        let uids: Vec<(u32, u32)> = sub.iter().map(|range| (range.uid, range.len)).collect();
        let gids: Vec<(u32, u32)> = sub.iter().map(|range| (range.gid, range.len)).collect();
        map_ranges("newuidmap", pid, uid, &uids)?;
        return map_ranges("newgidmap", pid, gid, &gids);
    }
    write_proc(pid, "setgroups", "deny")?;
    write_proc(pid, "uid_map", &format!("0 {uid} 1\n"))?;
    write_proc(pid, "gid_map", &format!("0 {gid} 1\n"))
}

fn map_ranges(program: &str, pid: u32, own: u32, ranges: &[(u32, u32)]) -> Result<()> {
    let mut command = Command::new(program);
    command.args([pid, 0, own, 1].map(|n| n.to_string()));
    let mut inside = 1u32;
    for (first, len) in ranges {
        command.args([inside, *first, *len].map(|n| n.to_string()));
        inside = inside.saturating_add(*len);
    }
    let output = command
        .output()
        .map_err(|e| NO_NAMESPACES.io(format!("cannot run {program}"), e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(NO_NAMESPACES
            .error(format!("{program} failed: {}", said.trim()))
            .hint("check /etc/subuid and /etc/subgid, and that the program is set-uid root"));
    }
    Ok(())
}

fn write_proc(pid: u32, name: &str, text: &str) -> Result<()> {
    let path = format!("/proc/{pid}/{name}");
    // One write, as the kernel asks for.
    let fd = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let written = fd.and_then(|fd| rustix::io::write(&fd, text.as_bytes()));
    match written {
        Ok(len) if len == text.len() => Ok(()),
        Ok(_) => Err(HOST_IO.error(format!("the kernel took only part of {path}"))),
        Err(e) => Err(NO_NAMESPACES
            .io(format!("cannot map the user's ids ({path})"), e)
            .hint("run `forkpoint doctor`: a security module may forbid it")),
    }
}
