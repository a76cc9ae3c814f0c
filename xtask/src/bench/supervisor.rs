//! What a supervisor costs while its attempts idle, and what stopped branches leave running.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::Setting;
use super::measure::{Bar, Row, Series, Table, Unit};

const ATTEMPTS: usize = 64;
/// How long the idle supervisor is watched.
const WATCHED: Duration = Duration::from_secs(5);
/// Until all attempts run, and until all are ended.
const PATIENCE: Duration = Duration::from_secs(120);
const STOPPED: usize = 20;

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let (memory, cpu) = idle(setting)?;
    let left = stopped(setting)?;
    let row = |what: &str, unit, value, most| -> Result<Row> {
        Ok(Row {
            what: what.to_owned(),
            ours: Series::of(unit, vec![value])?,
            reference: None,
            bar: Bar::Most(most),
        })
    };
    Ok(Table {
        ours: "measured".into(),
        reference: "–".into(),
        rows: vec![
            row(
                "supervisor's memory, 64 idle attempts",
                Unit::Bytes,
                memory,
                20e6,
            )?,
            row("its processor time, of one core", Unit::Percent, cpu, 2.0)?,
            row("processes of 20 stopped branches", Unit::Count, left, 0.0)?,
        ],
        notes: vec![format!(
            "Memory: resident, with what it shares. Processor time over {} s, of the supervisor alone. A branch is \
             stopped when its last command is over.",
            WATCHED.as_secs()
        )],
    })
}

/// Resident bytes and percent of a core of the supervisor of idle attempts.
fn idle(setting: &Setting) -> Result<(f64, f64)> {
    let base = setting.dir("supervisor-base")?;
    let up = setting.dir("supervisor-up")?;
    fs::write(base.join("file"), "x\n")?;
    let store = setting.work.join("supervisor-store");
    let mut command = setting.forkpoint();
    command
        .env("FORKPOINT_HOME", &store)
        .args([
            "explore",
            "--json",
            "--base",
            ".",
            "--no-commit",
            "--keep",
            "none",
        ])
        .args([
            "-n",
            &ATTEMPTS.to_string(),
            "--jobs",
            &ATTEMPTS.to_string(),
            "--",
        ])
        .args([
            "sh",
            "-c",
            "echo up > \"$FORKPOINT_OUT/up\"; exec sleep 600",
        ])
        .current_dir(&base)
        .stdout(Stdio::null())
        .stderr(fs::File::create(up.join("messages"))?);
    let mut child = command.spawn()?;
    let measured = watch(&mut child, &store);
    // Interrupted, it ends its attempts before it goes.
    kill_process(Pid::from_child(&child), Signal::INT)?;
    let ended = wait(&mut child);
    let messages = fs::read_to_string(up.join("messages")).unwrap_or_default();
    let measured = measured.with_context(|| messages.clone())?;
    ended.with_context(|| messages)?;
    Ok(measured)
}

fn watch(child: &mut Child, store: &Path) -> Result<(f64, f64)> {
    let start = Instant::now();
    while running(store)? < ATTEMPTS {
        ensure!(
            start.elapsed() < PATIENCE,
            "not all attempts began in {} s",
            PATIENCE.as_secs()
        );
        if let Some(status) = child.try_wait()? {
            bail!("the supervisor ended: {status}");
        }
        pause(Duration::from_millis(50));
    }
    let pid = child.id();
    // What starting them leaves to do is over after a moment.
    pause(Duration::from_secs(1));
    let before = processor_time(pid)?;
    let begun = Instant::now();
    pause(WATCHED);
    let used = processor_time(pid)?.saturating_sub(before) as f64 / 1e9;
    Ok((resident(pid)?, 100.0 * used / begun.elapsed().as_secs_f64()))
}

/// How many attempts have said that they run.
fn running(store: &Path) -> Result<usize> {
    let Ok(branches) = fs::read_dir(store.join("branches")) else {
        return Ok(0);
    };
    let mut count = 0;
    for branch in branches {
        count += usize::from(branch?.path().join("out/up").exists());
    }
    Ok(count)
}

fn wait(child: &mut Child) -> Result<()> {
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > PATIENCE {
            child.kill()?;
            bail!("the supervisor did not end when it was interrupted");
        }
        pause(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits; of a thread that nobody wakes, a parking that ends early is begun again.
fn pause(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end
        .checked_duration_since(Instant::now())
        .filter(|t| !t.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

/// The processor time of a process's threads, in nanoseconds.
fn processor_time(pid: u32) -> Result<u64> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that ends meanwhile is not one that idles; what it used is not told any more.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        let first = text.split_whitespace().next().context("a time")?;
        total += first.parse::<u64>()?;
    }
    Ok(total)
}

fn resident(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .and_then(|l| l.trim().strip_suffix("kB"))
        .context("VmRSS in kB")?
        .trim()
        .parse()?;
    Ok(kib * 1024.0)
}

/// Runs something in each of some branches, and counts the processes of the store that are left.
fn stopped(setting: &Setting) -> Result<f64> {
    let base = setting.dir("stopped-base")?;
    let dir = base.to_string_lossy().into_owned();
    fs::write(base.join("file"), "x\n")?;
    let count = STOPPED.to_string();
    setting.must(&["fork", &dir, "-n", &count, "--name", "stopped"], &base)?;
    let names: Vec<String> = (1..=STOPPED).map(|n| format!("stopped-{n}")).collect();
    for name in &names {
        setting.must(&["exec", name, "--", "sh", "-c", "echo new > file"], &base)?;
    }
    let left = processes_of(&setting.store())?;
    let mut arguments = vec!["abort"];
    arguments.extend(names.iter().map(String::as_str));
    setting.must(&arguments, &base)?;
    Ok(left as f64)
}

/// Processes whose executable lies in a store: what holds a branch is started from there.
fn processes_of(store: &Path) -> Result<usize> {
    let store = fs::canonicalize(store)?;
    let mut count = 0;
    for entry in fs::read_dir("/proc")? {
        // One that ends meanwhile is none, nor is one that is not ours to look at.
        let exe = fs::read_link(entry?.path().join("exe"));
        count += usize::from(exe.is_ok_and(|exe| exe.starts_with(&store)));
    }
    Ok(count)
}
