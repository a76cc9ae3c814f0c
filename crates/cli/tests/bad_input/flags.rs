//! Names and flags that cannot be meant.

use super::{forked, kept, refused};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[test]
fn names_that_cannot_be_names_are_refused() {
    let lab = kept();
    for name in [
        "two\nlines",
        "-dash",
        "..",
        ".",
        "a/b",
        "",
        "a b",
        "last",
        "bell\u{7}",
        "\u{202e}turned",
    ] {
        let flag = format!("--name={name}");
        let done = lab.run(&["fork", ".", &flag]);
        assert_eq!(done.code(), Some(2), "{name:?}: {done:#?}");
        refused(&done, 2, "FP", "");
        assert!(!done.stderr.contains('\u{7}'), "{done:#?}");
    }
    let long = "x".repeat(300);
    refused(&lab.run(&["fork", ".", "--name", &long]), 2, "FP", "");
    assert_eq!(lab.run(&["list"]).expect(0).stdout, "");
}

#[test]
fn names_that_are_not_utf_8_are_refused_and_paths_are_not() {
    let lab = kept();
    let raw = OsStr::from_bytes(b"caf\xe9");
    let mut command = lab.command(&["fork", ".", "--name"]);
    let done = super::Done::of(&["fork"], command.arg(raw).output().unwrap());
    refused(&done, 2, "FP0001", "");
    let mut command = lab.command(&["diff"]);
    let done = super::Done::of(&["diff"], command.arg(raw).output().unwrap());
    refused(&done, 2, "FP", "");
    let base = lab.path("bases").join(raw);
    std::fs::create_dir_all(&base).unwrap();
    let mut command = lab.command(&["fork", "--name", "raw"]);
    super::Done::of(&["fork"], command.arg(&base).output().unwrap()).expect(0);
    lab.run(&[
        "exec",
        "raw",
        "--",
        "sh",
        "-c",
        "echo x > $(printf 'n\\351')",
    ])
    .expect(0);
    lab.run(&["commit", "raw"]).expect(0);
    assert!(base.join(OsStr::from_bytes(b"n\xe9")).exists());
}

#[test]
fn flags_that_contradict_or_mean_nothing_are_refused() {
    let lab = forked();
    let cases: &[&[&str]] = &[
        &["explore"],
        &["explore", "-n", "0", "--", "true"],
        &["explore", "-n", "-3", "--", "true"],
        &["explore", "-n", "99999999999", "--", "true"],
        &[
            "explore",
            "-n",
            "2",
            "--attempt",
            "a",
            "--attempt",
            "b",
            "--attempt",
            "c",
        ],
        &["explore", "--jobs", "0", "--", "true"],
        &["explore", "--protect", "[", "--", "true"],
        &["explore", "--exclude", "{a", "--", "true"],
        &[
            "explore",
            "--prepare",
            "x",
            "--prepare-input",
            "[",
            "--",
            "true",
        ],
        &["explore", "--timeout", "-1s", "--", "true"],
        &["explore", "--timeout", "0", "--", "true"],
        &["explore", "--timeout", "soon", "--", "true"],
        &["explore", "--memory", "-5M", "--", "true"],
        &["explore", "--memory", "lots", "--", "true"],
        &["explore", "--disk", "-1", "--", "true"],
        &["explore", "--pids", "-1", "--", "true"],
        &["explore", "--pids", "0", "--", "true"],
        &["explore", "--cpu", "NaN", "--", "true"],
        &[
            "explore",
            "--minimize",
            "--maximize",
            "--score",
            "s",
            "--",
            "true",
        ],
        &["explore", "--minimize", "--", "true"],
        &[
            "explore",
            "--score-repeat",
            "0",
            "--score",
            "s",
            "--",
            "true",
        ],
        &[
            "explore",
            "--verify-repeat",
            "0",
            "--verify",
            "s",
            "--",
            "true",
        ],
        &["explore", "--strategy", "luck", "--", "true"],
        &["explore", "--keep", "some", "--", "true"],
        &["explore", "--param", "novalue", "--", "true"],
        &["explore", "--param", "a=1", "--param", "a=2", "--", "true"],
        &["explore", "--env", "=x", "--", "true"],
        &["explore", "--network", "everywhere", "--", "true"],
        &[
            "explore",
            "--verify-mount",
            "nowhere",
            "--verify",
            "true",
            "--",
            "true",
        ],
        &[
            "explore",
            "--verify-mount",
            "/no/such:/x",
            "--verify",
            "true",
            "--",
            "true",
        ],
        &["explore", "--no-such-flag"],
        &["fork", ".", "-n", "0"],
        &["fork", ".", "-n", "-1"],
        &["fork", ".", "--layer", "deep"],
        &["diff", "no-such-branch"],
        &["commit", "no-such-branch"],
        &["undo", "no-such-commit"],
        &["no-such-verb"],
        &[],
    ];
    for args in cases {
        refused(&lab.run(args), 2, "FP", "");
    }
    let taken = lab.run(&["fork", ".", "--name", "one"]);
    refused(&taken, 3, "FP0110", "one");
}
