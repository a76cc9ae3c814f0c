//! `cargo xtask demo`: the main job on the example, in a temporary copy and with a store of its own.
//!
//! It is also a check: it fails unless each attempt ends as the example's page says, the directory changed by exactly
//! the winner, and `undo` brought back what was there; and unless nothing of a worker that was rejected is seen by anybody
//! (`incident`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cmd;

mod incident;

/// (attempt, state, reason) as the example's page has it.
const EXPECTED: &[(&str, &str, &str)] = &[
    ("0-decode", "rolled_back", "outscored"),
    ("1-decode-and-hash", "committed", "passed"),
    ("2-high-bytes", "rolled_back", "failed_verify"),
    ("3-edit-the-tests", "rolled_back", "failed_verify"),
    ("4-until-it-passes", "rolled_back", "timeout"),
    ("5-look-only", "rolled_back", "no_change"),
];
const WINNER: usize = 1;
const TIMEOUT: &str = "5s";

pub(crate) fn run(args: &[String]) -> Result<bool> {
    ensure!(args.is_empty(), "demo takes no arguments");
    for program in ["cc", "make", "awk"] {
        ensure!(cmd::on_path(program), "the example needs `{program}`");
    }
    // The development profile is quicker to build; what takes time here is the attempts.
    let forkpoint = cmd::forkpoint(false)?;
    let work = tempfile::Builder::new()
        .prefix("forkpoint-demo-")
        .tempdir()?;
    let demo = Demo::prepare(forkpoint, work.path())?;
    let before = snapshot(&demo.base)?;
    println!("\nthe base: a small C program, one of whose test cases fails");
    demo.show_tests("before")?;

    let result = demo.explore()?;
    print_attempts(&result);
    let mut wrong = check_attempts(&result);

    println!("\nthe base now: the winner's changes, and what the preparation built");
    let after = snapshot(&demo.base)?;
    print_changes(&before, &after);
    demo.show_line_counts()?;
    wrong.extend(demo.compare_with_native(&after)?);
    demo.show_tests("after")?;

    println!("\n$ forkpoint undo");
    cmd::must(demo.forkpoint().arg("undo").current_dir(&demo.base))?;
    let restored = snapshot(&demo.base)?;
    if restored == before {
        println!(
            "the base is what it was ({} entries compared)",
            before.len()
        );
    } else {
        print_changes(&before, &restored);
        wrong.push("undo did not bring back the base".to_owned());
    }
    wrong.extend(demo.incident()?);
    for line in &wrong {
        println!("WRONG: {line}");
    }
    println!(
        "\n{}",
        if wrong.is_empty() {
            "demo: all as it should be"
        } else {
            "demo: failed"
        }
    );
    Ok(wrong.is_empty())
}

struct Demo<'a> {
    forkpoint: PathBuf,
    work: &'a Path,
    base: PathBuf,
}

