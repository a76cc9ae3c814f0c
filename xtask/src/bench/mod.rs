//! `cargo xtask bench`: measures the figures Forkpoint promises, and prints them as markdown.
//!
//! Whatever is compared is interleaved in one run, round by round, so that a machine that slows down slows both. Figures
//! are medians; smallest and largest stand beside them.

mod exec;
mod floor;
mod inside;
mod library;
mod losers;
mod measure;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

use crate::cmd;
use measure::Table;

struct Bench {
    name: &'static str,
    what: &'static str,
    run: fn(&Setting) -> Result<Table>,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "exec",
        what: "`exec true` against bubblewrap, same namespaces",
        run: exec::run,
    },
    Bench {
        name: "floor",
        what: "the fsync floor of a commit's bytes",
        run: floor::run,
    },
    Bench {
        name: "inside",
        what: "work inside a branch against native",
        run: inside::run,
    },
    Bench {
        name: "fork",
        what: "library: fork until the view can be read",
        run: library::fork,
    },
    Bench {
        name: "diff",
        what: "library: diff of one changed file",
        run: library::diff,
    },
    Bench {
        name: "commit",
        what: "library: durable commit against its floor",
        run: library::commit,
    },
    Bench {
        name: "abort",
        what: "library: abort and delete",
        run: library::abort,
    },
    Bench {
        name: "losers",
        what: "first pass until every loser is dead",
        run: losers::run,
    },
];

/// What every measurement works with.
struct Setting {
    forkpoint: PathBuf,
    /// A temporary directory on the file system to be measured (`FORKPOINT_BENCH_DIR`, else the default one).
    work: PathBuf,
}

impl Setting {
    fn store(&self) -> PathBuf {
        self.work.join("store")
    }

    /// The command, with a store of its own beside the bases.
    fn forkpoint(&self) -> Command {
        let mut command = Command::new(&self.forkpoint);
        command
            .env("FORKPOINT_HOME", self.store())
            .stdin(Stdio::null());
        command
    }

    /// Runs it quietly; what it said on standard error is told when it fails.
    fn must(&self, arguments: &[&str], dir: &Path) -> Result<String> {
        let out = self.forkpoint().args(arguments).current_dir(dir).output()?;
        if !out.status.success() {
            let text = String::from_utf8_lossy(&out.stderr);
            bail!(
                "forkpoint {}: {}\n{}",
                arguments.join(" "),
                out.status,
                text.trim()
            );
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

pub(crate) fn run(args: &[String]) -> Result<bool> {
    if args.iter().any(|a| a == "list") {
        for bench in BENCHES {
            println!("{:<8} {}", bench.name, bench.what);
        }
        return Ok(true);
    }
    for name in args {
        ensure!(
            BENCHES.iter().any(|b| b.name == name),
            "no measurement `{name}`"
        );
    }
    let forkpoint = cmd::forkpoint(true)?;
    let mut place = tempfile::Builder::new();
    place.prefix("forkpoint-bench-");
    let work = match std::env::var_os("FORKPOINT_BENCH_DIR") {
        Some(dir) => place.tempdir_in(dir)?,
        None => place.tempdir()?,
    };
    let setting = Setting {
        forkpoint,
        work: work.path().to_path_buf(),
    };
    println!("\n{}\n", machine(&setting.work)?);
    let mut good = true;
    for bench in BENCHES
        .iter()
        .filter(|b| args.is_empty() || args.iter().any(|a| a == b.name))
    {
        println!("### {}: {}\n", bench.name, bench.what);
        match (bench.run)(&setting) {
            Ok(table) => {
                println!("{table}");
                good &= table.all_within();
            }
            Err(e) => {
                println!("not measured: {e:#}\n");
                good = false;
            }
        }
    }
    Ok(good)
}

/// One line about the machine: figures mean nothing without it.
fn machine(work: &Path) -> Result<String> {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let cores = std::thread::available_parallelism()?;
    let fs = cmd::output(
        Command::new("stat")
            .args(["--file-system", "--format=%T"])
            .arg(work),
    )?;
    let who = if cmd::is_root() {
        "root"
    } else {
        "an ordinary user"
    };
    let fs = String::from_utf8_lossy(&fs);
    let kernel: String = release
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    Ok(format!(
        "Kernel {kernel}, {cores} cores, {}, as {who}.",
        fs.trim()
    ))
}
