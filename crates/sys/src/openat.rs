//! Opening, looking at and renaming entries relative to a directory descriptor, so that no name
//! from inside a branch can lead out of it.

use crate::ids;
use rustix::fs::{self as rfs, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// How often a look-up is tried again when something was renamed under it (`EAGAIN`).
const RACES: usize = 128;

/// `name` with a NUL at its end, or `InvalidInput` where it holds one.
pub(crate) fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a name holds a NUL byte"))
}

fn resolve(
    dir: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    how: ResolveFlags,
) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    for _ in 0..RACES {
        match rfs::openat2(dir, path, flags | OFlags::CLOEXEC, mode, how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Opens `path` below `dir`: it cannot lead out of `dir`, and a symbolic link anywhere in it is
/// refused (`ELOOP`), except a last one opened with `O_PATH | O_NOFOLLOW`. An empty path means
/// `dir` itself.
pub fn beneath(dir: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    resolve(dir, path, flags, mode, how)
}

/// As [`beneath`], and refuses to cross onto another mount (`EXDEV`).
pub fn beneath_same_mount(
    dir: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    resolve(dir, path, flags, mode, how)
}

/// Opens `path` as if `dir` were the root: symbolic links are followed, but never out of it.
pub fn in_root(dir: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    resolve(
        dir,
        path,
        flags,
        mode,
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
}

/// Opens the directory that holds the last component of `path`, below `dir`, with `O_PATH`; and
/// that component. A path that is empty or ends in `..` is `InvalidInput`.
pub fn parent(dir: BorrowedFd<'_>, path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let Some(Component::Normal(name)) = path.components().next_back() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a path has no last component",
        ));
    };
    let above = path.parent().unwrap_or(Path::new(""));
    let fd = beneath(dir, above, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    Ok((fd, name.to_owned()))
}

/// Opens a directory by path for reading, following symbolic links: for paths the caller trusts.
pub fn directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rfs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens a directory by path with `O_PATH`, which needs no permission to list it.
pub fn directory_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(rfs::open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// A point in time as files carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl FileTime {
    /// Nanoseconds since 1970, saturating (the years 1677 to 2262).
    pub fn as_ns(self) -> i64 {
        self.secs
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(self.nanos))
    }
}

/// What `statx` says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes that are allocated.
    pub blocks: u64,
    /// Inode number.
    pub ino: u64,
    /// Device of the file system, as major and minor number.
    pub dev: (u32, u32),
    /// For a device node, which device it is.
    pub rdev: (u32, u32),
    /// The mount it was reached through; 0 where the kernel does not say (before 5.8).
    pub mount_id: u64,
    /// Last access.
    pub atime: FileTime,
    /// Last change of content.
    pub mtime: FileTime,
    /// Last change of anything.
    pub ctime: FileTime,
    /// Birth, where the file system records it.
    pub btime: Option<FileTime>,
}

impl Meta {
    /// The type bits of the mode (`S_IFMT`).
    pub fn format(&self) -> u32 {
        self.mode & libc::S_IFMT
    }
    /// The permission bits with set-id and sticky bits.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.format() == libc::S_IFDIR
    }
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.format() == libc::S_IFREG
    }
    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.format() == libc::S_IFLNK
    }
}

fn time(stamp: rfs::StatxTimestamp) -> FileTime {
    FileTime {
        secs: stamp.tv_sec,
        nanos: stamp.tv_nsec,
    }
}

