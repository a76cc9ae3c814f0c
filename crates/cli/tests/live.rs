//! The live view, events and collected files with the real binary; the view in a pseudo-terminal.

mod common;

use common::Lab;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

/// Runs in a terminal of that size; everything that was written to it.
fn in_terminal(lab: &Lab, args: &[&str], rows: u16, columns: u16, term: &str) -> (Vec<u8>, i32) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).unwrap();
    let slave: OwnedFd = File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
        .into();
    let mut command = lab.command(args);
    command
        .env("TERM", term)
        .env_remove("NO_COLOR")
        .stdout(Stdio::from(slave.try_clone().unwrap()))
        .stderr(Stdio::from(slave));
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut all = Vec::new();
    // A terminal whose other end is closed reads as an error.
    let mut buffer = [0; 4096];
    let mut master = File::from(master);
    while let Ok(n @ 1..) = master.read(&mut buffer) {
        all.extend_from_slice(&buffer[..n]);
    }
    (all, child.wait().unwrap().code().unwrap())
}

fn shown(bytes: &[u8], rows: u16, columns: u16) -> String {
    let size = |n: u16| n.try_into().unwrap();
    let mut parser = vt100::Parser::new(size(rows), size(columns), 0);
    parser.process(bytes);
    parser.screen().contents()
}

const ARGS: &[&str] = &[
    "explore",
    "-n",
    "3",
    "--jobs",
    "3",
    "--verify",
    "test -s a",
    "--score",
    "cat a",
    "--attempt",
    "printf 'work\\033[2J%s' $FORKPOINT_ATTEMPT; sleep 0.7; echo $FORKPOINT_ATTEMPT > a",
];

#[test]
fn a_terminal_sees_the_attempts_and_then_only_the_table() {
    for (rows, columns) in [(24, 100), (6, 44)] {
        let lab = Lab::new(&[]);
        let (bytes, code) = in_terminal(&lab, ARGS, rows, columns, "xterm-256color");
        assert_eq!(code, 0, "{}", String::from_utf8_lossy(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.contains("running") && text.contains("of 3 done"),
            "{text}"
        );
        assert!(
            !text.contains("\u{1b}[2J"),
            "the attempts command no terminal"
        );
        let left = shown(&bytes, 40, columns);
        assert!(
            !left.contains("of 3 done"),
            "the view is gone at the end: {left}"
        );
        assert!(left.contains("attempt 2 is committed"), "{left}");
        assert!(left.contains("forkpoint undo"), "{left}");
    }
}

#[test]
fn a_dumb_terminal_and_plain_have_lines() {
    let lab = Lab::new(&[]);
    let (bytes, code) = in_terminal(&lab, ARGS, 24, 80, "dumb");
    assert_eq!(code, 0);
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        !text.contains('\u{1b}') && text.contains("[0] started"),
        "{text}"
    );
    let lab = Lab::new(&[]);
    let plain = [&ARGS[..1], &["--plain"], &ARGS[1..]].concat();
    let (bytes, _) = in_terminal(&lab, &plain, 24, 80, "xterm");
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.contains("[0] started") && !text.contains("of 3 done"),
        "{text}"
    );
}

#[test]
fn events_are_lines_and_a_reader_that_goes_away_ends_nothing() {
    let lab = Lab::new(&[]);
    let file = lab.path("events");
    lab.run(&[
        "explore", "--events", file.to_str().unwrap(), "--collect", "../out", "--verify", "test -s a", "--attempt",
        "echo hello; echo 1 > a; echo note > $FORKPOINT_OUT/report; ln -s /etc/passwd $FORKPOINT_OUT/link; mkfifo $FORKPOINT_OUT/pipe",
    ])
    .expect(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let names: Vec<String> = text
        .lines()
        .enumerate()
        .map(|(i, line)| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&event["schema"], event["sequence"].as_u64()),
                (&"forkpoint.event/1".into(), Some(i as u64))
            );
            event["event"].as_str().unwrap().to_owned()
        })
        .collect();
    let place = |name: &str| {
        names
            .iter()
            .position(|n| n == name)
            .unwrap_or_else(|| panic!("{name}: {names:?}"))
    };
    let order = [
        "begun",
        "baseline",
        "attempt_started",
        "output",
        "attempt_ended",
        "verified",
        "committing",
        "committed",
        "ended",
    ];
    assert!(
        order.windows(2).all(|w| place(w[0]) < place(w[1])),
        "{names:?}"
    );
    assert_eq!(
        std::fs::read_to_string(lab.path("out/0/report")).unwrap(),
        "note\n"
    );
    assert!(
        lab.path("out/0/link").symlink_metadata().is_err()
            && lab.path("out/0/pipe").symlink_metadata().is_err()
    );

    let lab = Lab::new(&[]);
    let mut child = lab.spawn(&[
        "explore",
        "--events",
        "-",
        "--attempt",
        "sleep 0.3; echo 1 > a",
    ]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(lab.read("a").as_deref(), Some("1\n"));
    lab.run(&["explore", "--json", "--events", "-", "--", "true"])
        .expect(2);
}
