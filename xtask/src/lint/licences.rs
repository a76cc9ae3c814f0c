//! Every dependency may be shipped with an Apache-2.0 program.

use anyhow::{Context, Result};

use super::Findings;
use crate::cmd;

/// Licences whose terms a binary with a notice file satisfies.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(super) fn check() -> Result<Findings> {
    let mut findings = Findings::default();
    let bytes = cmd::output(cmd::cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&bytes)?;
    for package in metadata["packages"]
        .as_array()
        .context("cargo metadata lists packages")?
    {
        let name = package["name"].as_str().unwrap_or("?");
        match package["license"].as_str() {
            Some(expression) if allowed(expression) => {}
            Some(expression) => findings.fault(format!("{name}: licence `{expression}`")),
            None => findings.fault(format!("{name}: declares no licence")),
        }
    }
    Ok(findings)
}

/// Whether one choice of an SPDX expression consists of allowed licences. `/` is the old way to write OR.
fn allowed(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    // `(A OR B) AND C` is read as `A OR (B AND C)`, so C must be looked at in every choice: each AND part, alone,
    // has to have an allowed choice.
    plain
        .split(" AND ")
        .all(|part| part.split(" OR ").any(|one| ALLOWED.contains(&one.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        assert!(allowed("MIT OR Apache-2.0"));
        assert!(allowed("MIT/Apache-2.0"));
        assert!(allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(allowed("LGPL-2.1-or-later OR MIT"));
        assert!(!allowed("GPL-3.0"));
        assert!(!allowed("MIT AND GPL-3.0"));
        assert!(!allowed("(MIT OR Apache-2.0) AND GPL-3.0"));
    }
}
