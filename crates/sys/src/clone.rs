//! Making processes in new namespaces, executing by descriptor, and reaping.
//!
//! [`launch`] serves callers of any number of threads: between the clone and the exec its child
//! makes only raw system calls over memory that was prepared before. [`fork`] serves
//! single-threaded programs only.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

/// Namespaces to make or to enter, as the kernel's `CLONE_NEW*` bits.
pub mod namespace {
    /// User ids and capabilities.
    pub const USER: u64 = libc::CLONE_NEWUSER as u64;
    /// Mounts.
    pub const MOUNT: u64 = libc::CLONE_NEWNS as u64;
    /// Process ids.
    pub const PID: u64 = libc::CLONE_NEWPID as u64;
    /// Network.
    pub const NET: u64 = libc::CLONE_NEWNET as u64;
    /// System V IPC and POSIX message queues.
    pub const IPC: u64 = libc::CLONE_NEWIPC as u64;
    /// Host name.
    pub const UTS: u64 = libc::CLONE_NEWUTS as u64;
    /// The root of the cgroup tree.
    pub const CGROUP: u64 = libc::CLONE_NEWCGROUP as u64;
}

/// What a launched program finds instead of its first message where it could not be executed: a
/// frame length that no message has, then the error number, both 32 bits, native byte order.
pub const NOT_EXECUTED: u32 = u32::MAX;

/// A program to start in new namespaces.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The executable.
    pub program: BorrowedFd<'a>,
    /// Its arguments, the first being its name.
    pub argv: &'a [CString],
    /// The namespaces to make.
    pub namespaces: u64,
    /// Becomes its descriptors 0, 1 and 2.
    pub null: BorrowedFd<'a>,
    /// Becomes its descriptor 3; everything above is closed.
    pub socket: BorrowedFd<'a>,
    /// Begin in this v2 cgroup.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Wait until [`Launched::go`] before executing.
    pub wait: bool,
}

/// A process that was made.
#[derive(Debug)]
pub struct Child {
    /// Its pid, in the namespace of its maker.
    pub pid: u32,
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
}

/// A launched process, which may wait for [`Launched::go`].
#[derive(Debug)]
pub struct Launched {
    /// The process.
    pub child: Child,
    go: Option<OwnedFd>,
}

impl Launched {
    /// Lets it execute its program.
    pub fn go(&mut self) -> io::Result<()> {
        if let Some(pipe) = self.go.take() {
            rustix::io::write(&pipe, b"g")?;
        }
        Ok(())
    }
}

/// `CLONE_INTO_CGROUP`; libc's own constant is too narrow.
const INTO_CGROUP: u64 = 0x2_0000_0000;

fn clone3(flags: u64, cgroup: Option<RawFd>) -> io::Result<(i64, RawFd)> {
    let mut pidfd: RawFd = -1;
    // SAFETY: `clone_args` is plain numbers, for which zero is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(fd) = cgroup {
        args.flags |= INTO_CGROUP;
        args.cgroup = fd as u64;
    }
    // SAFETY: without CLONE_VM the child has its own copy of the memory and goes on from here on
    // its own copy of this stack; `args` and `pidfd` outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((pid, pidfd))
}

fn null_terminated(texts: &[CString]) -> Vec<*const libc::c_char> {
    let pointers = texts.iter().map(|text| text.as_ptr());
    pointers.chain(std::iter::once(std::ptr::null())).collect()
}

