//! Real work inside a branch against the same work natively, each on a like copy of the same base.
//!
//! Every round forks a fresh branch, so that what a branch pays once (copying a file up, a first look at a directory) is
//! paid in every sample. The time is taken inside, around the work alone: what starting the branch costs is another figure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Setting;
use super::measure::{Bar, Row, Subject, Table, interleave};
use crate::cmd;

const ROUNDS: usize = 5;
const FILES: usize = 20_000;
/// Size of the data files; small enough to stay in the page cache.
const MIB: usize = 256;

struct Work {
    what: &'static str,
    base: &'static str,
    bar: f64,
    /// A shell script that calls `timed COMMAND…` once and leaves the base as it found it.
    script: &'static str,
}

const WORKS: &[Work] = &[
    Work {
        what: "build: make -j2 of 40 C files",
        base: "code",
        bar: 1.1,
        script: "timed make -s -j2; make -s clean",
    },
    Work {
        what: "git status, 20k files, first",
        base: "files",
        bar: 2.0,
        script: "timed git status --short",
    },
    Work {
        what: "git status, 20k files, second",
        base: "files",
        bar: 2.0,
        script: "git status --short > /dev/null; timed git status --short",
    },
    Work {
        what: "find + stat, 20k files",
        base: "files",
        bar: 2.0,
        script: "timed find tree -type f -printf '%s %T@ %m\\n'",
    },
    Work {
        what: "untar 20k files",
        base: "data",
        bar: 2.0,
        script: "mkdir out; timed tar -xf files.tar -C out; rm -rf out",
    },
    Work {
        what: "sqlite: 200,000 rows, one transaction",
        base: "data",
        bar: 1.1,
        script: "timed sqlite3 new.db '.read rows.sql'; rm -f new.db*",
    },
    Work {
        what: "sqlite: 200 durable transactions",
        base: "data",
        bar: 1.1,
        script: "timed sqlite3 new.db '.read commits.sql'; rm -f new.db*",
    },
    Work {
        what: "sequential read, 256 MiB",
        base: "data",
        bar: 1.1,
        script: "./io read big 256",
    },
    Work {
        what: "sequential write, 256 MiB",
        base: "data",
        bar: 1.1,
        script: "./io write new 256; rm new",
    },
    Work {
        what: "random read, 100,000 × 4 KiB",
        base: "data",
        bar: 1.1,
        script: "./io random-read big 256",
    },
    Work {
        what: "random write, 100,000 × 4 KiB",
        base: "data",
        bar: 1.1,
        script: "./io random-write new 256; rm new",
    },
];

const PRELUDE: &str = "set -e
timed() { s=$(date +%s%N); \"$@\" > /dev/null; e=$(date +%s%N); echo $((e - s)); }
";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    for program in ["cc", "make", "git", "sqlite3", "tar", "find"] {
        ensure!(cmd::on_path(program), "`{program}` is not installed");
    }
    let bases = setting.work.join("inside");
    make_code(&bases.join("code"))?;
    make_files(&bases.join("files"))?;
    make_data(&bases.join("data"), &bases.join("files/tree"))?;
    for name in ["code", "files", "data"] {
        let (from, to) = (bases.join(name), bases.join(format!("{name}-native")));
        cmd::must(Command::new("cp").arg("-a").arg(from).arg(to))?;
    }
    let mut table = Table {
        ours: "in a branch".into(),
        reference: "native".into(),
        ..Table::default()
    };
    for work in WORKS {
        table.rows.push(measure(setting, &bases, work)?);
    }
    table.notes.push(format!(
        "{ROUNDS} rounds, interleaved, warm cache, a fresh durable branch each round."
    ));
    Ok(table)
}

