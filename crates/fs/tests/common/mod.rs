//! What the tests of views, diffs and compaction share: running a test as root and in a user
//! namespace, random operations on a tree, and a snapshot of everything a tree holds.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

pub mod apply;
pub mod fault;
pub mod ops;
pub mod snapshot;

use forkpoint_fs::{MountOptions, Stack, view};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the environment of a test that runs again inside a user namespace.
const INSIDE: &str = "FORKPOINT_TEST_USERNS";

/// Runs `body` as root where the test is run by root, and once more, or only, in a user and mount
/// namespace of its own by `unshare`. `name` is the test's full name.
pub fn everywhere(name: &str, body: impl Fn(bool)) {
    if std::env::var_os(INSIDE).is_some() {
        body(true);
        return;
    }
    if rustix::process::geteuid().is_root() {
        body(false);
    }
    let able = Command::new("unshare").args(["-Urm", "true"]).output();
    if !able.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIP: {name}: no user namespaces here");
        return;
    }
    let me = std::env::current_exe().expect("own path");
    let output = Command::new("unshare")
        .arg("-Urm")
        .arg(me)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "in a user namespace:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A stack of layers in a temporary directory.
pub struct Layers {
    pub dir: tempfile::TempDir,
    /// Sealed layers, topmost first, the last being the base.
    pub layers: Vec<PathBuf>,
    pub userxattr: bool,
    made: u32,
}

impl Layers {
    pub fn new(userxattr: bool) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let base = dir.path().join("base");
        std::fs::create_dir(&base).expect("mkdir");
        Self {
            dir,
            layers: vec![base],
            userxattr,
            made: 0,
        }
    }

    pub fn base(&self) -> &Path {
        self.layers.last().expect("a base")
    }

    pub fn options(&self) -> MountOptions {
        MountOptions {
            volatile: true,
            userxattr: self.userxattr,
        }
    }

    pub fn diff_options(&self) -> forkpoint_fs::delta::DiffOptions {
        forkpoint_fs::delta::DiffOptions {
            userxattr: self.userxattr,
        }
    }

    /// Runs `change` on the root of a writable view of the layers, then makes its upper the
    /// topmost layer.
    pub fn level(&mut self, change: impl FnOnce(&Path)) {
        let stack = self.next_stack();
        let fd = view::mount(&stack, &self.options()).expect("mount");
        change(&root_of(&fd));
        drop(fd);
        self.layers.insert(0, stack.upper);
    }

    pub fn next_stack(&mut self) -> Stack {
        let upper = self.dir.path().join(format!("upper{}", self.made));
        let work = self.dir.path().join(format!("work{}", self.made));
        self.made += 1;
        view::prepare_pair(&upper, &work, &self.layers[0]).expect("prepare");
        Stack {
            lowers: self.layers.clone(),
            upper,
            work,
        }
    }

    /// A read-only view without the top `skip` layers.
    pub fn view(&self, skip: usize) -> OwnedFd {
        view::mount_readonly(&self.layers[skip..], &self.options()).expect("mount")
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        // The kernel's work directories have no permissions at all.
        for entry in std::fs::read_dir(self.dir.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Err(e) = forkpoint_fs::tree::remove(&entry.path()) {
                eprintln!("left behind: {e}");
            }
        }
    }
}

/// A path that leads to the root of a detached view.
pub fn root_of(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
