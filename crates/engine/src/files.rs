//! File operations by name. Those on deltas run where the caller's deltas can be touched; the few on
//! the store's own skeleton run here.

use crate::codes;
use crate::engine::Engine;
use crate::layers::DiskLayers;
use crate::lock::{self, Lock};
use crate::options::Dropped;
use forkpoint_fs::delta::{ChangeSet, DiffOptions};
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_fs::tree::{CopyOptions, CopyReport};
use forkpoint_model::{Error, LayerId, Result};
use forkpoint_sandbox::Identity;
use forkpoint_sys::ids::{self, Shift};
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Makes a directory of the store, and its parents, for its owner alone.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| codes::IO.io(format!("cannot make {}", dir.display()), e))
}

/// A directory below `tmp/` that is removed when this is dropped, and by the next recovery if this
/// process dies first.
pub(crate) struct Scratch {
    engine: Engine,
    path: PathBuf,
    lock: Option<Lock>,
}

/// The lock that collection takes alone and whoever makes layers shares.
pub(crate) const GC_LOCK: &str = "gc.lock";

/// The name of the lock in a scratch directory, held while its owner lives.
pub(crate) const SCRATCH_LOCK: &str = "lock";

/// Shared by whoever makes a scratch directory, until its own lock is held; recovery takes it alone
/// while it looks which of them belong to nobody.
pub(crate) const MAKING_SCRATCH_LOCK: &str = "scratch.lock";

impl Scratch {
    pub(crate) fn new(engine: &Engine, prefix: &str) -> Result<Self> {
        let name = format!("{prefix}-{:016x}", forkpoint_sys::rand::bits());
        let path = engine.paths().tmp().join(name);
        let _making = lock::shared(&engine.paths().store().join(MAKING_SCRATCH_LOCK))?;
        make_dir(&path)?;
        let lock = lock::file(&path.join(SCRATCH_LOCK), || {
            codes::BUSY.error("a fresh lock is held")
        })?;
        Ok(Self {
            engine: engine.clone(),
            path,
            lock: Some(lock),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.lock = None;
        // What cannot be removed now is removed by the next recovery, which says so if it cannot.
        self.engine.remove_tree(&self.path).ok();
    }
}

impl Engine {
    /// Held while a layer is made, until something refers to it: so long nothing is collected.
    pub(crate) fn making_layers(&self) -> Result<Lock> {
        lock::shared(&self.paths().store().join(GC_LOCK))
    }

    /// Makes a disk's upper and work directories, if they are not there yet.
    pub(crate) fn make_upper(&self, disk: &DiskLayers) -> Result<()> {
        if disk.copy {
            return Ok(());
        }
        if disk.upper.is_dir() {
            return Ok(());
        }
        self.prepare_pair(&disk.upper, &disk.work, &disk.bottom)
    }
}

/// How many dropped paths are listed.
const DROPPED_LISTED: usize = 100;

/// The directory whose writes are kept under this name: `home%2Fann` is `/home/ann`.
fn unescaped(name: &OsStr) -> PathBuf {
    let mut path = Vec::new();
    let mut rest = name.as_encoded_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, after) = match rest {
            [b'%', b'2', b'F', after @ ..] => (b'/', after),
            [b'%', b'2', b'5', after @ ..] => (b'%', after),
            _ => (first, tail),
        };
        path.push(byte);
        rest = after;
    }
    // The entry of `/` itself is one escaped slash.
    if path.first() != Some(&b'/') {
        path.insert(0, b'/');
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

/// An answer that does not fit its request.
pub(crate) fn mismatch(what: &str) -> Error {
    codes::INTERNAL.error(format!("the answer to {what} is of another kind"))
}

impl Engine {
    pub(crate) fn prepare_pair(&self, upper: &Path, work: &Path, base: &Path) -> Result<()> {
        self.done(FsRequest::PreparePair {
            upper: upper.to_owned(),
            work: work.to_owned(),
            base: base.to_owned(),
        })
    }

    pub(crate) fn remove_tree(&self, path: &Path) -> Result<()> {
        // Most of what is removed was never made: that costs one look.
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            _ => self.done(FsRequest::Remove {
                path: path.to_owned(),
            }),
        }
    }

    /// Removes the work directory of an upper that no view will have any more: it was sealed.
    pub(crate) fn drop_work(&self, upper: LayerId) -> Result<()> {
        self.remove_tree(&self.paths().work(upper))
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.done(FsRequest::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        })
    }

