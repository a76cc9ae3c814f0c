//! What an attempt says of itself, kept as files in its `FORKPOINT_OUT`, where it may write them
//! itself as well: whoever reads them sees no difference. The directory is the attempt's to fill: no
//! link is followed, and only a regular file is written to.

use super::request::{Progress, Score, refused};
use super::workers::full;
use crate::codes;
use forkpoint_model::{Error, Result};
use forkpoint_sys::rand;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Lines like `{"cost":0.12}`: what it says that it costs is their sum.
pub const COST_FILE: &str = "cost";
/// What it says its score is: a JSON object of numbers, one of them `score`.
pub const SCORE_FILE: &str = "score";
/// How far it says it is: a JSON object with a `text` and perhaps a `fraction`.
pub const PROGRESS_FILE: &str = "progress";
/// At most this much of a cost file counts, in bytes.
pub const COST_LIMIT: u64 = 1 << 20;
/// The largest cost that can be said at a time.
const MAX_COST: f64 = 1e9;

/// Adds to what it costs.
pub(super) fn cost(out: &Path, cost: f64) -> Result<()> {
    if !(0.0..=MAX_COST).contains(&cost) {
        return Err(refused(format!("a cost lies between 0 and {MAX_COST}")));
    }
    let line = format!("{}\n", serde_json::json!({ "cost": cost }));
    let dir = open_dir(out)?;
    let flags =
        OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let fd = openat(&dir, COST_FILE, flags | OFlags::CLOEXEC, mode())
        .map_err(|e| unusable(COST_FILE, e))?;
    let mut file = File::from(fd);
    let meta = file.metadata().map_err(|e| unusable(COST_FILE, e))?;
    if !meta.is_file() {
        return Err(unusable(COST_FILE, "it is no regular file"));
    }
    if meta.len().saturating_add(line.len() as u64 + 1) > COST_LIMIT {
        return Err(full("the cost file is full: report fewer, larger costs"));
    }
    // A line that the attempt itself left unfinished must not swallow this one.
    let mut last = [b'\n'];
    if meta.len() > 0 {
        file.read_exact_at(&mut last, meta.len() - 1)
            .map_err(|e| unusable(COST_FILE, e))?;
    }
    let start = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{start}{line}").as_bytes())
        .map_err(|e| unusable(COST_FILE, e))
}

/// Says what its score is; the last word counts.
pub(super) fn score(out: &Path, score: &Score) -> Result<()> {
    let mut all = score.metrics.clone();
    all.insert("score".into(), score.score);
    replace(out, SCORE_FILE, &serde_json::json!(all))
}

/// Says how far it is.
pub(super) fn progress(out: &Path, progress: &Progress) -> Result<()> {
    replace(out, PROGRESS_FILE, &serde_json::json!(progress))
}

fn mode() -> Mode {
    Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH
}

fn unusable(name: &str, why: impl std::fmt::Display) -> Error {
    codes::IO
        .io(format!("cannot write FORKPOINT_OUT/{name}"), why)
        .hint("remove what lies there under that name")
}

fn open_dir(out: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, out, flags, Mode::empty())
        .map_err(|e| codes::IO.io("cannot open the branch's FORKPOINT_OUT", e))
}

/// Puts a whole file in the place of the old one: nobody reads half of it.
fn replace(out: &Path, name: &str, value: &serde_json::Value) -> Result<()> {
    let dir = open_dir(out)?;
    let new = format!(".{name}-{:016x}", rand::bits());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let fd = openat(&dir, new.as_str(), flags | OFlags::CLOEXEC, mode())
        .map_err(|e| unusable(name, e))?;
    let done = File::from(fd)
        .write_all(format!("{value}\n").as_bytes())
        .and_then(|()| Ok(renameat(&dir, new.as_str(), &dir, name)?));
    done.map_err(|e| {
        // What is half made is nobody's; where even that fails, the first error says it.
        unlinkat(&dir, new.as_str(), AtFlags::empty()).unwrap_or(());
        unusable(name, e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn costs_are_appended_as_the_attempt_would() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().join(COST_FILE);
        cost(dir.path(), 0.5).expect("cost");
        fs::write(&file, "{\"cost\":0.5}\n{\"cost\":1").expect("half a line");
        cost(dir.path(), 2.0).expect("cost");
        let text = fs::read_to_string(&file).expect("read");
        assert_eq!(text, "{\"cost\":0.5}\n{\"cost\":1\n{\"cost\":2.0}\n");
        for bad in [-1.0, f64::NAN, f64::INFINITY, 2e9] {
            assert_eq!(cost(dir.path(), bad).expect_err("bad").code, "FP0450");
        }
        fs::write(&file, vec![b'\n'; COST_LIMIT as usize - 5]).expect("fill");
        assert_eq!(cost(dir.path(), 1.0).expect_err("full").code, "FP0451");
    }

    #[test]
    fn nothing_in_the_directory_leads_out_of_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (out, outside) = (dir.path().join("out"), dir.path().join("outside"));
        fs::create_dir(&out).expect("mkdir");
        fs::write(&outside, "mine").expect("write");
        let said = Score {
            score: 1.5,
            metrics: [("time".to_owned(), 3.0)].into(),
        };
        for name in [COST_FILE, SCORE_FILE] {
            std::os::unix::fs::symlink(&outside, out.join(name)).expect("symlink");
        }
        assert!(cost(&out, 1.0).is_err(), "a link");
        score(&out, &said).expect("the link is replaced");
        assert_eq!(fs::read_to_string(&outside).expect("read"), "mine");
        let text = fs::read_to_string(out.join(SCORE_FILE)).expect("read");
        assert_eq!(text, "{\"score\":1.5,\"time\":3.0}\n");
        fs::remove_file(out.join(COST_FILE)).expect("rm");
        rustix::fs::mkfifoat(CWD, out.join(COST_FILE), mode()).expect("mkfifo");
        assert!(cost(&out, 1.0).is_err(), "a pipe");
        fs::create_dir(out.join(PROGRESS_FILE)).expect("mkdir");
        let at = Progress {
            text: "x".into(),
            fraction: None,
        };
        assert!(progress(&out, &at).is_err(), "a directory");
        let left: Vec<_> = fs::read_dir(&out).expect("list").collect();
        assert_eq!(left.len(), 3, "{left:?}");
        std::os::unix::fs::symlink(&out, dir.path().join("link")).expect("symlink");
        assert!(progress(&dir.path().join("link"), &at).is_err());
    }
}
