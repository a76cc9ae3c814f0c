//! A patch that `git apply` accepts exactly: text and binary files, modes, symbolic links, files that
//! became something else. What git cannot carry is counted and named, never dropped silently.
//!
//! Files are streamed; only texts up to [`TEXT_LIMIT`] are held in memory, to find their lines. A
//! larger text is written as a binary file is. Renames are a removal and an addition.

mod encode;
mod left;
mod lines;

pub use encode::{BlobName, hex};
pub(crate) use encode::{blob_name, is_git_own, quoted};
pub use left::{Left, What};

use crate::codes;
use crate::delta::{Change, ChangeKind, ChangeSet, FileType, Sides};
use crate::tree::{names, open_deep, open_regular};
use encode::{NO_BLOB, literal};
use forkpoint_model::Result;
use forkpoint_sys::openat;
use left::Ledger;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Cursor, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A file is compared line by line up to this size.
pub const TEXT_LIMIT: u64 = 8 << 20;

/// The longest patch that `git apply` reads.
pub const PATCH_LIMIT: u64 = 1023 << 20;

/// What became of a patch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PatchReport {
    /// Bytes written.
    pub bytes: u64,
    /// What is not in it, since git has no notion of it.
    pub left: Vec<Left>,
    /// Whoever read it went away before its end.
    pub closed: bool,
}

/// Writes the patch that turns one side into the other, as far as `changes` (their difference, or
/// part of it) goes.
///
/// # Errors
/// `FP0206` beyond [`PATCH_LIMIT`]; `FP0203` and `FP0204` where a file or the output fails.
pub fn write(sides: &Sides, changes: &ChangeSet, to: impl Write) -> Result<PatchReport> {
    let (old, new) = sides.views()?;
    let mut writer = Writer {
        old: old.as_fd(),
        new: new.as_fd(),
        out: Out {
            inner: BufWriter::with_capacity(1 << 16, to),
            written: 0,
            over: false,
        },
        ledger: Ledger::new(),
        new_dirs: Vec::new(),
        filled: HashSet::new(),
        emptied: BTreeSet::new(),
    };
    let mut at = Path::new("");
    let done = changes
        .changes
        .iter()
        .try_for_each(|change| {
            at = &change.path;
            writer.change(change)
        })
        .and_then(|()| writer.finish());
    let closed = match done {
        Ok(()) => false,
        Err(e) if Errno::from_io_error(&e) == Some(Errno::PIPE) => true,
        Err(_) if writer.out.over => {
            return Err(codes::PATCH_TOO_LARGE
                .error(format!("the patch is longer than {PATCH_LIMIT} bytes"))
                .hint("git apply reads no more: use forkpoint export --changes, or commit --git-branch"));
        }
        Err(e) => {
            return Err(codes::READ.io(format_args!("the patch of {}", at.display()), e));
        }
    };
    Ok(PatchReport {
        bytes: writer.out.written,
        left: writer.ledger.finish(),
        closed,
    })
}

/// The output, counted and bounded.
struct Out<W: Write> {
    inner: BufWriter<W>,
    written: u64,
    over: bool,
}

impl<W: Write> Write for Out<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.inner.write(bytes)?;
        self.written += done as u64;
        self.over = self.written > PATCH_LIMIT;
        match self.over {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(done),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// One side of a file that git can carry.
struct Blob {
    /// As git has it: 100644, 100755 or 120000.
    mode: u32,
    name: BlobName,
    size: u64,
    content: Content,
}

enum Content {
    File(File),
    Link(Vec<u8>),
}

impl Blob {
    /// What `path` is in `view`, if git can carry it.
    fn at(view: BorrowedFd<'_>, path: &Path) -> io::Result<Option<Self>> {
        let (dir, name) = match openat::parent(view, path) {
            Ok(found) => found,
            Err(_) if path.as_os_str().is_empty() => return Ok(None),
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                _ => return Err(e),
            },
        };
        let Some(meta) = openat::stat_opt(dir.as_fd(), &name)? else {
            return Ok(None);
        };
        if meta.is_symlink() {
            let target = rustix::fs::readlinkat(&dir, &name, Vec::new())?.into_bytes();
            let size = target.len() as u64;
            return Ok(Some(Self {
                mode: 0o120_000,
                name: blob_name(&target[..], size)?,
                size,
                content: Content::Link(target),
            }));
        }
        if !meta.is_file() {
            return Ok(None);
        }
        let (fd, meta) = open_regular(dir.as_fd(), &name)?;
        let mut file = File::from(fd);
        Ok(Some(Self {
            mode: git_mode(meta.permissions()),
            name: blob_name(&mut file, meta.size)?,
            size: meta.size,
            content: Content::File(file),
        }))
    }

    /// The whole of a text that is small enough.
    fn text(&mut self) -> io::Result<Option<Vec<u8>>> {
        let bytes = match &mut self.content {
            Content::Link(target) => target.clone(),
            Content::File(_) if self.size > TEXT_LIMIT => return Ok(None),
            Content::File(file) => {
                file.rewind()?;
                let mut bytes = Vec::with_capacity(self.size as usize);
                file.take(self.size).read_to_end(&mut bytes)?;
                bytes
            }
        };
        Ok((!bytes.contains(&0)).then_some(bytes))
    }

    fn literal(&mut self, out: &mut impl Write) -> io::Result<()> {
        match &mut self.content {
            Content::Link(target) => literal(out, Cursor::new(target), self.size),
            Content::File(file) => {
                file.rewind()?;
                literal(out, file, self.size)
            }
        }
    }
}

