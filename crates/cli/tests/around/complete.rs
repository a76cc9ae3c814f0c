//! Completion as shells ask for it, and the time it takes.

use super::common::Lab;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a shell is answered for a line whose last word is being typed.
fn asked(lab: &Lab, shell: &str, line: &[&str]) -> Vec<String> {
    let own = lab.command(&[]);
    let mut command = Command::new(own.get_program());
    command
        .args(["--", "forkpoint"])
        .args(line)
        .current_dir(lab.base())
        .env("FORKPOINT_HOME", lab.store())
        .env("FORKPOINT_COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", line.len().to_string())
        .env("_CLAP_IFS", "\n")
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // zsh and fish are told a word on each.
    let name = |line: &str| {
        line.split(['\t', ':'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let names = text.lines().map(name);
    names
        .filter(|name| !name.is_empty() && (line.last() != Some(&"") || !name.starts_with('-')))
        .collect()
}

fn lab() -> Lab {
    let lab = Lab::new(&[("a", "1"), ("sub/x", "1")]);
    for name in ["fix-one", "fix-two", "other"] {
        lab.run(&["fork", ".", "--name", name]).expect(0);
    }
    lab.run(&["exec", "fix-one", "--step", "--", "true"])
        .expect(0);
    lab.run(&["checkpoint", "create", "other", "--name", "start"])
        .expect(0);
    lab.run(&[
        "explore",
        "--no-commit",
        "--keep",
        "all",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "echo 2 > a",
    ])
    .expect(0);
    lab
}

#[test]
fn names_are_completed_in_every_shell() {
    let lab = lab();
    for shell in ["bash", "zsh", "fish"] {
        let of = |line: &[&str]| {
            let mut all = asked(&lab, shell, line);
            all.sort();
            all
        };
        assert_eq!(of(&["exec", "fix"]), ["fix-one", "fix-two"], "{shell}");
        assert_eq!(of(&["diff", "other", "o"]), ["other"], "{shell}");
        assert_eq!(of(&["commit", "last/"]), ["last/0", "last/1"], "{shell}");
        assert_eq!(of(&["wait", "las"]), ["last"], "{shell}");
        assert_eq!(of(&["checkpoint", "show", ""])[0], "start", "{shell}");
        let sources = of(&["fork", "s"]);
        assert!(sources.contains(&"start".into()), "{shell}: {sources:?}");
        assert!(
            sources.iter().any(|s| s.starts_with("sub")),
            "{shell}: {sources:?}"
        );
        assert!(of(&["ex"]).contains(&"exec".into()), "{shell}");
        assert!(
            of(&["exec", "--ti"]).contains(&"--timeout".into()),
            "{shell}"
        );
    }
    // Steps of branches are no names that a person types.
    let all = asked(&lab, "bash", &["checkpoint", "show", ""]);
    assert!(all.iter().all(|name| !name.starts_with("step:")), "{all:?}");
}

#[test]
fn bash_itself_completes_by_the_script() {
    let lab = lab();
    let script = lab.run(&["completions", "bash"]).expect(0).stdout;
    let own = lab.command(&[]);
    let program = std::path::Path::new(own.get_program());
    let bin = lab.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(
        std::fs::canonicalize(program).unwrap(),
        bin.join("forkpoint"),
    )
    .unwrap();
    let ask = "\nCOMP_WORDS=(forkpoint exec fix); COMP_CWORD=2; COMP_TYPE=9\n\
        _clap_complete_forkpoint forkpoint fix exec\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["--norc", "-c", &(script.clone() + ask)])
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("FORKPOINT_HOME", lab.store())
        .current_dir(lab.base())
        .output();
    let Ok(output) = output else {
        return eprintln!("SKIP: there is no bash");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut names: Vec<_> = text.split_whitespace().collect();
    names.sort_unstable();
    assert_eq!(names, ["fix-one", "fix-two"], "{output:?}");
    for shell in ["zsh", "fish"] {
        let script = lab.run(&["completions", shell]).expect(0).stdout;
        assert!(script.contains("FORKPOINT_COMPLETE") && script.contains("forkpoint"));
    }
}

#[test]
fn nothing_is_made_or_told_where_there_is_no_store() {
    let lab = Lab::new(&[]);
    assert_eq!(asked(&lab, "bash", &["exec", ""]), Vec::<String>::new());
    assert!(!lab.store().exists());
    let own = lab.command(&[]);
    let mut command = Command::new(own.get_program());
    let output = command.env("FORKPOINT_COMPLETE", "tcsh").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_thousand_branches_are_completed_at_once() {
    let lab = Lab::new(&[("a", "1")]);
    lab.run(&["fork", ".", "--name", "many", "-n", "1000"])
        .expect(0);
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let begun = Instant::now();
        let found = asked(&lab, "bash", &["exec", "many-99"]);
        best = best.min(begun.elapsed());
        assert_eq!(found.len(), 11, "{found:?}");
    }
    eprintln!("completing among 1000 branches: {best:?}");
    // The bound is 20 ms; a build without optimisation is given more.
    let bound = if cfg!(debug_assertions) { 60 } else { 20 };
    assert!(best <= Duration::from_millis(bound), "{best:?}");
}
