//! Directories that cannot be a base.

use super::{Mounted, digest, is_root, kept, refused, skip};

#[test]
fn what_cannot_be_a_base_is_refused_by_name() {
    let lab = kept();
    let store = lab.store();
    std::fs::create_dir_all(store.join("inside")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&store, mode).unwrap();
    let inside = store.join("inside");
    let above = store.parent().unwrap().to_owned();
    let long = "x".repeat(5000);
    let cases: &[(&str, &str, &str)] = &[
        ("missing", "FP0401", "missing"),
        ("a", "FP0401", "is not a directory"),
        ("/", "FP0401", "whole system"),
        ("/proc", "FP0401", "running system"),
        (inside.to_str().unwrap(), "FP0401", "inside the store"),
        (above.to_str().unwrap(), "FP0401", "contains the store"),
        ("", "FP0001", "value is required"),
        (&long, "FP0401", "too long"),
    ];
    for (base, code, says) in cases {
        let explore = lab.run(&["explore", "--base", base, "--", "true"]);
        refused(&explore, 2, code, says);
        // What is no path is looked for among the branches.
        if base.starts_with('/') {
            refused(&lab.run(&["fork", base]), 2, code, says);
        }
    }
}

#[test]
fn a_base_on_a_read_only_or_foreign_file_system_is_refused() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let lab = kept();
    let ro = lab.path("ro");
    std::fs::create_dir(&ro).unwrap();
    let _mounted = Mounted::new(&["-t", "tmpfs", "-o", "ro", "tmpfs"], &ro);
    let done = lab.run(&["explore", "--base", ro.to_str().unwrap(), "--", "true"]);
    refused(&done, 2, "FP0401", "read-only");
}

#[test]
fn mounts_below_a_base_are_named() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let lab = kept();
    let other = lab.path("other");
    std::fs::create_dir_all(other.join("below")).unwrap();
    std::fs::write(other.join("f"), "f").unwrap();
    let before = digest(&other);
    let mounted = Mounted::new(&["-t", "tmpfs", "tmpfs"], &other.join("below"));
    for args in [
        &["fork", other.to_str().unwrap()][..],
        &["explore", "--base", other.to_str().unwrap(), "--", "true"],
    ] {
        refused(&lab.run(args), 2, "FP0402", "below");
    }
    drop(mounted);
    assert_eq!(digest(&other), before);
}

#[test]
fn a_base_of_somebody_else_is_refused_before_a_commit_decides() {
    if is_root() {
        return skip("root may write everywhere");
    }
    let lab = kept();
    let before = digest(std::path::Path::new("/usr/share/doc"));
    lab.run(&["fork", "/usr/share/doc", "--name", "theirs"])
        .expect(0);
    let wrote = lab.run(&["exec", "theirs", "--", "sh", "-c", "echo x > new-file"]);
    if wrote.code() == Some(0) {
        let done = lab.run(&["commit", "theirs"]);
        assert_ne!(done.code(), Some(0), "{done:#?}");
        refused(&done, done.code().unwrap(), "FP025", "in the base");
    } else {
        // With subordinate ids the directory stays its owner's inside as well.
        assert!(wrote.stderr.contains("Permission denied"), "{wrote:#?}");
    }
    lab.run(&["abort", "theirs"]).expect(0);
    assert_eq!(digest(std::path::Path::new("/usr/share/doc")), before);
    refused(
        &lab.run(&["explore", "--base", "/root", "--", "true"]),
        2,
        "FP0401",
        "cannot be read",
    );
}

/// A commit that is decided and then blocked, and still is when it is looked at again, is taken back
/// by an undo.
#[test]
fn an_undo_takes_back_a_blocked_commit() {
    let traced = std::process::Command::new("strace").arg("-V").output();
    if !is_root() || !traced.is_ok_and(|done| done.status.success()) {
        return skip("failing a rename needs root and strace");
    }
    let lab = kept();
    lab.run(&["fork", ".", "--name", "one"]).expect(0);
    let line = "echo new > a; echo new > d/b; echo c > c";
    lab.run(&["exec", "one", "--", "sh", "-c", line]).expect(0);
    let failing = |when: &str, args: &[&str]| {
        let inject = format!("inject=renameat2:error=EPERM:when={when}");
        let program = lab.command(&[]).get_program().to_owned();
        let output = std::process::Command::new("strace")
            .args([
                "-f",
                "-o",
                "/dev/null",
                "-e",
                "trace=renameat2",
                "-e",
                &inject,
            ])
            .arg(program)
            .args(args)
            .current_dir(lab.base())
            .env("FORKPOINT_HOME", lab.store())
            .output();
        super::Done::of(args, output.unwrap())
    };
    failing("2+", &["commit", "one"]).expect(4);
    let undo = failing("1", &["undo"]).expect(0);
    assert!(undo.stderr.contains("is blocked"), "{undo:#?}");
    lab.run(&["abort", "one"]).expect(0);
}