/// The mode git has for a regular file.
pub(crate) fn git_mode(permissions: u32) -> u32 {
    match permissions & 0o100 {
        0 => 0o100_644,
        _ => 0o100_755,
    }
}

fn carried(kind: Option<FileType>) -> bool {
    matches!(kind, Some(FileType::File | FileType::Symlink))
}

struct Writer<'a, W: Write> {
    old: BorrowedFd<'a>,
    new: BorrowedFd<'a>,
    out: Out<W>,
    ledger: Ledger,
    /// Added directories, which git carries by what is in them.
    new_dirs: Vec<PathBuf>,
    /// Directories that a carried addition is in.
    filled: HashSet<PathBuf>,
    /// Directories something was removed from: git removes those that become empty.
    emptied: BTreeSet<PathBuf>,
}

impl<W: Write> Writer<'_, W> {
    fn change(&mut self, change: &Change) -> io::Result<()> {
        let path = &change.path;
        if is_git_own(path) {
            self.ledger.note(What::GitsOwn, path);
            return Ok(());
        }
        let had = match change.kind {
            ChangeKind::Added => None,
            _ => change.old_type.or(Some(change.file_type)),
        };
        let has = (change.kind != ChangeKind::Removed).then_some(change.file_type);
        if had == Some(FileType::Dir) && has != Some(FileType::Dir) {
            self.remove_below(path)?;
        }
        if carried(had) || carried(has) {
            let old = match carried(had) {
                true => Blob::at(self.old, path)?,
                false => None,
            };
            let new = match carried(has) && !refused_link(path, has) {
                true => Blob::at(self.new, path)?,
                false => None,
            };
            if carried(has) && new.is_none() {
                self.ledger.note(What::GitsOwn, path);
            }
            self.blobs(path, old, new)?;
        }
        for kind in [had, has].into_iter().flatten() {
            let plain = matches!(kind, FileType::File | FileType::Symlink | FileType::Dir);
            if !plain {
                self.ledger.note(What::Special, path);
            }
        }
        if has == Some(FileType::Dir) && had != has {
            self.new_dirs.push(path.clone());
        }
        self.ledger.attributes(change, self.new)
    }

    fn blobs(&mut self, path: &Path, old: Option<Blob>, new: Option<Blob>) -> io::Result<()> {
        match (old, new) {
            (None, None) => Ok(()),
            (Some(old), Some(new)) if old.mode & 0o170_000 != new.mode & 0o170_000 => {
                self.section(path, Some(old), None)?;
                self.section(path, None, Some(new))
            }
            (old, new) => self.section(path, old, new),
        }
    }

    /// One file: its header, and what of its content changes.
    fn section(&mut self, path: &Path, old: Option<Blob>, new: Option<Blob>) -> io::Result<()> {
        let (a, b) = (quoted("a/", path), quoted("b/", path));
        let same_mode = old.as_ref().map(|o| o.mode) == new.as_ref().map(|n| n.mode);
        let name = |blob: &Option<Blob>| blob.as_ref().map_or(NO_BLOB, |b| b.name);
        let same = name(&old) == name(&new);
        if same && same_mode {
            return Ok(());
        }
        let out = &mut self.out;
        out.write_all(&[b"diff --git ", &a[..], b" ", &b[..], b"\n"].concat())?;
        let mut suffix = String::new();
        match (&old, &new) {
            (None, Some(new)) => writeln!(out, "new file mode {:06o}", new.mode)?,
            (Some(old), None) => writeln!(out, "deleted file mode {:06o}", old.mode)?,
            (Some(old), Some(new)) if !same_mode => {
                writeln!(out, "old mode {:06o}\nnew mode {:06o}", old.mode, new.mode)?;
            }
            (Some(old), _) => suffix = format!(" {:06o}", old.mode),
            (None, None) => {}
        }
        match (&old, &new) {
            (None, _) => self.fill(path),
            (_, None) => {
                self.emptied.insert(parent(path));
            }
            _ => {}
        }
        if same {
            return Ok(());
        }
        let out = &mut self.out;
        let names = (encode::hex(&name(&old)), encode::hex(&name(&new)));
        writeln!(out, "index {}..{}{suffix}", names.0, names.1)?;
        content(out, (&a, old), (&b, new))
    }

    fn fill(&mut self, path: &Path) {
        for dir in path.ancestors().skip(1) {
            if !self.filled.insert(dir.to_owned()) {
                break;
            }
        }
    }

    /// Everything below a directory that is gone as a whole.
    fn remove_below(&mut self, top: &Path) -> io::Result<()> {
        let mut pending = vec![top.to_owned()];
        while let Some(dir) = pending.pop() {
            let fd = open_deep(self.old, &dir)?;
            let mut entries = names(fd.as_fd())?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            if entries.is_empty() {
                self.ledger.note(What::EmptyDir, &dir);
            }
            for entry in entries {
                let path = dir.join(&entry.name);
                let Some(meta) = openat::stat_opt(fd.as_fd(), &entry.name)? else {
                    continue;
                };
                if is_git_own(&path) {
                    self.ledger.note(What::GitsOwn, &path);
                } else if meta.is_dir() {
                    pending.push(path);
                } else {
                    match Blob::at(self.old, &path)? {
                        Some(blob) => self.section(&path, Some(blob), None)?,
                        None => self.ledger.note(What::Special, &path),
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        for dir in std::mem::take(&mut self.new_dirs) {
            if !self.filled.contains(&dir) {
                self.ledger.note(What::EmptyDir, &dir);
            }
        }
        for dir in std::mem::take(&mut self.emptied) {
            let stays = is_empty_dir(self.new, &dir)? && !dir.as_os_str().is_empty();
            if stays && !self.filled.contains(&dir) {
                self.ledger.note(What::EmptyDir, &dir);
            }
        }
        self.out.flush()
    }
}

/// The part of a section below its header.
fn content(
    out: &mut impl Write,
    (a, mut old): (&[u8], Option<Blob>),
    (b, mut new): (&[u8], Option<Blob>),
) -> io::Result<()> {
    let text = |blob: &mut Option<Blob>| match blob {
        Some(blob) => blob.text(),
        None => Ok(Some(Vec::new())),
    };
    if let (Some(before), Some(after)) = (text(&mut old)?, text(&mut new)?) {
        if before == after {
            return Ok(());
        }
        let name = |name: &[u8], there: bool| match there {
            true => name.to_vec(),
            false => b"/dev/null".to_vec(),
        };
        out.write_all(&[b"--- ", &name(a, old.is_some())[..], b"\n"].concat())?;
        out.write_all(&[b"+++ ", &name(b, new.is_some())[..], b"\n"].concat())?;
        return out.write_all(&lines::hunks_of(&before, &after));
    }
    out.write_all(b"GIT binary patch\n")?;
    // Forward, then back, so that the patch can be taken back too.
    for side in [&mut new, &mut old] {
        match side {
            Some(blob) => blob.literal(out)?,
            None => literal(out, io::empty(), 0)?,
        }
    }
    Ok(())
}

/// Git takes no symbolic link of this name, which would decide where submodules lie.
fn refused_link(path: &Path, kind: Option<FileType>) -> bool {
    let name = path.file_name().unwrap_or_default().to_ascii_lowercase();
    kind == Some(FileType::Symlink) && name == OsStr::new(".gitmodules")
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}

fn is_empty_dir(view: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
    let fd: OwnedFd = match open_deep(view, path) {
        Ok(fd) => fd,
        Err(e) => {
            return match Errno::from_io_error(&e) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
                _ => Err(e),
            };
        }
    };
    Ok(names(fd.as_fd())?.is_empty())
}
