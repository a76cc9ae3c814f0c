//! `--secret` of exec, shell and fork: the value reaches the command and nothing else.

use super::common::{Done, Lab};
use std::path::Path;

const VALUE: &str = "hunter2-hunter2";

fn with_secret(lab: &Lab, args: &[&str]) -> Done {
    let mut command = lab.command(args);
    command.env("DEPLOY_TOKEN", VALUE);
    Done::of(args, command.output().unwrap())
}

/// Whether any file below holds the value.
fn holds(dir: &Path) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            if let Some(found) = holds(&path) {
                return Some(found);
            }
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(VALUE.len()).any(|w| w == VALUE.as_bytes()) {
                return Some(path);
            }
        }
    }
    None
}

#[test]
fn the_value_reaches_the_command_and_neither_store_nor_steps() {
    let lab = Lab::new(&[("a", "1")]);
    lab.run(&["fork", ".", "--name", "b"]).expect(0);
    let tell = ["sh", "-c", "echo ${DEPLOY_TOKEN:-none}"];
    let plain = with_secret(&lab, &[&["exec", "b", "--"][..], &tell].concat());
    assert_eq!(plain.expect(0).stdout, "none\n");
    let given = [&["exec", "b", "--secret", "DEPLOY_TOKEN", "--"][..], &tell].concat();
    assert_eq!(
        with_secret(&lab, &given).expect(0).stdout,
        format!("{VALUE}\n")
    );
    // The caller's own shell put the value into the command's words.
    let words = format!(": {VALUE}; echo 2 > a");
    let step = [
        "exec",
        "b",
        "--step",
        "--secret",
        "DEPLOY_TOKEN",
        "--",
        "sh",
        "-c",
        &words,
    ];
    with_secret(&lab, &step).expect(0);
    let listed = lab.run(&["rewind", "b", "--list"]).expect(0).stdout;
    assert!(
        listed.contains("[secret]") && !listed.contains(VALUE),
        "{listed}"
    );
    let history = lab.run(&["history"]).expect(0).stdout;
    assert!(!history.contains(VALUE), "{history}");
    assert_eq!(holds(&lab.store()), None);
}

#[test]
fn a_fork_keeps_the_name_for_later_commands() {
    let lab = Lab::new(&[("a", "1")]);
    lab.run(&["fork", ".", "--name", "b", "--secret", "DEPLOY_TOKEN"])
        .expect(0);
    let tell = ["exec", "b", "--", "sh", "-c", "echo ${DEPLOY_TOKEN:-none}"];
    assert_eq!(
        with_secret(&lab, &tell).expect(0).stdout,
        format!("{VALUE}\n")
    );
    let without = lab.run(&tell).expect(0);
    assert_eq!(without.stdout, "none\n");
    assert!(
        without.stderr.contains("DEPLOY_TOKEN is not set"),
        "{without:?}"
    );
    let (shown, _) = lab.json(&["show", "b"]);
    assert_eq!(shown["secrets"], serde_json::json!(["DEPLOY_TOKEN"]));
    assert_eq!(holds(&lab.store()), None);
    // A fork of it says for itself.
    lab.run(&["fork", "b", "--name", "c"]).expect(0);
    let of_c = ["exec", "c", "--", "sh", "-c", "echo ${DEPLOY_TOKEN:-none}"];
    assert_eq!(with_secret(&lab, &of_c).expect(0).stdout, "none\n");
}

#[test]
fn a_secret_that_is_none_is_refused_before_anything_runs() {
    let lab = Lab::new(&[("a", "1")]);
    lab.run(&["fork", ".", "--name", "b"]).expect(0);
    let run = [
        "exec",
        "b",
        "--secret",
        "DEPLOY_TOKEN",
        "--",
        "touch",
        "ran",
    ];
    let unset = lab.run(&run).expect(125).stderr;
    assert!(unset.contains("DEPLOY_TOKEN is not set"), "{unset}");
    let mut command = lab.command(&run);
    command.env("DEPLOY_TOKEN", "short");
    let short = Done::of(&run, command.output().unwrap()).expect(125).stderr;
    assert!(short.contains("fewer than 6 bytes"), "{short}");
    let value = lab
        .run(&["fork", ".", "--secret", "A=value"])
        .expect(2)
        .stderr;
    assert!(value.contains("without its value"), "{value}");
    lab.run(&["exec", "b", "--", "test", "!", "-e", "ran"])
        .expect(0);
}
