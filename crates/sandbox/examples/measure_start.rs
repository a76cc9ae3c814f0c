//! Measures a sandbox from start to end, and bubblewrap with the same namespaces beside it.
//! `cargo run --release -p forkpoint-sandbox --example measure_start [ROUNDS]`

use forkpoint_fs::{Stack, view};
use forkpoint_model::{BranchId, Error};
use forkpoint_sandbox::{DiskMount, ExecRequest, Sandbox, SandboxSpec, identity};
use forkpoint_sys::clock::monotonic_ns;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args()
        .nth(1)
        .map_or(Ok(200), |text| text.parse())?;
    let dir = std::env::temp_dir().join(format!("forkpoint-measure-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("base"))?;
    let mut columns: [Vec<f64>; 5] = Default::default();
    for round in 0..rounds {
        for (column, us) in columns.iter_mut().zip(ours(&dir, round)?) {
            column.push(us);
        }
        columns[4].push(bubblewrap()?);
    }
    // Work directories are closed even to their owner.
    forkpoint_fs::tree::remove(&dir)?;
    for (name, column) in ["prepare", "start", "exec true", "kill", "bwrap true"]
        .iter()
        .zip(&mut columns)
    {
        column.sort_by(f64::total_cmp);
        let at = |part: f64| column[(column.len() as f64 * part) as usize];
        println!(
            "{name:>10}: median {:>7.0} µs, p90 {:>7.0} µs",
            at(0.5),
            at(0.9)
        );
    }
    Ok(())
}

fn null() -> io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    Ok(file.into())
}

/// Microseconds of making the directories, start, `true`, and kill.
fn ours(dir: &Path, round: u64) -> Result<[f64; 4], Error> {
    let fail = |e: io::Error| forkpoint_sandbox::codes::HOST_IO.io("cannot measure", e);
    let begin = monotonic_ns();
    let branch = dir.join(format!("b{round}"));
    std::fs::create_dir_all(branch.join("root")).map_err(fail)?;
    let stack = Stack {
        lowers: vec![dir.join("base")],
        upper: branch.join("upper"),
        work: branch.join("work"),
    };
    view::prepare_pair(&stack.upper, &stack.work, &dir.join("base"))?;
    let mut spec = SandboxSpec::new(BranchId::from_bits(round), identity()?, branch.join("root"));
    spec.disks.push(DiskMount {
        target: dir.join("base"),
        stack,
        volatile: true,
        copy_tree: None,
        read_only: false,
    });
    spec.masks.push(branch);
    spec.lifeline = true;
    let made = monotonic_ns();
    let sandbox = Sandbox::start(spec)?;
    let started = monotonic_ns();
    let request = ExecRequest {
        argv: vec!["/usr/bin/true".into()],
        env: Vec::new(),
        cwd: dir.join("base"),
        stdin: null().map_err(fail)?,
        stdout: null().map_err(fail)?,
        stderr: null().map_err(fail)?,
        score_fd: None,
        new_session: true,
        terminal: None,
    };
    sandbox.exec(request)?.wait()?;
    let ran = monotonic_ns();
    sandbox.kill()?;
    let killed = monotonic_ns();
    let us = |from: u64, to: u64| (to - from) as f64 / 1000.0;
    Ok([
        us(begin, made),
        us(made, started),
        us(started, ran),
        us(ran, killed),
    ])
}

fn bubblewrap() -> io::Result<f64> {
    let begin = monotonic_ns();
    let status = Command::new("bwrap")
        .args([
            "--unshare-all",
            "--unshare-user",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
        ])
        .args(["--proc", "/proc", "--tmpfs", "/tmp", "/usr/bin/true"])
        .stdin(Stdio::null())
        .status()?;
    assert!(status.success(), "bwrap fails");
    Ok((monotonic_ns() - begin) as f64 / 1000.0)
}
