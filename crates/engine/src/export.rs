//! A branch's files as a new directory or archive, made beside its place and renamed when it is whole.

use crate::branch::Branch;
use crate::codes;
use crate::compare::Against;
use crate::files::mismatch;
use forkpoint_fs::archive::{ArchiveReport, DELETED, Wanted};
use forkpoint_fs::delta::ChangeKind;
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_fs::stream::{StreamRequest, StreamResponse};
use forkpoint_fs::tree::CopyReport;
use forkpoint_model::{Error, Result};
use rustix::fs::{CWD, RenameFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// How an export is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// A directory.
    Directory,
    /// A tar archive.
    Tar,
    /// The same, compressed by gzip.
    TarGz,
    /// The same, compressed by zstd.
    TarZst,
}

impl Packing {
    /// What the end of a name says.
    pub fn of(path: &Path) -> Self {
        let name = path.as_os_str().as_encoded_bytes();
        match () {
            () if name.ends_with(b".tar") => Self::Tar,
            () if name.ends_with(b".tar.gz") || name.ends_with(b".tgz") => Self::TarGz,
            () if name.ends_with(b".tar.zst") || name.ends_with(b".tzst") => Self::TarZst,
            () => Self::Directory,
        }
    }
}

/// What an export made.
#[derive(Debug, Clone)]
pub struct ExportReport {
    /// How it is packed.
    pub packing: Packing,
    /// Entries that are not directories.
    pub files: u64,
    /// Directories, without the top.
    pub dirs: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Removed paths that are listed in it (`--changes` only).
    pub deleted: u64,
    /// What could not be carried over, in words.
    pub notes: Vec<String>,
}

impl Branch {
    /// Writes its whole view, or only what it changed with a list of what it removed
    /// (`.forkpoint-deleted`), to a new place. A branch that runs is stopped meanwhile. Nothing is
    /// there until all is.
    ///
    /// # Errors
    /// `FP0433` where something is there already or the place cannot be used; when a file cannot be
    /// read or written.
    pub fn export(&self, target: &Path, changes_only: bool) -> Result<ExportReport> {
        let packing = Packing::of(target);
        let place = Place::check(target, packing, self.engine.store_dir())?;
        let _lock = self.lock()?;
        let sandbox = match self.is_running()? {
            true => self.attach(&self.record()?)?,
            false => None,
        };
        if let Some(sandbox) = &sandbox {
            sandbox.hold()?;
        }
        let made = self
            .wanted(changes_only)
            .and_then(|wanted| self.make(&wanted, packing, &place));
        let thawed = match &sandbox {
            Some(sandbox) => sandbox.thaw(),
            None => Ok(()),
        };
        let finished = made.and_then(|report| {
            thawed?;
            place.finish()?;
            Ok(report)
        });
        if finished.is_err() {
            // The first failure is the one to tell.
            self.engine.remove_tree(&place.beside).ok();
        }
        finished
    }

    fn wanted(&self, changes_only: bool) -> Result<Wanted> {
        let mut wanted = Wanted {
            layers: self.first_disk()?.compared(),
            options: self.engine.diff_options(),
            all: !changes_only,
            paths: Vec::new(),
            deleted: Vec::new(),
        };
        if changes_only {
            for change in self.compare(Against::Base)?.changes.changes {
                match change.kind {
                    ChangeKind::Removed => wanted.deleted.push(change.path),
                    _ => wanted.paths.push(change.path),
                }
            }
            let taken = wanted.paths.iter().any(|p| p == Path::new(DELETED));
            if taken && !wanted.deleted.is_empty() {
                let why = format!("the branch has a file {DELETED} of its own");
                return Err(codes::EXPORT.error(why).hint("export the whole view"));
            }
        }
        Ok(wanted)
    }

    fn make(&self, wanted: &Wanted, packing: Packing, place: &Place) -> Result<ExportReport> {
        let mut report = ExportReport {
            packing,
            files: 0,
            dirs: 0,
            bytes: 0,
            deleted: wanted.deleted.len() as u64,
            notes: Vec::new(),
        };
        let mut note = |count: u64, what: &str| {
            if count > 0 {
                report.notes.push(format!("{count} {what}"));
            }
        };
        if packing == Packing::Directory {
            let copied = self.copy_view(wanted, &place.beside)?;
            note(copied.sockets_skipped, "sockets were left out");
            note(copied.devices_skipped, "device nodes were left out");
            note(
                copied.owners_lost,
                "owners could not be given: they are the caller's",
            );
            report.files = copied.files;
            report.dirs = copied.dirs;
            report.bytes = copied.bytes;
            return Ok(report);
        }
        let packed = self.pack(wanted, packing, &place.beside)?;
        note(packed.sockets_skipped, "sockets were left out");
        report.files = packed.files;
        report.dirs = packed.dirs;
        report.bytes = packed.bytes;
        Ok(report)
    }

