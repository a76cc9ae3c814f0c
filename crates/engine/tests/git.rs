//! Git inside branches: linked worktrees, hooks that must not reach the host, refreshed indexes.

mod common;

use common::{Place, ok};
use forkpoint_engine::{CommitOptions, CommitOutcome};
use std::process::Command;

fn git(dir: &std::path::Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@example.invalid",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(args)
        .current_dir(dir)
        .output()
        .expect("git");
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const COMMIT: &str = "git -c user.name=T -c user.email=t@example.invalid commit -qam inside";

#[test]
fn a_commit_made_inside_a_linked_worktree_stays_in_the_branch_until_it_is_committed() {
    let place = Place::new();
    let main = place.dir().join("main");
    std::fs::create_dir(&main).unwrap();
    git(&main, &["init", "-q"]);
    std::fs::write(main.join("f"), "1").unwrap();
    git(&main, &["add", "f"]);
    git(&main, &["commit", "-qm", "first"]);
    std::fs::remove_dir(place.base()).unwrap();
    let base = place.dir().join("base");
    git(
        &main,
        &[
            "worktree",
            "add",
            "-q",
            "-b",
            "side",
            base.to_str().unwrap(),
        ],
    );
    let before = git(&base, &["rev-parse", "HEAD"]);

    let branch = place.fork();
    ok(
        &branch,
        &format!("echo 2 > f && {COMMIT} && git log --format=%s"),
    );
    assert_eq!(git(&base, &["rev-parse", "HEAD"]), before);
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    assert_eq!(git(&base, &["log", "--format=%s"]), "inside\nfirst\n");
    assert_eq!(git(&base, &["status", "--porcelain"]), "");
}

#[test]
fn hooks_and_configuration_are_withheld_and_listed() {
    let place = Place::new();
    git(&place.base(), &["init", "-q"]);
    let branch = place.fork();
    ok(
        &branch,
        "echo x > f; printf '#!/bin/sh\\n' > .git/hooks/post-checkout; git config core.pager evil",
    );
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    assert_eq!(report.withheld.len(), 2, "{:?}", report.withheld);
    assert!(!place.file(".git/hooks/post-checkout").exists());
    assert!(!place.read(".git/config").contains("evil"));
    assert_eq!(place.read("f"), "x\n");
}

#[test]
fn a_status_on_both_sides_is_no_conflict() {
    let place = Place::new();
    git(&place.base(), &["init", "-q"]);
    place.write("f", "1");
    git(&place.base(), &["add", "f"]);
    git(&place.base(), &["commit", "-qm", "first"]);
    let branch = place.fork();
    ok(&branch, "echo 2 > f; git status");
    // Touched, so that git has a reason to refresh what it knows of it.
    place.write("g", "untracked");
    std::fs::remove_file(place.file("g")).unwrap();
    git(&place.base(), &["update-index", "--refresh"]);
    let index = std::fs::read(place.file(".git/index")).unwrap();
    std::fs::write(place.file(".git/index"), &index).unwrap();
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    assert_eq!(place.read("f"), "2\n");
}
