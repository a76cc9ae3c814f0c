//! Git's index, as far as it takes to see that a `git status` rewrote it without changing an entry.
//!
//! Format: "git index format" in git's own documentation, versions 2 to 4 with SHA-1 names. Anything
//! else, damage included, is simply not understood, and then the file counts as changed.

use super::check::look;
use super::equal::read_full;
use crate::apply::walk;
use crate::codes;
use forkpoint_model::{Digest, Result};
use forkpoint_sys::openat;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest index that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Fields of an entry before its object's name: times, device, inode, mode, owner, size.
const STAT: usize = 40;
const OBJECT: usize = 20;

/// What was true of a base's git directory at the fork: by it a mere refresh of the index is told
/// from a change. Taking it costs a read of the index.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// The git directory, relative to the base; `None` when there is none.
    git_dir: Option<PathBuf>,
    /// Digest of the index's entries.
    index: Option<Digest>,
    /// Digest of the names in the git directory.
    names: Option<Digest>,
}

impl Baseline {
    /// Looks at the base as it now is. The base itself may be a git directory.
    pub fn take(base: &Path) -> Result<Self> {
        let read = |e| codes::READ.io(format_args!("cannot look at {}", base.display()), e);
        let root = openat::directory_path(base).map_err(read)?;
        for git_dir in [".git", ""] {
            let git_dir = Path::new(git_dir);
            let has = |name: &str| look(root.as_fd(), &git_dir.join(name)).map(|f| f.is_some());
            if has("HEAD").map_err(read)? && has("objects").map_err(read)? {
                return Ok(Self {
                    git_dir: Some(git_dir.to_owned()),
                    index: entries(root.as_fd(), &git_dir.join("index")).map_err(read)?,
                    names: Some(names(root.as_fd(), git_dir).map_err(read)?),
                });
            }
        }
        Ok(Self::default())
    }

    /// Whether `path` is the index and lists what it listed then.
    pub(crate) fn same_index(&self, root: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
        match (&self.git_dir, self.index) {
            (Some(dir), Some(then)) if dir.join("index") == path => {
                Ok(entries(root, path)? == Some(then))
            }
            _ => Ok(false),
        }
    }

    /// Whether `path` is the git directory and holds the same names as then.
    pub(crate) fn same_names(&self, root: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
        match (&self.git_dir, self.names) {
            (Some(dir), Some(then)) if dir == path => Ok(names(root, path)? == then),
            _ => Ok(false),
        }
    }
}

fn names(root: BorrowedFd<'_>, path: &Path) -> io::Result<Digest> {
    let dir = walk::readable_dir(root, path)?;
    let names = walk::names(dir.as_fd())?;
    let joined: Vec<u8> = names
        .iter()
        .flat_map(|n| [n.as_bytes(), b"\0"].concat())
        .collect();
    Ok(Digest::of(&joined))
}