    pub(crate) fn sync(&self, path: &Path) -> Result<()> {
        self.done(FsRequest::Sync {
            path: path.to_owned(),
        })
    }

    /// Bytes that a tree takes on the device.
    pub(crate) fn usage(&self, dir: &Path) -> Result<u64> {
        match self.fs(FsRequest::Usage {
            dir: dir.to_owned(),
        })? {
            FsResponse::Usage(usage) => Ok(usage.bytes),
            _ => Err(mismatch("usage")),
        }
    }

    /// Copies a tree as it is; `raw` keeps an overlay's own marks.
    pub(crate) fn copy_tree(&self, from: &Path, to: &Path, raw: bool) -> Result<CopyReport> {
        let options = CopyOptions {
            raw,
            ..CopyOptions::default()
        };
        self.copy_with(from, to, options)
    }

    /// Copies what branches are copies of. As root a copy's owners are stored as the ids that the
    /// branch really has, since the store's file system may be one that cannot map ids by a mount.
    pub(crate) fn copy_base_tree(&self, from: &Path, to: &Path) -> Result<CopyReport> {
        let options = CopyOptions {
            shift: self.shift().map(|s| (s.first, s.len)),
            ..CopyOptions::default()
        };
        self.copy_with(from, to, options)
    }

    /// How the owners in a branch's copy are stored.
    pub(crate) fn shift(&self) -> Option<Shift> {
        match self.inner.identity {
            Identity::Root { shift, len } => Some(Shift { first: shift, len }),
            Identity::User { .. } => None,
        }
    }

    /// As [`Engine::fs`], with the owners in a copy read as they appear inside.
    pub(crate) fn fs_on(&self, copy: bool, request: FsRequest) -> Result<FsResponse> {
        match self.shift().filter(|_| copy) {
            Some(shift) => ids::unshifted(shift, || self.fs(request)),
            None => self.fs(request),
        }
    }

