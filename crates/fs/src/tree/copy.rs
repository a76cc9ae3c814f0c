//! Copying a tree with everything in it: for snapshots, for the delta of a running branch, and
//! where no overlay can be had.

use super::beneath::Beneath;
use super::cursor::Cursor;
use super::file::{copy_attributes, copy_content, create_other, open_regular};
use crate::codes;
use forkpoint_model::Result;
use forkpoint_sys::openat::{self, Meta};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How a tree is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct CopyOptions {
    /// The tree is an overlay's upper or a sealed layer: keep the overlay's own marks.
    pub raw: bool,
    /// Write everything back to the device before returning.
    pub sync: bool,
    /// Store owners shifted: what 0 becomes, and how many ids are shifted ([`forkpoint_sys::ids`]).
    pub shift: Option<(u32, u32)>,
}

impl CopyOptions {
    /// A copy of an overlay's layer, marks and all.
    pub(crate) const RAW: Self = Self {
        raw: true,
        sync: false,
        shift: None,
    };
}

/// What a copy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CopyReport {
    /// Entries that are not directories, a file with several names once.
    pub files: u64,
    /// Directories, without the tree's own.
    pub dirs: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// All content shares its blocks with the source.
    pub reflinked: bool,
    /// Sockets, which mean nothing outside the process that made them, and were left out.
    pub sockets_skipped: u64,
    /// Device nodes that the caller may not make, and were left out.
    pub devices_skipped: u64,
    /// Entries whose owner the caller may not give away, and which are the caller's now.
    pub owners_lost: u64,
}

/// Copies the directory `src` to `dst`, which must not exist: content (sharing blocks where the
/// file system can, holes kept), hard links among its files, symbolic links, FIFOs, device nodes,
/// modes, owners, extended attributes, times. It does not go into file systems mounted below.
pub fn copy(src: &Path, dst: &Path, options: &CopyOptions) -> Result<CopyReport> {
    let from = openat::directory(src)
        .map_err(|e| codes::READ.io(format_args!("cannot open {}", src.display()), e))?;
    copy_some(from.as_fd(), src, dst, options, None, None)
}

/// As [`copy()`], from an open directory (called `src` in messages); with `only`, nothing but these
/// paths, among which are the directories they are in. `beneath`: `from` is a view of these layers.
pub(crate) fn copy_some(
    from: BorrowedFd<'_>,
    src: &Path,
    dst: &Path,
    options: &CopyOptions,
    only: Option<HashSet<PathBuf>>,
    beneath: Option<Beneath>,
) -> Result<CopyReport> {
    let writing = |e: io::Error| codes::WRITE.io(format_args!("cannot make {}", dst.display()), e);
    rustix::fs::mkdir(dst, Mode::RWXU).map_err(|e| writing(e.into()))?;
    let to = openat::directory(dst).map_err(writing)?;
    let mut copier = Copier::new(from, to.as_fd(), *options)
        .map_err(|e| codes::READ.io(format_args!("cannot open {}", src.display()), e))?;
    copier.only = only;
    copier.beneath = beneath;
    copier.run().map_err(|e| {
        let at = src.join(&copier.path);
        codes::WRITE.io(
            format_args!("cannot copy {} to {}", at.display(), dst.display()),
            e,
        )
    })?;
    if options.sync {
        openat::syncfs(to.as_fd()).map_err(writing)?;
    }
    let mut report = copier.report;
    report.reflinked = report.bytes > 0 && !copier.copied;
    Ok(report)
}

struct Frame {
    meta: Meta,
    pending: Vec<OsString>,
}

struct Copier<'a> {
    from: Cursor,
    to: Cursor,
    /// The new tree's root, to find the first name of a hard link from.
    root: BorrowedFd<'a>,
    device: (u32, u32),
    mount: u64,
    /// Where the cursors are, plus the entry being copied: for messages and hard links.
    path: PathBuf,
    open: Vec<Frame>,
    /// The first name of each file that has several.
    linked: HashMap<((u32, u32), u64), PathBuf>,
    reflink: bool,
    copied: bool,
    options: CopyOptions,
    only: Option<HashSet<PathBuf>>,
    /// What lies under a view, to share blocks with.
    beneath: Option<Beneath>,
    report: CopyReport,
}

impl<'a> Copier<'a> {
    fn new(from: BorrowedFd<'_>, root: BorrowedFd<'a>, options: CopyOptions) -> io::Result<Self> {
        let meta = openat::stat_fd(from)?;
        let from = Cursor::new(from)?;
        let pending = Self::names(&from)?;
        Ok(Self {
            from,
            to: Cursor::new(root)?,
            root,
            device: meta.dev,
            mount: meta.mount_id,
            path: PathBuf::new(),
            open: vec![Frame { meta, pending }],
            linked: HashMap::new(),
            reflink: true,
            copied: false,
            options,
            only: None,
            beneath: None,
            report: CopyReport::default(),
        })
    }

    fn names(cursor: &Cursor) -> io::Result<Vec<OsString>> {
        Ok(cursor
            .names()?
            .into_iter()
            .map(|entry| entry.name)
            .collect())
    }

    fn run(&mut self) -> io::Result<()> {
        while let Some(frame) = self.open.last_mut() {
            if let Some(name) = frame.pending.pop() {
                self.path.push(&name);
                let wanted = self.only.as_ref().is_none_or(|o| o.contains(&self.path));
                let entered = wanted && self.entry(&name)?;
                if !entered {
                    self.path.pop();
                }
            } else if let Some(frame) = self.open.pop() {
                self.finish(&frame.meta)?;
            }
        }
        Ok(())
    }

