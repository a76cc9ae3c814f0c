//! What the command costs when there is nothing to do: `--help`, and `list` of a store with 10,000 branches.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Setting;
use super::measure::{Bar, Row, Subject, Table, interleave};
use crate::cmd;

const ROUNDS: usize = 30;
const BRANCHES: usize = 10_000;

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let base = setting.dir("command-base")?;
    let dir = base.to_string_lossy().into_owned();
    // A store of its own, so that the others' stay small.
    let store = setting.work.join("command-store");
    let forkpoint = |arguments: &[&str]| {
        let mut command = setting.forkpoint();
        command.args(arguments).env("FORKPOINT_HOME", &store);
        command
    };
    let count = BRANCHES.to_string();
    cmd::must(forkpoint(&["fork", &dir, "-n", &count, "--json"]).stdout(Stdio::null()))?;
    let listed = forkpoint(&["list", "--json"]).output()?.stdout;
    let found: serde_json::Value = serde_json::from_slice(&listed).context("the list is JSON")?;
    let branches = found["branches"].as_array().map_or(0, Vec::len);
    ensure!(branches == BRANCHES, "{branches} branches are listed");

    let subject = |arguments: &'static [&'static str]| -> Subject<'_> {
        let forkpoint = &forkpoint;
        Box::new(move || timed(&mut forkpoint(arguments)))
    };
    let found = interleave(
        ROUNDS,
        &mut [
            subject(&["--help"]),
            subject(&["list"]),
            subject(&["list", "--json"]),
        ],
    )?;
    let names = [
        "`--help`",
        "`list`, 10,000 branches",
        "the same with `--json`",
    ];
    let limits = [10, 50, 50];
    let rows = names.iter().zip(limits).zip(found);
    Ok(Table {
        ours: "forkpoint".into(),
        reference: "–".into(),
        rows: rows
            .map(|((what, ms), series)| Row {
                what: (*what).to_owned(),
                ours: series,
                reference: None,
                bar: Bar::Time(Duration::from_millis(ms)),
            })
            .collect(),
        notes: vec![format!(
            "{ROUNDS} rounds, from the start of the process to its end, output read from a pipe."
        )],
    })
}

fn timed(command: &mut Command) -> Result<Duration> {
    command.stderr(Stdio::inherit());
    let start = Instant::now();
    let out = command.output()?;
    let took = start.elapsed();
    ensure!(
        out.status.success(),
        "{}: {}",
        cmd::shown(command),
        out.status
    );
    Ok(took)
}
