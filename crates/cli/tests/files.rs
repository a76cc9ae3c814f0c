//! Comparing, patches and what else looks at a branch's files, with the real binary and real git.

mod common;

use common::Lab;
use std::path::Path;
use std::process::Command;

/// Forks `name` off the base and runs `script` in it.
fn branch(lab: &Lab, name: &str, script: &str) {
    lab.run(&["fork", ".", "--name", name]).expect(0);
    lab.run(&["exec", name, "--", "sh", "-ec", script])
        .expect(0);
}

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_patch_of_a_branch_is_taken_by_git_apply() {
    let lab = Lab::new(&[
        ("a", "1\n2\n3\n"),
        ("gone/x", "x\n"),
        ("run", "#!/bin/sh\n"),
    ]);
    let script = "printf '1\\ntwo\\n3' > a; rm -r gone; mkdir -p d/empty; \
                  printf 'b\\0in' > \"d/new file\"; ln -s a link; chmod 755 run; mkfifo pipe";
    branch(&lab, "one", script);
    let done = lab.run(&["diff", "one", "--patch"]).expect(0);
    assert!(
        done.stdout.contains("-2\n-3\n+two\n+3\n\\ No newline"),
        "{done:?}"
    );
    for line in [
        "FIFOs, sockets and devices: pipe",
        "empty directories: d/empty",
    ] {
        assert!(
            done.stderr.contains(&format!("# not in the patch: {line}")),
            "{done:?}"
        );
    }
    std::fs::write(lab.path("p"), &done.stdout).unwrap();
    git(&lab.base(), &["apply", lab.path("p").to_str().unwrap()]);
    assert_eq!(lab.read("a").unwrap(), "1\ntwo\n3");
    assert_eq!(
        std::fs::read(lab.base().join("d/new file")).unwrap(),
        b"b\0in"
    );
    assert_eq!(
        std::fs::read_link(lab.base().join("link")).unwrap(),
        Path::new("a")
    );
    assert!(!lab.base().join("gone").exists());
    lab.run(&["diff", "one", "--patch", "--json"]).expect(2);
}

#[test]
fn two_branches_are_compared_and_patched() {
    let lab = Lab::new(&[("same", "s\n"), ("a", "0\n"), ("left", "l\n")]);
    branch(&lab, "one", "echo 1 > a; echo n > only-one");
    branch(&lab, "two", "echo 2 > a; rm left");
    let list = lab.run(&["diff", "one", "two"]).expect(0).stdout;
    assert_eq!(list, "M a\nD left\nD only-one\n");
    let back = lab.run(&["diff", "two", "one"]).expect(0).stdout;
    assert_eq!(back, "M a\nA left\nA only-one\n");
    assert_eq!(lab.run(&["diff", "two", "two"]).expect(0).stdout, "");
    let patch = lab.run(&["diff", "one", "two", "--patch"]).expect(0).stdout;
    assert!(patch.contains("-1\n+2\n"), "{patch}");
    let (json, _) = lab.json(&["diff", "one", "two"]);
    assert_eq!(json["changes"].as_array().unwrap().len(), 3);
    assert!(json["other"].is_string());
    let stat = lab.run(&["diff", "one", "two", "--stat"]).expect(0).stdout;
    assert!(stat.ends_with("3 paths, 2 B\n"), "{stat}");
    lab.run(&["diff", "one", "no-such"]).expect(2);
    lab.run(&["diff", "one", "two", "--own"]).expect(2);
    // A branch of another directory: nothing is shared, and everything is compared.
    let other = lab.path("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("same"), "s\n").unwrap();
    lab.run(&["fork", other.to_str().unwrap(), "--name", "far"])
        .expect(0);
    let list = lab.run(&["diff", "far", "two"]).expect(0).stdout;
    assert!(list.contains("A a\n"), "{list}");
    lab.run(&["abort", "one"]).expect(0);
    lab.run(&["diff", "one", "two"]).expect(2);
}
