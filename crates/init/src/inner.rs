//! U2, the user namespace that commands live in, and the other namespaces it owns.
//!
//! A short-lived child, the _holder_, makes them: first the user namespace, whose map init
//! writes; then, while init builds the view, those that do not depend on it (a network namespace
//! takes as long as a good part of the view); last, once every mount is in place, the mount
//! namespace (in which all of our mounts are locked, since its owner is less privileged than ours).
//! Init keeps descriptors of them, through which each command enters.

use crate::codes::{NO_NAMESPACES, SETUP};
use crate::spec::{Identity, Network};
use forkpoint_model::Result;
use forkpoint_sys::clone::{self, Child, namespace};
use forkpoint_sys::{ns, openat};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The namespaces of commands. Descriptors are opened through init's own `/proc`.
#[derive(Debug)]
pub struct Inner {
    /// The user namespace.
    pub user: OwnedFd,
    holder: Option<Holder>,
    /// The others, with their kinds, in the order in which they are entered.
    pub others: Vec<(u64, OwnedFd)>,
}

#[derive(Debug)]
struct Holder {
    child: Child,
    link: UnixStream,
}

fn failed(what: &str, e: io::Error) -> forkpoint_model::Error {
    SETUP.io(format!("cannot {what}"), e)
}

/// The lines of `uid_map` and `gid_map` for U2.
pub fn maps(identity: &Identity) -> (String, String) {
    match identity {
        Identity::Root { shift, len } => {
            let line = format!("0 {shift} {len}\n");
            (line.clone(), line)
        }
        Identity::User { uid, gid, sub } => {
            let total = sub.iter().map(|range| range.len).sum();
            (user_map(*uid, total), user_map(*gid, total))
        }
    }
}

/// In U1 the caller is 0 and its subordinate ids are 1 to `sub`. In U2 the caller's id is its own
/// again and the others keep their order around it.
fn user_map(own: u32, sub: u32) -> String {
    let below = own.min(sub);
    let mut map = String::new();
    if below > 0 {
        map.push_str(&format!("0 1 {below}\n"));
    }
    map.push_str(&format!("{own} 0 1\n"));
    if sub > below {
        map.push_str(&format!("{} {} {}\n", own + 1, below + 1, sub - below));
    }
    map
}

impl Inner {
    /// Makes the user namespace. `proc` is init's own `/proc`.
    pub fn make(identity: &Identity, proc: BorrowedFd<'_>) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair().map_err(|e| failed("make a socket pair", e))?;
        let made = clone::fork(namespace::USER).map_err(|e| {
            NO_NAMESPACES
                .io("the kernel refuses a user namespace inside the branch", e)
                .hint("see `forkpoint doctor`; `sysctl user.max_user_namespaces` may be 0")
        })?;
        let Some(child) = made else {
            drop(ours);
            hold(theirs);
        };
        drop(theirs);
        let (uids, gids) = maps(identity);
        write_proc(proc, child.pid, "uid_map", &uids)?;
        write_proc(proc, child.pid, "gid_map", &gids)?;
        let user = open_ns(proc, child.pid, "user")?;
        let holder = Some(Holder { child, link: ours });
        Ok(Self {
            user,
            holder,
            others: Vec::new(),
        })
    }

    /// Lets the holder begin to make the namespaces other than the mount namespace; does not wait.
    pub fn isolate(&mut self, net: Network, host: &str) -> Result<()> {
        let Some(holder) = &mut self.holder else {
            return Ok(());
        };
        let len = u8::try_from(host.len()).map_err(|_| {
            crate::codes::BAD_SPEC.error(format!("a host name of {} bytes", host.len()))
        })?;
        let mut order = vec![u8::from(net == Network::Loopback), len];
        order.extend_from_slice(host.as_bytes());
        io::Write::write_all(&mut holder.link, &order)
            .map_err(|e| failed("reach the namespaces' holder", e))
    }

    /// Waits for what [`Inner::isolate`] began, makes the mount namespace as a copy of what is
    /// mounted now, and lets the holder go.
    pub fn complete(&mut self, proc: BorrowedFd<'_>, net: Network) -> Result<()> {
        let Some(mut holder) = self.holder.take() else {
            return Ok(());
        };
        holder.done()?;
        io::Write::write_all(&mut holder.link, b"g")
            .map_err(|e| failed("reach the namespaces' holder", e))?;
        holder.done()?;
        let mut kinds = vec![
            (namespace::MOUNT, "mnt"),
            (namespace::IPC, "ipc"),
            (namespace::UTS, "uts"),
            (namespace::CGROUP, "cgroup"),
        ];
        if net == Network::Loopback {
            kinds.push((namespace::NET, "net"));
        }
        for (kind, name) in kinds {
            self.others
                .push((kind, open_ns(proc, holder.child.pid, name)?));
        }
        Ok(())
    }
}

