//! Rules about Rust files: length, and unsafe code in one crate alone.

use anyhow::Result;

use super::{Findings, Tree};

const LONG: usize = 500;
const TOO_LONG: usize = 600;
const UNSAFE_CRATE: &str = "crates/sys/";

pub(super) fn check(tree: &Tree) -> Result<Findings> {
    let mut findings = Findings::default();
    for name in tree.ending(".rs") {
        let text = tree.text(name)?;
        if !is_test(name) {
            length(name, text.lines().count(), &mut findings);
        }
        let is_root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
        if is_root && !name.starts_with(UNSAFE_CRATE) && !text.contains("#![forbid(unsafe_code)]") {
            findings.fault(format!("{name}: no #![forbid(unsafe_code)]"));
        }
        if !is_test(name) && !text.trim_start().starts_with("//") {
            findings.fault(format!(
                "{name}: its first line does not say what it is for"
            ));
        }
    }
    Ok(findings)
}

/// Tests may be long: they are lists of cases.
fn is_test(name: &str) -> bool {
    name.split('/')
        .any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
}

fn length(name: &str, lines: usize, findings: &mut Findings) {
    if lines > TOO_LONG {
        findings.fault(format!("{name}: {lines} lines, {TOO_LONG} at most"));
    } else if lines > LONG {
        findings.warn(format!("{name}: {lines} lines, better below {LONG}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::tree_of;

    #[test]
    fn long_files_and_missing_forbid() {
        let long = format!("//! x\n{}", "\n".repeat(600));
        let middling = format!("//! x\n{}", "\n".repeat(550));
        let (_dir, tree) = tree_of(&[
            ("crates/a/src/lib.rs", "//! a\n"),
            ("crates/sys/src/lib.rs", "//! s\n"),
            ("crates/a/src/long.rs", &long),
            ("crates/a/src/middling.rs", &middling),
            ("crates/a/src/bare.rs", "fn f() {}\n"),
            ("crates/a/tests/long.rs", &long),
            ("crates/a/src/x_tests.rs", &long),
        ]);
        let findings = check(&tree).unwrap();
        assert_eq!(findings.faults.len(), 3, "{findings:?}");
        assert_eq!(findings.warnings.len(), 1, "{findings:?}");
    }
}
