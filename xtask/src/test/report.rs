//! The plain summary at the end, and its closing line.

use super::run::Pass;

#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Totals {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Totals {
    pub(crate) fn of(passes: &[Pass]) -> Totals {
        let mut totals = Totals::default();
        for suite in passes.iter().flat_map(|p| &p.suites) {
            totals.passed += suite.report.passed_count();
            totals.failed += suite.failed_count();
            totals.skipped += suite.report.skipped_count();
        }
        totals
    }

    /// The line other programs look for. Its form is fixed.
    pub(crate) fn closing_line(self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// Prints all passes; `core` are complaints about core tests, each of which counts as one failure.
pub(crate) fn print(passes: &[Pass], core: &[String]) -> Totals {
    println!("\nsummary");
    for pass in passes {
        print_pass(pass);
    }
    for line in core {
        println!("  core: {line}");
    }
    let mut totals = Totals::of(passes);
    totals.failed += core.len();
    println!("\n{}", totals.closing_line());
    totals
}

fn print_pass(pass: &Pass) {
    let mut totals = Totals::default();
    for suite in &pass.suites {
        totals.passed += suite.report.passed_count();
        totals.failed += suite.failed_count();
        totals.skipped += suite.report.skipped_count();
    }
    println!(
        "as {}: {} suites, {}",
        pass.who,
        pass.suites.len(),
        totals.closing_line()
    );
    for suite in &pass.suites {
        for name in &suite.report.failed {
            println!("  FAILED {} {name}", suite.name);
        }
        if let Some(why) = &suite.broken {
            println!("  FAILED {} ({why})", suite.name);
        }
        for (name, reason) in &suite.report.skipped {
            let name = name.as_deref().unwrap_or("(a test)");
            println!("  skipped {} {name}: {reason}", suite.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::libtest::Report;
    use crate::test::run::{Suite, pass_of};

    #[test]
    fn totals_add_up_over_users_and_broken_suites() {
        let report = Report {
            passed: vec!["a".into(), "b".into()],
            failed: vec!["c".into()],
            skipped: vec![(None, "why".into())],
            passed_unnamed: 1,
            ..Report::default()
        };
        let suite = Suite {
            report: report.clone(),
            broken: Some("hung".into()),
            ..Suite::default()
        };
        let other = Suite {
            report,
            ..Suite::default()
        };
        let totals = Totals::of(&[pass_of(true, vec![suite]), pass_of(false, vec![other])]);
        assert_eq!(totals.closing_line(), "6 passed, 3 failed, 2 skipped");
    }
}
