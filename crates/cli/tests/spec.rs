//! The specification file with the real binary: the examples, flags beside a file, explain.

mod common;

use common::pages::{copy_of, has, root};
use common::{Done, Lab};
use std::path::PathBuf;

fn examples() -> PathBuf {
    root().join("examples/specs")
}

fn example(name: &str) -> String {
    examples()
        .join(name)
        .canonicalize()
        .unwrap()
        .display()
        .to_string()
}

#[test]
fn every_example_is_explained_and_the_runnable_ones_run() {
    for entry in std::fs::read_dir(examples()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".toml") {
            continue;
        }
        let lab = Lab::new(&[]);
        let (told, done) = lab.json(&["explain", &example(&name)]);
        done.expect(0);
        assert_eq!(told["schema"], "forkpoint.explain/1", "{name}");
        assert!(!lab.store().exists(), "{name}: explaining made a store");
    }
    // (file, winner's name, a file and what is in it afterwards)
    for (name, winner, file, text) in [
        (
            "first-that-passes.toml",
            Some("compute"),
            "answer",
            Some("42\n"),
        ),
        ("parameters.toml", None, "size", Some("60\n")),
        ("own-settings.toml", None, "out", None),
        (
            "hidden-tests.toml",
            None,
            "greeting",
            Some("hello\nworld\n"),
        ),
        ("prepared.toml", None, "shout", Some("FETCHED\n")),
    ] {
        let lab = Lab::new(&[]);
        let (report, done) = lab.json(&["explore", &example(name)]);
        done.expect(0);
        let index = report["winner"].as_u64().unwrap() as usize;
        if let Some(winner) = winner {
            assert_eq!(report["attempts"][index]["name"], winner);
        }
        let found = lab.read(file);
        assert!(found.is_some(), "{name}");
        assert!(
            text.is_none() || found.as_deref() == text,
            "{name}: {found:?}"
        );
        if name == "prepared.toml" {
            assert_eq!(
                lab.read("vendor/words"),
                None,
                "the preparation is left out"
            );
        }
    }
    let lab = Lab::new(&[]);
    let (report, done) = lab.json(&["explore", &example("look-first.toml")]);
    done.expect(0);
    assert_eq!(report["committed"], false);
    assert_eq!(lab.read("seed"), None);
    lab.run(&["commit", "last/1"]).expect(0);
}

#[test]
fn the_example_that_mends_a_bug_runs_on_a_copy() {
    if !has(&["cc", "make", "awk"]) {
        return;
    }
    let lab = copy_of("fix-the-bug");
    let (report, done) = lab.json(&["explore", &example("fix-the-bug.toml"), "--base", "."]);
    done.expect(0);
    let of = |index: usize, field: &str| report["attempts"][index][field].clone();
    let winner = usize::try_from(report["winner"].as_u64().unwrap()).unwrap();
    assert_eq!(of(winner, "name"), "decode-and-hash");
    assert_eq!(of(2, "name"), "edit-the-tests");
    assert_eq!(of(2, "reason"), "failed_verify", "{report:#}");
    assert_ne!(of(2, "restored"), serde_json::json!([]));
}

/// The examples that name programs of one's own, with such programs.
#[test]
fn the_examples_for_programs_of_ones_own_run_with_such_programs() {
    if !has(&["make", "awk"]) {
        return;
    }
    let script = |text: &str| format!("#!/bin/sh\n{text}\n");
    let agent = script(
        "test -n \"$AGENT_API_KEY\" || exit 1; echo \"key $AGENT_API_KEY\"\n\
         echo '{\"cost\": 0.5}' >> \"$FORKPOINT_COST_FILE\"; echo done > task.out",
    );
    let train = script("echo \"$2 $FORKPOINT_DEPTH\" >> model");
    let evaluate = script("awk '{ sum += $1 } END { print sum }' model");
    let rewrite = script("echo \"$2\" > style");
    let prefer = script(
        "if grep -qx plain \"$1/style\"; then echo left; elif grep -qx plain \"$2/style\"; then echo right; \
         else echo tie; fi",
    );
    for (name, programs, file, text) in [
        (
            "agent.toml",
            vec![("my-agent", agent)],
            "task.out",
            "done\n",
        ),
        (
            "halving.toml",
            vec![("train", train), ("evaluate", evaluate)],
            "model",
            "0.1 0\n0.1 1\n0.1 2\n0.1 3\n",
        ),
        (
            "tournament.toml",
            vec![("rewrite", rewrite), ("prefer", prefer)],
            "style",
            "plain\n",
        ),
    ] {
        let makefile = "test:\n\ttest -e task.out -o -e style\n";
        let mut files = vec![("Makefile", makefile)];
        files.extend(programs.iter().map(|(name, text)| (*name, &**text)));
        let lab = Lab::new(&files);
        for (program, _) in &programs {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(lab.base().join(program), mode).unwrap();
        }
        let path = format!(
            "{}:{}",
            lab.base().display(),
            std::env::var("PATH").unwrap()
        );
        let args = ["explore", "--json", &example(name)];
        let mut command = lab.command(&args);
        command
            .env("PATH", path)
            .env("AGENT_API_KEY", "key-of-this-test");
        let done = Done::of(&args, command.output().unwrap()).expect(0);
        assert!(!done.stdout.contains("key-of-this-test"), "{name}");
        assert_eq!(lab.read(file).as_deref(), Some(text), "{name}: {done:#?}");
    }
}

