//! `cargo xtask test`: every test, as whoever runs it and, for root, again as a temporary ordinary user.

mod core;
mod libtest;
mod prerequisites;
mod report;
mod run;
mod user;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::cmd::{self, Artifact};
use run::{Ourselves, Pass};

#[derive(Debug, Default)]
struct Options {
    packages: Vec<String>,
    suite: Option<String>,
    filter: Option<String>,
    no_user: bool,
    no_doc: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || match args.next() {
                Some(value) => Ok(value.clone()),
                None => bail!("{arg} needs a value"),
            };
            match arg.as_str() {
                "-p" | "--package" => options.packages.push(value()?),
                "--suite" => options.suite = Some(value()?),
                "--filter" => options.filter = Some(value()?),
                "--no-user" => options.no_user = true,
                "--no-doc" => options.no_doc = true,
                other => bail!("test: no option `{other}`"),
            }
        }
        Ok(options)
    }

    /// A part of the tests cannot be asked for all core tests.
    fn is_whole(&self) -> bool {
        self.packages.is_empty()
            && self.suite.is_none()
            && self.filter.is_none()
            && !self.no_user
            && !self.no_doc
    }
}

pub(crate) fn run(args: &[String]) -> Result<bool> {
    let options = Options::parse(args)?;
    prerequisites::ensure()?;
    let (tests, forkpoint) = build(&options)?;
    let filter = options.filter.as_deref();

    let mut passes = vec![as_ourselves(&options, &tests, forkpoint.as_deref())?];
    if cmd::is_root() && !options.no_user {
        let user = user::TemporaryUser::create(forkpoint.as_deref())?;
        let who = user.describe();
        println!("\nas {who}");
        let suites = run::suites(&tests, &user, filter)?;
        passes.push(Pass {
            who,
            as_root: false,
            suites,
        });
    }

    let complaints = core_complaints(&options, &passes)?;
    let totals = report::print(&passes, &complaints);
    if totals.passed + totals.failed + totals.skipped == 0 {
        eprintln!("xtask: no test ran");
        return Ok(false);
    }
    Ok(totals.failed == 0)
}

/// Builds everything once; returns the test executables and the command, if it was among what was built.
fn build(options: &Options) -> Result<(Vec<Artifact>, Option<PathBuf>)> {
    let select = run::selection(&options.packages);
    println!("building");
    let mut all = vec!["build".into(), "--all-targets".into()];
    all.extend(select.iter().cloned());
    let built = cmd::artifacts(&all)?;
    let command = built
        .iter()
        .find(|a| a.target == "forkpoint" && a.kind == "bin" && !a.is_test);
    let mut no_run = vec!["test".into(), "--no-run".into()];
    no_run.extend(select);
    let mut tests: Vec<Artifact> = cmd::artifacts(&no_run)?
        .into_iter()
        .filter(|a| a.is_test)
        .collect();
    if let Some(text) = &options.suite {
        tests.retain(|t| t.target.contains(text.as_str()));
    }
    tests.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok((tests, command.map(|a| a.executable.clone())))
}

fn as_ourselves(options: &Options, tests: &[Artifact], forkpoint: Option<&Path>) -> Result<Pass> {
    let uid = rustix::process::geteuid();
    let who = if uid.is_root() {
        "root".to_owned()
    } else {
        format!("uid {}", uid.as_raw())
    };
    println!("\nas {who}");
    // The tests must never reach the store of whoever runs them.
    let store = tempfile::Builder::new()
        .prefix("forkpoint-test-store-")
        .tempdir()?;
    let mut env = vec![
        ("FORKPOINT_HOME", store.path().to_path_buf()),
        ("FORKPOINT_TEST_SOURCE", cmd::root()),
        ("INSTA_WORKSPACE_ROOT", cmd::root()),
    ];
    for name in ["FORKPOINT_TEST_BIN", "CARGO_BIN_EXE_forkpoint"] {
        env.extend(forkpoint.map(|f| (name, f.to_path_buf())));
    }
    let filter = options.filter.as_deref();
    let mut suites = run::suites(tests, &Ourselves { env }, filter)?;
    // Cargo refuses documentation tests of packages that are no libraries.
    if !options.no_doc && tests.iter().any(|t| t.kind == "lib") {
        suites.push(run::doc_suite(&options.packages, filter)?);
    }
    Ok(Pass {
        who,
        as_root: uid.is_root(),
        suites,
    })
}

/// Complaints about core tests; failures only where nothing may be missing (`CI=true`), else told.
fn core_complaints(options: &Options, passes: &[Pass]) -> Result<Vec<String>> {
    if !options.is_whole() {
        println!("\n(a part of the tests: core tests are not demanded)");
        return Ok(Vec::new());
    }
    let file = cmd::root().join("xtask/core-tests.txt");
    let complaints = core::Core::read(&file)?.check(passes);
    if std::env::var_os("CI").is_some_and(|v| v == "true") {
        return Ok(complaints);
    }
    for line in &complaints {
        println!("core (a failure when CI=true): {line}");
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_whether_it_is_the_whole() {
        assert!(Options::parse(&[]).unwrap().is_whole());
        let part = Options::parse(&["-p".into(), "forkpoint-fs".into()]).unwrap();
        assert!(!part.is_whole());
        assert_eq!(part.packages, ["forkpoint-fs"]);
        assert!(Options::parse(&["--suite".into()]).is_err());
        assert!(Options::parse(&["--what".into()]).is_err());
    }
}
