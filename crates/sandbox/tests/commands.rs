//! Commands inside: what they see of their caller, and what their caller sees of them.

mod common;

use common::{Place, request, run, sh, spawn};
use forkpoint_sandbox::ExitKind;
use std::io::Read;
use std::path::Path;

#[test]
fn exit_statuses_are_faithful() {
    let place = Place::new();
    let sandbox = place.start();
    for code in [0, 1, 42, 255] {
        let output = run(
            &sandbox,
            &["sh", "-c", &format!("exit {code}")],
            Path::new("/"),
        );
        assert_eq!(output.report.status, ExitKind::Code(code), "{output:?}");
    }
    for signal in [1, 6, 9, 15] {
        let script = format!("kill -{signal} $$");
        let output = run(&sandbox, &["sh", "-c", &script], Path::new("/"));
        assert_eq!(output.report.status, ExitKind::Signal(signal), "{output:?}");
    }
    sandbox.kill().expect("kill");
}

#[test]
fn a_failed_start_says_why() {
    let place = Place::new();
    std::fs::write(place.base.join("plain"), "not a program\n").expect("write");
    std::fs::write(place.base.join("odd"), "\0\0not a program\n").expect("write");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.base.join("odd"), mode).expect("chmod");
    let sandbox = place.start();
    let errno = |argv: &[&str], cwd: &Path| match run(&sandbox, argv, cwd).report.status {
        ExitKind::StartFailed { errno, what } => (errno, what),
        other => panic!("{argv:?}: {other:?}"),
    };
    let base = place.base.as_path();
    assert_eq!(errno(&["no-such-program"], base).0, 2);
    assert_eq!(errno(&["/no/such/program"], base).0, 2);
    assert_eq!(errno(&["./plain"], base).0, 13);
    assert_eq!(errno(&["./odd"], base).0, 8);
    let (number, what) = errno(&["true"], Path::new("/no/such/dir"));
    assert_eq!(number, 2);
    assert!(what.contains("working directory"), "{what}");
}

#[test]
fn a_command_has_its_streams_and_nothing_else() {
    let place = Place::new();
    // One that an exec would pass on.
    let leak = std::fs::File::open("/etc/passwd").expect("open");
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).expect("fcntl");
    let sandbox = place.start();
    assert_eq!(
        sh(&sandbox, "ls /proc/self/fd"),
        "0\n1\n2\n3\n",
        "3 is ls's own"
    );
    let (read, write) = rustix::pipe::pipe().expect("pipe");
    let (mut request, _out, _err) = request(&["sh", "-c", "echo 7 >&3"], Path::new("/"));
    request.score_fd = Some(write);
    let running = sandbox.exec(request).expect("exec");
    assert_eq!(running.wait().expect("wait").status, ExitKind::Code(0));
    let mut score = String::new();
    std::fs::File::from(read)
        .read_to_string(&mut score)
        .expect("read");
    assert_eq!(score, "7\n");
}

#[test]
fn a_command_is_the_caller() {
    let place = Place::new();
    let sandbox = place.start();
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(sh(&sandbox, "id -u"), format!("{uid}\n"));
    let base = place.base.display();
    assert_eq!(
        sh(&sandbox, &format!("stat -c %u {base}/file")),
        format!("{uid}\n")
    );
    assert_eq!(sh(&sandbox, "ulimit -c"), "0\n", "no core is dumped");
}

#[test]
fn signals_reach_a_command() {
    let place = Place::new();
    let sandbox = place.start();
    let (request, mut out, _err) = request(
        &[
            "sh",
            "-c",
            "trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 1 & wait; done",
        ],
        Path::new("/"),
    );
    let running = sandbox.exec(request).expect("exec");
    let mut first = [0u8; 6];
    out.read_exact(&mut first).expect("ready");
    running.signal(15).expect("signal");
    assert_eq!(running.wait().expect("wait").status, ExitKind::Code(7));
    sandbox.kill().expect("kill");
}

#[test]
fn writes_stay_in_the_branch() {
    let place = Place::new();
    let sandbox = place.start();
    let base = place.base.display();
    sh(
        &sandbox,
        &format!("echo new > {base}/file; echo more > {base}/added"),
    );
    assert_eq!(
        sh(&sandbox, &format!("cat {base}/file {base}/added")),
        "new\nmore\n"
    );
    let host = std::fs::read_to_string(place.base.join("file")).expect("read");
    assert_eq!(host, "base\n");
    assert!(!place.base.join("added").exists());
    let upper = place.stack().upper;
    assert_eq!(
        std::fs::read_to_string(upper.join("added")).expect("read"),
        "more\n"
    );
    sandbox.kill().expect("kill");
}

#[test]
fn commands_share_their_processes() {
    let place = Place::new();
    let sandbox = place.start();
    let first = spawn(&sandbox, "exec sleep 300");
    common::eventually("the other command is seen", || {
        sh(&sandbox, "cat /proc/[0-9]*/comm 2> /dev/null; true").contains("sleep")
    });
    sandbox.kill().expect("kill");
    assert_eq!(first.wait().expect("wait").status, ExitKind::Signal(9));
}
