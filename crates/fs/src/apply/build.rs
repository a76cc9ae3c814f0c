//! Builds the staged entries and makes them durable.

use super::api::StageRequest;
use super::io::{At, Io};
use super::prepare::{self, Notes, Ownership, failed};
use super::walk;
use crate::conflict::look;
use crate::delta::{ChangeKind, FileType};
use crate::tree::open_regular;
use forkpoint_model::Result;
use forkpoint_sys::openat::{self, Meta};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Files and directories that are held open until they are synced together.
const BATCH: usize = 256;

/// See [`Builder::root`].
pub(crate) struct Builder<'b> {
    io: Io<'b>,
    view: BorrowedFd<'b>,
    stage: BorrowedFd<'b>,
    request: &'b StageRequest,
    owner: Ownership,
    /// The topmost layer, from whose files blocks can be shared; `None` when they cannot.
    top: Option<OwnedFd>,
    links: HashMap<u32, PathBuf>,
    unsynced: Vec<(OwnedFd, PathBuf)>,
    dirs: Vec<(PathBuf, PathBuf)>,
    parent: Option<(PathBuf, OwnedFd)>,
    bytes: u64,
    pub(crate) notes: Notes,
}

impl<'b> Builder<'b> {
    pub(crate) fn new(
        io: Io<'b>,
        view: BorrowedFd<'b>,
        stage: BorrowedFd<'b>,
        request: &'b StageRequest,
        owner: Ownership,
    ) -> Self {
        let top = match request.layers.first() {
            Some(top) if prepare::may_share(stage) => openat::directory_path(top).ok(),
            _ => None,
        };
        Self {
            io,
            view,
            stage,
            request,
            owner,
            top,
            links: HashMap::new(),
            unsynced: Vec::new(),
            dirs: Vec::new(),
            parent: None,
            bytes: 0,
            notes: Notes::default(),
        }
    }

    /// Builds the changes `all`, of which the first is called `name` in the stage and the others
    /// lie below it. Only what is listed is built: what was excluded or withheld inside a new
    /// directory stays out of it.
    pub(crate) fn root(&mut self, name: &OsStr, all: Range<usize>) -> Result<()> {
        let set = &self.request.changes.changes;
        let Some(first) = set.get(all.start) else {
            return Ok(());
        };
        for change in &set[all.clone()] {
            if change.kind == ChangeKind::Removed {
                continue;
            }
            if change.file_type == FileType::Socket {
                self.notes.add(&change.path, "a socket is not carried over");
                continue;
            }
            let below = change
                .path
                .strip_prefix(&first.path)
                .unwrap_or(Path::new(""));
            let target = if below.as_os_str().is_empty() {
                PathBuf::from(name)
            } else {
                Path::new(name).join(below)
            };
            self.entry(&change.path, target, change.link_group)?;
        }
        Ok(())
    }

    /// Builds one entry at `target` in the stage like `path` in the view.
    fn entry(&mut self, path: &Path, target: PathBuf, group: Option<u32>) -> Result<()> {
        let fail = |e: std::io::Error| failed(path, &e);
        let (from, from_name, meta) = look(self.view, path)
            .map_err(fail)?
            .ok_or_else(|| failed(path, &std::io::ErrorKind::NotFound.into()))?;
        let from = (from.as_fd(), from_name.as_os_str());
        let above = target.parent().unwrap_or(Path::new("")).to_owned();
        if self.parent.as_ref().is_none_or(|(open, _)| *open != above) {
            let fd = walk::readable_dir(self.stage, &above).map_err(fail)?;
            self.parent = Some((above, fd));
        }
        let Some((_, parent)) = &self.parent else {
            return Ok(());
        };
        let to: At<'_, '_> = (parent.as_fd(), target.file_name().unwrap_or_default());
        if let Some(first) = group.and_then(|group| self.links.get(&group)) {
            let above = first.parent().unwrap_or(Path::new(""));
            let dir = walk::dir(self.stage, above).map_err(fail)?;
            let existing = (dir.as_fd(), first.file_name().unwrap_or_default());
            return self.io.link(existing, to).map_err(fail);
        }
        if meta.is_dir() {
            self.io.mkdir(to).map_err(fail)?;
            self.dirs.push((path.to_owned(), target));
            return Ok(());
        }
        if meta.is_file() {
            let file = self.io.create(to).map_err(fail)?;
            self.fill(path, from, &meta, file.as_fd())?;
            let (io, owner) = (self.io, &self.owner);
            prepare::attributes(io, owner, from, &meta, file.as_fd(), path, &mut self.notes)?;
            self.bytes += meta.size;
            if meta.size > 0 {
                io.flush(file.as_fd(), false).map_err(fail)?;
            }
            self.queue_sync(file, path.to_owned())?;
        } else {
            prepare::special(self.io, from, &meta, to).map_err(fail)?;
            let fd = prepare::itself(to).map_err(fail)?;
            let (io, owner) = (self.io, &self.owner);
            prepare::attributes(io, owner, from, &meta, fd.as_fd(), path, &mut self.notes)?;
        }
        if let Some(group) = group {
            self.links.insert(group, target);
        }
        Ok(())
    }

