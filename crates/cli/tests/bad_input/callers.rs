//! Callers whose streams are closed, whose terminal dies, or who may not make namespaces.

use super::{Done, forked, is_root, kept, refused, skip};
use crate::common::{processes_with, shells_with, signal, wait_until};
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn closed_standard_streams_do_no_harm() {
    let lab = forked();
    let program = lab.command(&[]).get_program().to_owned();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        for verb in [
            "exec one -- sh -c 'echo x > f; cat'",
            "list",
            "diff one",
            "explore --no-output --no-commit -- sh -c 'echo x > g'",
        ] {
            let line = format!("\"$0\" {verb} {closed}");
            let status = Command::new("sh")
                .args(["-c", &line])
                .arg(&program)
                .current_dir(lab.base())
                .env("FORKPOINT_HOME", lab.store())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            let fine = matches!(status.code(), Some(0 | 1 | 125));
            assert!(fine, "{verb} {closed}: {status}");
        }
    }
    lab.run(&["list"]).expect(0);
}

#[test]
fn a_pipe_that_never_ends_on_standard_input_holds_up_nobody() {
    let lab = forked();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let mut command = lab.command(&["exec", "one", "--", "true"]);
    let child = command.stdin(reader).spawn().unwrap();
    Done::of(&["exec"], child.wait_with_output().unwrap()).expect(0);
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let mut command = lab.command(&[
        "explore",
        "--no-commit",
        "--",
        "sh",
        "-c",
        "cat; echo x > new",
    ]);
    let child = command.stdin(reader).spawn().unwrap();
    Done::of(&["explore"], child.wait_with_output().unwrap()).expect(0);
}

#[test]
fn a_killed_terminal_leaves_nothing_running() {
    // Under nohup the signal is ignored, and the command goes on, as it should.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status
        .lines()
        .find_map(|l| l.strip_prefix("SigIgn:"))
        .unwrap();
    if u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1 {
        skip("whoever started the tests ignores SIGHUP");
        return;
    }
    let lab = kept();
    let mark = format!("301.8{}", std::process::id());
    let line = format!("sleep {mark}; true");
    let mut command = lab.command(&["explore", "--attempt", &line]);
    let child = command.spawn().unwrap();
    let seen = wait_until(Duration::from_secs(20), || !shells_with(&mark).is_empty());
    assert!(seen.is_some());
    signal(&child, Signal::HUP);
    let done = Done::of(&["explore"], child.wait_with_output().unwrap());
    assert_ne!(done.code(), Some(0), "{done:#?}");
    assert!(wait_until(Duration::from_secs(10), || processes_with(&mark).is_empty()).is_some());
    lab.run(&["list"]).expect(0);
}

/// Where no user namespace may be made, the error and `doctor` name the exact command that mends it.
#[test]
fn without_user_namespaces_the_mend_is_named() {
    if is_root() {
        return skip("root needs none");
    }
    let lab = forked();
    let program = lab.command(&[]).get_program().to_owned();
    // In a namespace of the same user in which no further one may be made.
    let inside = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let run = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args([
                "--user",
                "--map-current-user",
                "--keep-caps",
                "--",
                "sh",
                "-c",
                inside,
            ])
            .arg(&program)
            .args(args)
            .current_dir(lab.base())
            .env("FORKPOINT_HOME", lab.store());
        Done::of(args, command.output().unwrap())
    };
    if !run(&["--version"]).status.success() {
        return skip("a nested namespace cannot be limited here");
    }
    let mend = "sysctl user.max_user_namespaces=";
    refused(
        &run(&["exec", "one", "--", "true"]),
        125,
        "FP0301",
        "namespaces",
    );
    for args in [
        &["exec", "one", "--", "true"][..],
        &["explore", "--", "true"],
        &["verify", "one", "--", "true"],
    ] {
        let done = run(args);
        assert!(done.stderr.contains("FP0301"), "{done:#?}");
        assert!(done.stderr.contains(mend), "{done:#?}");
        assert!(matches!(done.code(), Some(5 | 125)), "{done:#?}");
    }
    let done = run(&["doctor"]);
    assert!(done.stdout.contains(mend), "{done:#?}");
    assert_eq!(done.code(), Some(5), "{done:#?}");
}

#[test]
fn a_caller_without_permission_is_told() {
    if is_root() {
        return skip("root may read everything");
    }
    let lab = kept();
    let shut = lab.path("shut");
    std::fs::create_dir(&shut).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o0);
    std::fs::set_permissions(&shut, mode).unwrap();
    let done = lab.run(&["explore", "--base", shut.to_str().unwrap(), "--", "true"]);
    assert!(matches!(done.code(), Some(2 | 125)), "{done:#?}");
    refused(&done, done.code().unwrap(), "FP", "");
    // An arg that is not the caller's own name either.
    let mut command = lab.command(&["list"]);
    command.arg0("-forkpoint");
    Done::of(&["list"], command.output().unwrap()).expect(0);
}