fn entries(root: BorrowedFd<'_>, path: &Path) -> io::Result<Option<Digest>> {
    let Some((dir, name, meta)) = look(root, path)? else {
        return Ok(None);
    };
    if !meta.is_file() {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let fd = openat::beneath(dir.as_fd(), Path::new(&name), flags, Mode::empty())?;
    digest(fd.as_fd())
}

/// A digest of the entries of an index, or `None` for what is not understood.
pub(crate) fn digest(fd: BorrowedFd<'_>) -> io::Result<Option<Digest>> {
    let size = openat::stat_fd(fd)?.size;
    if size > MAX_BYTES {
        return Ok(None);
    }
    let mut bytes = vec![0u8; size as usize];
    let read = read_full(fd, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(parse(&bytes))
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }
    fn until_nul(&mut self) -> Option<&'b [u8]> {
        let end = self.0.iter().position(|&b| b == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }
    /// Git's variable-width number.
    fn varint(&mut self) -> Option<usize> {
        let mut byte = self.take(1)?[0];
        let mut value = usize::from(byte & 127);
        while byte & 128 != 0 {
            byte = self.take(1)?[0];
            value = value
                .checked_add(1)?
                .checked_mul(128)?
                .checked_add(usize::from(byte & 127))?;
        }
        Some(value)
    }
}

fn parse(bytes: &[u8]) -> Option<Digest> {
    let mut input = Reader(bytes.get(..bytes.len().checked_sub(OBJECT)?)?);
    if input.take(4)? != b"DIRC" {
        return None;
    }
    let version = input.u32()?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let count = input.u32()?;
    let mut hash = blake3::Hasher::new();
    let mut name: Vec<u8> = Vec::new();
    for _ in 0..count {
        let before = input.0.len();
        let stat = input.take(STAT)?;
        let object = input.take(OBJECT)?;
        let flags = input.u16()?;
        let more = if version >= 3 && flags & 0x4000 != 0 {
            input.u16()?
        } else {
            0
        };
        if version == 4 {
            let keep = name.len().checked_sub(input.varint()?)?;
            name.truncate(keep);
            name.extend_from_slice(input.until_nul()?);
        } else {
            name = input.until_nul()?.to_vec();
            let used = before - input.0.len();
            input.take(used.next_multiple_of(8) - used)?;
        }
        // Mode, object, and the flags that mean something; not the remembered state of the file.
        hash.update(&stat[24..28]);
        hash.update(object);
        hash.update(&(flags & 0xf000).to_be_bytes());
        hash.update(&more.to_be_bytes());
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(&name);
    }
    // Extensions in capitals are caches; any other changes what the entries mean.
    while !input.0.is_empty() {
        let kind = input.take(4)?;
        if !kind[0].is_ascii_uppercase() {
            return None;
        }
        let len = input.u32()?;
        input.take(len as usize)?;
    }
    Some(Digest(*hash.finalize().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn git(dir: &Path, args: &[&str]) {
        let done = Command::new("git")
            .current_dir(dir)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(args)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", dir)
            .output()
            .expect("git runs");
        assert!(
            done.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    fn now(dir: &Path) -> Option<Digest> {
        digest(
            std::fs::File::open(dir.join(".git/index"))
                .expect("open")
                .as_fd(),
        )
        .expect("read")
    }

    #[test]
    fn a_refresh_keeps_the_digest_and_an_add_does_not() {
        for version in ["2", "3", "4"] {
            let dir = tempfile::tempdir().expect("tempdir");
            let dir = dir.path();
            git(dir, &["init", "-q"]);
            for n in 0..20 {
                std::fs::write(dir.join(format!("file-{n}{}", "x".repeat(n))), "a").expect("write");
            }
            git(dir, &["add", "."]);
            git(dir, &["update-index", "--index-version", version]);
            let first = now(dir);
            assert!(first.is_some(), "version {version} is understood");
            let raw = std::fs::read(dir.join(".git/index")).expect("read");
            let old = std::fs::File::open(dir.join("file-3xxx")).expect("open");
            old.set_modified(std::time::UNIX_EPOCH).expect("touch");
            git(dir, &["update-index", "--refresh"]);
            assert_ne!(
                std::fs::read(dir.join(".git/index")).expect("read"),
                raw,
                "rewritten"
            );
            assert_eq!(now(dir), first, "version {version}");
            std::fs::write(dir.join("file-3xxx"), "b").expect("write");
            git(dir, &["add", "."]);
            assert_ne!(now(dir), first, "version {version}");
        }
    }

    #[test]
    fn damage_is_not_understood_and_does_not_panic() {
        let dir = tempfile::tempdir().expect("tempdir");
        let dir = dir.path();
        git(dir, &["init", "-q"]);
        std::fs::write(dir.join("f"), "a").expect("write");
        git(dir, &["add", "."]);
        let raw = std::fs::read(dir.join(".git/index")).expect("read");
        assert!(parse(&raw).is_some());
        for len in 0..raw.len() {
            assert!(parse(&raw[..len]).is_none(), "cut to {len}");
        }
        for at in 0..raw.len() {
            let mut bad = raw.clone();
            bad[at] ^= 0xff;
            parse(&bad);
        }
    }
}
