//! From the verifier's first pass until every loser is dead, with eight attempts, from outside.
//!
//! The verifier prints the time as the last thing it does; each loser writes the time to a file of its own again and
//! again. The last time a loser could still write is the time of its death, to within the step of a few milliseconds.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Setting;
use super::measure::{Bar, Row, Series, Table};

const ROUNDS: usize = 10;
const ATTEMPTS: usize = 8;
const LIMIT: Duration = Duration::from_millis(50);
const WINNER: &str = "sleep 0.5; echo changed > file";
const LOSER: &str = "setsid sh -c 'trap \"\" TERM HUP; while :; do date +%s%N > \"$FORKPOINT_OUT/last\"; sleep 0.002; \
                     done' & wait";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let samples = (0..ROUNDS)
        .map(|round| once(setting, round))
        .collect::<Result<Vec<_>>>()?;
    Ok(Table {
        ours: "measured".into(),
        reference: "–".into(),
        rows: vec![Row {
            what: format!("first pass until {} losers are dead", ATTEMPTS - 1),
            ours: Series::new(samples)?,
            reference: None,
            bar: Bar::Time(LIMIT),
        }],
        notes: vec![format!(
            "{ROUNDS} rounds; losers ignore TERM and are in sessions of their own. A loser that could still write \
             nothing after the pass counts as 0."
        )],
    })
}

fn once(setting: &Setting, round: usize) -> Result<Duration> {
    let base = setting.work.join(format!("losers-{round}"));
    fs::create_dir_all(&base)?;
    fs::write(base.join("file"), "old\n")?;
    let mut command = setting.forkpoint();
    command.args([
        "explore",
        "--json",
        "--base",
        ".",
        "--strategy",
        "first-wins",
    ]);
    command.args(["--keep", "all", "--attempt", WINNER]);
    for _ in 1..ATTEMPTS {
        command.args(["--attempt", LOSER]);
    }
    command.args(["--jobs", &ATTEMPTS.to_string(), "--timeout", "60s"]);
    command.args(["--verify", "grep -q changed file && date +%s%N"]);
    let out = command.current_dir(&base).stderr(Stdio::piped()).output()?;
    let result: Value = serde_json::from_slice(&out.stdout)
        .with_context(|| String::from_utf8_lossy(&out.stderr).into_owned())?;
    ensure!(result["winner"] == 0, "attempt 0 did not win: {result}");
    let attempts = result["attempts"].as_array().context("attempts")?;
    let log = attempts[0]["verifier"]["log"]
        .as_str()
        .context("the verifier's log")?;
    let passed = last_number(log)?;
    let mut last = passed;
    let mut ran = 0;
    for attempt in &attempts[1..] {
        let dir = attempt["out"].as_str().context("an attempt's out")?;
        // The file is empty where its writer was killed between opening and writing.
        if let Ok(time) = last_number(&format!("{dir}/last")) {
            last = last.max(time);
            ran += 1;
        }
    }
    if ran == 0 {
        bail!("no loser had begun");
    }
    Ok(Duration::from_nanos(last - passed))
}

fn last_number(file: &str) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.to_owned())?;
    let number = text.lines().rev().find_map(|l| l.trim().parse().ok());
    number.with_context(|| format!("no number in {file}"))
}
