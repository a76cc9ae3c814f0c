//! Reading what a Rust test executable printed.
//!
//! Tests run with `--show-output`, so what a passing test wrote comes after the results under a heading with its name;
//! that is how a `SKIP: reason` line is laid to its test. A test's children write straight into the same stream, so a
//! result may stand anywhere in a line; where the named results and the closing line disagree, the larger number of
//! failures wins.

/// What one executable (or one run of documentation tests) reported.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<String>,
    /// Test (or None when it cannot be told) and reason.
    pub(crate) skipped: Vec<(Option<String>, String)>,
    /// Tests that passed by the closing lines but whose own lines were garbled.
    pub(crate) passed_unnamed: usize,
    pub(crate) failed_unnamed: usize,
    /// Closing lines seen; 0 means that the harness never came to its end.
    pub(crate) closings: usize,
    pub(crate) filtered_out: usize,
}

impl Report {
    pub(crate) fn passed_count(&self) -> usize {
        self.passed.len() + self.passed_unnamed
    }

    pub(crate) fn failed_count(&self) -> usize {
        self.failed.len() + self.failed_unnamed
    }

    pub(crate) fn skipped_count(&self) -> usize {
        self.skipped.len()
    }
}

enum Outcome {
    Passed,
    Failed,
    Ignored(String),
}

pub(crate) fn parse(stdout: &str, stderr: &str) -> Report {
    let mut report = Report::default();
    let mut under: Option<String> = None;
    let (mut closing_passed, mut closing_failed) = (0, 0);
    for line in stdout.lines() {
        if let Some((passed, failed, filtered)) = closing(line) {
            closing_passed += passed;
            closing_failed += failed;
            report.filtered_out += filtered;
            report.closings += 1;
            under = None;
        } else if let Some(name) = heading(line) {
            under = Some(name.to_owned());
        } else if let Some(reason) = skip(line) {
            report.skipped.push((under.clone(), reason.to_owned()));
        } else if under.is_none()
            && let Some((name, outcome)) = result(line)
        {
            match outcome {
                Outcome::Passed => report.passed.push(name),
                Outcome::Failed => report.failed.push(name),
                Outcome::Ignored(why) => report.skipped.push((Some(name), why)),
            }
        }
    }
    for reason in stderr.lines().filter_map(skip) {
        report.skipped.push((None, reason.to_owned()));
    }
    report.passed_unnamed = usize::saturating_sub(closing_passed, report.passed.len());
    report.failed_unnamed = usize::saturating_sub(closing_failed, report.failed.len());
    one_skip_per_test(&mut report);
    report
}

/// A skipped test is not a passed one, and counts once however many reasons it gave.
fn one_skip_per_test(report: &mut Report) {
    let mut seen: Vec<Option<String>> = Vec::new();
    report.skipped.retain(|(name, _)| {
        let first = name.is_none() || !seen.contains(name);
        seen.push(name.clone());
        first
    });
    let named: Vec<&str> = report
        .skipped
        .iter()
        .filter_map(|(n, _)| n.as_deref())
        .collect();
    report.passed.retain(|name| !named.contains(&name.as_str()));
    // A test that skipped a part and failed in another has failed.
    let failed = report.failed.clone();
    report
        .skipped
        .retain(|(name, _)| !name.as_ref().is_some_and(|n| failed.contains(n)));
}

/// `test NAME ... ok`, wherever in the line it begins.
fn result(line: &str) -> Option<(String, Outcome)> {
    let at = if line.starts_with("test ") {
        0
    } else {
        line.rfind("test ")?
    };
    let (name, outcome) = line[at + "test ".len()..].rsplit_once(" ... ")?;
    let outcome = match outcome.trim_end() {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        "ignored" => Outcome::Ignored("ignored".to_owned()),
        other => Outcome::Ignored(other.strip_prefix("ignored, ")?.to_owned()),
    };
    let name = name.strip_suffix(" - should panic").unwrap_or(name).trim();
    Some((name.to_owned(), outcome))
}

/// `---- NAME stdout ----`
fn heading(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// `SKIP: reason`, at the start of a line.
fn skip(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("SKIP:").map(str::trim)
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; …` as (passed, failed, filtered out).
fn closing(line: &str) -> Option<(usize, usize, usize)> {
    let at = line.find("test result: ")?;
    let rest = &line[at..];
    let number = |word: &str| -> Option<usize> {
        let before = rest.split(word).next().filter(|b| b.len() < rest.len())?;
        before
            .rsplit([' ', '.'])
            .find(|s| !s.is_empty())?
            .parse()
            .ok()
    };
    Some((
        number(" passed;")?,
        number(" failed;")?,
        number(" filtered out").unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "
running 6 tests
test a::one ... ok
test a::needs_root ... ok
test b::bad ... FAILED
noise from a childtest b::loud ... ok
test c::later ... ignored, not yet
test c::panics - should panic ... ok

successes:

---- a::needs_root stdout ----
SKIP: needs a loop device
test x::fake ... ok

failures:

---- b::bad stdout ----
assertion failed

test result: FAILED. 4 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s
";

    #[test]
    fn names_skips_and_noise() {
        let report = parse(RUN, "");
        assert_eq!(report.passed, ["a::one", "b::loud", "c::panics"]);
        assert_eq!(report.failed, ["b::bad"]);
        let skipped: Vec<_> = report
            .skipped
            .iter()
            .map(|(n, r)| (n.as_deref().unwrap(), r.as_str()))
            .collect();
        assert_eq!(
            skipped,
            [
                ("c::later", "not yet"),
                ("a::needs_root", "needs a loop device")
            ]
        );
        assert_eq!((report.passed_unnamed, report.failed_unnamed), (0, 0));
        assert_eq!((report.closings, report.filtered_out), (1, 7));
    }

    #[test]
    fn a_harness_that_died_has_no_closing_line() {
        let report = parse("running 2 tests\ntest one ... ok\n", "");
        assert_eq!((report.passed_count(), report.closings), (1, 0));
    }

    #[test]
    fn garbled_results_are_still_counted() {
        let text = "test one ... child says hi\nok\ntest result: ok. 1 passed; 0 failed; 0 ignored; \
                    0 measured; 0 filtered out; finished in 0.1s\n";
        let report = parse(text, "SKIP: no fuse\n");
        assert_eq!((report.passed_count(), report.failed_count()), (1, 0));
        assert_eq!(report.skipped, [(None, "no fuse".to_owned())]);
    }

    #[test]
    fn a_test_that_failed_after_a_skip_failed() {
        let text = "test t ... FAILED\n---- t stdout ----\nSKIP: half\n\
                    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let report = parse(text, "");
        assert_eq!((report.failed_count(), report.skipped_count()), (1, 0));
    }
}
