//! `audit --rerun`: what was committed, done again in a fork of the base as it was before.
#![forbid(unsafe_code)]

mod common;

use common::Lab;

#[test]
fn what_was_committed_comes_out_the_same_again() {
    let lab = Lab::new(&[
        ("a", "old\n"),
        ("gone", "x\n"),
        ("dir/one", "1\n"),
        ("dir/two", "2\n"),
        ("becomes", "a file\n"),
        ("tree/deep/file", "deep\n"),
    ]);
    // Every kind of change, and each reads what was there before.
    let script = "test \"$(cat a)\" = old && test -e gone && test ! -e new && test -f becomes && \
        test \"$(cat tree/deep/file)\" = deep && test \"$(stat -c %a dir/two)\" = 644 || exit 9; \
        echo $FORKPOINT_PARAM_X$FORKPOINT_SEED > a; rm gone dir/one; mkdir new && echo n > new/n; \
        rm becomes; mkdir becomes; rm -r tree; ln -s a tree; chmod 600 dir/two";
    lab.run(&[
        "explore",
        "--param",
        "x=1,2",
        "--attempt",
        script,
        "--score",
        "cat a",
        "--base",
        ".",
    ])
    .expect(0);
    let before = lab.read("a");
    let done = lab.run(&["audit", "--rerun"]).expect(0);
    assert!(done.stdout.contains("came out the same"), "{done:#?}");
    let (audit, _) = lab.json(&["audit", "--rerun"]);
    let checks = audit["checks"].as_array().unwrap();
    let rerun = checks.iter().find(|c| c["subject"] == "rerun").unwrap();
    assert_eq!(rerun["holds"], true, "{audit:#}");
    assert_eq!(lab.read("a"), before);
    let (list, _) = lab.json(&["list"]);
    assert_eq!(
        list["branches"].as_array().map(Vec::len),
        Some(0),
        "{list:#}"
    );
    lab.run(&["undo"]).expect(0);
    assert_eq!(lab.read("a").as_deref(), Some("old\n"));
}

#[test]
fn what_comes_out_differently_is_told_with_its_paths() {
    let lab = Lab::new(&[("a", "old\n")]);
    let script = "date +%N > a; echo same > b; mktemp -p . t.XXXXXX";
    lab.run(&["explore", "-n", "1", "--", "sh", "-c", script])
        .expect(0);
    let done = lab.run(&["audit", "--rerun"]).expect(1);
    assert!(done.stdout.contains("came out differently: a"), "{done:#?}");
    let told = done.stdout.lines().last().unwrap();
    assert!(!told.contains(" b"), "{told}");
    // Told what really made it, it says so.
    let text = lab.read("a").unwrap();
    let made = std::fs::read_dir(lab.base()).unwrap().flatten();
    let made: Vec<_> = made.map(|e| e.file_name().into_string().unwrap()).collect();
    let temp = made.iter().find(|n| n.starts_with("t.")).unwrap();
    let script = format!(
        "echo {} > a; echo same > b; install -m 600 /dev/null {temp}",
        text.trim()
    );
    lab.run(&["audit", "--rerun", "--", "sh", "-c", &script])
        .expect(0);
    lab.run(&["audit", "--rerun", "--", "false"]).expect(1);
}

#[test]
fn what_cannot_be_done_again_is_refused() {
    let lab = Lab::new(&[("a", "old\n")]);
    lab.run(&["fork", ".", "--name", "b"]).expect(0);
    lab.run(&["exec", "b", "--", "sh", "-c", "echo new > a"])
        .expect(0);
    lab.run(&["commit", "b"]).expect(0);
    let done = lab.run(&["audit", "--rerun"]).expect(2);
    assert!(
        done.stderr.contains("FP0502") && done.stderr.contains("-- COMMAND"),
        "{done:#?}"
    );
    let again = ["audit", "--rerun", "--", "sh", "-c", "echo new > a"];
    lab.run(&again).expect(0);
    std::fs::write(lab.base().join("a"), "mine\n").unwrap();
    let done = lab.run(&again).expect(3);
    assert!(done.stderr.contains("FP0410"), "{done:#?}");
    assert_eq!(lab.read("a").as_deref(), Some("mine\n"));
    let (list, _) = lab.json(&["list"]);
    assert_eq!(
        list["branches"].as_array().map(Vec::len),
        Some(0),
        "{list:#}"
    );
    lab.run(&["audit", "--", "true"]).expect(2);
}

#[test]
fn keys_are_compared_and_seen_as_they_were() {
    let lab = Lab::new(&[]);
    let own = env!("CARGO_BIN_EXE_forkpoint").to_owned();
    let binary = std::env::var("FORKPOINT_TEST_BIN").unwrap_or(own);
    std::fs::copy(binary, lab.base().join("fp")).unwrap();
    lab.run(&["kv", "put", "n", "1"]).expect(0);
    let count = "n=$(./fp kv get n); ./fp kv put n $((n + 1)); echo $n > seen";
    lab.run(&["explore", "-n", "1", "--", "sh", "-c", count])
        .expect(0);
    assert_eq!(lab.run(&["kv", "get", "n"]).expect(0).stdout.trim(), "2");
    lab.run(&["audit", "--rerun"]).expect(0);
    let other = "n=$(./fp kv get n); ./fp kv put n 7; echo $n > seen";
    let done = lab
        .run(&["audit", "--rerun", "--", "sh", "-c", other])
        .expect(1);
    assert!(done.stdout.contains("differently: keys"), "{done:#?}");
    assert_eq!(lab.run(&["kv", "get", "n"]).expect(0).stdout.trim(), "2");
}
