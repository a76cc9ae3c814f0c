//! The example's attempts do, without Forkpoint, what its README says of them.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn example() -> PathBuf {
    let root = std::env::var_os("FORKPOINT_TEST_SOURCE").map(PathBuf::from);
    let root = root.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".."));
    root.join("examples/fix-the-bug")
}

/// A copy to work in.
fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for part in ["Makefile", "bench.sh", "src", "tests", "attempts"] {
        copy_into(&example().join(part), dir.path());
    }
    dir
}

fn copy_into(from: &Path, dir: &Path) {
    let status = Command::new("cp")
        .arg("-R")
        .arg(from)
        .arg(dir)
        .status()
        .unwrap();
    assert!(status.success());
}

fn sh(dir: &Path, script: &str) -> Output {
    Command::new("sh")
        .arg(script)
        .current_dir(dir)
        .output()
        .unwrap()
}

fn failed_cases(dir: &Path) -> Vec<String> {
    let out = sh(dir, "tests/run.sh");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let failed: Vec<String> = text
        .lines()
        .filter_map(|l| l.strip_prefix("FAILED "))
        .map(str::to_owned)
        .collect();
    assert_eq!(out.status.success(), failed.is_empty(), "{text}");
    failed
}

/// Runs an attempt, then puts the tests back as `--protect` does.
fn attempt(name: &str) -> tempfile::TempDir {
    let dir = copy();
    assert!(
        Command::new("make")
            .arg("-s")
            .current_dir(dir.path())
            .status()
            .unwrap()
            .success()
    );
    let out = sh(dir.path(), &format!("attempts/{name}.sh"));
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    std::fs::remove_dir_all(dir.path().join("tests")).unwrap();
    copy_into(&example().join("tests"), dir.path());
    dir
}

fn score(dir: &Path) -> f64 {
    let out = sh(dir, "bench.sh");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .last()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn example_base_fails_exactly_one_case() {
    assert_eq!(failed_cases(copy().path()), ["letters"]);
}

#[test]
fn example_two_attempts_pass_and_the_second_is_faster() {
    let slow = attempt("0-decode");
    let fast = attempt("1-decode-and-hash");
    assert_eq!(failed_cases(slow.path()), [""; 0]);
    assert_eq!(failed_cases(fast.path()), [""; 0]);
    let (slow, fast) = (score(slow.path()), score(fast.path()));
    assert!(fast * 3.0 < slow, "slow {slow} ms, fast {fast} ms");
}

#[test]
fn example_high_bytes_mends_one_case_and_breaks_others() {
    let dir = attempt("2-high-bytes");
    assert_eq!(
        failed_cases(dir.path()),
        ["long", "malformed", "punctuation"]
    );
}

#[test]
fn example_edited_tests_pass_until_they_are_put_back() {
    let dir = copy();
    assert!(
        Command::new("make")
            .arg("-s")
            .current_dir(dir.path())
            .status()
            .unwrap()
            .success()
    );
    assert!(
        sh(dir.path(), "attempts/3-edit-the-tests.sh")
            .status
            .success()
    );
    assert!(
        sh(dir.path(), "tests/run.sh").status.success(),
        "the cheat works unprotected"
    );
    assert_eq!(
        failed_cases(attempt("3-edit-the-tests").path()),
        ["letters"]
    );
}

#[test]
fn example_until_it_passes_does_not_end() {
    let dir = copy();
    let start = Instant::now();
    let status = Command::new("timeout")
        .args(["--kill-after=1", "2", "sh", "attempts/4-until-it-passes.sh"])
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(124));
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[test]
fn example_look_only_changes_nothing() {
    let dir = copy();
    assert!(sh(dir.path(), "attempts/5-look-only.sh").status.success());
    for part in ["src", "tests", "attempts"] {
        let (ours, theirs) = (dir.path().join(part), example().join(part));
        let status = Command::new("diff")
            .arg("-r")
            .args([ours, theirs])
            .status()
            .unwrap();
        assert!(status.success());
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5);
}