    fn copy_view(&self, wanted: &Wanted, to: &Path) -> Result<CopyReport> {
        let request = FsRequest::Export {
            wanted: wanted.clone(),
            dst: to.to_owned(),
        };
        match self.engine.fs(request)? {
            FsResponse::Copied(report) => Ok(report),
            _ => Err(mismatch("an export")),
        }
    }

    fn pack(&self, wanted: &Wanted, packing: Packing, to: &Path) -> Result<ArchiveReport> {
        let failed = |e| codes::EXPORT.io(format!("cannot write {}", to.display()), e);
        let file = OpenOptions::new().write(true).create_new(true).open(to);
        let file = file.map_err(failed)?;
        let tar = |fd: std::os::fd::BorrowedFd<'_>| match self
            .engine
            .stream(StreamRequest::Tar(wanted.clone()), fd)?
        {
            StreamResponse::Packed(report) => Ok(report),
            _ => Err(mismatch("an archive")),
        };
        if packing == Packing::Tar {
            let report = tar(file.as_fd())?;
            file.sync_all().map_err(failed)?;
            return Ok(report);
        }
        let (from, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| codes::EXPORT.io("cannot make a pipe", e))?;
        std::thread::scope(|scope| {
            let compressed = scope.spawn(|| compress(File::from(from), &file, packing));
            let report = tar(into.as_fd());
            // The end of the stream, for whoever compresses it.
            drop(into);
            let compressed = match compressed.join() {
                Ok(done) => done.map_err(failed),
                Err(_) => Err(codes::INTERNAL.error("the compressor broke")),
            };
            compressed.and(report)
        })
    }
}

fn compress(mut from: impl Read, to: &File, packing: Packing) -> io::Result<()> {
    let mut out = io::BufWriter::new(to);
    if packing == Packing::TarGz {
        let mut gz = flate2::write::GzEncoder::new(&mut out, flate2::Compression::default());
        io::copy(&mut from, &mut gz)?;
        gz.finish()?;
    } else {
        let mut zst = zstd::Encoder::new(&mut out, zstd::DEFAULT_COMPRESSION_LEVEL)?;
        zst.include_checksum(true)?;
        io::copy(&mut from, &mut zst)?;
        zst.finish()?;
    }
    out.flush()?;
    drop(out);
    to.sync_all()
}

/// Where an export goes, and where it is made.
struct Place {
    target: PathBuf,
    beside: PathBuf,
}

impl Place {
    fn check(target: &Path, packing: Packing, store: &Path) -> Result<Self> {
        let refuse = |why: String, hint: &str| -> Error { codes::EXPORT.error(why).hint(hint) };
        let name = target.file_name().ok_or_else(|| {
            refuse(
                format!("{} has no name", target.display()),
                "give a new path",
            )
        })?;
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = fs::canonicalize(parent.unwrap_or(Path::new("."))).map_err(|e| {
            codes::EXPORT
                .io(
                    format!("the directory of {} cannot be used", target.display()),
                    e,
                )
                .hint("make it first")
        })?;
        if parent.starts_with(store) {
            let why = format!("{} lies inside the store", target.display());
            return Err(refuse(why, "choose another place"));
        }
        let full = parent.join(name);
        match fs::symlink_metadata(&full) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(codes::EXPORT.io(format!("cannot look at {}", full.display()), e)),
            Ok(meta) => {
                let empty = packing == Packing::Directory
                    && meta.is_dir()
                    && fs::read_dir(&full).is_ok_and(|mut names| names.next().is_none());
                if !empty {
                    let why = format!("{} is there already", full.display());
                    return Err(refuse(why, "choose a new path, or an empty directory"));
                }
            }
        }
        let mut hidden = std::ffi::OsString::from(format!(
            ".forkpoint-export-{:016x}-",
            forkpoint_sys::rand::bits()
        ));
        // A name of the longest length leaves no room for another part.
        hidden.push(if name.len() < 200 {
            name
        } else {
            "long".as_ref()
        });
        let beside = parent.join(hidden);
        Ok(Self {
            target: full,
            beside,
        })
    }

    /// Renames it to its place; one that somebody else made meanwhile stays.
    fn finish(&self) -> Result<()> {
        let failed = |e: rustix::io::Errno| {
            codes::EXPORT.io(format!("cannot rename to {}", self.target.display()), e)
        };
        let renamed =
            rustix::fs::renameat_with(CWD, &self.beside, CWD, &self.target, RenameFlags::NOREPLACE);
        match renamed {
            // An empty directory: rename(2) replaces that, and nothing else.
            Err(rustix::io::Errno::EXIST) if self.beside.is_dir() => {
                rustix::fs::rename(&self.beside, &self.target).map_err(failed)?;
            }
            other => other.map_err(failed)?,
        }
        let parent = self.target.parent().unwrap_or(Path::new("/"));
        let synced = File::open(parent).and_then(|dir| dir.sync_all());
        synced.map_err(|e| codes::EXPORT.io(format!("cannot sync {}", parent.display()), e))
    }
}
