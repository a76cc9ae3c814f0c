//! A store and a base in a temporary directory, for tests that run real branches.
#![allow(dead_code)]

pub(crate) mod drive;
#[allow(unreachable_pub)]
#[path = "../../../fs/tests/common/ops.rs"]
pub(crate) mod ops;
pub(crate) mod tree;

use forkpoint_engine::{
    Branch, Engine, EngineOptions, ExitKind, ForkOptions, Stream, World, WorldOptions,
};
use std::fs;
use std::path::{Path, PathBuf};

/// A store and a base. Removed when dropped.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    pub(crate) engine: Engine,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("base")).expect("a base");
        let engine = open(dir.path());
        Self { dir, engine }
    }

    /// A place in a directory that has a `base` already.
    pub(crate) fn within(dir: tempfile::TempDir) -> Self {
        let engine = open(dir.path());
        Self { dir, engine }
    }

    /// The base, canonical.
    pub(crate) fn base(&self) -> PathBuf {
        fs::canonicalize(self.dir.path().join("base")).expect("the base")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.base().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.file(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("its directory");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect("a file of the base")
    }

    pub(crate) fn world(&self) -> World {
        self.engine
            .world(&self.base(), WorldOptions::default())
            .expect("a world")
    }

    pub(crate) fn fork(&self) -> Branch {
        self.forks(1).pop().expect("a branch")
    }

    pub(crate) fn forks(&self, count: u32) -> Vec<Branch> {
        let options = ForkOptions {
            count,
            ..ForkOptions::default()
        };
        let forks = self.world().fork(&options).expect("forks");
        forks
            .into_iter()
            .map(|fork| fork.expect("a fork"))
            .collect()
    }

    /// A second engine on the same store, as another process would open it.
    pub(crate) fn again(&self) -> Engine {
        open(self.dir.path())
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Closes the engine; the directory stays until the returned handle is dropped.
    pub(crate) fn close(self) -> tempfile::TempDir {
        self.dir
    }
}

/// Says why a test, or a part of it, does not run here.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIP: {why}");
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program on the host; its output. It must succeed.
#[track_caller]
pub(crate) fn host(program: &str, args: &[&str]) -> String {
    let output = std::process::Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a program is there.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

pub(crate) fn open(dir: &Path) -> Engine {
    let env = std::env::vars_os()
        .filter(|(key, _)| key == "PATH")
        .collect();
    Engine::open(EngineOptions {
        store: dir.join("store"),
        home: Some(dir.join("home")),
        env,
        ..EngineOptions::default()
    })
    .expect("a store")
}

/// Runs a shell command in a branch; its output and exit status.
pub(crate) fn run(branch: &Branch, script: &str) -> (i32, String) {
    run_with(branch, script, Stream::Null, &[])
}

/// The same with a standard input and variables.
pub(crate) fn run_with(
    branch: &Branch,
    script: &str,
    stdin: Stream,
    env: &[(&str, &str)],
) -> (i32, String) {
    let mut command = branch.command("/bin/sh");
    command.args(["-c", script]).stdin(stdin);
    for (key, value) in env {
        command.env(key, value);
    }
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{script}: {e} ({})", e.hint));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.exit.status {
        ExitKind::Code(code) => (code, text),
        other => panic!("{script}: {other:?}: {text}"),
    }
}

/// Runs a shell command that must succeed; its output.
pub(crate) fn ok(branch: &Branch, script: &str) -> String {
    let (code, text) = run(branch, script);
    assert_eq!(code, 0, "{script}: {text}");
    text
}

/// A small file system in memory, for root. Unmounted when dropped.
pub(crate) struct Mounted(PathBuf);

pub(crate) fn mount_tmpfs(at: &Path, size: &str) -> Mounted {
    let options = format!("size={size},mode=0700");
    let at = at.to_str().expect("text");
    host("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", at]);
    Mounted(at.into())
}

impl Mounted {
    /// Anything that was just mounted there.
    pub(crate) fn at(dir: &Path) -> Self {
        Self(dir.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount")
            .args(["-l".as_ref(), self.0.as_os_str()])
            .status();
        assert!(std::thread::panicking() || status.is_ok_and(|s| s.success()));
    }
}

/// Mounts an overlay at `at` over `lower`, with its upper below `under`.
pub(crate) fn overlay(at: &Path, lower: &Path, under: &Path) -> Mounted {
    let dirs = ["upper", "work"].map(|name| under.join(name));
    for dir in &dirs {
        fs::create_dir_all(dir).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        dirs[0].display(),
        dirs[1].display()
    );
    let at_text = at.to_str().unwrap();
    host(
        "mount",
        &["-t", "overlay", "-o", &options, "overlay", at_text],
    );
    Mounted::at(at)
}

/// A place over which no overlay can be had, and what must be unmounted afterwards. For root the base
/// is an overlay over an overlay, as deep as the kernel goes. For others everything lies on an
/// overlay, where no upper can be, in a directory that somebody else has to make:
/// `FORKPOINT_TEST_OVERLAY`.
pub(crate) fn without_overlay() -> Option<(Place, Vec<Mounted>, tempfile::TempDir)> {
    let under = tempfile::tempdir().unwrap();
    if !is_root() {
        let Some(dir) = std::env::var_os("FORKPOINT_TEST_OVERLAY") else {
            skip("FORKPOINT_TEST_OVERLAY names no directory on an overlay");
            return None;
        };
        let dir = tempfile::tempdir_in(dir).unwrap();
        fs::create_dir(dir.path().join("base")).unwrap();
        return Some((Place::within(dir), Vec::new(), under));
    }
    let dir = tempfile::tempdir().unwrap();
    let (base, lower, middle) = (
        dir.path().join("base"),
        under.path().join("lower"),
        under.path().join("middle"),
    );
    for path in [&base, &lower, &middle] {
        fs::create_dir(path).unwrap();
    }
    let first = overlay(&middle, &lower, &under.path().join("1"));
    let second = overlay(&base, &middle, &under.path().join("2"));
    Some((Place::within(dir), vec![second, first], under))
}
