//! What docs/semantics.md says of copy-up, of durability and of what is left out, with the real
//! binary.

mod common;

use common::Lab;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Runs a shell line in the branch `one` and gives what it printed.
fn inside(lab: &Lab, line: &str) -> String {
    lab.run(&["exec", "one", "--", "sh", "-c", line])
        .expect(0)
        .stdout
}

fn fork(lab: &Lab) {
    lab.run(&["fork", ".", "--name", "one"]).expect(0);
}

/// The one copy of a file of the base in the store.
fn in_an_upper(lab: &Lab, name: &str) -> PathBuf {
    let layers = std::fs::read_dir(lab.store().join("layers")).unwrap();
    let files: Vec<PathBuf> = layers
        .map(|l| l.unwrap().path().join(name))
        .filter(|p| p.exists())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn the_first_write_to_a_file_copies_all_of_it() {
    const BYTES: usize = 1 << 20;
    let lab = Lab::new(&[("big", &"x".repeat(BYTES))]);
    fork(&lab);
    inside(
        &lab,
        "printf y | dd of=big conv=notrunc bs=1 count=1 2> /dev/null",
    );
    let copy = in_an_upper(&lab, "big").metadata().unwrap();
    assert_eq!(copy.len(), BYTES as u64);
    assert!(copy.blocks() * 512 >= BYTES as u64, "{}", copy.blocks());
}

/// Whether the view's overlay of the base is volatile, by what the kernel says inside.
const IS_VOLATILE: &str = "grep \" $PWD \" /proc/self/mountinfo | grep -q ' - overlay ' || exit 9; \
    grep \" $PWD \" /proc/self/mountinfo | grep -qE '[ ,](volatile|fsync=volatile)' && echo volatile || echo durable";

#[test]
fn a_fork_is_durable_and_an_attempt_is_volatile() {
    let lab = Lab::new(&[("a", "1\n")]);
    fork(&lab);
    assert_eq!(inside(&lab, IS_VOLATILE), "durable\n");
    let line = format!("echo 2 > a; {IS_VOLATILE}");
    lab.run(&["explore", "--attempt", &line]).expect(0);
    assert_eq!(lab.run(&["logs", "last/0"]).expect(0).stdout, "volatile\n");
    assert_eq!(lab.read("a").as_deref(), Some("2\n"));
}

#[test]
fn what_lies_outside_or_is_excluded_is_not_committed_and_is_listed() {
    let lab = Lab::new(&[("a", "1\n")]);
    let outside = format!("/var/tmp/forkpoint-outside-{}", std::process::id());
    let line = format!("echo 2 > a; mkdir cache; echo c > cache/x; echo o > {outside}");
    let (report, done) = lab.json(&["explore", "--exclude", "cache", "--attempt", &line]);
    done.expect(0);
    let attempt = &report["attempts"][0];
    let text = |value: &serde_json::Value| value.to_string();
    assert!(text(&attempt["excluded"]).contains("cache"), "{attempt:#}");
    assert!(text(&attempt["dropped"]).contains(&outside), "{attempt:#}");
    assert_eq!(lab.read("a").as_deref(), Some("2\n"));
    assert!(!lab.base().join("cache").exists());
    assert!(!std::path::Path::new(&outside).exists());
}

#[test]
fn nothing_inside_gains_privileges_by_a_set_user_id_program() {
    let lab = Lab::new(&[]);
    fork(&lab);
    let line = "grep -E '^(NoNewPrivs|CapEff):' /proc/self/status";
    let printed = inside(&lab, line);
    assert!(printed.contains("NoNewPrivs:\t1"), "{printed}");
    // A copy that belongs to the branch's own user is all that a set-user-id bit can give.
    let uid = rustix::process::geteuid().as_raw();
    let line = "cp /usr/bin/id own-id && chmod 4755 own-id && ./own-id -u";
    assert_eq!(inside(&lab, line), format!("{uid}\n"));
}

#[test]
fn what_is_hidden_cannot_be_read() {
    let lab = Lab::new(&[("secret", "s3cret\n")]);
    fork(&lab);
    let cat = "cat secret 2> /dev/null || true";
    assert_eq!(inside(&lab, cat), "s3cret\n");
    let path = lab.base().join("secret");
    let path = path.to_str().unwrap();
    let args = ["exec", "one", "--hide", path, "--", "sh", "-c", cat];
    assert_eq!(lab.run(&args).expect(0).stdout, "");
}
