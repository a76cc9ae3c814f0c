//! Conflicts and drift: what the user changed in the base since the fork.

mod common;

use common::apply::stamp;
use common::{Layers, everywhere};
use forkpoint_fs::conflict::{self, Baseline, Budget, CheckOptions, Drift};
use forkpoint_fs::delta::{self, ChangeSet};
use forkpoint_fs::stamp::Stamp;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const BUDGET: Budget = Budget {
    entries: 1_000_000,
    millis: 60_000,
};

struct Forked {
    layers: Layers,
    at: Stamp,
}

/// A base, a fork of it at a known time, and a branch that made `change`.
fn forked(userxattr: bool, change: impl FnOnce(&Path)) -> Forked {
    let mut layers = Layers::new(userxattr);
    let base = layers.base().to_owned();
    for dir in ["d/e", "other", "gone/deep"] {
        fs::create_dir_all(base.join(dir)).expect("mkdir");
    }
    for file in ["a", "b", "d/x", "d/e/y", "other/z", "gone/deep/w"] {
        fs::write(base.join(file), file).expect("write");
    }
    let at = stamp(&layers);
    layers.level(change);
    Forked { layers, at }
}

impl Forked {
    fn changes(&self) -> ChangeSet {
        delta::diff(&self.layers.layers, 1, &self.layers.diff_options()).expect("diff")
    }

    fn conflicts_with(&self, baseline: Option<Baseline>) -> Vec<String> {
        let options = CheckOptions {
            layers: self.layers.layers.clone(),
            top: 1,
            userxattr: self.layers.userxattr,
            baseline,
        };
        let changes = self.changes();
        let found = conflict::check(&changes, self.layers.base(), self.at, &options);
        found
            .expect("check")
            .into_iter()
            .map(|c| c.path.display().to_string())
            .collect()
    }

    fn conflicts(&self) -> Vec<String> {
        self.conflicts_with(None)
    }

    fn drift(&self, budget: Budget) -> Drift {
        conflict::drift(self.layers.base(), self.at, &self.changes(), None, budget).expect("drift")
    }

    fn base(&self, path: &str) -> PathBuf {
        self.layers.base().join(path)
    }
}

fn modify(view: &Path) {
    fs::write(view.join("a"), "branch").expect("write");
    fs::write(view.join("d/e/y"), "branch").expect("write");
    fs::write(view.join("d/new"), "branch").expect("write");
    fs::remove_dir_all(view.join("gone")).expect("remove");
    fs::remove_file(view.join("b")).expect("remove");
}

#[test]
fn law_01_without_an_edit_there_is_neither_conflict_nor_drift() {
    let name = "law_01_without_an_edit_there_is_neither_conflict_nor_drift";
    everywhere(name, |userxattr| {
        let forked = forked(userxattr, modify);
        assert_eq!(forked.conflicts(), Vec::<String>::new());
        assert_eq!(forked.drift(BUDGET), Drift::None);
    });
}