    /// The directory where the cursors are is complete: give it its attributes, times last.
    fn finish(&mut self, meta: &Meta) -> io::Result<()> {
        let own = OsStr::new("");
        let (from, to) = ((self.from.fd(), own), (self.to.fd(), own));
        let owned = copy_attributes(from, meta, to, &self.options)?;
        self.report.owners_lost += u64::from(!owned);
        if !self.open.is_empty() {
            self.from.leave()?;
            self.to.leave()?;
            self.path.pop();
        }
        Ok(())
    }

    /// Copies the entry `name`; true when it is a directory, which the cursors now are in.
    fn entry(&mut self, name: &OsStr) -> io::Result<bool> {
        let Some(meta) = openat::stat_opt(self.from.fd(), name)? else {
            return Ok(false);
        };
        if meta.is_dir() {
            return self.directory(name, meta);
        }
        if meta.nlink > 1 && self.link(name, &meta)? {
            return Ok(false);
        }
        if meta.is_file() {
            self.regular(name)?;
        } else if rustix::fs::FileType::from_raw_mode(meta.mode) == rustix::fs::FileType::Socket {
            self.report.sockets_skipped += 1;
            return Ok(false);
        } else {
            match create_other((self.from.fd(), name), &meta, (self.to.fd(), name)) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !meta.is_symlink() => {
                    self.report.devices_skipped += 1;
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
            self.attributes(name, &meta)?;
        }
        self.report.files += 1;
        if meta.nlink > 1 {
            self.linked.insert((meta.dev, meta.ino), self.path.clone());
        }
        Ok(false)
    }

    fn attributes(&mut self, name: &OsStr, meta: &Meta) -> io::Result<()> {
        let (from, to) = ((self.from.fd(), name), (self.to.fd(), name));
        let owned = copy_attributes(from, meta, to, &self.options)?;
        self.report.owners_lost += u64::from(!owned);
        Ok(())
    }

    fn directory(&mut self, name: &OsStr, meta: Meta) -> io::Result<bool> {
        rustix::fs::mkdirat(self.to.fd(), name, Mode::RWXU)?;
        self.report.dirs += 1;
        if meta.dev != self.device || meta.mount_id != self.mount {
            // Something is mounted here: not part of this tree. Its place is.
            return Ok(false);
        }
        self.from.enter(name)?;
        self.to.enter(name)?;
        let pending = Self::names(&self.from)?;
        self.open.push(Frame { meta, pending });
        Ok(true)
    }

    fn regular(&mut self, name: &OsStr) -> io::Result<()> {
        let (from, meta) = open_regular(self.from.fd(), name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = rustix::fs::openat(self.to.fd(), name, flags, Mode::RUSR | Mode::WUSR)?;
        let below = match &mut self.beneath {
            Some(beneath) if self.reflink => beneath.file(&self.path, &meta),
            _ => None,
        };
        // What only the view shows is read there, and says nothing of whether the rest can be shared.
        let mut shares = self.reflink && (below.is_some() || self.beneath.is_none());
        let tried = shares;
        let content = below.as_ref().unwrap_or(&from);
        let shared = copy_content(content.as_fd(), to.as_fd(), meta.size, &mut shares)?;
        self.reflink &= shares || !tried;
        self.copied |= !shared && meta.size > 0;
        self.report.bytes += meta.size;
        drop(to);
        self.attributes(name, &meta)
    }

    /// Links `name` to the copy of the same file under its first name, if there is one.
    fn link(&self, name: &OsStr, meta: &Meta) -> io::Result<bool> {
        let Some(first) = self.linked.get(&(meta.dev, meta.ino)) else {
            return Ok(false);
        };
        let (dir, old) = deep_parent(self.root, first)?;
        match rustix::fs::linkat(&dir, old, self.to.fd(), name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // The target file system allows fewer names: a copy more.
            Err(Errno::MLINK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The directory that holds `path` below `root` and the last component, however long the path is.
fn deep_parent<'p>(root: BorrowedFd<'_>, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
    let dir = open_deep(root, path.parent().unwrap_or(Path::new("")))?;
    Ok((dir, path.file_name().unwrap_or_default()))
}

/// Opens the directory `path` below `root` for reading, however long the path is, following no
/// symbolic link. An empty path opens `root` anew.
pub(crate) fn open_deep(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    /// The kernel takes paths of less than 4096 bytes.
    const SHORT: usize = 4000;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path.as_os_str().len() < SHORT {
        return openat::beneath(root, path, flags, Mode::empty());
    }
    let mut dir = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    for part in path {
        dir = rustix::fs::openat(&dir, part, flags, Mode::empty())?;
    }
    Ok(dir)
}

/// One end of a copy: a directory and a name in it.
type End<'a> = (BorrowedFd<'a>, &'a OsStr);

/// Copies an entry, which is not a directory, with all its attributes.
pub(crate) fn copy_entry(from: End<'_>, to: End<'_>, options: &CopyOptions) -> io::Result<()> {
    let mut meta = openat::stat(from.0, from.1)?;
    if meta.is_file() {
        let (source, now) = open_regular(from.0, from.1)?;
        meta = now;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let target = rustix::fs::openat(to.0, to.1, flags, Mode::RUSR | Mode::WUSR)?;
        copy_content(source.as_fd(), target.as_fd(), meta.size, &mut true)?;
    } else {
        create_other(from, &meta, to)?;
    }
    if !copy_attributes(from, &meta, to, options)? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}