impl Holder {
    /// Waits for its answer to one order.
    fn done(&mut self) -> Result<()> {
        let mut answer = [0u8; 4];
        io::Read::read_exact(&mut self.link, &mut answer)
            .map_err(|e| failed("reach the namespaces' holder", e))?;
        match i32::from_ne_bytes(answer) {
            0 => Ok(()),
            errno => {
                let e = io::Error::from_raw_os_error(errno);
                Err(NO_NAMESPACES.io("the kernel refuses the branch's namespaces", e))
            }
        }
    }
}

impl Inner {
    /// Enters the branch's network namespace. Init needs no network of its own, and whatever network
    /// it is in can be read through `/proc/1/net`: the host's connections and sockets.
    pub fn join_network(&self) -> Result<()> {
        for (kind, fd) in &self.others {
            if *kind == namespace::NET {
                ns::enter(fd.as_fd(), *kind)
                    .map_err(|e| failed("enter the branch's network namespace", e))?;
            }
        }
        Ok(())
    }
}

fn open_proc(proc: BorrowedFd<'_>, pid: u32, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    openat::beneath(
        proc,
        Path::new(&format!("{pid}/{name}")),
        flags,
        Mode::empty(),
    )
}

fn write_proc(proc: BorrowedFd<'_>, pid: u32, name: &str, text: &str) -> Result<()> {
    let written = open_proc(proc, pid, name, OFlags::WRONLY)
        .and_then(|fd| Ok(rustix::io::write(&fd, text.as_bytes())?));
    match written {
        Ok(len) if len == text.len() => Ok(()),
        Ok(_) => Err(SETUP.error(format!("the kernel took only part of {name}"))),
        Err(e) => Err(failed(&format!("write {name} ({})", text.trim()), e)),
    }
}

/// Namespace files are magic links, which is what they are wanted for; the path is ours.
fn open_ns(proc: BorrowedFd<'_>, pid: u32, name: &str) -> Result<OwnedFd> {
    let path = format!("{pid}/ns/{name}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(proc, path, flags, Mode::empty())
        .map_err(|e| failed(&format!("open the {name} namespace"), e.into()))
}

/// The holder: makes what it is told to, answers each order with an error number, and waits to be
/// let go.
fn hold(mut link: UnixStream) -> ! {
    // Where init is gone there is nobody to tell, and this process ends with it.
    serve_holder(&mut link).unwrap_or(());
    clone::exit_now(0)
}

fn serve_holder(link: &mut UnixStream) -> io::Result<()> {
    let mut head = [0u8; 2];
    io::Read::read_exact(link, &mut head)?;
    let mut host = vec![0u8; usize::from(head[1])];
    io::Read::read_exact(link, &mut host)?;
    answer(link, make_apart(head[0] == 1, &host))?;
    let mut byte = [0u8; 1];
    io::Read::read_exact(link, &mut byte)?;
    answer(link, ns::leave(namespace::MOUNT))?;
    // Nothing but the end of file ever comes; until then `/proc` shows our namespaces.
    io::Read::read(link, &mut byte).map(drop)
}

fn answer(link: &mut UnixStream, made: io::Result<()>) -> io::Result<()> {
    let errno = made.map_or_else(|e| e.raw_os_error().unwrap_or(1), |()| 0);
    io::Write::write_all(link, &errno.to_ne_bytes())
}

/// Makes the namespaces that do not depend on the view.
fn make_apart(loopback: bool, host: &[u8]) -> io::Result<()> {
    let mut kinds = namespace::IPC | namespace::UTS | namespace::CGROUP;
    if loopback {
        kinds |= namespace::NET;
    }
    ns::leave(kinds)?;
    if loopback {
        ns::loopback_up()?;
    }
    Ok(rustix::system::sethostname(host)?)
}

/// Enters all of them: the user namespace first, which gives the capabilities to enter the rest.
pub fn enter(inner: &Inner) -> io::Result<()> {
    ns::enter(inner.user.as_fd(), namespace::USER)?;
    for (kind, fd) in &inner.others {
        ns::enter(fd.as_fd(), *kind)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_itself_inside() {
        assert_eq!(user_map(1000, 0), "1000 0 1\n");
        assert_eq!(
            user_map(1000, 65_536),
            "0 1 1000\n1000 0 1\n1001 1001 64536\n"
        );
        assert_eq!(user_map(1000, 10), "0 1 10\n1000 0 1\n");
        assert_eq!(user_map(0, 5), "0 0 1\n1 1 5\n");
    }
}
