//! A sandbox over a temporary base, for tests that run for real, as root and as a user.
#![allow(dead_code, reason = "each test file uses its own part")]

use forkpoint_fs::{Stack, view};
use forkpoint_model::BranchId;
use forkpoint_sandbox::{
    DiskMount, ExecRequest, ExitKind, ExitReport, Running, Sandbox, SandboxSpec, identity,
};
use std::ffi::OsString;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A store, a base, and a branch's directories.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) base: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) branch: PathBuf,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) report: ExitReport,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Place {
    /// A base with a few files, and an empty branch.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().canonicalize().expect("canonical");
        let (base, store) = (path.join("base"), path.join("store"));
        let branch = store.join("branches/b1");
        std::fs::create_dir_all(&base).expect("mkdir base");
        std::fs::create_dir_all(branch.join("root")).expect("mkdir branch");
        std::fs::create_dir_all(branch.join("disk-0")).expect("mkdir disk");
        std::fs::write(base.join("file"), "base\n").expect("write");
        std::fs::write(store.join("secret"), "of the store\n").expect("write");
        Self {
            dir,
            base,
            store,
            branch,
        }
    }

    /// The stack of its only disk, its pair made.
    pub(crate) fn stack(&self) -> Stack {
        let disk = self.branch.join("disk-0");
        let stack = Stack {
            lowers: vec![self.base.clone()],
            upper: disk.join("upper"),
            work: disk.join("work"),
        };
        if !stack.upper.exists() {
            view::prepare_pair(&stack.upper, &stack.work, &self.base).expect("prepare");
        }
        stack
    }

    /// The description of a sandbox over it.
    pub(crate) fn spec(&self) -> SandboxSpec {
        let identity = identity().expect("identity");
        let branch = BranchId::from_bits(forkpoint_sys::rand::bits());
        let mut spec = SandboxSpec::new(branch, identity, self.branch.join("root"));
        spec.disks.push(DiskMount {
            target: self.base.clone(),
            stack: self.stack(),
            volatile: true,
            copy_tree: None,
            read_only: false,
        });
        spec.masks.push(self.store.clone());
        spec
    }

    pub(crate) fn start(&self) -> Sandbox {
        start(self.spec())
    }
}

/// Starts, and says what a machine without user namespaces lacks.
pub(crate) fn start(spec: SandboxSpec) -> Sandbox {
    Sandbox::start(spec).expect("start")
}

fn pipe() -> (std::fs::File, OwnedFd) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
    (read.into(), write)
}

fn null() -> OwnedFd {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .expect("open /dev/null");
    file.into()
}

/// A request for a command with no input, and the ends of its outputs.
pub(crate) fn request(argv: &[&str], cwd: &Path) -> (ExecRequest, std::fs::File, std::fs::File) {
    let ((out, stdout), (err, stderr)) = (pipe(), pipe());
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let request = ExecRequest {
        argv: argv.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), path.into()), ("HOME".into(), "/tmp".into())],
        cwd: cwd.to_owned(),
        stdin: null(),
        stdout,
        stderr,
        score_fd: None,
        new_session: true,
        terminal: None,
    };
    (request, out, err)
}

/// Starts a command whose output nobody reads.
pub(crate) fn spawn(sandbox: &Sandbox, script: &str) -> Running {
    let (mut request, _out, _err) = request(&["sh", "-c", script], Path::new("/"));
    (request.stdout, request.stderr) = (null(), null());
    sandbox.exec(request).expect("exec")
}

/// Runs a command to its end.
pub(crate) fn run(sandbox: &Sandbox, argv: &[&str], cwd: &Path) -> Output {
    let (request, mut out, mut err) = request(argv, cwd);
    let running = sandbox.exec(request).expect("exec");
    let mut output = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| out.read_to_end(&mut output.0).expect("read"));
        scope.spawn(|| err.read_to_end(&mut output.1).expect("read"));
    });
    Output {
        report: running.wait().expect("wait"),
        out: String::from_utf8_lossy(&output.0).into_owned(),
        err: String::from_utf8_lossy(&output.1).into_owned(),
    }
}

/// Runs a script, which must succeed, and returns what it printed.
pub(crate) fn sh(sandbox: &Sandbox, script: &str) -> String {
    let output = run(sandbox, &["sh", "-c", script], Path::new("/"));
    assert_eq!(
        output.report.status,
        ExitKind::Code(0),
        "{script}: {output:?}"
    );
    output.out
}

/// Runs a script that must fail, and returns everything it printed.
pub(crate) fn sh_fails(sandbox: &Sandbox, script: &str) -> String {
    let output = run(sandbox, &["sh", "-c", script], Path::new("/"));
    assert_ne!(
        output.report.status,
        ExitKind::Code(0),
        "{script}: {output:?}"
    );
    output.out + &output.err
}

/// Waits until `done` says yes, looking again after a millisecond, at most ten seconds.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        let moment = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        rustix::event::poll(&mut [], Some(&moment)).expect("poll");
    }
    panic!("not in ten seconds: {what}");
}
