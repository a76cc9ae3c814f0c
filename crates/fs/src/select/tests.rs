use super::*;
use crate::delta::{Differs, FileTime};

fn change(path: &str, kind: ChangeKind, file_type: FileType) -> Change {
    Change {
        path: path.into(),
        kind,
        file_type,
        old_type: None,
        size: 1,
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: FileTime::default(),
        rdev: (0, 0),
        differs: Differs::default(),
        had_lower: None,
        subtree: false,
        link_group: None,
        grants: None,
        withheld: None,
    }
}

fn set(paths: &[&str]) -> ChangeSet {
    let mut changes: Vec<Change> = paths
        .iter()
        .map(|path| match path.strip_suffix('/') {
            Some(dir) => change(dir, ChangeKind::Added, FileType::Dir),
            None => change(path, ChangeKind::Added, FileType::File),
        })
        .collect();
    changes.sort_by(|a, b| crate::delta::order(&a.path, &b.path));
    ChangeSet {
        changes,
        ..ChangeSet::default()
    }
}

fn withheld(paths: &[&str], rules: &Rules) -> Vec<String> {
    let selected = partition(set(paths), rules).expect("rules");
    selected
        .withheld
        .iter()
        .map(|p| p.display().to_string())
        .collect()
}

#[test]
fn what_git_would_run_is_withheld_at_any_depth() {
    let bad = [
        ".git/hooks/",
        ".git/hooks/post-checkout",
        ".git/config",
        ".git/config/below-a-directory-of-that-name",
        ".git/config.worktree",
        ".git/info/attributes",
        ".git/commondir",
        ".git/modules/a/config",
        ".git/modules/a/b/hooks/post-commit",
        ".git/modules/a/modules/c/info/attributes",
        ".git/worktrees/w/config.worktree",
        "deep/er/.git/hooks/pre-commit",
        ".GIT/Hooks/pre-commit",
        ".git/CONFIG",
        "vendored/.git",
    ];
    for path in bad {
        assert_eq!(withheld(&[path], &Rules::default()).len(), 1, "{path}");
    }
}

#[test]
fn the_rest_of_a_repository_is_kept() {
    let good = [
        ".git/",
        ".git/HEAD",
        ".git/index",
        ".git/objects/aa/bb",
        ".git/refs/heads/config",
        ".git/info/exclude",
        ".git/info/",
        ".gitmodules",
        ".gitattributes",
        ".githooks/x",
        "config",
        "hooks/x",
        "src/info/attributes",
    ];
    assert_eq!(withheld(&good, &Rules::default()), Vec::<String>::new());
    let allowed = Rules {
        allow_host_exec: true,
        ..Rules::default()
    };
    assert!(withheld(&[".git/hooks/x"], &allowed).is_empty());
}

#[test]
fn a_disk_that_is_a_git_directory_is_watched_at_its_root() {
    let rules = Rules {
        is_git_dir: true,
        ..Rules::default()
    };
    let paths = [
        "config",
        "hooks/pre-push",
        "worktrees/w/commondir",
        "refs/heads/config",
        "HEAD",
    ];
    assert_eq!(
        withheld(&paths, &rules),
        ["config", "hooks/pre-push", "worktrees/w/commondir"]
    );
}

#[test]
fn a_bare_repository_in_disguise_is_seen() {
    let paths = [
        "x/",
        "x/HEAD",
        "x/objects/",
        "x/refs/",
        "x/config",
        "x/hooks/post-update",
        "y/config",
    ];
    assert_eq!(
        withheld(&paths, &Rules::default()),
        ["x/config", "x/hooks/post-update"]
    );
}

#[test]
fn a_removed_git_file_is_no_threat_and_a_link_is() {
    let removed = change(".git", ChangeKind::Removed, FileType::File);
    assert!(!withholds(&removed, false, &HashSet::new()));
    let link = change(".git", ChangeKind::TypeChanged, FileType::Symlink);
    assert!(withholds(&link, false, &HashSet::new()));
}

#[test]
fn an_excluded_directory_takes_what_is_below_along() {
    let rules = Rules {
        exclude: vec![
            "target".into(),
            "**/*.o".into(),
            "./logs/*.log".into(),
            "docs/".into(),
        ],
        ..Rules::default()
    };
    let paths = [
        "target/",
        "target/a/b",
        "src/x.o",
        "src/x.c",
        "logs/a.log",
        "logs/deep/b.log",
        "docs/a",
    ];
    let selected = partition(set(&paths), &rules).expect("rules");
    let left: Vec<_> = selected
        .commit
        .changes
        .iter()
        .map(|c| c.path.display().to_string())
        .collect();
    assert_eq!(left, ["logs/deep/b.log", "src/x.c"]);
    assert_eq!(selected.excluded.len(), 5);
    assert_eq!(selected.commit.bytes, 2);
}

#[test]
fn globs_match_bytes_and_bad_ones_are_named() {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"bad\xff/x.tmp");
    let mut changes = set(&["a"]);
    changes.changes.push(Change {
        path: name.into(),
        ..change("b", ChangeKind::Added, FileType::File)
    });
    let rules = Rules {
        exclude: vec!["**/*.tmp".into()],
        ..Rules::default()
    };
    assert_eq!(
        partition(changes.clone(), &rules).expect("rules").excluded,
        [PathBuf::from(name)]
    );
    let rules = Rules {
        exclude: vec!["a[".into()],
        ..Rules::default()
    };
    let error = partition(changes, &rules).expect_err("bad glob");
    assert_eq!(error.code, "FP0256");
    assert!(error.message.contains("a["), "{error}");
}

#[test]
fn the_time_of_a_directory_of_which_all_was_left_out_stays() {
    let mut changes = set(&["a/x.log", "b/x.log", "b/y"]);
    let time = FileTime { secs: 1, nanos: 0 };
    changes.dir_times = ["a", "b", "c"].map(|p| (PathBuf::from(p), time)).to_vec();
    let rules = Rules {
        exclude: vec!["**/*.log".into()],
        ..Rules::default()
    };
    let left = partition(changes, &rules).expect("rules").commit.dir_times;
    assert_eq!(
        left,
        [(PathBuf::from("b"), time), (PathBuf::from("c"), time)]
    );
}

#[test]
fn what_would_grant_something_on_the_host_is_withheld_with_all_below_it() {
    let mut changes = set(&["a", "marked/below", "suid"]);
    let marked = change("marked", ChangeKind::Added, FileType::Dir);
    changes.changes.insert(1, marked);
    changes.changes[1].grants = Some(Grants::OverlayMark);
    changes.changes[3].grants = Some(Grants::SetId);
    let selected = partition(changes.clone(), &Rules::default()).expect("rules");
    let withheld = ["marked", "marked/below", "suid"].map(PathBuf::from);
    assert_eq!(selected.withheld, withheld);
    assert_eq!(selected.commit.changes.len(), 1);
    let rules = Rules {
        allow_host_exec: true,
        ..Rules::default()
    };
    assert_eq!(partition(changes, &rules).expect("rules").withheld.len(), 0);
}