/// Starts a program in new namespaces, with an empty environment. Signals are blocked around the
/// clone, so that no handler of the caller runs in the child.
pub fn launch(what: &Launch<'_>) -> io::Result<Launched> {
    let argv = null_terminated(what.argv);
    let env: [*const libc::c_char; 1] = [std::ptr::null()];
    let (wait, go) = if what.wait {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        (Some(read), Some(write))
    } else {
        (None, None)
    };
    let plan = Plan {
        program: what.program.as_raw_fd(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        null: what.null.as_raw_fd(),
        socket: what.socket.as_raw_fd(),
        wait: wait.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        go: go.as_ref().map_or(-1, AsRawFd::as_raw_fd),
    };
    let cgroup = what.cgroup.map(|fd| fd.as_raw_fd());
    // SAFETY: `sigset_t` is plain numbers, and both sets outlive the calls.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    };
    let made = clone3(what.namespaces, cgroup);
    if let Ok((0, _)) = made {
        // SAFETY: this is the only thread of the child; everything `plan` points to was copied
        // with the memory.
        unsafe { become_program(&plan) }
    }
    // SAFETY: `old` was filled in above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    let (pid, pidfd) = made?;
    Ok(Launched {
        child: Child {
            pid: pid as u32,
            // SAFETY: the kernel made this descriptor for us, and nothing else owns it.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        },
        go,
    })
}

/// What the child of [`launch`] needs: plain numbers and addresses.
struct Plan {
    program: RawFd,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    null: RawFd,
    socket: RawFd,
    wait: RawFd,
    go: RawFd,
}

/// Goes on as the program. Makes raw system calls only: other threads of the caller may have held
/// any lock when this copy of them was made.
///
/// # Safety
/// Only in a fresh child; `plan` must point to NUL-terminated texts in NULL-terminated lists.
unsafe fn become_program(plan: &Plan) -> ! {
    const ABOVE: libc::c_int = 64;
    // SAFETY: each call takes numbers, or addresses that the caller vouches for.
    unsafe {
        if plan.wait >= 0 {
            libc::close(plan.go);
            let mut byte = 0u8;
            if libc::read(plan.wait, (&raw mut byte).cast(), 1) != 1 {
                libc::_exit(125);
            }
        }
        // Any of them may be among 0 to 3 where the caller's own are closed: move them away first.
        let program = libc::fcntl(plan.program, libc::F_DUPFD_CLOEXEC, ABOVE);
        let null = libc::fcntl(plan.null, libc::F_DUPFD_CLOEXEC, ABOVE);
        let socket = libc::fcntl(plan.socket, libc::F_DUPFD_CLOEXEC, ABOVE);
        for target in 0..3 {
            libc::dup3(null, target, 0);
        }
        libc::dup3(socket, 3, 0);
        const CLOSE_ON_EXEC: libc::c_uint = libc::CLOSE_RANGE_CLOEXEC;
        libc::syscall(libc::SYS_close_range, 4u32, u32::MAX, CLOSE_ON_EXEC);
        // Handlers were the caller's; what it ignored would stay ignored across the exec.
        for signal in 1..=64 {
            if signal != libc::SIGKILL && signal != libc::SIGSTOP && signal != 32 && signal != 33 {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::syscall(
            libc::SYS_execveat,
            program,
            c"".as_ptr(),
            plan.argv,
            plan.env,
            libc::AT_EMPTY_PATH,
        );
        let report = [NOT_EXECUTED, *libc::__errno_location() as u32];
        libc::write(3, report.as_ptr().cast(), size_of_val(&report));
        libc::_exit(126)
    }
}

/// As `fork`, with new namespaces. `None` in the child. Only for single-threaded programs: the
/// child goes on with whatever locks other threads held, and may wait for them for ever.
pub fn fork(namespaces: u64) -> io::Result<Option<Child>> {
    let (pid, pidfd) = clone3(namespaces, None)?;
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(Child {
        pid: pid as u32,
        // SAFETY: the kernel made this descriptor for us, and nothing else owns it.
        pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
    }))
}

/// Replaces this process by the program at `path`. Returns only what went wrong.
pub fn execute(path: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let (argv, env) = (null_terminated(argv), null_terminated(env));
    // SAFETY: NUL-terminated texts in NULL-terminated lists, all alive across the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process at once, without running anything that was registered for its end: for the
/// children of [`fork`].
pub fn exit_now(status: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(status) }
}

/// Makes `fd` the descriptor `target`, not closed on exec; what was open there is closed.
pub fn place(fd: BorrowedFd<'_>, target: i32) -> io::Result<()> {
    if fd.as_raw_fd() == target {
        return Ok(rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?);
    }
    // SAFETY: the caller replaces descriptor `target` on purpose, shortly before an exec.
    if unsafe { libc::dup3(fd.as_raw_fd(), target, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A copy of `fd` at `lowest` or above, closed on exec.
pub fn copy_above(fd: BorrowedFd<'_>, lowest: i32) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, lowest)?)
}

/// Takes descriptor `number`, which a launcher placed there, closed on exec from now on. For
/// programs that [`launch`] started, once for each number.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: only asks about the number.
    if number < 0 || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open; by the contract above nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes on exec every descriptor from `first` on.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: takes numbers; marks descriptors only.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A process that was waited for, and what it and the children it waited for took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// Its pid.
    pub pid: u32,
    /// How it ended.
    pub ended: Ended,
    /// User and system time.
    pub cpu_ns: u64,
    /// The largest resident size of any one of them, in bytes.
    pub max_rss_bytes: u64,
}

fn cpu_ns(usage: &libc::rusage) -> u64 {
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    ns(usage.ru_utime).saturating_add(ns(usage.ru_stime))
}

/// What [`reap_any`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A child that had ended.
    Dead(Reaped),
    /// Children, all alive.
    Alive,
    /// No child at all.
    Nobody,
}

/// Reaps one child that has ended.
pub fn reap_any() -> io::Result<Found> {
    let mut status = 0;
    // SAFETY: plain numbers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both addresses are valid across the call.
    let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage) };
    if pid < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD) => Ok(Found::Nobody),
            _ => Err(error),
        };
    }
    if pid == 0 {
        return Ok(Found::Alive);
    }
    let ended = if libc::WIFSIGNALED(status) {
        Ended::Signal(libc::WTERMSIG(status))
    } else {
        Ended::Code(libc::WEXITSTATUS(status))
    };
    Ok(Found::Dead(Reaped {
        pid: pid as u32,
        ended,
        cpu_ns: cpu_ns(&usage),
        max_rss_bytes: (usage.ru_maxrss as u64).saturating_mul(1024),
    }))
}

/// Reaps the child behind `pidfd`, if it has ended. `None`: it lives, or is no child of ours (any
/// more).
pub fn reap(pidfd: BorrowedFd<'_>) -> io::Result<Option<Reaped>> {
    const P_PIDFD: libc::c_int = 3;
    // SAFETY: plain numbers and unions of them, for which zero is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both addresses are valid across the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            P_PIDFD,
            pidfd.as_raw_fd(),
            &raw mut info,
            libc::WEXITED | libc::WNOHANG,
            &raw mut usage,
        )
    };
    if done < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: `waitid` filled in the members for a child's state, or left them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let ended = if info.si_code == libc::CLD_EXITED {
        Ended::Code(status)
    } else {
        Ended::Signal(status)
    };
    Ok(Some(Reaped {
        pid: pid as u32,
        ended,
        cpu_ns: cpu_ns(&usage),
        max_rss_bytes: (usage.ru_maxrss as u64).saturating_mul(1024),
    }))
}

/// Processor time and largest resident size of all children that were waited for.
pub fn children_usage() -> (u64, u64) {
    // SAFETY: plain numbers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the address is valid across the call, which cannot fail with it.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    (
        cpu_ns(&usage),
        (usage.ru_maxrss as u64).saturating_mul(1024),
    )
}

/// `text` with a NUL at its end, or `InvalidInput` where it holds one.
pub fn c_text(text: &std::ffi::OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a text holds a NUL byte"))
}
