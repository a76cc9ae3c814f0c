//! Copies what attempts left in `FORKPOINT_OUT` to a directory of the caller's. What lies there is an
//! attempt's to choose: links are never followed, special files are left behind, and sizes are bounded.

use forkpoint_model::Result;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, statat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::codes;
use crate::report::Report;

/// The most that is copied of one attempt.
const MOST_BYTES: u64 = 4 << 30;
/// The most files and directories of one attempt.
const MOST_ENTRIES: u64 = 100_000;
/// The deepest directory.
const MOST_DEPTH: u32 = 64;

/// What may still be copied of an attempt.
struct Room {
    bytes: u64,
    entries: u64,
}

/// Copies the directories of all attempts to `dir/INDEX`. What is there already is not overwritten.
///
/// # Errors
/// `FP0503` for the first thing that cannot be copied.
pub fn collect(report: &Report, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)
        .map_err(|e| codes::LOG.io(format!("cannot make {}", dir.display()), e))?;
    let whole = open(rustix::fs::CWD, dir)?;
    for attempt in &report.attempts {
        let Some(out) = &attempt.out else { continue };
        let source = match open(rustix::fs::CWD, Path::new(&out.0)) {
            Ok(source) => source,
            // It never ran: there is no such directory.
            Err(_) if !Path::new(&out.0).exists() => continue,
            Err(error) => return Err(error),
        };
        let mut room = Room {
            bytes: MOST_BYTES,
            entries: MOST_ENTRIES,
        };
        let name = attempt.index.to_string();
        let target = make(whole.as_fd(), name.as_ref())?;
        tree(source.as_fd(), target.as_fd(), MOST_DEPTH, &mut room)?;
    }
    Ok(())
}

fn failed(what: &str, name: &Path, error: rustix::io::Errno) -> forkpoint_model::Error {
    codes::LOG.io(
        format!("cannot {what} {}", name.display()),
        std::io::Error::from(error),
    )
}

fn open(at: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(at, name, flags, Mode::empty()).map_err(|e| failed("open", name, e))
}

fn make(at: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd> {
    match mkdirat(at, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => open(at, name),
        Err(e) => Err(failed("make", name, e)),
    }
}

fn tree(source: BorrowedFd<'_>, target: BorrowedFd<'_>, depth: u32, room: &mut Room) -> Result<()> {
    let here = Path::new(".");
    let entries = Dir::read_from(source).map_err(|e| failed("read", here, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| failed("read", here, e))?;
        let raw = entry.file_name();
        if matches!(raw.to_bytes(), b"." | b"..") {
            continue;
        }
        let name: &Path = Path::new(OsStr::from_bytes(raw.to_bytes()));
        room.entries = room.entries.checked_sub(1).ok_or_else(|| {
            codes::LOG.error(format!(
                "an attempt left more than {MOST_ENTRIES} files to collect"
            ))
        })?;
        let stat = statat(source, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| failed("look at", name, e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth > 0 => {
                let (from, to) = (open(source, name)?, make(target, name)?);
                tree(from.as_fd(), to.as_fd(), depth - 1, room)?;
            }
            FileType::RegularFile => file(source, target, name, room)?,
            _ => {}
        }
    }
    Ok(())
}

fn file(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    name: &Path,
    room: &mut Room,
) -> Result<()> {
    // What was a file a moment ago may be a pipe now: never wait for one.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let from = openat(source, name, flags, Mode::empty()).map_err(|e| failed("open", name, e))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let to = openat(target, name, flags, Mode::from_raw_mode(0o644))
        .map_err(|e| failed("make", name, e))?;
    let copied = std::io::copy(
        &mut File::from(from).take(room.bytes + 1),
        &mut File::from(to),
    )
    .map_err(|e| codes::LOG.io(format!("cannot copy {}", name.display()), e))?;
    room.bytes = room.bytes.checked_sub(copied).ok_or_else(|| {
        codes::LOG.error(format!(
            "an attempt left more than {MOST_BYTES} bytes to collect"
        ))
    })?;
    Ok(())
}