impl<'a> Demo<'a> {
    fn prepare(forkpoint: PathBuf, work: &'a Path) -> Result<Demo<'a>> {
        let base = work.join("tally");
        copy(&cmd::root().join("examples/fix-the-bug"), &base)?;
        // What somebody built in the source tree is no part of the example.
        if base.join("build").exists() {
            fs::remove_dir_all(base.join("build"))?;
        }
        Ok(Demo {
            forkpoint,
            work,
            base,
        })
    }

    fn forkpoint(&self) -> Command {
        let mut command = Command::new(&self.forkpoint);
        command
            .env("FORKPOINT_HOME", self.work.join("store"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the example's tests on a copy of the base, and shows what they print.
    fn show_tests(&self, name: &str) -> Result<()> {
        let scratch = self.work.join(name);
        copy(&self.base, &scratch)?;
        println!("$ sh tests/run.sh");
        // Whether they pass is for the reader to see, and is checked by the example's own test.
        Command::new("sh")
            .arg("tests/run.sh")
            .current_dir(&scratch)
            .status()?;
        Ok(())
    }

    fn explore(&self) -> Result<Value> {
        let mut command = self.forkpoint();
        command
            .current_dir(&self.base)
            .args(["explore", "--json", "--base", "."]);
        command.args(["--prepare", "make -s"]);
        for (name, _, _) in EXPECTED {
            command.args(["--attempt", &format!("sh attempts/{name}.sh")]);
        }
        command.args(["--verify", "sh tests/run.sh", "--protect", "tests/**"]);
        command.args(["--score", "sh bench.sh", "--minimize"]);
        command.args(["--strategy", "best-of-n", "--timeout", TIMEOUT]);
        println!("\n$ {}", cmd::shown(&command).replace(" --", " \\\n    --"));
        let out = command
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start forkpoint")?;
        if !out.status.success() {
            let text = String::from_utf8_lossy(&out.stdout);
            bail!("explore ended with {}\n{}", out.status, text.trim());
        }
        serde_json::from_slice(&out.stdout).context("explore --json did not print one document")
    }

    /// How many lines of the program came and went.
    fn show_line_counts(&self) -> Result<()> {
        let (old, new) = (self.work.join("before/src"), self.base.join("src"));
        // `diff` ends with 1 where there is a difference, so its status says nothing here.
        let out = Command::new("diff").arg("-r").args([old, new]).output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        let count = |mark: &str| text.lines().filter(|l| l.starts_with(mark)).count();
        println!(
            "  in src: {} lines added, {} removed",
            count("> "),
            count("< ")
        );
        Ok(())
    }

    /// Does the preparation and the winning attempt by hand in a fresh copy: the base must have come to the same.
    /// What the compiler wrote is compared by name only, since nobody promises that it writes the same bytes twice.
    fn compare_with_native(&self, after: &Snapshot) -> Result<Vec<String>> {
        let dir = self.work.join("native");
        let native = Demo::prepare(self.forkpoint.clone(), &dir)?;
        let (winner, _, _) = EXPECTED[WINNER];
        cmd::must(Command::new("make").arg("-s").current_dir(&native.base))?;
        let script = format!("attempts/{winner}.sh");
        cmd::must(Command::new("sh").arg(script).current_dir(&native.base))?;
        let expected = snapshot(&native.base)?;
        let (ours, theirs) = (after.keys(), expected.keys());
        if !ours.eq(theirs) {
            print_changes(&expected, after);
            return Ok(vec![
                "the base has other files than the winner made".to_owned(),
            ]);
        }
        let differs = |(path, entry): (&PathBuf, &Entry)| {
            let other = &expected[path];
            let same = path.starts_with("build") || entry.content == other.content;
            (!same || entry.mode != other.mode).then(|| format!("{} differs", path.display()))
        };
        let wrong: Vec<String> = after.iter().filter_map(differs).collect();
        if wrong.is_empty() {
            println!("the same as doing preparation and winner by hand");
        }
        Ok(wrong)
    }
}

/// Copies a tree with modes and times.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    cmd::must(Command::new("cp").arg("-a").arg(from).arg(to))
}

#[derive(Debug, PartialEq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    /// Nanoseconds; None for directories, whose time says when a name in them last changed.
    modified: Option<(i64, i64)>,
    /// Bytes of a file, target of a link, nothing for a directory.
    content: Vec<u8>,
}

type Snapshot = BTreeMap<PathBuf, Entry>;

/// Everything below `base`. The example is small enough to be held in memory.
fn snapshot(base: &Path) -> Result<Snapshot> {
    let mut found = Snapshot::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(base.join(&dir))? {
            let entry = entry?;
            let (path, meta) = (dir.join(entry.file_name()), entry.metadata()?);
            let content = if meta.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(entry.path())?
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(entry.path())?
            };
            let modified = (!meta.is_dir()).then(|| (meta.mtime(), meta.mtime_nsec()));
            let owner = (meta.uid(), meta.gid());
            found.insert(
                path,
                Entry {
                    mode: meta.mode(),
                    owner,
                    modified,
                    content,
                },
            );
        }
    }
    Ok(found)
}

fn print_changes(before: &Snapshot, after: &Snapshot) {
    for (path, entry) in after {
        match before.get(path) {
            None => println!("  added     {}", path.display()),
            Some(old) if old != entry => println!("  modified  {}", path.display()),
            Some(_) => {}
        }
    }
    for path in before.keys().filter(|p| !after.contains_key(*p)) {
        println!("  removed   {}", path.display());
    }
}

fn print_attempts(result: &Value) {
    println!(
        "\n  {:<20} {:<14} {:<18} {:>10}",
        "attempt", "state", "reason", "score (ms)"
    );
    for (index, (name, _, _)) in EXPECTED.iter().enumerate() {
        let attempt = &result["attempts"][index];
        let text = |key: &str| attempt[key].as_str().unwrap_or("?").to_owned();
        let score = attempt["score"]
            .as_f64()
            .map_or("-".to_owned(), |s| format!("{s:.2}"));
        println!(
            "  {name:<20} {:<14} {:<18} {score:>10}",
            text("state"),
            text("reason")
        );
    }
    println!(
        "  winner: attempt {}, committed as {}",
        result["winner"], result["commit"]
    );
}

fn check_attempts(result: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if result["winner"] != WINNER {
        wrong.push(format!(
            "the winner is {} and not {WINNER}",
            result["winner"]
        ));
    }
    for (index, (name, state, reason)) in EXPECTED.iter().enumerate() {
        let attempt = &result["attempts"][index];
        if attempt["state"] != *state || attempt["reason"] != *reason {
            let (s, r) = (&attempt["state"], &attempt["reason"]);
            wrong.push(format!("{name} is {s}, {r} and not {state}, {reason}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_knows_the_attempts_of_the_example() {
        let page = include_str!("../../examples/fix-the-bug/README.md");
        for (name, _, _) in EXPECTED {
            assert!(page.contains(&format!("sh attempts/{name}.sh")), "{name}");
        }
    }

    #[test]
    fn snapshots_see_content_mode_and_time() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        let one = snapshot(dir.path()).unwrap();
        fs::write(dir.path().join("a"), "2").unwrap();
        assert_ne!(one, snapshot(dir.path()).unwrap());
    }
}
