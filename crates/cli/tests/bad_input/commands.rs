//! Commands that misbehave inside a branch.

use super::{forked, kept, refused};
use crate::common::{processes_with, wait_until};
use std::time::{Duration, Instant};

#[test]
fn a_command_that_cannot_start_says_why() {
    let lab = forked();
    refused(
        &lab.run(&["exec", "one", "--", "/no/such"]),
        127,
        "FP0411",
        "/no/such",
    );
    refused(
        &lab.run(&["exec", "one", "--", "no-such-program"]),
        127,
        "FP0411",
        "no-such-program",
    );
    refused(
        &lab.run(&["exec", "one", "--", "/etc"]),
        126,
        "FP0411",
        "/etc",
    );
    refused(
        &lab.run(&["exec", "one", "--", "./run.sh"]),
        126,
        "FP0411",
        "run.sh",
    );
    refused(&lab.run(&["exec", "one", "--", ""]), 127, "FP0411", "");
    refused(
        &lab.run(&["exec", "nobody", "--", "true"]),
        125,
        "FP0108",
        "nobody",
    );
    let (report, done) = lab.json(&["explore", "--", "/no/such"]);
    done.expect(1);
    let attempt = &report["attempts"][0];
    assert_eq!(attempt["reason"], "start_error", "{attempt:#}");
}

/// One misbehaving attempt beside limits: how it ends.
#[test]
fn what_takes_too_much_is_ended_and_named() {
    let lab = kept();
    let cases: &[(&[&str], &str, &str)] = &[
        (
            &["--pids", "40"],
            "sh -c 'while :; do sleep 30 & done'; sleep 20",
            "limit",
        ),
        (
            &["--disk", "4M"],
            "head -c 64M /dev/zero > full; sleep 20",
            "limit",
        ),
        (
            &["--timeout", "1s"],
            "trap '' TERM INT HUP; while :; do sleep 1; done",
            "timeout",
        ),
        (
            &["--timeout", "5s"],
            "ulimit -c unlimited; kill -SEGV $$",
            "exit",
        ),
        (&[], "kill -ABRT $$", "exit"),
    ];
    for (flags, line, reason) in cases {
        let mut args = vec!["explore", "--attempt", line];
        args.extend_from_slice(flags);
        let begun = Instant::now();
        let (report, done) = lab.json(&args);
        done.expect(1);
        let attempt = &report["attempts"][0];
        assert_eq!(attempt["reason"], *reason, "{line}: {attempt:#}");
        assert_eq!(attempt["state"], "rolled_back", "{line}: {attempt:#}");
        assert!(begun.elapsed() < Duration::from_secs(18), "{line}");
    }
}

#[test]
fn a_flood_of_output_is_kept_within_bounds() {
    let lab = kept();
    let line = "head -c 300M /dev/zero | tr '\\0' 'x'";
    let (report, done) = lab.json(&[
        "explore",
        "--verify",
        "true",
        "--attempt",
        line,
        "--timeout",
        "60s",
    ]);
    done.expect(1);
    let log = std::path::Path::new(report["attempts"][0]["log"].as_str().unwrap());
    let bytes = std::fs::metadata(log).unwrap().len();
    assert!(bytes <= 257 << 20, "{bytes} bytes of log");
}

#[test]
fn a_daemon_does_not_outlive_its_attempt() {
    let lab = kept();
    let mark = format!("300.7{}", std::process::id());
    let line = format!(
        "setsid sh -c 'trap \"\" TERM HUP; sleep {mark}; true' >/dev/null 2>&1 & echo x > new"
    );
    let (report, done) = lab.json(&["explore", "--no-commit", "--attempt", &line]);
    done.expect(0);
    assert_eq!(report["attempts"][0]["passed"], true);
    assert!(wait_until(Duration::from_secs(5), || processes_with(&mark).is_empty()).is_some());
}