#[test]
fn an_edit_of_a_path_of_the_delta_is_a_conflict() {
    everywhere(
        "an_edit_of_a_path_of_the_delta_is_a_conflict",
        |userxattr| {
            type Edit<'e> = &'e dyn Fn(&Path);
            let cases: [(&str, Edit<'_>); 11] = [
                ("a", &|b| fs::write(b.join("a"), "user").expect("write")),
                ("a", &|b| fs::remove_file(b.join("a")).expect("remove")),
                ("a", &|b| {
                    fs::remove_file(b.join("a")).expect("remove");
                    fs::create_dir(b.join("a")).expect("mkdir");
                }),
                ("a", &|b| {
                    fs::set_permissions(b.join("a"), fs::Permissions::from_mode(0o600))
                        .expect("chmod");
                }),
                ("b", &|b| fs::write(b.join("b"), "user").expect("write")),
                ("d/new", &|b| {
                    fs::write(b.join("d/new"), "user").expect("write")
                }),
                ("gone", &|b| {
                    fs::write(b.join("gone/deep/w"), "user").expect("write")
                }),
                ("gone", &|b| {
                    fs::write(b.join("gone/deep/new"), "user").expect("write")
                }),
                ("gone", &|b| {
                    fs::remove_file(b.join("gone/deep/w")).expect("remove")
                }),
                ("d", &|b| {
                    fs::rename(b.join("d"), b.join("moved")).expect("rename");
                    symlink("moved", b.join("d")).expect("symlink");
                }),
                ("d/e", &|b| {
                    fs::rename(b.join("d/e"), b.join("e")).expect("rename");
                    fs::create_dir(b.join("d/e")).expect("mkdir");
                    fs::write(b.join("d/e/y"), "user").expect("write");
                }),
            ];
            for (path, edit) in cases {
                let forked = forked(userxattr, modify);
                edit(forked.layers.base());
                let found = forked.conflicts();
                assert!(found.iter().any(|c| c == path), "{path}: {found:?}");
            }
        },
    );
}

#[test]
fn a_file_that_the_user_removed_and_the_branch_changed_is_a_conflict() {
    everywhere(
        "a_file_that_the_user_removed_and_the_branch_changed_is_a_conflict",
        |userxattr| {
            let only_a = |view: &Path| fs::write(view.join("a"), "branch").expect("write");
            let edited = forked(userxattr, only_a);
            fs::remove_file(edited.base("a")).expect("remove");
            assert_eq!(edited.conflicts(), ["a"]);
            // A file of the branch's own, beside another that the user removed, is none.
            let added = forked(userxattr, |view| {
                fs::write(view.join("own"), "x").expect("write")
            });
            fs::remove_file(added.base("a")).expect("remove");
            assert_eq!(added.conflicts(), Vec::<String>::new());
            // Nor is one that the branch renamed.
            let renamed = forked(userxattr, |view| {
                fs::rename(view.join("a"), view.join("c")).expect("rename")
            });
            fs::remove_file(renamed.base("b")).expect("remove");
            assert_eq!(renamed.conflicts(), Vec::<String>::new());
        },
    );
}

#[test]
fn a_directory_swapped_for_an_older_one_is_a_conflict() {
    everywhere(
        "a_directory_swapped_for_an_older_one_is_a_conflict",
        |userxattr| {
            let forked = forked(userxattr, |view| {
                fs::write(view.join("d/x"), "branch").expect("write")
            });
            fs::write(forked.base("other/x"), "other x").expect("write");
            let forked = Forked {
                at: stamp(&forked.layers),
                layers: forked.layers,
            };
            fs::rename(forked.base("d"), forked.base("d.old")).expect("rename");
            fs::rename(forked.base("other"), forked.base("d")).expect("rename");
            let found = forked.conflicts();
            assert!(found.contains(&"d".to_owned()), "{found:?}");
        },
    );
}

#[test]
fn an_edit_beside_the_delta_is_drift_and_no_conflict() {
    everywhere(
        "an_edit_beside_the_delta_is_drift_and_no_conflict",
        |userxattr| {
            let forked = forked(userxattr, modify);
            fs::write(forked.base("other/z"), "user").expect("write");
            fs::write(forked.base("d/mine"), "user").expect("write");
            assert_eq!(forked.conflicts(), Vec::<String>::new());
            let Drift::Paths(mut paths) = forked.drift(BUDGET) else {
                panic!("no drift")
            };
            paths.sort();
            assert_eq!(paths, ["d", "d/mine", "other/z"].map(PathBuf::from));
        },
    );
}

#[test]
fn what_the_budget_does_not_reach_is_unknown() {
    everywhere("what_the_budget_does_not_reach_is_unknown", |userxattr| {
        let forked = forked(userxattr, modify);
        let few = Budget {
            entries: 3,
            millis: 60_000,
        };
        let Drift::Unknown { scanned, why } = forked.drift(few) else {
            panic!("known")
        };
        assert_eq!(scanned, 3);
        assert!(why.contains("budget"), "{why}");
        let no_time = Budget {
            entries: 1_000_000,
            millis: 0,
        };
        for n in 0..1000 {
            fs::write(forked.base(&format!("n{n}")), "").expect("write");
        }
        // Paths that were found are said, although not all was looked at.
        assert!(!matches!(forked.drift(no_time), Drift::None));
    });
}

#[test]
fn a_rewrite_with_what_the_branch_has_is_no_conflict() {
    everywhere(
        "a_rewrite_with_what_the_branch_has_is_no_conflict",
        |userxattr| {
            let forked = forked(userxattr, modify);
            for path in ["a", "d/new"] {
                fs::write(forked.base(path), "branch").expect("write");
            }
            assert_eq!(forked.conflicts(), Vec::<String>::new());
        },
    );
}

fn git(dir: &Path, args: &[&str]) {
    let done = std::process::Command::new("git")
        .current_dir(dir)
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "safe.directory=*",
        ])
        .args(args)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", dir)
        .output()
        .expect("git runs");
    assert!(
        done.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn a_git_status_meanwhile_is_neither_conflict_nor_drift() {
    everywhere(
        "a_git_status_meanwhile_is_neither_conflict_nor_drift",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            let base = layers.base().to_owned();
            git(&base, &["init", "-q"]);
            fs::write(base.join("f"), "one").expect("write");
            fs::write(base.join("g"), "one").expect("write");
            git(&base, &["add", "."]);
            git(&base, &["commit", "-q", "-m", "one"]);
            let touched = fs::File::options()
                .write(true)
                .open(base.join("g"))
                .expect("open");
            touched.set_modified(std::time::UNIX_EPOCH).expect("times");
            // Git does not work through the descriptor of a detached view.
            let copy = layers.dir.path().join("copy");
            forkpoint_fs::tree::copy(&base, &copy, &Default::default()).expect("copy");
            fs::write(copy.join("f"), "two").expect("write");
            git(&copy, &["add", "f"]);
            let baseline = Baseline::take(&base).expect("baseline");
            let at = stamp(&layers);
            layers.level(|view| {
                fs::write(view.join("f"), "two").expect("write");
                fs::copy(copy.join(".git/index"), view.join(".git/index")).expect("copy");
            });
            let index = fs::read(base.join(".git/index")).expect("read");
            git(&base, &["status"]);
            assert_ne!(
                fs::read(base.join(".git/index")).expect("read"),
                index,
                "it was refreshed"
            );
            let forked = Forked { layers, at };
            assert_eq!(
                forked.conflicts_with(Some(baseline.clone())),
                Vec::<String>::new()
            );
            assert_eq!(
                forked.conflicts(),
                [".git/index"],
                "nothing is known without a baseline"
            );
            let base = forked.layers.base();
            let drift = |known| conflict::drift(base, at, &forked.changes(), known, BUDGET);
            assert_eq!(drift(Some(&baseline)).expect("drift"), Drift::None);
            git(base, &["add", "."]);
            fs::write(base.join("g"), "user").expect("write");
            git(base, &["add", "."]);
            assert_eq!(forked.conflicts_with(Some(baseline)), [".git/index"]);
        },
    );
}
