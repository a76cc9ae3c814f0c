//! Documentation promises nothing that no test holds, and links to nothing that is not there.
//!
//! In the pages of promises a line that makes one ends in "test: `name`" (several may follow, separated by commas) or in
//! the word "pending". Each named test must be a function in the tree.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::{Findings, Tree};

/// Pages whose every table row must name a test or say that it is pending.
const PROMISES: &[&str] = &["docs/semantics.md", "docs/threat-model.md"];

pub(super) fn check(tree: &Tree) -> Result<Findings> {
    let mut findings = Findings::default();
    let tests = test_names(tree)?;
    let mut pending = 0;
    for page in tree.ending(".md") {
        let text = tree.text(page)?;
        for name in claimed(&text) {
            if !tests.contains(name) {
                findings.fault(format!("{page}: there is no test `{name}`"));
            }
        }
        if PROMISES.contains(&page) {
            for row in text
                .lines()
                .filter(|l| l.starts_with("| ") && !is_header(l, &text))
            {
                if row.contains("pending") {
                    pending += 1;
                } else if !row.contains("test: `") {
                    findings.fault(format!("{page}: names no test, nor `pending`: {row}"));
                }
            }
        }
        // The index of errors is generated; a page missing there is told as an error without a page.
        if page != super::errors::INDEX {
            links(tree, page, &text, &mut findings);
        }
    }
    if pending > 0 {
        findings.warn(format!("{pending} promises are pending"));
    }
    Ok(findings)
}

/// The first row of a table and the dashes below it.
fn is_header(line: &str, text: &str) -> bool {
    line.starts_with("| --") || text.contains(&format!("{line}\n| --"))
}

/// Names of test functions: those after a `#[test]`, and those inside `proptest!`, which look the same.
fn test_names(tree: &Tree) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in tree.ending(".rs") {
        let text = tree.text(file)?;
        for part in text.split("#[test]").skip(1) {
            if let Some((_, rest)) = part.split_once("fn ") {
                let end = rest
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(0);
                names.insert(rest[..end].to_owned());
            }
        }
    }
    Ok(names)
}

/// What stands in backticks after `test:`, and after further commas.
fn claimed(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for part in text.split("test: `").skip(1) {
        let mut rest = part;
        while let Some((name, after)) = rest.split_once('`') {
            found.push(name);
            match after.strip_prefix(", `") {
                Some(more) => rest = more,
                None => break,
            }
        }
    }
    found
}

fn links(tree: &Tree, page: &str, text: &str, findings: &mut Findings) {
    let dir = Path::new(page).parent().unwrap_or(Path::new(""));
    for part in text.split("](").skip(1) {
        let target = part.split([')', '#', ' ']).next().unwrap_or("");
        let local = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
        if local && !tree.has(&dir.join(target)) {
            findings.fault(format!("{page}: links to `{target}`, which is not there"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::tree_of;

    #[test]
    fn several_names_in_one_claim() {
        assert_eq!(
            claimed("x (test: `a`, `b`) and `c`; test: `d`"),
            ["a", "b", "d"]
        );
    }

    #[test]
    fn every_promise_has_its_test() {
        let page = "| promise | held by |\n| --- | --- |\n| one | test: `one_holds` |\n\
                    | two | test: `two_holds` |\n| three | pending |\n| four | surely |\n\
                    [there](semantics.md) [gone](gone.md)\n";
        let (_dir, tree) = tree_of(&[
            ("docs/semantics.md", page),
            (
                "crates/a/src/lib.rs",
                "//! a\n#[test]\nfn one_holds() {}\nfn two_holds() {}\n",
            ),
        ]);
        let findings = check(&tree).unwrap();
        let faults = findings.faults.join("\n");
        assert!(faults.contains("no test `two_holds`"), "{faults}");
        assert!(faults.contains("four"), "{faults}");
        assert!(faults.contains("gone.md"), "{faults}");
        assert_eq!((findings.faults.len(), findings.warnings.len()), (3, 1));
    }
}
