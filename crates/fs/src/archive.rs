//! A view as a tar stream: owners, modes, times to the nanosecond, extended attributes, hard links,
//! holes, symbolic links, FIFOs and devices, names of any bytes and length. GNU headers with the
//! extended records of POSIX.1-2001, holes in the form GNU tar calls "PAX 1.0": read by GNU tar,
//! bsdtar and Python's tarfile. The root directory itself is not an entry.

use crate::codes;
use crate::delta::{DiffOptions, Sides, is_carried};
use crate::patch::quoted;
use crate::tree::{Cursor, open_regular};
use forkpoint_model::Result;
use forkpoint_sys::openat::{self, Meta};
use forkpoint_sys::{ioctl, xattr};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// The entry that lists what a branch removed, one path a line, quoted as git does.
pub const DELETED: &str = ".forkpoint-deleted";

/// Bytes of one record of a tar archive.
const RECORD: u64 = 10_240;

/// What of a stack's view is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Topmost first, the base last.
    #[serde(with = "crate::bytes::list")]
    pub layers: Vec<PathBuf>,
    /// How the layers are marked.
    pub options: DiffOptions,
    /// Take everything; else only `paths`, with the directories they are in.
    pub all: bool,
    /// What is taken, unless all is.
    #[serde(with = "crate::bytes::list")]
    pub paths: Vec<PathBuf>,
    /// What is listed as deleted.
    #[serde(with = "crate::bytes::list")]
    pub deleted: Vec<PathBuf>,
}

impl Wanted {
    /// Mounts the view.
    pub(crate) fn view(&self) -> Result<OwnedFd> {
        let sides = Sides {
            old: self.layers.clone(),
            new: self.layers.clone(),
            options: self.options,
        };
        Ok(sides.views()?.0)
    }

    /// The paths that are taken and the directories above them; `None` for all.
    pub(crate) fn only(&self) -> Option<HashSet<PathBuf>> {
        if self.all {
            return None;
        }
        let mut only = HashSet::new();
        for path in &self.paths {
            for above in path.ancestors() {
                if !only.insert(above.to_owned()) {
                    break;
                }
            }
        }
        Some(only)
    }

    /// The text of the list of deletions; `None` where nothing was deleted.
    pub(crate) fn deletions(&self) -> Option<Vec<u8>> {
        if self.deleted.is_empty() {
            return None;
        }
        let mut text = Vec::new();
        for path in &self.deleted {
            text.extend_from_slice(&quoted("", path));
            text.push(b'\n');
        }
        Some(text)
    }
}

/// What an archive holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArchiveReport {
    /// Entries that are not directories, a file with several names once for each.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Sockets, which mean nothing outside the process that made them, and were left out.
    pub sockets_skipped: u64,
}

/// Writes the archive.
pub fn write(wanted: &Wanted, to: impl Write) -> Result<ArchiveReport> {
    let view = wanted.view()?;
    let open = |e| codes::READ.io("cannot open a view", e);
    let mut archiver = Archiver {
        tar: Builder::new(Counted {
            inner: BufWriter::with_capacity(1 << 16, to),
            written: 0,
        }),
        cursor: Cursor::new(view.as_fd()).map_err(open)?,
        path: PathBuf::new(),
        only: wanted.only(),
        linked: HashMap::new(),
        ids: Ids::own().map_err(open)?,
        report: ArchiveReport::default(),
    };
    archiver
        .run(wanted.deletions())
        .map_err(|e| codes::WRITE.io(format_args!("cannot pack {}", archiver.path.display()), e))?;
    Ok(archiver.report)
}

