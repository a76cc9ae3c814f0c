//! Drift: what changed in the base since the fork that the delta itself does not touch.

use super::check::stamp_of;
use super::index::Baseline;
use crate::apply::walk;
use crate::codes;
use crate::delta::{ChangeKind, ChangeSet, FileType};
use crate::stamp::Stamp;
use forkpoint_model::Result;
use forkpoint_sys::{clock, openat};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How far a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Entries looked at, at most.
    pub entries: u64,
    /// Time spent, at most, in milliseconds.
    pub millis: u64,
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drift {
    /// All of the base was looked at, and nothing but the delta's own paths changed.
    None,
    /// These changed; at most [`MAX_PATHS`]. A directory is here when names in it came or went, or
    /// its attributes changed; the base itself is `.`.
    Paths(#[serde(with = "crate::bytes::list")] Vec<PathBuf>),
    /// Nothing was found, but not all was looked at.
    Unknown {
        /// Entries looked at.
        scanned: u64,
        /// Why no more.
        why: String,
    },
}

/// Paths that [`Drift::Paths`] lists at most.
pub const MAX_PATHS: usize = 1000;

/// How many entries go by between looks at the clock.
const CLOCK_EVERY: u64 = 256;

/// Scans the base for what changed at or after `stamp`, apart from the paths of `ignore` (those are
/// [`super::check`]'s). Blind to stores through a mapping that was already dirty at the fork, and
/// to what is mounted below the base, which no view shows either.
pub fn drift(
    base: &Path,
    stamp: Stamp,
    ignore: &ChangeSet,
    baseline: Option<&Baseline>,
    budget: Budget,
) -> Result<Drift> {
    let read = |path: &Path, e| {
        let path = base.join(path);
        codes::READ.io(format_args!("cannot look at {}", path.display()), e)
    };
    let root = openat::directory_path(base).map_err(|e| read(Path::new(""), e))?;
    let until = clock::monotonic_ns().saturating_add(budget.millis.saturating_mul(1_000_000));
    let mut scan = Scan {
        stamp,
        ignore,
        baseline,
        found: Vec::new(),
        scanned: 0,
    };
    let mut why = None;
    let own = openat::stat_fd(root.as_fd()).map_err(|e| read(Path::new(""), e))?;
    scan.entry(root.as_fd(), Path::new(""), &own)
        .map_err(|e| read(Path::new(""), e))?;
    let mut pending = vec![PathBuf::new()];
    'scan: while let Some(path) = pending.pop() {
        let dir = match walk::readable_dir(root.as_fd(), &path) {
            Ok(dir) => dir,
            // Gone or replaced meanwhile: its parent's time says so. Another mount: no view has it.
            Err(e)
                if super::check::absent(&e) || e.kind() == std::io::ErrorKind::CrossesDevices =>
            {
                continue;
            }
            Err(e) => {
                why.get_or_insert_with(|| {
                    format!("{}: {e}", crate::bytes::escape(path.as_os_str().as_bytes()))
                });
                continue;
            }
        };
        for name in walk::names(dir.as_fd()).map_err(|e| read(&path, e))? {
            let over_time =
                scan.scanned.is_multiple_of(CLOCK_EVERY) && clock::monotonic_ns() > until;
            if scan.scanned >= budget.entries || over_time {
                why = Some(format!(
                    "the scan's budget ended after {} entries",
                    scan.scanned
                ));
                break 'scan;
            }
            let Some(meta) = openat::stat_opt(dir.as_fd(), &name).map_err(|e| read(&path, e))?
            else {
                continue;
            };
            let below = path.join(&name);
            let ours = path.as_os_str().is_empty() && name.as_bytes().starts_with(b".forkpoint-");
            if ours || meta.mount_id != own.mount_id {
                continue;
            }
            let descend = scan
                .entry(root.as_fd(), &below, &meta)
                .map_err(|e| read(&below, e))?;
            if scan.found.len() >= MAX_PATHS {
                break 'scan;
            }
            if meta.is_dir() && descend {
                pending.push(below);
            }
        }
    }
    Ok(match (scan.found.is_empty(), why) {
        (false, _) => Drift::Paths(scan.found),
        (true, Some(why)) => Drift::Unknown {
            scanned: scan.scanned,
            why,
        },
        (true, None) => Drift::None,
    })
}

struct Scan<'s> {
    stamp: Stamp,
    ignore: &'s ChangeSet,
    baseline: Option<&'s Baseline>,
    found: Vec<PathBuf>,
    scanned: u64,
}

impl Scan<'_> {
    /// Looks at one entry; says whether to look below it.
    fn entry(
        &mut self,
        root: std::os::fd::BorrowedFd<'_>,
        path: &Path,
        meta: &openat::Meta,
    ) -> std::io::Result<bool> {
        self.scanned += 1;
        if let Some(change) = self.ignore.get(path) {
            let dir_stays = change.file_type == FileType::Dir && change.kind != ChangeKind::Removed;
            if !dir_stays {
                return Ok(false);
            }
        }
        if stamp_of(meta.ctime) < self.stamp {
            return Ok(true);
        }
        let refreshed = match self.baseline {
            Some(known) if meta.is_dir() => known.same_names(root, path)?,
            Some(known) => known.same_index(root, path)?,
            None => false,
        };
        if !refreshed {
            let shown = if path.as_os_str().is_empty() {
                Path::new(".")
            } else {
                path
            };
            self.found.push(shown.to_owned());
        }
        Ok(true)
    }
}
