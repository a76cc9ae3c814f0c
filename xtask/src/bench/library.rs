//! Figures of library calls, measured by example programs of the `engine` crate.
//!
//! Such a program (`crates/engine/examples/bench_NAME.rs`) is given a directory to work in and one for bases that others
//! use too, and prints one JSON object a line on standard output:
//!
//! `{"what": "fork, 100 files", "samples_ns": [1, 2], "reference_ns": [1, 2], "bar_ns": 350000, "bar_ratio": 2.0}`
//!
//! `reference_ns` (what it was interleaved with) and the bars are optional. `{"note": "…"}` adds a line below the table.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Setting;
use super::measure::{Bar, Row, Series, Table};
use crate::cmd;

pub(super) fn fork(setting: &Setting) -> Result<Table> {
    run("bench_fork", setting)
}

pub(super) fn diff(setting: &Setting) -> Result<Table> {
    run("bench_diff", setting)
}

pub(super) fn commit(setting: &Setting) -> Result<Table> {
    run("bench_commit", setting)
}

pub(super) fn abort(setting: &Setting) -> Result<Table> {
    run("bench_abort", setting)
}

pub(super) fn scale(setting: &Setting) -> Result<Table> {
    run("bench_scale", setting)
}

pub(super) fn kv(setting: &Setting) -> Result<Table> {
    run("bench_kv", setting)
}

pub(super) fn stall(setting: &Setting) -> Result<Table> {
    run("bench_stall", setting)
}

pub(super) fn socket(setting: &Setting) -> Result<Table> {
    run("bench_socket", setting)
}

fn run(example: &str, setting: &Setting) -> Result<Table> {
    let file = format!("crates/engine/examples/{example}.rs");
    if !cmd::root().join(&file).exists() {
        bail!("there is no {file} yet");
    }
    let arguments = [
        "build",
        "--release",
        "--package",
        "forkpoint-engine",
        "--example",
        example,
    ];
    let built = cmd::artifacts(&arguments.map(OsString::from))?;
    let program = built
        .into_iter()
        .find(|a| a.target == example)
        .context("not built")?
        .executable;
    let dir = setting.dir(example)?;
    let mut command = setting.command(&setting.copied(&program)?);
    command.arg(&dir).arg(&setting.bases);
    let out = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !out.status.success() {
        bail!("{example} ended with {}", out.status);
    }
    parse(&String::from_utf8_lossy(&out.stdout))
}

fn parse(text: &str) -> Result<Table> {
    let (ours, reference) = ("measured".into(), "reference".into());
    let mut table = Table {
        ours,
        reference,
        ..Table::default()
    };
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let value: Value =
            serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
        if let Some(note) = value["note"].as_str() {
            table.notes.push(note.to_owned());
            continue;
        }
        let bar = match (value["bar_ns"].as_u64(), value["bar_ratio"].as_f64()) {
            (Some(ns), _) => Bar::Time(Duration::from_nanos(ns)),
            (None, Some(ratio)) => Bar::Ratio(ratio),
            (None, None) => Bar::None,
        };
        let reference = value
            .get("reference_ns")
            .filter(|v| !v.is_null())
            .map(series)
            .transpose()?;
        let what = value["what"]
            .as_str()
            .context("a row says `what`")?
            .to_owned();
        table.rows.push(Row {
            what,
            ours: series(&value["samples_ns"])?,
            reference,
            bar,
        });
    }
    if table.rows.is_empty() {
        bail!("it measured nothing");
    }
    Ok(table)
}

fn series(value: &Value) -> Result<Series> {
    let samples = value.as_array().context("samples are a list")?;
    let samples = samples.iter().map(|n| n.as_u64().map(Duration::from_nanos));
    Series::new(
        samples
            .collect::<Option<_>>()
            .context("samples are whole nanoseconds")?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_notes() {
        let text = "{\"what\": \"a\", \"samples_ns\": [10, 30, 20], \"bar_ns\": 25}\n\
                    {\"what\": \"b\", \"samples_ns\": [40], \"reference_ns\": [10], \"bar_ratio\": 2.0}\n\
                    {\"note\": \"said\"}\n";
        let table = parse(text).unwrap();
        assert_eq!((table.rows.len(), table.notes.len()), (2, 1));
        assert!(!table.all_within());
        assert!(parse("").is_err());
        assert!(parse("{\"what\": \"a\", \"samples_ns\": []}").is_err());
    }
}
