//! `cargo xtask lint`: what the compiler's tools find, and the project's own rules.

mod claims;
mod errors;
mod licences;
mod sources;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::cmd;

/// The text files of the tree, as version control lists them (known, or new and not ignored).
pub(crate) struct Tree {
    root: PathBuf,
    names: Vec<String>,
}

impl Tree {
    fn read() -> Result<Tree> {
        let root = cmd::root();
        let mut git = Command::new("git");
        git.arg("-c")
            .arg(format!("safe.directory={}", root.display()))
            .arg("-C")
            .arg(&root);
        git.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let list = cmd::output(&mut git)?;
        let names = list.split(|&b| b == 0).filter(|n| !n.is_empty());
        let names = names.map(|n| String::from_utf8_lossy(n).into_owned());
        let names = names.filter(|n| root.join(n).is_file()).collect();
        Ok(Tree { root, names })
    }

    /// Names below the root that end in `suffix`.
    fn ending(&self, suffix: &str) -> impl Iterator<Item = &str> {
        self.names
            .iter()
            .map(String::as_str)
            .filter(move |n| n.ends_with(suffix))
    }

    fn text(&self, name: &str) -> Result<String> {
        let path = self.root.join(name);
        let bytes = std::fs::read(&path)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn has(&self, path: &Path) -> bool {
        self.root.join(path).exists()
    }
}

/// What a check found. Warnings are told; faults fail.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    faults: Vec<String>,
    warnings: Vec<String>,
}

impl Findings {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}

pub(crate) fn run(args: &[String]) -> Result<bool> {
    let (mut with_cargo, mut write) = (true, false);
    for arg in args {
        match arg.as_str() {
            "--no-cargo" => with_cargo = false,
            "--write-index" => write = true,
            other => bail!("lint: no option `{other}`"),
        }
    }
    if write {
        errors::write_index(&Tree::read()?)?;
        println!("wrote {}", errors::INDEX);
    }
    let tree = Tree::read()?;
    let mut good = true;
    if with_cargo {
        // All of them, so that one run tells everything.
        good &= cargo_step(&["fmt", "--all", "--check"], None);
        let clippy = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ];
        good &= cargo_step(&clippy, None);
        let doc = ["doc", "--workspace", "--no-deps"];
        good &= cargo_step(&doc, Some(("RUSTDOCFLAGS", "-D warnings")));
    }
    good &= report("source files", &sources::check(&tree)?);
    good &= report("error pages", &errors::check(&tree)?);
    good &= report("claims in the documentation", &claims::check(&tree)?);
    good &= report("licences of dependencies", &licences::check()?);
    println!("lint: {}", if good { "ok" } else { "failed" });
    Ok(good)
}

fn cargo_step(arguments: &[&str], env: Option<(&str, &str)>) -> bool {
    println!("cargo {}", arguments.join(" "));
    let mut command = cmd::cargo();
    command.args(arguments).envs(env);
    match cmd::must(&mut command) {
        Ok(()) => true,
        Err(e) => {
            println!("  fault: {e:#}");
            false
        }
    }
}

fn report(what: &str, findings: &Findings) -> bool {
    println!("{what}");
    for line in &findings.warnings {
        println!("  warning: {line}");
    }
    for line in &findings.faults {
        println!("  fault: {line}");
    }
    findings.faults.is_empty()
}

#[cfg(test)]
pub(crate) fn tree_of(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let names = files.iter().map(|(n, _)| (*n).to_owned()).collect();
    let tree = Tree {
        root: dir.path().to_path_buf(),
        names,
    };
    (dir, tree)
}