    fn copy_with(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<CopyReport> {
        match self.fs(FsRequest::Copy {
            src: from.to_owned(),
            dst: to.to_owned(),
            options,
        })? {
            FsResponse::Copied(report) => Ok(report),
            _ => Err(mismatch("copy")),
        }
    }

    pub(crate) fn read_file(
        &self,
        disk: &DiskLayers,
        layers: Vec<PathBuf>,
        path: &Path,
        max_len: u64,
    ) -> Result<Option<Vec<u8>>> {
        let layers = if disk.copy {
            layers.into_iter().take(1).collect()
        } else {
            layers
        };
        let options = self.diff_options();
        match self.fs(FsRequest::ReadFile {
            layers,
            options,
            path: path.to_owned(),
            max_len,
        })? {
            FsResponse::File(content) => Ok(content.map(|c| c.bytes)),
            _ => Err(mismatch("a read")),
        }
    }

    /// What the topmost `top` layers of a branch's disk change; all above the bottom if `None`.
    pub(crate) fn diff(&self, disk: &DiskLayers, top: Option<usize>) -> Result<ChangeSet> {
        let layers = disk.all();
        let top = top.unwrap_or(layers.len() - 1);
        self.diff_layers(layers, top, disk.copy)
    }

    pub(crate) fn diff_layers(
        &self,
        layers: Vec<PathBuf>,
        top: usize,
        copy: bool,
    ) -> Result<ChangeSet> {
        if layers.len() < 2 || top == 0 {
            return Ok(ChangeSet::default());
        }
        let request = match copy {
            true => FsRequest::DiffTrees {
                tree: layers[0].clone(),
                // A copy stands for every layer above what it was copied from.
                base: layers[top.min(layers.len() - 1)].clone(),
            },
            false => FsRequest::Diff {
                layers,
                top,
                options: self.diff_options(),
            },
        };
        match self.fs_on(copy, request)? {
            FsResponse::Changes(changes) => Ok(changes),
            _ => Err(mismatch("a diff")),
        }
    }

    /// A branch's own changes, and those of the `below` preparation's layers at the bottom.
    pub(crate) fn diff_parts(
        &self,
        disk: &DiskLayers,
        below: usize,
    ) -> Result<(ChangeSet, ChangeSet)> {
        let mut layers = disk.all();
        let own = layers.len() - 1 - below;
        let attempt = self.diff_layers(layers.clone(), own, disk.copy)?;
        let prepared = match below {
            0 => ChangeSet::default(),
            _ => self.diff_layers(layers.split_off(own), below, disk.copy)?,
        };
        Ok((attempt, prepared))
    }

    pub(crate) fn diff_options(&self) -> DiffOptions {
        DiffOptions {
            userxattr: self.rootless(),
        }
    }

    /// Merges adjacent sealed layers into one.
    pub(crate) fn merge_layers(
        &self,
        layers: Vec<PathBuf>,
        below: Vec<PathBuf>,
        out: PathBuf,
    ) -> Result<()> {
        let options = self.diff_options();
        match self.fs(FsRequest::Compact {
            layers,
            below,
            out,
            options,
        })? {
            FsResponse::Merged(_) => Ok(()),
            _ => Err(mismatch("a compaction")),
        }
    }

    /// What was written to the ephemeral system root whose uppers lie below `root`.
    pub(crate) fn dropped(&self, root: &Path) -> Result<Dropped> {
        let mut dropped = Dropped::default();
        let list = |e| codes::IO.io(format!("cannot list {}", root.display()), e);
        let entries = match std::fs::read_dir(root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(dropped),
            Err(e) => return Err(list(e)),
        };
        for entry in entries {
            let entry = entry.map_err(list)?;
            let upper = entry.path().join("upper");
            if !upper.is_dir() {
                continue;
            }
            let limit = DROPPED_LISTED - dropped.paths.len();
            let FsResponse::Written(found) = self.fs(FsRequest::Written { upper, limit })? else {
                return Err(mismatch("a listing"));
            };
            let place = unescaped(&entry.file_name());
            dropped.files += found.files;
            dropped.bytes += found.bytes;
            dropped
                .paths
                .extend(found.paths.iter().map(|p| place.join(p)));
        }
        dropped.paths.sort();
        Ok(dropped)
    }

    /// Why no overlay can be had over a directory; `None` when one can.
    pub(crate) fn why_no_overlay(&self, dir: &Path) -> Result<Option<String>> {
        // Not in `tmp/` itself, where another process's recovery would take it for a dead one's.
        let scratch = Scratch::new(self, "probe")?;
        let request = FsRequest::Probe {
            store: scratch.path().to_owned(),
            base: dir.to_owned(),
            rootless: self.rootless(),
        };
        let FsResponse::Support(support) = self.fs(request)? else {
            return Err(mismatch("a probe"));
        };
        if support.read_only {
            return Err(codes::BASE
                .error(format!("{} is on a read-only file system", dir.display()))
                .hint("nothing could be committed into it: copy it to a writable place first"));
        }
        if support.remote {
            return Err(codes::BASE
                .error(format!(
                    "{} is on a network file system ({})",
                    dir.display(),
                    support.fs_type
                ))
                .hint("others could change it unseen: copy it to a local file system first"));
        }
        let overlays = [&support.store_fs_type, &support.fs_type];
        if !self.rootless() && overlays.iter().any(|kind| *kind == "overlay") {
            let which = match support.store_fs_type == "overlay" {
                true => "the store",
                false => "it",
            };
            return Ok(Some(format!(
                "{which} is on overlayfs, which cannot map the ids of root's branches"
            )));
        }
        Ok(match support.overlay {
            true => None,
            false => Some(
                support
                    .why_not
                    .unwrap_or_else(|| "the kernel refuses".into()),
            ),
        })
    }

    fn done(&self, request: FsRequest) -> Result<()> {
        match self.fs(request)? {
            FsResponse::Done => Ok(()),
            _ => Err(mismatch("an operation")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_upper_says_which_directory_it_is_for() {
        for (name, path) in [
            ("usr", "/usr"),
            ("home%2Fann", "/home/ann"),
            ("100%25", "/100%"),
            ("%2F", "/"),
        ] {
            assert_eq!(
                unescaped(OsStr::new(name)).as_os_str(),
                OsStr::new(path),
                "{name}"
            );
        }
    }
}
