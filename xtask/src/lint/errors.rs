//! Every error code has a page, every page a code, and the index lists them all.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;

use super::{Findings, Tree};

const PAGES: &str = "docs/errors/";
pub(super) const INDEX: &str = "docs/errors/README.md";

#[derive(Debug, PartialEq)]
struct Declared {
    /// The constant's name.
    constant: String,
    code: String,
    kind: String,
    title: String,
}

pub(super) fn check(tree: &Tree) -> Result<Findings> {
    let mut findings = Findings::default();
    let codes = collect(tree, &mut findings)?;
    for (code, (declared, file)) in &codes {
        let page = format!("{PAGES}{code}.md");
        if !tree.names.contains(&page) {
            findings.fault(format!("{file}: {code} has no page {page}"));
            continue;
        }
        let text = tree.text(&page)?;
        let title = format!("# {code}: {}", declared.title);
        if text.lines().next() != Some(&title) {
            findings.fault(format!("{page}: its first line is not `{title}`"));
        }
        if !text.to_lowercase().contains("what to do") {
            findings.fault(format!("{page}: does not say what to do"));
        }
    }
    for page in tree
        .names
        .iter()
        .filter(|n| n.starts_with(&format!("{PAGES}FP")))
    {
        let code = page.trim_start_matches(PAGES).trim_end_matches(".md");
        if !codes.contains_key(code) {
            findings.fault(format!("{page}: no crate declares {code}"));
        }
    }
    if !tree.names.iter().any(|n| n == INDEX) || tree.text(INDEX)? != index(&codes) {
        findings.fault(format!(
            "{INDEX} is out of date: cargo xtask lint --no-cargo --write-index"
        ));
    }
    Ok(findings)
}

pub(super) fn write_index(tree: &Tree) -> Result<()> {
    let codes = collect(tree, &mut Findings::default())?;
    Ok(std::fs::write(tree.root.join(INDEX), index(&codes))?)
}

type Codes = BTreeMap<String, (Declared, String)>;

fn collect(tree: &Tree, findings: &mut Findings) -> Result<Codes> {
    let mut codes = Codes::new();
    for file in tree.ending("src/codes.rs") {
        let text = tree.text(file)?;
        let list = text.split_once("ALL: &[Code]").map_or("", |(_, list)| list);
        for declared in parse(&text) {
            if !list
                .split([',', ' ', '\n', '[', ']'])
                .any(|word| word == declared.constant)
            {
                findings.fault(format!("{file}: {} is not in ALL", declared.constant));
            }
            let code = declared.code.clone();
            if let Some((_, other)) = codes.insert(code.clone(), (declared, file.to_owned())) {
                findings.fault(format!("{file}: {code} is declared in {other} too"));
            }
        }
    }
    Ok(codes)
}

/// `pub const NAME: Code = Code::new("FP0123", Kind::Conflict, "title");`, over any number of lines.
fn parse(text: &str) -> Vec<Declared> {
    let mut found = Vec::new();
    let mut before = "";
    for (i, part) in text.split("Code::new(").enumerate() {
        if i > 0 {
            let strings: Vec<&str> = part.split('"').collect();
            let constant = before
                .rsplit_once("const ")
                .and_then(|(_, rest)| rest.split(':').next());
            let kind = part
                .split("Kind::")
                .nth(1)
                .and_then(|k| k.split(',').next());
            if let (Some(code), Some(title), Some(constant), Some(kind)) =
                (strings.get(1), strings.get(3), constant, kind)
            {
                found.push(Declared {
                    constant: constant.trim().to_owned(),
                    code: (*code).to_owned(),
                    kind: kind.trim().to_lowercase(),
                    title: (*title).to_owned(),
                });
            }
        }
        before = part;
    }
    found
}

fn index(codes: &Codes) -> String {
    let mut text = String::from(
        "# Error codes\n\nEvery error of Forkpoint has a code that keeps its meaning. This list is made from the code by \
         `cargo xtask lint --write-index`, and checked.\n\n| code | kind | meaning |\n| --- | --- | --- |\n",
    );
    for (code, (declared, _)) in codes {
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            text,
            "| [{code}]({code}.md) | {} | {} |",
            declared.kind, declared.title
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::tree_of;

    const CODES: &str = r#"//! codes
pub const A: Code = Code::new("FP0101", Kind::Io, "disk trouble");
pub const B: Code =
    Code::new("FP0102", Kind::Conflict, "somebody else's edit");
pub const ALL: &[Code] = &[A, B];
"#;

    #[test]
    fn declarations_over_several_lines() {
        let found = parse(CODES);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].constant, "B");
        assert_eq!(
            (found[1].code.as_str(), found[1].kind.as_str()),
            ("FP0102", "conflict")
        );
        assert_eq!(found[1].title, "somebody else's edit");
    }

    #[test]
    fn pages_and_codes_belong_together() {
        let page = "# FP0101: disk trouble\n\n## What to do\n";
        let (_dir, tree) = tree_of(&[
            ("crates/a/src/codes.rs", CODES),
            ("docs/errors/FP0101.md", page),
            ("docs/errors/FP0999.md", page),
        ]);
        let findings = check(&tree).unwrap();
        let faults = findings.faults.join("\n");
        assert!(faults.contains("FP0102 has no page"), "{faults}");
        assert!(faults.contains("no crate declares FP0999"), "{faults}");
        assert!(faults.contains("README.md is out of date"), "{faults}");
        assert_eq!(findings.faults.len(), 3, "{faults}");
    }

    #[test]
    fn twice_the_same_code_and_one_left_out_of_the_list() {
        let one = "//! c\npub const X: Code = Code::new(\"FP0101\", Kind::Io, \"t\");\nALL: &[Code] = &[];";
        let (_dir, tree) = tree_of(&[("a/src/codes.rs", one), ("b/src/codes.rs", one)]);
        let mut findings = Findings::default();
        collect(&tree, &mut findings).unwrap();
        assert_eq!(findings.faults.len(), 3, "{findings:?}");
    }
}