/// Output of which it is known how much it is.
struct Counted<W: Write> {
    inner: BufWriter<W>,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.inner.write(bytes)?;
        self.written += done as u64;
        Ok(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

struct Archiver<W: Write> {
    tar: Builder<Counted<W>>,
    cursor: Cursor,
    path: PathBuf,
    only: Option<HashSet<PathBuf>>,
    /// The first name of each file that has several.
    linked: HashMap<((u32, u32), u64), PathBuf>,
    ids: Ids,
    report: ArchiveReport,
}

impl<W: Write> Archiver<W> {
    fn run(&mut self, deletions: Option<Vec<u8>>) -> io::Result<()> {
        let mut open = vec![self.names()?];
        while let Some(pending) = open.last_mut() {
            if let Some(name) = pending.pop() {
                self.path.push(&name);
                let wanted = self.only.as_ref().is_none_or(|o| o.contains(&self.path));
                if wanted && self.entry(&name)? {
                    self.cursor.enter(&name)?;
                    open.push(self.names()?);
                } else {
                    self.path.pop();
                }
            } else {
                open.pop();
                if !open.is_empty() {
                    self.cursor.leave()?;
                    self.path.pop();
                }
            }
        }
        if let Some(text) = deletions {
            let mut header = Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            self.tar.append_data(&mut header, DELETED, &text[..])?;
        }
        self.tar.finish()?;
        let out = self.tar.get_mut();
        // GNU tar seeks in whole records, and takes an archive that ends within one for damaged.
        let rest = out.written.next_multiple_of(RECORD) - out.written;
        io::copy(&mut io::repeat(0).take(rest), out)?;
        out.flush()
    }

    /// The names in the present directory, last first.
    fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names: Vec<_> = self.cursor.names()?.into_iter().map(|e| e.name).collect();
        names.sort_by(|a, b| b.cmp(a));
        Ok(names)
    }

    /// Writes the entry `name`; true when it is a directory.
    fn entry(&mut self, name: &OsStr) -> io::Result<bool> {
        let Some(meta) = openat::stat_opt(self.cursor.fd(), name)? else {
            return Ok(false);
        };
        let mut header = self.header(&meta);
        if meta.is_dir() {
            self.extended(name, &meta, &[])?;
            header.set_entry_type(EntryType::Directory);
            let path = [self.path.as_os_str().as_bytes(), b"/"].concat();
            let path = PathBuf::from(OsStr::from_bytes(&path));
            self.tar.append_data(&mut header, path, io::empty())?;
            self.report.dirs += 1;
            return Ok(true);
        }
        if rustix::fs::FileType::from_raw_mode(meta.mode) == rustix::fs::FileType::Socket {
            self.report.sockets_skipped += 1;
            return Ok(false);
        }
        self.report.files += 1;
        if meta.nlink > 1 {
            let key = (meta.dev, meta.ino);
            if let Some(first) = self.linked.get(&key) {
                header.set_entry_type(EntryType::Link);
                self.tar.append_link(&mut header, &self.path, first)?;
                return Ok(false);
            }
            self.linked.insert(key, self.path.clone());
        }
        if meta.is_file() {
            self.regular(name)?;
        } else {
            self.other(name, &meta, header)?;
        }
        Ok(false)
    }

    fn header(&self, meta: &Meta) -> Header {
        self.filled(Header::new_gnu(), meta)
    }

    fn filled(&self, mut header: Header, meta: &Meta) -> Header {
        header.set_mode(meta.permissions());
        header.set_uid(self.ids.user(meta.uid));
        header.set_gid(self.ids.group(meta.gid));
        // Before 1970 only the extended record can say it.
        header.set_mtime(u64::try_from(meta.mtime.secs).unwrap_or(0));
        header.set_size(0);
        header
    }

    /// The records that the header that follows has no room for.
    fn extended(&mut self, name: &OsStr, meta: &Meta, more: &[(&str, Vec<u8>)]) -> io::Result<()> {
        let time = pax_time(meta.mtime.secs, meta.mtime.nanos);
        let mut records = vec![("mtime".to_owned(), time.into_bytes())];
        for (key, value) in xattr::all(self.cursor.fd(), name)? {
            if let (true, Some(key)) = (is_carried(&key), key.to_str()) {
                records.push((format!("SCHILY.xattr.{key}"), value));
            }
        }
        records.extend(
            more.iter()
                .map(|(key, value)| ((*key).to_owned(), value.clone())),
        );
        let records = records.iter().map(|(key, value)| (&key[..], &value[..]));
        self.tar.append_pax_extensions(records)
    }

    fn regular(&mut self, name: &OsStr) -> io::Result<()> {
        let (fd, meta) = open_regular(self.cursor.fd(), name)?;
        let file = File::from(fd);
        let mut header = self.header(&meta);
        header.set_entry_type(EntryType::Regular);
        self.report.bytes += meta.size;
        let data = stretches(&file, &meta)?;
        let Some(data) = data else {
            self.extended(name, &meta, &[])?;
            header.set_size(meta.size);
            let content = Exactly::new(file, meta.size);
            return self.tar.append_data(&mut header, &self.path, content);
        };
        let map = sparse_map(&data);
        let size: u64 = data.iter().map(|(_, len)| len).sum();
        let sparse = [
            ("GNU.sparse.major", b"1".to_vec()),
            ("GNU.sparse.minor", b"0".to_vec()),
            ("GNU.sparse.name", self.path.as_os_str().as_bytes().to_vec()),
            ("GNU.sparse.realsize", meta.size.to_string().into_bytes()),
        ];
        self.extended(name, &meta, &sparse)?;
        // GNU tar looks for this form below headers of POSIX alone.
        let mut header = self.filled(Header::new_ustar(), &meta);
        header.set_entry_type(EntryType::Regular);
        header.set_size(map.len() as u64 + size);
        let content = map.chain(Pieces {
            file,
            data: data.into_iter(),
            now: None,
        });
        self.tar
            .append_data(&mut header, "GNUSparseFile.0/sparse", content)
    }

    fn other(&mut self, name: &OsStr, meta: &Meta, mut header: Header) -> io::Result<()> {
        self.extended(name, meta, &[])?;
        if meta.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            let target = rustix::fs::readlinkat(self.cursor.fd(), name, Vec::new())?.into_bytes();
            let target = OsStr::from_bytes(&target);
            return self.tar.append_link(&mut header, &self.path, target);
        }
        let kind = rustix::fs::FileType::from_raw_mode(meta.mode);
        header.set_entry_type(match kind {
            rustix::fs::FileType::Fifo => EntryType::Fifo,
            rustix::fs::FileType::BlockDevice => EntryType::Block,
            rustix::fs::FileType::CharacterDevice => EntryType::Char,
            _ => return Err(io::Error::other("a file of an unknown type")),
        });
        header.set_device_major(meta.rdev.0)?;
        header.set_device_minor(meta.rdev.1)?;
        self.tar.append_data(&mut header, &self.path, io::empty())
    }
}