/// Looks at the entry `name` of `dir`, itself if it is a symbolic link, without mounting anything
/// automatic. An empty name means `dir` itself.
pub fn stat(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Meta> {
    let mut flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    if name.is_empty() {
        flags |= AtFlags::EMPTY_PATH;
    }
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let found = rfs::statx(dir, name, flags, wanted)?;
    let has = |flag: StatxFlags| found.stx_mask & flag.bits() != 0;
    Ok(Meta {
        mode: u32::from(found.stx_mode),
        nlink: found.stx_nlink,
        uid: ids::shown(found.stx_uid),
        gid: ids::shown(found.stx_gid),
        size: found.stx_size,
        blocks: found.stx_blocks,
        ino: found.stx_ino,
        dev: (found.stx_dev_major, found.stx_dev_minor),
        rdev: (found.stx_rdev_major, found.stx_rdev_minor),
        mount_id: if has(StatxFlags::MNT_ID) {
            found.stx_mnt_id
        } else {
            0
        },
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        btime: has(StatxFlags::BTIME).then(|| time(found.stx_btime)),
    })
}

/// As [`stat`], of an open file.
pub fn stat_fd(fd: BorrowedFd<'_>) -> io::Result<Meta> {
    stat(fd, OsStr::new(""))
}

/// As [`stat`], but `None` where there is no such name.
pub fn stat_opt(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Meta>> {
    match stat(dir, name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Swaps two existing entries in one step (`RENAME_EXCHANGE`).
pub fn rename_exchange(
    from: (BorrowedFd<'_>, &OsStr),
    to: (BorrowedFd<'_>, &OsStr),
) -> io::Result<()> {
    Ok(rfs::renameat_with(
        from.0,
        from.1,
        to.0,
        to.1,
        RenameFlags::EXCHANGE,
    )?)
}

/// Renames, and fails with `EEXIST` where the target exists (`RENAME_NOREPLACE`).
pub fn rename_noreplace(
    from: (BorrowedFd<'_>, &OsStr),
    to: (BorrowedFd<'_>, &OsStr),
) -> io::Result<()> {
    Ok(rfs::renameat_with(
        from.0,
        from.1,
        to.0,
        to.1,
        RenameFlags::NOREPLACE,
    )?)
}

/// Renames, replacing the target where it exists.
pub fn rename(from: (BorrowedFd<'_>, &OsStr), to: (BorrowedFd<'_>, &OsStr)) -> io::Result<()> {
    Ok(rfs::renameat(from.0, from.1, to.0, to.1)?)
}

/// Writes everything the file system of `fd` holds back to its device, and says whether that
/// failed (`syncfs`).
pub fn syncfs(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rfs::syncfs(fd)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_path_cannot_lead_out() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir(dir.path().join("in")).expect("mkdir");
        std::fs::write(dir.path().join("in/f"), "x").expect("write");
        std::os::unix::fs::symlink("/etc", dir.path().join("in/out")).expect("symlink");
        std::os::unix::fs::symlink("f", dir.path().join("in/near")).expect("symlink");
        let root = directory(&dir.path().join("in")).expect("open");
        let open = |path: &str| {
            beneath(root.as_fd(), Path::new(path), OFlags::RDONLY, Mode::empty())
                .map_err(|e| e.raw_os_error())
        };
        assert!(open("f").is_ok());
        assert!(open("").is_ok());
        assert_eq!(open("../in/f").expect_err("above"), Some(libc::EXDEV));
        assert_eq!(
            open("/etc/passwd").expect_err("absolute"),
            Some(libc::EXDEV)
        );
        assert_eq!(open("out/passwd").expect_err("link"), Some(libc::ELOOP));
        assert_eq!(open("near").expect_err("link"), Some(libc::ELOOP));
        assert!(parent(root.as_fd(), Path::new("..")).is_err());
        assert_eq!(parent(root.as_fd(), Path::new("f")).expect("parent").1, "f");
    }

    #[test]
    fn an_exchange_swaps_and_noreplace_refuses() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("a"), "a").expect("write");
        std::fs::create_dir(dir.path().join("b")).expect("mkdir");
        let fd = directory(dir.path()).expect("open");
        let (a, b) = ((fd.as_fd(), OsStr::new("a")), (fd.as_fd(), OsStr::new("b")));
        assert_eq!(
            rename_noreplace(a, b).expect_err("exists").raw_os_error(),
            Some(libc::EEXIST)
        );
        rename_exchange(a, b).expect("exchange");
        assert!(stat(fd.as_fd(), OsStr::new("a")).expect("stat").is_dir());
        assert!(stat(fd.as_fd(), OsStr::new("b")).expect("stat").is_file());
        assert!(
            stat_opt(fd.as_fd(), OsStr::new("c"))
                .expect("stat")
                .is_none()
        );
    }
}
