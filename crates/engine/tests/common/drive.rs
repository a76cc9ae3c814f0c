//! Random operations done inside a branch by this test binary itself, and again natively.

use super::ops::{Op, Random, draw, path, perform};
use super::{Place, run_with};
use forkpoint_engine::{Branch, Stream};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What to do: `count` operations drawn from `seed`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drive {
    pub(crate) seed: u64,
    pub(crate) count: usize,
    /// Whether hard links are made. Links of a lower layer are an exception of the kernel's.
    pub(crate) links: bool,
}

const VARIABLE: &str = "FORKPOINT_TEST_DRIVE";

/// How an operation ended: done, refused, or refused as across file systems.
const DONE: u8 = b'1';
const REFUSED: u8 = b'0';
const ACROSS: u8 = b'x';

/// The body of the test that is executed again inside a branch.
pub(crate) fn inside() {
    let Some(text) = std::env::var_os(VARIABLE) else {
        return;
    };
    let text = text.into_string().expect("text");
    let mut parts = text.split(':').map(|p| p.parse::<u64>().expect("a number"));
    let mut next = || parts.next().expect("a part");
    let drive = Drive {
        seed: next(),
        count: usize::try_from(next()).expect("small"),
        links: next() == 1,
    };
    let results = here(&drive, Path::new("."), None);
    println!("\nRESULTS {results}");
}

/// Does the operations inside a branch; how each ended.
pub(crate) fn in_branch(branch: &Branch, drive: &Drive) -> String {
    let own = File::open("/proc/self/exe").expect("this program");
    let (code, text) = run_with(
        branch,
        "exec /proc/self/fd/0 --exact driver --ignored --nocapture --test-threads=1",
        Stream::Fd(own.into()),
        &[(
            VARIABLE,
            &format!("{}:{}:{}", drive.seed, drive.count, u8::from(drive.links)),
        )],
    );
    assert_eq!(code, 0, "{drive:?}: {text}");
    text.lines()
        .find_map(|line| line.strip_prefix("RESULTS "))
        .unwrap_or_else(|| panic!("no results: {text}"))
        .to_owned()
}

/// Does the operations below `root`, and checks that each ends as `expected` says.
pub(crate) fn here(drive: &Drive, root: &Path, expected: Option<&str>) -> String {
    let mut random = Random::new(drive.seed);
    let begun = forkpoint_sys::clock::wall_ns() - 20_000_000;
    let mut results = Vec::new();
    for index in 0..drive.count {
        let truncate = random.below(25) == 0;
        let op = tamed(draw(&mut random), root);
        let at = path(&mut random);
        let left_out = matches!(op, Op::Link(..)) && !drive.links;
        let known = expected.map(|text| text.as_bytes()[index]);
        if left_out || known == Some(ACROSS) {
            results.push(ACROSS);
            continue;
        }
        let ended = match truncate {
            true => cut(&root.join(&at), random.below(3000)),
            false => perform(root, &op),
        };
        let ended = match ended {
            Ok(()) => DONE,
            Err(e) if e.raw_os_error() == Some(18) => ACROSS,
            Err(_) => REFUSED,
        };
        if let Some(known) = known {
            assert_eq!(
                known as char, ended as char,
                "operation {index} of {drive:?}: {op:?} {at:?} {truncate}"
            );
        }
        results.push(ended);
    }
    settle(root, Path::new(""), begun, drive.seed);
    String::from_utf8(results).expect("letters")
}

/// Root keeps a file's set-user-id bit when it writes to it, but not in a user namespace: a declared
/// exception, which has a test of its own.
fn tamed(op: Op, root: &Path) -> Op {
    match op {
        Op::Chmod(path, mode) if super::is_root() => {
            let file = std::fs::metadata(root.join(&path)).is_ok_and(|m| m.is_file());
            let mode = if file { mode & 0o1777 } else { mode };
            Op::Chmod(path, mode)
        }
        other => other,
    }
}

fn cut(path: &Path, len: u64) -> std::io::Result<()> {
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a file"));
    }
    File::options().write(true).open(path)?.set_len(len)
}

/// Gives everything that was touched since `begun` a time that depends on its path alone, so that
/// two runs can be compared to the nanosecond.
fn settle(root: &Path, path: &Path, begun: i64, seed: u64) {
    let full = root.join(path);
    let full = if path.as_os_str().is_empty() {
        root.to_owned()
    } else {
        full
    };
    let meta = std::fs::symlink_metadata(&full).expect("stat");
    if meta.is_dir() {
        let mut names: Vec<PathBuf> = std::fs::read_dir(&full)
            .expect("read dir")
            .map(|e| path.join(e.expect("entry").file_name()))
            .collect();
        names.sort();
        for name in names {
            settle(root, &name, begun, seed);
        }
    }
    if meta.mtime() * 1_000_000_000 + meta.mtime_nsec() >= begun {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes());
        hasher.update(path.as_os_str().as_bytes());
        let bits = u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("8"));
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: 1_000_000_000 + (bits % 100_000_000) as i64,
                tv_nsec: (bits % 999_999_937) as i64,
            },
        };
        utimensat(CWD, &full, &times, AtFlags::SYMLINK_NOFOLLOW).expect("utimensat");
    }
}

/// A base that a seed built, and a second tree that is the same.
pub(crate) fn twins(place: &Place, seed: u64) -> PathBuf {
    let native = place.dir().join("native");
    std::fs::create_dir(&native).expect("a directory");
    let build = Drive {
        seed,
        count: 120,
        links: false,
    };
    let results = here(&build, &place.base(), None);
    here(&build, &native, Some(&results));
    super::tree::same(
        &super::tree::take(&native),
        &super::tree::take(&place.base()),
        "two runs of one seed",
    );
    native
}