/// A time as an extended record has it: a decimal number of seconds.
fn pax_time(secs: i64, nanos: u32) -> String {
    if secs >= 0 || nanos == 0 {
        return format!("{secs}.{nanos:09}");
    }
    // -1.25 is two seconds before, and three quarters of one on.
    format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos)
}

/// Where a file has data, if it has a hole worth telling of; else nothing.
fn stretches(file: &File, meta: &Meta) -> io::Result<Option<Vec<(u64, u64)>>> {
    if meta.blocks.saturating_mul(512) >= meta.size {
        return Ok(None);
    }
    let mut data = Vec::new();
    let mut offset = 0;
    while let Some(found) = ioctl::next_data(file.as_fd(), offset, meta.size)? {
        data.push((found.start, found.end - found.start));
        offset = found.end;
    }
    let sum: u64 = data.iter().map(|(_, len)| len).sum();
    if sum == meta.size {
        return Ok(None);
    }
    // The last stretch says where the file ends.
    if data
        .last()
        .is_none_or(|(start, len)| start + len < meta.size)
    {
        data.push((meta.size, 0));
    }
    Ok(Some(data))
}

/// The map of a sparse entry: decimal numbers, one a line, padded to a whole block.
fn sparse_map(data: &[(u64, u64)]) -> io::Cursor<Vec<u8>> {
    let mut text = format!("{}\n", data.len());
    for (start, len) in data {
        text.push_str(&format!("{start}\n{len}\n"));
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    io::Cursor::new(bytes)
}

trait Len {
    fn len(&self) -> usize;
}

impl Len for io::Cursor<Vec<u8>> {
    fn len(&self) -> usize {
        self.get_ref().len()
    }
}

/// A file's first bytes; one that became shorter is an error, not a short entry.
struct Exactly {
    file: File,
    left: u64,
}

impl Exactly {
    fn new(file: File, left: u64) -> Self {
        Self { file, left }
    }
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left)
            .unwrap_or(buffer.len())
            .min(buffer.len());
        let got = self.file.read(&mut buffer[..want])?;
        if got == 0 && want > 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= got as u64;
        Ok(got)
    }
}

/// The stretches of data of a sparse file, one after the other.
struct Pieces {
    file: File,
    data: std::vec::IntoIter<(u64, u64)>,
    now: Option<Exactly>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(piece) = self.now.as_mut().filter(|piece| piece.left > 0) {
                return piece.read(buffer);
            }
            let Some((start, len)) = self.data.next() else {
                return Ok(0);
            };
            let mut file = self.file.try_clone()?;
            file.seek(SeekFrom::Start(start))?;
            self.now = Some(Exactly::new(file, len));
        }
    }
}

/// The ids of this process's user namespace as the one outside knows them, where it was made by an
/// ordinary user: an archive is for outside.
struct Ids {
    users: Vec<(u64, u64, u64)>,
    groups: Vec<(u64, u64, u64)>,
}

impl Ids {
    fn own() -> io::Result<Self> {
        let read = |name: &str| -> io::Result<Vec<(u64, u64, u64)>> {
            let text = match std::fs::read_to_string(Path::new("/proc/self").join(name)) {
                Ok(text) => text,
                Err(e) if Errno::from_io_error(&e) == Some(Errno::NOENT) => String::new(),
                Err(e) => return Err(e),
            };
            let line = |line: &str| {
                let mut words = line.split_whitespace().map(str::parse::<u64>);
                Some((
                    words.next()?.ok()?,
                    words.next()?.ok()?,
                    words.next()?.ok()?,
                ))
            };
            Ok(text.lines().filter_map(line).collect())
        };
        Ok(Self {
            users: read("uid_map")?,
            groups: read("gid_map")?,
        })
    }

    fn user(&self, id: u32) -> u64 {
        outside(&self.users, id)
    }

    fn group(&self, id: u32) -> u64 {
        outside(&self.groups, id)
    }
}

fn outside(map: &[(u64, u64, u64)], id: u32) -> u64 {
    let id = u64::from(id);
    let found = map
        .iter()
        .find(|(inside, _, count)| id >= *inside && id - inside < *count);
    found.map_or(id, |(inside, outside, _)| outside + (id - inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_told() {
        assert_eq!(pax_time(5, 1), "5.000000001");
        assert_eq!(pax_time(-2, 750_000_000), "-1.250000000");
        assert_eq!(pax_time(-2, 0), "-2.000000000");
    }

    #[test]
    fn ids_are_those_of_outside() {
        let map = [(0, 1000, 1), (1, 100_000, 65_536)];
        assert_eq!(outside(&map, 0), 1000);
        assert_eq!(outside(&map, 5), 100_004);
        assert_eq!(outside(&map, 4_000_000), 4_000_000);
    }
}
