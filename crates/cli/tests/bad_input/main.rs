//! Every bad input, with the real binary: each gets a clear error with a code and what to do, the
//! right exit status, and nothing of the user's is lost or changed. Specification files have tests of
//! their own (`spec.rs`).

#[path = "../common/mod.rs"]
mod common;

mod bases;
mod callers;
mod commands;
mod flags;
mod judges;
mod stores;

use common::{Done, Lab};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What one entry of a tree is: type and mode, owner, change of content, content or target.
type Entry = (u32, u32, i64, i64, Vec<u8>);

/// Everything in a tree, to be compared with what it is later.
fn digest(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut all = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() {
            std::fs::read(&path).unwrap()
        } else if meta.is_symlink() {
            std::fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else {
            Vec::new()
        };
        if meta.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let entry = (
            meta.mode(),
            meta.uid(),
            meta.mtime(),
            meta.mtime_nsec(),
            content,
        );
        all.insert(path, entry);
    }
    all
}

/// A lab whose base must be the same when the test is over.
struct Kept {
    lab: Lab,
    before: BTreeMap<PathBuf, Entry>,
}

impl std::ops::Deref for Kept {
    type Target = Lab;
    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(
                digest(&self.lab.base()),
                self.before,
                "the base was changed"
            );
        }
    }
}

fn kept() -> Kept {
    let lab = Lab::new(&[("a", "1\n"), ("d/b", "2\n"), ("run.sh", "exit 0\n")]);
    std::os::unix::fs::symlink("a", lab.base().join("link")).unwrap();
    let before = digest(&lab.base());
    Kept { lab, before }
}

/// With a branch called `one`.
fn forked() -> Kept {
    let kept = kept();
    kept.run(&["fork", ".", "--name", "one"]).expect(0);
    kept
}

/// It failed with this status and code, in a line of what and why, and a line of what to do.
#[track_caller]
fn refused(done: &Done, status: i32, code: &str, says: &str) {
    assert_eq!(done.code(), Some(status), "{done:#?}");
    let start = format!("error[{code}");
    let mut lines = done
        .stderr
        .lines()
        .skip_while(|line| !line.starts_with(&start));
    let what = lines
        .next()
        .unwrap_or_else(|| panic!("no {code}: {done:#?}"));
    assert!(what.contains(says), "{says:?} is not said: {done:#?}");
    let hint = lines.next().unwrap_or_default();
    assert!(
        hint.starts_with("hint: ") && hint.len() > 12,
        "no hint: {done:#?}"
    );
    assert!(!done.stderr.contains("panicked"), "{done:#?}");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn skip(why: &str) {
    eprintln!("SKIP: {why}");
}

/// Something mounted for a test, unmounted at its end.
struct Mounted(PathBuf);

impl Mounted {
    /// `mount` with these arguments, on `at`.
    fn new(args: &[&str], at: &Path) -> Self {
        let status = std::process::Command::new("mount")
            .args(args)
            .arg(at)
            .status();
        assert!(status.unwrap().success(), "mount {args:?}");
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        assert!(std::thread::panicking() || status.is_ok_and(|s| s.success()));
    }
}
