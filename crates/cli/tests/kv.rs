//! Keys through the command: read, written, listed, committed, shown, taken back.

mod common;

use common::Lab;

fn lab() -> Lab {
    let lab = Lab::new(&[("a", "base\n")]);
    lab.run(&["kv", "put", "k", "0"]).expect(0);
    lab.run(&["fork", ".", "--name", "b1"]).expect(0);
    lab
}

#[test]
fn keys_are_written_read_listed_and_removed() {
    let lab = lab();
    assert_eq!(
        lab.run(&["kv", "get", "k"]).expect(0).stdout,
        "0",
        "as it is"
    );
    lab.run(&["kv", "get", "none"]).expect(1);
    let input = lab.path("value");
    std::fs::write(&input, "from a file\n").unwrap();
    let path = input.display().to_string();
    lab.run(&["kv", "put", "dir/f", "--file", &path]).expect(0);
    assert_eq!(
        lab.run(&["kv", "get", "dir/f"]).expect(0).stdout,
        "from a file\n"
    );
    lab.run(&["kv", "put", "dir/g", ""]).expect(0);
    assert_eq!(
        lab.run(&["kv", "list"]).expect(0).stdout,
        "dir/f\ndir/g\nk\n"
    );
    assert_eq!(
        lab.run(&["kv", "list", "dir/", "--after", "dir/f"])
            .expect(0)
            .stdout,
        "dir/g\n"
    );
    let cut = lab.run(&["kv", "list", "--limit", "1"]).expect(0);
    assert!(cut.stderr.contains("--after dir/f"), "{cut:?}");
    lab.run(&["kv", "delete", "dir/g"]).expect(0);
    lab.run(&["kv", "delete", "dir/g"]).expect(1);
    let (got, status) = lab.json(&["kv", "get", "k"]);
    assert_eq!(
        (status.code(), &got["found"], &got["value"]),
        (Some(0), &true.into(), &"0".into())
    );
    let version = got["version"].to_string();
    lab.run(&["kv", "put", "k", "1", "--if-version", &version])
        .expect(0);
    let other = lab
        .run(&["kv", "put", "k", "2", "--if-version", &version])
        .expect(3);
    assert!(other.stderr.contains("has version"), "{other:?}");
    lab.run(&["kv", "delete", "k", "--if-version", "0"])
        .expect(3);
    let (page, _) = lab.json(&["kv", "list", "--limit", "1"]);
    assert_eq!(
        (&page["keys"][0]["key"], &page["next"]),
        (&"dir/f".into(), &"dir/f".into())
    );
}

#[test]
fn a_branch_has_keys_of_its_own_until_it_is_committed_and_undo_takes_them_back() {
    let lab = lab();
    lab.run(&["kv", "put", "k", "1", "--branch", "b1"])
        .expect(0);
    lab.run(&["kv", "put", "new", "1", "--branch", "b1"])
        .expect(0);
    assert_eq!(lab.run(&["kv", "get", "k"]).expect(0).stdout, "0");
    assert_eq!(
        lab.run(&["kv", "get", "k", "--branch", "b1"])
            .expect(0)
            .stdout,
        "1"
    );
    assert_eq!(
        lab.run(&["diff", "b1"]).expect(0).stdout,
        "keys:\nM k\nA new\n"
    );
    let (diff, _) = lab.json(&["diff", "b1"]);
    assert_eq!(
        (&diff["changed"]["keys"], &diff["keys"][1]["kind"]),
        (&2.into(), &"added".into())
    );
    assert!(lab.run(&["show", "b1"]).expect(0).stdout.contains("2 keys"));
    let done = lab.run(&["commit", "b1"]).expect(0);
    assert!(done.stdout.contains("2 keys"), "{done:?}");
    assert_eq!(lab.run(&["kv", "get", "k"]).expect(0).stdout, "1");
    lab.run(&["kv", "put", "late", "1", "--branch", "b1"])
        .expect(3);
    let done = lab.run(&["undo"]).expect(0);
    assert!(done.stdout.contains("2 keys are back"), "{done:?}");
    assert_eq!(lab.run(&["kv", "get", "k"]).expect(0).stdout, "0");
    lab.run(&["kv", "get", "new"]).expect(1);
}