#[test]
fn flags_are_stronger_than_the_file() {
    let lab = Lab::new(&[("sub/tests", "x\n")]);
    std::fs::write(
        lab.path("s.toml"),
        "base = \"base/sub\"\nrun = \"exit 9\"\ntimeout = \"1h\"\nenv = { A = \"file\", B = \"file\" }\n\
         params = { p = [1, 2] }\nverify = { run = \"false\", repeat = 3 }\n",
    )
    .unwrap();
    let (told, _) = lab.json(&["explain", "../s.toml"]);
    assert_eq!(told["base"], lab.path("base/sub").display().to_string());
    assert_eq!(told["attempts"][1]["params"]["p"], "2");
    let (report, done) = lab.json(&[
        "explore",
        "../s.toml",
        "--param",
        "p=7",
        "--env",
        "A=flag",
        "--verify",
        "grep -q 'flag file 7' out",
        "--timeout",
        "9s",
        "--attempt",
        "echo $A $B $FORKPOINT_PARAM_P > out",
    ]);
    done.expect(0);
    assert_eq!(report["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(lab.read("sub/out").as_deref(), Some("flag file 7\n"));
    lab.run(&["explain", "../s.toml", "--minimize"]).expect(2);
    lab.run(&["explain", "../s.toml", "--verify-repeat", "2"])
        .expect(0);
}

#[test]
fn a_mistake_has_its_line_and_nothing_happens() {
    let lab = Lab::new(&[]);
    std::fs::write(
        lab.base().join("s.toml"),
        "run = \"touch x\"\n[verify]\nrun = \"t\"\nrepaet = 2\n",
    )
    .unwrap();
    let (error, done) = lab.json(&["explore", "s.toml"]);
    let done = done.expect(2);
    assert_eq!(error["code"], "FP0510");
    assert!(
        done.stderr
            .contains("s.toml:4:1: unknown key \"repaet\" in [verify]"),
        "{}",
        done.stderr
    );
    assert!(!lab.store().exists());
    lab.run(&["explore", "none.toml"]).expect(2);
    lab.run(&["explain", "no-such-thing"]).expect(2);
    let schema: serde_json::Value =
        serde_json::from_str(&lab.run(&["explain", "--schema"]).expect(0).stdout).unwrap();
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn a_secret_reaches_the_attempt_and_no_log() {
    let lab = Lab::new(&[]);
    let secret = "s3cret-of-this-test";
    let output = lab
        .command(&[
            "explore",
            "--json",
            "--secret",
            "MY_TOKEN",
            "--verify",
            "cat kept; test -s kept",
            "--attempt",
            "echo $MY_TOKEN; echo $MY_TOKEN > kept",
        ])
        .env("MY_TOKEN", secret)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let all = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&all).contains(secret));
    assert_eq!(lab.read("kept"), Some(format!("{secret}\n")));
    for log in [vec!["logs", "last/0"], vec!["logs", "last/0", "--verify"]] {
        assert_eq!(lab.run(&log).expect(0).stdout, "[secret]\n", "{log:?}");
    }
    lab.run(&["explore", "--secret", "NOT_SET_HERE", "--", "true"])
        .expect(2);
}