fn measure(setting: &Setting, bases: &Path, work: &Work) -> Result<Row> {
    let script = format!("{PRELUDE}{}", work.script);
    let native = bases.join(format!("{}-native", work.base));
    let base = bases.join(work.base);
    let ours: Subject<'_> = Box::new(|| in_branch(setting, &base, &script));
    let theirs: Subject<'_> = Box::new(|| {
        let mut command = Command::new("sh");
        printed(command.args(["-c", &script]).current_dir(&native))
    });
    let mut found = interleave(ROUNDS, &mut [ours, theirs])?;
    let reference = found.pop();
    let ours = found.pop().context("two subjects, two series")?;
    Ok(Row {
        what: work.what.to_owned(),
        ours,
        reference,
        bar: Bar::Ratio(work.bar),
    })
}

fn in_branch(setting: &Setting, base: &PathBuf, script: &str) -> Result<Duration> {
    const NAME: &str = "bench-inside";
    let dir = base.to_string_lossy();
    setting.must(&["fork", &dir, "--name", NAME], base)?;
    let mut command = setting.forkpoint();
    command
        .args(["exec", NAME, "--", "sh", "-c", script])
        .current_dir(base);
    let took = printed(&mut command);
    setting.must(&["abort", NAME], base)?;
    took
}

/// The nanoseconds that the script printed in a line of their own.
fn printed(command: &mut Command) -> Result<Duration> {
    let out = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        bail!(
            "{}: {}\n{}",
            cmd::shown(command),
            out.status,
            String::from_utf8_lossy(&out.stderr)
        );
    }
    let number = text.lines().rev().find_map(|l| l.trim().parse().ok());
    Ok(Duration::from_nanos(
        number.context("the script printed no time")?,
    ))
}

/// 40 files of C that take a compiler some seconds.
fn make_code(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let mut makefile = String::from("CFLAGS = -O2\nOBJECTS =");
    for i in 0..40 {
        makefile += &format!(" f{i}.o");
        let function = |k: usize| {
            format!(
                "int f{i}_{k}(int *a, int n) {{ int s = {k}; for (int i = 0; i < n; i++) \
                 s = s * 31 + a[i] % (i + {k} + 1); return s; }}\n"
            )
        };
        let text: String = (0..120).map(function).collect();
        fs::write(dir.join(format!("f{i}.c")), text)?;
    }
    makefile += "\nall.a: $(OBJECTS)\n\tar rc $@ $(OBJECTS)\nclean:\n\trm -f all.a $(OBJECTS)\n";
    Ok(fs::write(dir.join("Makefile"), makefile)?)
}

/// A git repository of 20,000 small files in 200 directories.
fn make_files(dir: &Path) -> Result<()> {
    for d in 0..200 {
        let sub = dir.join(format!("tree/dir-{d:03}"));
        fs::create_dir_all(&sub)?;
        for f in 0..FILES / 200 {
            fs::write(
                sub.join(format!("file-{f:03}.txt")),
                format!("{d} {f}\n").repeat(20),
            )?;
        }
    }
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"]);
        cmd::must(command.args(arguments).current_dir(dir))
    };
    git(&["init", "--quiet"])?;
    git(&["add", "."])?;
    git(&["commit", "--quiet", "--message", "base"])
}

fn make_data(dir: &Path, tree: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let mut tar = Command::new("tar");
    cmd::must(
        tar.arg("-cf")
            .arg(dir.join("files.tar"))
            .arg("-C")
            .arg(tree)
            .arg("."),
    )?;
    fs::write(
        dir.join("rows.sql"),
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);\n\
         WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 200000)\n\
         INSERT INTO t SELECT x, hex(randomblob(16)) FROM c;\n",
    )?;
    let commits: String = (0..200)
        .map(|i| format!("INSERT INTO t VALUES ({i}, 'row {i}');\n"))
        .collect();
    let create = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);\n";
    fs::write(dir.join("commits.sql"), format!("{create}{commits}"))?;
    fs::write(dir.join("io.c"), include_str!("io.c"))?;
    let mut compile = Command::new("cc");
    cmd::must(compile.args(["-O2", "-o", "io", "io.c"]).current_dir(dir))?;
    fs::write(dir.join("big"), vec![7u8; MIB << 20])?;
    Ok(())
}
