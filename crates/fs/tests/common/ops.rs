//! Random operations on a tree, the same for the same seed.

use rustix::fs::{AtFlags, CWD, Mode, XattrFlags};
use std::ffi::OsString;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A small generator (xorshift64*), seeded and printed by the tests.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// One operation.
#[derive(Debug, Clone)]
pub enum Op {
    Write(PathBuf, u8, u64),
    Append(PathBuf, u8),
    SparseWrite(PathBuf, u8),
    Mkdir(PathBuf),
    Remove(PathBuf),
    RemoveAll(PathBuf),
    Rename(PathBuf, PathBuf),
    Symlink(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Chmod(PathBuf, u32),
    Xattr(PathBuf, u8),
    RemoveXattr(PathBuf),
    Touch(PathBuf, i64),
    Fifo(PathBuf),
    Replace(PathBuf, u8),
}

/// Few names, so that operations meet often; some are hostile.
fn name(random: &mut Random) -> OsString {
    match random.below(12) {
        0 => OsString::from_vec(vec![b'n', 0xff, 0xfe]),
        1 => OsString::from("@at"),
        2 => OsString::from(".wh.x"),
        3 => OsString::from("a b\n"),
        n => OsString::from(["a", "b", "c", "d", "e", "f", "g", "h"][n as usize - 4]),
    }
}

pub fn path(random: &mut Random) -> PathBuf {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| name(random)).collect()
}

pub fn draw(random: &mut Random) -> Op {
    let at = path(random);
    let byte = random.below(256) as u8;
    match random.below(20) {
        0..=2 => Op::Write(at, byte, random.below(9000)),
        3 => Op::Append(at, byte),
        4 => Op::SparseWrite(at, byte),
        5..=7 => Op::Mkdir(at),
        8 => Op::Remove(at),
        9 => Op::RemoveAll(at),
        10..=12 => Op::Rename(at, path(random)),
        13 => Op::Symlink(at, path(random)),
        14 => Op::Link(at, path(random)),
        15 => Op::Chmod(at, 0o700 | (random.next() as u32 & 0o7077)),
        16 => Op::Xattr(at, byte),
        17 => {
            if random.chance(50) {
                Op::RemoveXattr(at)
            } else {
                Op::Touch(at, 1_000_000_000 + i64::from(byte))
            }
        }
        18 => Op::Fifo(at),
        _ => Op::Replace(at, byte),
    }
}

/// Performs an operation below `root`.
pub fn perform(root: &Path, op: &Op) -> io::Result<()> {
    use std::fs;
    let at = |path: &Path| root.join(path);
    match op {
        Op::Write(path, byte, len) => fs::write(regular(&at(path))?, vec![*byte; *len as usize]),
        Op::Append(path, byte) => {
            let mut file = fs::OpenOptions::new()
                .append(true)
                .open(regular(&at(path))?)?;
            file.write_all(&[*byte; 100])
        }
        Op::SparseWrite(path, byte) => {
            let path = regular(&at(path))?;
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            file.seek(io::SeekFrom::Start(1 << 20))?;
            file.write_all(&[*byte; 10])
        }
        Op::Mkdir(path) => fs::create_dir(at(path)),
        Op::Remove(path) => fs::remove_file(at(path)),
        Op::RemoveAll(path) => {
            let path = at(path);
            if fs::symlink_metadata(&path)?.is_dir() {
                fs::remove_dir_all(path)
            } else {
                Ok(())
            }
        }
        Op::Rename(from, to) => fs::rename(at(from), at(to)),
        Op::Symlink(path, target) => std::os::unix::fs::symlink(target, at(path)),
        Op::Link(from, to) => Ok(rustix::fs::linkat(
            CWD,
            at(from),
            CWD,
            at(to),
            AtFlags::empty(),
        )?),
        Op::Chmod(path, mode) => {
            let path = not_link(&at(path))?;
            fs::set_permissions(path, fs::Permissions::from_mode(*mode))
        }
        Op::Xattr(path, byte) => {
            let path = not_special(&at(path))?;
            Ok(rustix::fs::setxattr(
                path,
                "user.t",
                &[*byte],
                XattrFlags::empty(),
            )?)
        }
        Op::RemoveXattr(path) => Ok(rustix::fs::removexattr(not_special(&at(path))?, "user.t")?),
        Op::Touch(path, secs) => {
            let file = fs::File::open(not_special(&at(path))?)?;
            let time = std::time::UNIX_EPOCH + std::time::Duration::new(*secs as u64, 5);
            file.set_times(fs::FileTimes::new().set_modified(time))
        }
        Op::Fifo(path) => {
            let kind = rustix::fs::FileType::Fifo;
            Ok(rustix::fs::mknodat(CWD, at(path), kind, Mode::RUSR, 0)?)
        }
        // rm f; create f; and the other way of replacing: by rename.
        Op::Replace(path, byte) => {
            let path = regular(&at(path))?;
            if *byte % 2 == 0 {
                fs::remove_file(&path)?;
                fs::write(&path, [*byte; 10])
            } else {
                let temporary = path.with_file_name("replacement");
                fs::write(&temporary, [*byte; 10])?;
                fs::rename(temporary, &path)
            }
        }
    }
}

/// The path, unless something other than a regular file is there.
fn regular(path: &Path) -> io::Result<PathBuf> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.is_file() => Err(io::Error::other("not a file")),
        _ => Ok(path.to_owned()),
    }
}

fn not_link(path: &Path) -> io::Result<PathBuf> {
    if std::fs::symlink_metadata(path)?.is_symlink() {
        return Err(io::Error::other("a link"));
    }
    Ok(path.to_owned())
}

fn not_special(path: &Path) -> io::Result<PathBuf> {
    let kind = std::fs::symlink_metadata(path)?;
    if kind.is_file() || kind.is_dir() {
        Ok(path.to_owned())
    } else {
        Err(io::Error::other("special"))
    }
}

/// Performs `count` random operations in the view and, where the view allowed it, natively, and
/// checks that both agree on what is possible.
pub fn both(random: &mut Random, count: usize, view: &Path, native: &Path, log: &mut Vec<Op>) {
    for _ in 0..count {
        let op = draw(random);
        let seen = perform(view, &op);
        // Directory rename is refused rootless; a link across is the same natively.
        if seen.as_ref().is_err_and(|e| e.raw_os_error() == Some(18)) {
            continue;
        }
        let expected = perform(native, &op);
        assert_eq!(
            seen.is_ok(),
            expected.is_ok(),
            "{op:?}: view {seen:?}, native {expected:?}; after {log:?}"
        );
        if seen.is_ok() {
            log.push(op);
        }
    }
}