    /// The content of a regular file: shared with the topmost layer's own file where the file
    /// system can, else copied through the view. A file in the topmost layer is what the view
    /// shows, since nothing can hide it.
    fn fill(
        &mut self,
        path: &Path,
        from: At<'_, '_>,
        meta: &Meta,
        to: BorrowedFd<'_>,
    ) -> Result<()> {
        let fail = |e: std::io::Error| failed(path, &e);
        if meta.size == 0 {
            return Ok(());
        }
        if let Some(top) = &self.top
            && let Some((dir, name, raw)) = look(top.as_fd(), path).map_err(fail)?
            && raw.is_file()
            && raw.size == meta.size
        {
            let (source, _) = open_regular(dir.as_fd(), &name).map_err(fail)?;
            if prepare::shared(self.io, source.as_fd(), to).map_err(fail)? {
                return Ok(());
            }
            self.top = None;
        }
        let (source, _) = open_regular(from.0, from.1).map_err(fail)?;
        prepare::content(self.io, source.as_fd(), to, meta.size).map_err(fail)
    }

    /// Makes the files and directories so far durable: first all data is written, so that one commit
    /// of the file system's journal takes all of them, then each is synced.
    fn sync_batch(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.unsynced);
        if batch.len() > 1 {
            for (file, path) in &batch {
                self.io
                    .flush(file.as_fd(), true)
                    .map_err(|e| failed(path, &e))?;
            }
        }
        let fds: Vec<_> = batch.iter().map(|(fd, _)| fd.as_fd()).collect();
        self.io
            .sync_many(&fds)
            .map_err(|(at, e)| failed(&batch[at].1, &e))
    }

    fn queue_sync(&mut self, fd: OwnedFd, path: PathBuf) -> Result<()> {
        self.unsynced.push((fd, path));
        if self.unsynced.len() >= BATCH {
            self.sync_batch()
        } else {
            Ok(())
        }
    }

    /// Finishes the directories, deepest first, and makes everything durable, the stage's own entry
    /// in its parent too. Returns the bytes of all files.
    pub(crate) fn finish(&mut self) -> Result<u64> {
        self.parent = None;
        for (path, target) in std::mem::take(&mut self.dirs).into_iter().rev() {
            let fail = |e: std::io::Error| failed(&path, &e);
            let fd = walk::readable_dir(self.stage, &target).map_err(fail)?;
            let (from, name, meta) = look(self.view, &path)
                .map_err(fail)?
                .ok_or_else(|| failed(&path, &std::io::ErrorKind::NotFound.into()))?;
            let from = (from.as_fd(), name.as_os_str());
            let (io, owner) = (self.io, &self.owner);
            prepare::attributes(io, owner, from, &meta, fd.as_fd(), &path, &mut self.notes)?;
            self.queue_sync(fd, path)?;
        }
        // A last change of the stage itself, so that syncing it covers the attributes of links and
        // nodes in it, which cannot be synced by themselves.
        let path = &self.request.stage;
        let fail = |e: std::io::Error| failed(path, &e);
        let now = openat::stat_fd(self.stage).map_err(fail)?.mtime.into();
        self.io.times(self.stage, None, now).map_err(fail)?;
        let stage = openat::directory(path).map_err(fail)?;
        self.unsynced.push((stage, path.clone()));
        if let Some(parent) = path.parent() {
            let parent_fd = openat::directory(parent).map_err(|e| failed(parent, &e))?;
            self.unsynced.push((parent_fd, parent.to_owned()));
        }
        self.sync_batch()?;
        Ok(self.bytes)
    }
}
