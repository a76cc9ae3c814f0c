//! Running the test executables of one user and keeping what they said.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::libtest::{self, Report};
use crate::cmd::{self, Artifact};

/// A suite that takes longer than this hangs: it is killed and counts as failed.
pub(crate) const SUITE_LIMIT: Duration = Duration::from_secs(900);

/// One test executable, or the documentation tests.
#[derive(Debug, Default)]
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) report: Report,
    pub(crate) wall: Duration,
    /// Why the executable as a whole counts as a failure of its own (it crashed or hung).
    pub(crate) broken: Option<String>,
}

impl Suite {
    pub(crate) fn failed_count(&self) -> usize {
        self.report.failed_count() + usize::from(self.broken.is_some())
    }
}

/// Everything that ran as one user.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) who: String,
    pub(crate) as_root: bool,
    pub(crate) suites: Vec<Suite>,
}

#[cfg(test)]
pub(crate) fn pass_of(as_root: bool, suites: Vec<Suite>) -> Pass {
    Pass {
        who: if as_root { "root" } else { "user" }.to_owned(),
        as_root,
        suites,
    }
}

/// How to start an executable: as ourselves, or as somebody else.
pub(crate) trait Runner {
    fn command(&self, test: &Artifact) -> Result<Command>;
}

/// As the current user, from the package's own directory.
pub(crate) struct Ourselves {
    pub(crate) env: Vec<(&'static str, PathBuf)>,
}

impl Runner for Ourselves {
    fn command(&self, test: &Artifact) -> Result<Command> {
        let mut command = Command::new(&test.executable);
        command
            .current_dir(&test.package_dir)
            .env("CARGO_MANIFEST_DIR", &test.package_dir);
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        Ok(command)
    }
}

/// Runs every test with `runner`, a line a suite.
pub(crate) fn suites(
    tests: &[Artifact],
    runner: &dyn Runner,
    filter: Option<&str>,
) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for test in tests {
        let mut command = runner.command(test)?;
        command.arg("--show-output").args(filter);
        let name = suite_name(test);
        suites.push(run(name, &mut command, SUITE_LIMIT)?);
    }
    Ok(suites)
}

fn suite_name(test: &Artifact) -> String {
    let unit = matches!(test.kind.as_str(), "lib" | "bin" | "proc-macro");
    let what = if unit { "unit" } else { &test.target };
    // A package with both a library and an executable has two suites of unit tests.
    let which = if test.kind == "bin" { " (bin)" } else { "" };
    format!("{}::{what}{which}", test.package)
}

/// Documentation tests of the whole workspace or of some packages: one suite.
pub(crate) fn doc_suite(packages: &[String], filter: Option<&str>) -> Result<Suite> {
    let mut command = cmd::cargo();
    command.args(["test", "--doc"]);
    command.args(selection(packages));
    command.args(["--", "--show-output"]).args(filter);
    run("documentation".to_owned(), &mut command, SUITE_LIMIT)
}

/// `--workspace`, or the packages asked for.
pub(crate) fn selection(packages: &[String]) -> Vec<OsString> {
    if packages.is_empty() {
        return vec!["--workspace".into()];
    }
    packages
        .iter()
        .flat_map(|p| ["--package".into(), OsString::from(p)])
        .collect()
}

fn run(name: String, command: &mut Command, limit: Duration) -> Result<Suite> {
    let finished = cmd::run_bounded(command, limit)?;
    let report = libtest::parse(&finished.stdout, &finished.stderr);
    let named_failure = report.failed_count() > 0;
    let broken = match finished.status {
        None => Some(format!("no end after {} s, killed", limit.as_secs())),
        Some(status) if !status.success() && !named_failure => Some(format!("ended with {status}")),
        Some(status) if status.success() && named_failure => {
            Some(format!("reported failures and ended with {status}"))
        }
        Some(status) if report.closings == 0 && name != "documentation" => {
            Some(format!("ended with {status} before its tests did"))
        }
        Some(_) => None,
    };
    let suite = Suite {
        name,
        report,
        wall: finished.wall,
        broken,
    };
    print_line(&suite);
    if suite.failed_count() > 0 {
        print_output(&suite.name, "standard output", &finished.stdout);
        print_output(&suite.name, "standard error", &finished.stderr);
    }
    Ok(suite)
}

fn print_line(suite: &Suite) {
    let r = &suite.report;
    let state = if suite.failed_count() > 0 {
        "FAILED"
    } else {
        "ok"
    };
    println!(
        "  {:<34} {state:<6} {:>4} passed {:>3} failed {:>3} skipped  {:>6.1} s",
        suite.name,
        r.passed_count(),
        suite.failed_count(),
        r.skipped_count(),
        suite.wall.as_secs_f64(),
    );
    if let Some(why) = &suite.broken {
        println!("    {why}");
    }
}

/// A flood of output helps nobody: the end of it, where failures are told, is kept.
fn print_output(suite: &str, stream: &str, text: &str) {
    const KEPT: usize = 64 * 1024;
    if text.trim().is_empty() {
        return;
    }
    let mut from = text.len().saturating_sub(KEPT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let cut = if from > 0 { " (its end)" } else { "" };
    println!(
        "---- {suite}: {stream}{cut} ----\n{}\n---- end ----",
        text[from..].trim_end()
    );
}

/// Where a package's directory lies below `root`.
pub(crate) fn below(root: &Path, dir: &Path) -> PathBuf {
    dir.strip_prefix(root)
        .map(Path::to_path_buf)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit_ms: u64) -> Suite {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(
            "s".to_owned(),
            &mut command,
            Duration::from_millis(limit_ms),
        )
        .unwrap()
    }

    #[test]
    fn a_crash_without_a_result_is_a_failure() {
        let suite = sh("echo 'test one ... ok'; kill -SEGV $$", 60_000);
        assert_eq!((suite.report.passed_count(), suite.failed_count()), (1, 1));
    }

    #[test]
    fn an_early_exit_with_status_0_is_a_failure() {
        assert_eq!(sh("echo 'test one ... ok'", 60_000).failed_count(), 1);
    }

    #[test]
    fn a_hang_is_a_failure() {
        assert!(sh("sleep 600", 200).broken.unwrap().contains("killed"));
    }
}