#[test]
fn a_stale_key_is_named_and_nothing_is_committed() {
    let lab = lab();
    lab.run(&["kv", "get", "k", "--branch", "b1"]).expect(0);
    lab.run(&["exec", "b1", "--", "touch", "new"]).expect(0);
    lab.run(&["kv", "put", "k", "1"]).expect(0);
    let done = lab.run(&["commit", "b1"]).expect(3);
    assert!(done.stderr.contains("1 key changed underneath"), "{done:?}");
    assert!(done.stderr.contains("key k: read here"), "{done:?}");
    let sealed = lab.run(&["kv", "get", "k", "--branch", "b1"]);
    assert_eq!(
        sealed.expect(0).stdout,
        "0",
        "what is sealed can be looked at"
    );
    let (refused, status) = lab.json(&["commit", "b1"]);
    assert_eq!(
        (status.code(), &refused["conflicts"][0]["participant"]),
        (Some(3), &"kv".into())
    );
}

#[test]
fn bad_keys_and_values_are_refused() {
    let lab = lab();
    for args in [
        &["kv", "put", "", "x"][..],
        &["kv", "get", &"k".repeat(1025)],
        &["kv", "put", "k", "--file", "/dev/zero"],
        &["kv", "put", "k", "--file", "/nonexistent"],
        &["kv", "put", "k", "v", "--file", "/dev/null"],
        &["kv", "get", "k", "--branch", "b1", "--base", "."],
        &["kv", "list", "--limit", "0"],
        &["kv", "get", "k", "--branch", "nobody"],
        &["kv"],
    ] {
        lab.run(args).expect(2);
    }
    assert_eq!(lab.run(&["kv", "get", "k"]).expect(0).stdout, "0");
}

#[test]
fn inside_a_branch_there_are_its_keys_alone() {
    let lab = lab();
    let own = env!("CARGO_BIN_EXE_forkpoint").to_owned();
    let binary = std::env::var("FORKPOINT_TEST_BIN").unwrap_or(own);
    std::fs::copy(binary, lab.base().join("fp")).unwrap();
    let script = "./fp kv get k && ./fp kv put k 1 && ./fp kv put d/x y && ./fp kv list && \
                  ./fp kv delete d/x && { ./fp kv delete d/x; test $? = 1; } && \
                  { ./fp kv get none; test $? = 1; } && { ./fp kv get k --base . 2>/dev/null; test $? = 2; }";
    let done = lab.run(&["exec", "b1", "--", "sh", "-c", script]).expect(0);
    assert_eq!(done.stdout, "0d/x\nk\n");
    assert_eq!(lab.run(&["kv", "get", "k"]).expect(0).stdout, "0");
    lab.run(&["commit", "b1"]).expect(0);
    assert_eq!(lab.run(&["kv", "get", "k"]).expect(0).stdout, "1");
}

/// How often anything is synced while a command runs; none where that cannot be told.
fn syncs(lab: &Lab, args: &[&str]) -> Option<usize> {
    let log = lab.path("syncs");
    let plain = lab.command(args);
    let mut traced = std::process::Command::new("strace");
    let calls = "trace=fsync,fdatasync,syncfs,sync,msync,sync_file_range";
    traced.args(["-f", "-qq", "-e", calls, "-o"]).arg(&log);
    traced.arg(plain.get_program()).args(plain.get_args());
    traced.current_dir(lab.base());
    for (key, value) in plain.get_envs() {
        traced.env(key, value.unwrap_or_default());
    }
    let Ok(output) = traced.output() else {
        eprintln!("SKIP: no strace to count with");
        return None;
    };
    if !output.status.success() {
        // A traced newuidmap has no right of its own: without it no ids are mapped.
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(why.contains("FP0301") || why.contains("ptrace"), "{why}");
        eprintln!("SKIP: it cannot be traced here");
        return None;
    }
    let log = std::fs::read_to_string(log).unwrap();
    let began = |line: &&str| line.contains('(') && !line.contains("resumed");
    Some(log.lines().filter(began).count())
}

#[test]
fn a_commit_of_files_keys_and_events_syncs_at_most_once_more_than_one_of_files() {
    let count = |more: &[&[&str]]| {
        let lab = lab();
        lab.run(&["exec", "b1", "--", "sh", "-c", "echo x > f"])
            .expect(0);
        for args in more {
            lab.run(args).expect(0);
        }
        let synced = syncs(&lab, &["commit", "b1"]);
        if synced.is_some() {
            let events = lab.run(&["bus", "read"]).expect(0).stdout;
            assert_eq!(events.lines().count(), more.len() / 2);
        }
        synced
    };
    let (Some(files), Some(all)) = (
        count(&[]),
        count(&[
            &["kv", "put", "k", "1", "--branch", "b1"],
            &["bus", "publish", "t", "x", "--branch", "b1"],
        ]),
    ) else {
        return;
    };
    eprintln!("{files} syncs for files, {all} for files, keys and an event");
    assert!(files > 0 && all <= files + 1, "{files} {all}");
}
