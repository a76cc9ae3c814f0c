//! `cargo xtask bench`: measures the figures Forkpoint promises, and prints them as markdown.
//!
//! Whatever is compared is interleaved in one run, round by round, so that a machine that slows down slows both. Figures
//! are medians; smallest and largest stand beside them.

mod command;
mod exec;
mod floor;
mod inside;
mod library;
mod losers;
mod measure;
mod setting;
mod supervisor;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cmd;
use measure::Table;
use setting::Setting;

struct Bench {
    name: &'static str,
    what: &'static str,
    run: fn(&Setting) -> Result<Table>,
    /// Where root measures, it is measured as an ordinary user, too.
    both: bool,
}

const fn bench(
    name: &'static str,
    what: &'static str,
    run: fn(&Setting) -> Result<Table>,
) -> Bench {
    Bench {
        name,
        what,
        run,
        both: false,
    }
}

const fn in_both_roles(
    name: &'static str,
    what: &'static str,
    run: fn(&Setting) -> Result<Table>,
) -> Bench {
    Bench {
        both: true,
        ..bench(name, what, run)
    }
}

/// In the order they are run in: first what little else disturbs, last what leaves much for the disk to do.
const BENCHES: &[Bench] = &[
    in_both_roles(
        "exec",
        "`exec true` against bubblewrap, same namespaces",
        exec::run,
    ),
    bench(
        "command",
        "what starting the command costs, and a list of 10,000 branches",
        command::run,
    ),
    bench(
        "supervisor",
        "the supervisor of 64 idle attempts, and what stopped branches hold",
        supervisor::run,
    ),
    bench(
        "losers",
        "first pass until every loser is dead",
        losers::run,
    ),
    bench("floor", "the fsync floor of a commit's bytes", floor::run),
    in_both_roles(
        "commit",
        "library: durable commit against its floor",
        library::commit,
    ),
    in_both_roles("abort", "library: abort and delete", library::abort),
    bench(
        "stall",
        "library: another branch's I/O during a commit",
        library::stall,
    ),
    in_both_roles(
        "scale",
        "library: the thousandth live branch",
        library::scale,
    ),
    in_both_roles(
        "fork",
        "library: fork until the view can be read",
        library::fork,
    ),
    bench("diff", "library: diff of one changed file", library::diff),
    in_both_roles(
        "socket",
        "library: requests through a branch's socket",
        library::socket,
    ),
    in_both_roles("kv", "library: keys of a world", library::kv),
    bench("inside", "work inside a branch against native", inside::run),
];

pub(crate) fn run(args: &[String]) -> Result<bool> {
    if args.iter().any(|a| a == "list") {
        for bench in BENCHES {
            println!("{:<10} {}", bench.name, bench.what);
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
    let setting = Setting::new(&forkpoint, work.path())?;
    let ordinary = match cmd::is_root() {
        true => Some(Setting::ordinary(&forkpoint, work.path())?),
        false => None,
    };
    println!("\n{}\n", machine(&setting.work)?);
    touch_free_memory()?;
    let mut good = true;
    for bench in BENCHES
        .iter()
        .filter(|b| args.is_empty() || args.iter().any(|a| a == b.name))
    {
        println!("### {}: {}\n", bench.name, bench.what);
        let mut table = (bench.run)(&setting);
        if let Some(ordinary) = ordinary.as_ref().filter(|_| bench.both) {
            table = table.and_then(|table| Ok(table.with_user((bench.run)(ordinary)?)));
        }
        match table {
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

/// Uses the free memory once. In a virtual machine a page that was never used costs a fault of the host's, many times
/// what is done with it, which would be counted against whoever happens to get such pages.
fn touch_free_memory() -> Result<()> {
    const PIECE: usize = 64 << 20;
    const MOST_KIB: u64 = 32 << 20;
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemFree:"));
    let free: u64 = line
        .and_then(|l| l.trim().strip_suffix("kB"))
        .context("MemFree in kB")?
        .trim()
        .parse()?;
    let pieces = (free.min(MOST_KIB) * 9 / 10) as usize / (PIECE >> 10);
    let held: Vec<Vec<u8>> = (0..pieces).map(|_| vec![1; PIECE]).collect();
    std::hint::black_box(&held);
    Ok(())
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
