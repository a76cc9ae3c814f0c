//! `forkpoint exec BRANCH -- true` against bubblewrap with the same namespaces and a like view.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::Setting;
use super::measure::{Bar, Row, Subject, Table, interleave};
use crate::cmd;

const ROUNDS: usize = 60;

/// The namespaces a branch has: user, mount, pid, net, ipc, uts and cgroup.
const BWRAP: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--die-with-parent",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/run",
    "true",
];

pub(super) fn run(setting: &Setting) -> Result<Table> {
    ensure!(cmd::on_path("bwrap"), "bubblewrap is not installed");
    let base = setting.dir("exec-base")?;
    std::fs::write(base.join("file"), "x\n")?;
    let dir = base.to_string_lossy().into_owned();
    setting.must(&["fork", &dir, "--name", "bench-exec"], &base)?;
    let ours: Subject<'_> = Box::new(|| {
        let mut command = setting.forkpoint();
        command
            .args(["exec", "bench-exec", "--", "true"])
            .current_dir(&base);
        timed(&mut command)
    });
    let theirs: Subject<'_> = Box::new(|| {
        let mut command = setting.command(Path::new("bwrap"));
        timed(command.args(BWRAP))
    });
    let plain: Subject<'_> = Box::new(|| timed(&mut setting.command(Path::new("true"))));
    let found = interleave(ROUNDS, &mut [ours, theirs, plain])?;
    setting.must(&["abort", "bench-exec"], &base)?;
    let [ours, theirs, plain] = &found[..] else {
        bail!("three subjects, three series")
    };
    let row = |what: &str, series: &_, bar| Row {
        what: what.to_owned(),
        ours: Clone::clone(series),
        reference: Some(theirs.clone()),
        bar,
    };
    Ok(Table {
        ours: "forkpoint exec".into(),
        reference: "bwrap".into(),
        rows: vec![
            row("`exec true`, fully isolated", ours, Bar::Ratio(1.5)),
            row("(`true` alone, not isolated)", plain, Bar::None),
        ],
        notes: vec![format!(
            "{ROUNDS} rounds. bwrap: `bwrap {}`",
            BWRAP.join(" ")
        )],
    })
}

fn timed(command: &mut Command) -> Result<Duration> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let out = command.output()?;
    let took = start.elapsed();
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        bail!("{}: {} {}", cmd::shown(command), out.status, text.trim());
    }
    Ok(took)
}
