//! Tests that a machine of ours may never skip: the file `xtask/core-tests.txt`.
//!
//! A suite that skips everything passes. So each line there names tests that must have run and passed, and as whom. With
//! `CI=true` a skip among them fails, and so does a line that no executed test matches.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::run::Pass;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Both,
    Root,
    User,
}

#[derive(Debug)]
pub(crate) struct Core {
    lines: Vec<(Who, String)>,
}

impl Core {
    pub(crate) fn read(file: &Path) -> Result<Core> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Core::parse(&text)
    }

    /// `WHO PATTERN` a line; `#` begins a comment. A `*` in a pattern stands for any text.
    fn parse(text: &str) -> Result<Core> {
        let mut lines = Vec::new();
        for line in text
            .lines()
            .map(|l| l.split('#').next().unwrap_or("").trim())
        {
            let mut words = line.split_whitespace();
            let who = match words.next() {
                None => continue,
                Some("both") => Who::Both,
                Some("root") => Who::Root,
                Some("user") => Who::User,
                Some(other) => bail!("core tests: `{other}` is none of both, root, user"),
            };
            let pattern = words
                .next()
                .with_context(|| format!("core tests: no name in `{line}`"))?;
            if words.next().is_some() {
                bail!("core tests: more than one name in `{line}`");
            }
            lines.push((who, pattern.to_owned()));
        }
        Ok(Core { lines })
    }

    /// What is wrong with these passes, a line each.
    pub(crate) fn check(&self, passes: &[Pass]) -> Vec<String> {
        passes
            .iter()
            .flat_map(|pass| self.check_pass(pass))
            .collect()
    }

    fn check_pass(&self, pass: &Pass) -> Vec<String> {
        let mut wrong = Vec::new();
        let wanted = if pass.as_root { Who::Root } else { Who::User };
        for (who, pattern) in self
            .lines
            .iter()
            .filter(|(w, _)| *w == Who::Both || *w == wanted)
        {
            let mut ran = 0;
            for suite in &pass.suites {
                let report = &suite.report;
                ran += report
                    .passed
                    .iter()
                    .chain(&report.failed)
                    .filter(|n| matches(pattern, n))
                    .count();
                for (name, reason) in &report.skipped {
                    match name {
                        Some(name) if matches(pattern, name) => {
                            ran += 1;
                            wrong.push(format!("{}: core test {name} skipped: {reason}", pass.who));
                        }
                        _ => {}
                    }
                }
            }
            if ran == 0 {
                wrong.push(format!(
                    "{}: no test ran that matches `{pattern}` ({who:?})",
                    pass.who
                ));
            }
        }
        wrong.extend(self.unattributed(pass));
        wrong
    }

    /// A skip that cannot be laid to a test might be a core test's, where the suite has any.
    fn unattributed(&self, pass: &Pass) -> Vec<String> {
        let is_core = |name: &String| self.lines.iter().any(|(_, p)| matches(p, name));
        let suites = pass
            .suites
            .iter()
            .filter(|s| s.report.passed.iter().any(is_core));
        suites
            .flat_map(|s| s.report.skipped.iter().map(move |skip| (s, skip)))
            .filter(|(_, (name, _))| name.is_none())
            .map(|(s, (_, why))| {
                format!("{}: {} skipped something unnamed: {why}", pass.who, s.name)
            })
            .collect()
    }
}

/// Whether `pattern` matches the whole path of a test (`a::b::name`) or its last part.
fn matches(pattern: &str, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    glob(pattern.as_bytes(), name.as_bytes()) || glob(pattern.as_bytes(), last.as_bytes())
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|i| glob(rest, &text[i..])),
        Some((byte, rest)) => text.first() == Some(byte) && glob(rest, &text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::libtest::Report;
    use crate::test::run::{Suite, pass_of};

    fn suite(report: Report) -> Suite {
        Suite {
            name: "s".into(),
            report,
            ..Suite::default()
        }
    }

    fn ran(names: &[&str]) -> Report {
        Report {
            passed: names.iter().map(|s| (*s).to_owned()).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn patterns() {
        assert!(matches("law_*", "files::law_02_isolation"));
        assert!(matches("*::racing", "a::b::racing"));
        assert!(!matches("law_0", "law_02"));
        assert!(matches("law_*_x*", "law_7_xy"));
    }

    #[test]
    fn a_line_that_nothing_matches_is_wrong_for_that_user_only() {
        let core = Core::parse("both law_02*\nroot power_loss # loop device\n").unwrap();
        let root = pass_of(true, vec![suite(ran(&["a::law_02_x", "power_loss"]))]);
        let user = pass_of(false, vec![suite(ran(&["a::law_02_x"]))]);
        assert_eq!(core.check(&[root, user]), Vec::<String>::new());
        let user = pass_of(false, vec![suite(ran(&["other"]))]);
        assert_eq!(core.check(&[user]).len(), 1);
    }

    #[test]
    fn a_skipped_core_test_is_wrong() {
        let core = Core::parse("both law_*").unwrap();
        let mut report = ran(&["law_01_a"]);
        report
            .skipped
            .push((Some("law_02_b".into()), "no overlay".into()));
        assert_eq!(
            core.check(&[pass_of(true, vec![suite(report.clone())])])
                .len(),
            1
        );
        report.skipped[0].0 = None;
        assert_eq!(core.check(&[pass_of(true, vec![suite(report)])]).len(), 1);
    }

    #[test]
    fn the_file_in_the_tree_is_well_formed() {
        Core::parse(include_str!("../../core-tests.txt")).unwrap();
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Core::parse("law_01").is_err());
        assert!(Core::parse("both").is_err());
        assert!(Core::parse("both a b").is_err());
    }
}
