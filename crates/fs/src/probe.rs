//! What this machine can do for a given store and base, found by really trying it.

use crate::{MountOptions, Stack, codes, stamp, tree, view};
use forkpoint_model::Result;
use forkpoint_sys::{ioctl, openat};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod mounts;
mod remote;

pub use mounts::{MountInfo, mount_of, mounts_below};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Support {
    /// A writable overlay over the base, with its upper in the store, works.
    pub overlay: bool,
    /// Why it does not.
    pub why_not: Option<String>,
    /// The upper was tried with marks in `user.overlay.*`.
    pub userxattr: bool,
    /// Files of the store can share blocks with each other.
    pub reflink: bool,
    /// A file of the base can share its blocks with one in the store. False also where the base
    /// has no file at its top to try with.
    pub reflink_from_base: bool,
    /// `RENAME_EXCHANGE` works in the store.
    pub exchange: bool,
    /// File handles (inode and generation) can be had in the store.
    pub handles: bool,
    /// Stamps are exact: the kernel hands out fine-grained times.
    pub fine_times: bool,
    /// Base and store are one file system, reached through one mount.
    pub same_mount: bool,
    /// The base's file system.
    pub fs_type: String,
    /// The store's file system.
    pub store_fs_type: String,
    /// The base lies on a network or user-space file system: others may change it unseen, and its
    /// times may come from another clock.
    pub remote: bool,
    /// The base cannot be written, so nothing can be committed into it.
    pub read_only: bool,
}

/// Tries what `store_dir` (a directory the caller may write in) and `base` support. With `rootless`
/// the overlay is tried as in a user namespace, which the caller must be in for it to work.
pub fn support(store_dir: &Path, base: &Path, rootless: bool) -> Result<Support> {
    let scratch = store_dir.join(format!("probe-{:016x}", forkpoint_sys::rand::bits()));
    fs::create_dir(&scratch)
        .map_err(|e| codes::WRITE.io(format_args!("cannot make {}", scratch.display()), e))?;
    let found = try_all(&scratch, base, rootless);
    let removed = tree::remove(&scratch);
    let found = found?;
    removed?;
    Ok(found)
}

fn try_all(scratch: &Path, base: &Path, rootless: bool) -> Result<Support> {
    let at = |e: io::Error| codes::WRITE.io(format_args!("cannot try {}", scratch.display()), e);
    let store_mount = mount_of(scratch)?;
    let base_mount = mount_of(base)?;
    let overlay = try_overlay(scratch, base, rootless);
    let (reflink, reflink_from_base) = try_reflinks(scratch, base).map_err(at)?;
    let dir = openat::directory(scratch).map_err(at)?;
    let read_only =
        forkpoint_sys::mount::is_read_only(openat::directory_path(base).map_err(at)?.as_fd());
    Ok(Support {
        overlay: overlay.is_ok(),
        why_not: overlay.err(),
        userxattr: rootless,
        reflink,
        reflink_from_base,
        exchange: try_exchange(scratch).map_err(at)?,
        handles: forkpoint_sys::handle::of(dir.as_fd()).is_ok(),
        fine_times: stamp::fine_grained(scratch)?,
        same_mount: store_mount.id == base_mount.id,
        remote: remote::by_name(&base_mount.fs_type) || remote::by_magic(magic(base).map_err(at)?),
        fs_type: base_mount.fs_type,
        store_fs_type: store_mount.fs_type,
        read_only: read_only.map_err(at)?,
    })
}

/// Whether the file system of `dir` can be mounted with its ids mapped by the user namespace
/// `userns`. Needs the right to administer the host.
pub fn idmapped(dir: &Path, userns: BorrowedFd<'_>) -> Result<bool> {
    let fd = openat::directory_path(dir)
        .map_err(|e| codes::READ.io(format_args!("cannot open {}", dir.display()), e))?;
    Ok(forkpoint_sys::mount::idmapped_clone(fd.as_fd(), Path::new(""), userns).is_ok())
}

/// Mounts a view on the base and does in it what branches do. Says what did not work.
fn try_overlay(scratch: &Path, base: &Path, rootless: bool) -> Result<(), String> {
    let stack = Stack {
        lowers: vec![base.to_owned()],
        upper: scratch.join("upper"),
        work: scratch.join("work"),
    };
    let options = MountOptions {
        volatile: true,
        userxattr: rootless,
    };
    let said = |error: forkpoint_model::Error| error.message;
    view::prepare_pair(&stack.upper, &stack.work, base).map_err(said)?;
    let fd = view::mount(&stack, &options).map_err(said)?;
    let work =
        |what: &str, result: io::Result<()>| result.map_err(|e| format!("{what} in a view: {e}"));
    // A path through the mount's descriptor: this name cannot be in the base.
    let probe = PathBuf::from(tree::proc_link(fd.as_fd()));
    let probe = probe.join(format!(".forkpoint-{:016x}", forkpoint_sys::rand::bits()));
    work("mkdir", fs::create_dir(&probe))?;
    work("write", fs::write(probe.join("f"), "x"))?;
    work("rename", fs::rename(probe.join("f"), probe.join("g")))?;
    work("read", fs::read(probe.join("g")).map(drop))?;
    // Without the right kind of marks this is where a rootless overlay fails.
    work("remove", fs::remove_dir_all(&probe))
}

fn try_reflinks(scratch: &Path, base: &Path) -> io::Result<(bool, bool)> {
    let source = scratch.join("source");
    fs::File::create(&source)?.write_all(&[1; 8192])?;
    let source = fs::File::open(&source)?;
    let try_one = |source: &fs::File, name: &str| -> io::Result<bool> {
        let target = fs::File::create(scratch.join(name))?;
        match ioctl::clone_file(target.as_fd(), source.as_fd()) {
            Ok(()) => Ok(true),
            Err(e) if ioctl::no_reflink(&e) => Ok(false),
            Err(e) => Err(e),
        }
    };
    let within = try_one(&source, "within")?;
    // Only a store that can share at all may share with the base.
    let from_base = match if within { some_file(base)? } else { None } {
        Some(file) => try_one(&file, "across")?,
        None => false,
    };
    Ok((within, from_base))
}

/// A file with content at the top of `base` that the caller may read.
fn some_file(base: &Path) -> io::Result<Option<fs::File>> {
    /// How many entries are looked at.
    const SAMPLE: usize = 100;
    for entry in fs::read_dir(base)?.take(SAMPLE) {
        let entry = entry?;
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_file()
            && meta.len() > 0
            && let Ok(file) = fs::File::open(entry.path())
        {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn try_exchange(scratch: &Path) -> io::Result<bool> {
    fs::write(scratch.join("x"), "x")?;
    fs::create_dir(scratch.join("y"))?;
    let dir = openat::directory(scratch)?;
    let (x, y) = (
        (dir.as_fd(), OsStr::new("x")),
        (dir.as_fd(), OsStr::new("y")),
    );
    match openat::rename_exchange(x, y) {
        Ok(()) => Ok(true),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// The magic number of the file system that `dir` lies on.
fn magic(dir: &Path) -> io::Result<u64> {
    // A type that is negative where the kernel's word is narrow: its low half is the number.
    Ok(u64::from(rustix::fs::statfs(dir)?.f_type as u32))
}

/// Decodes the octal escapes of a path in `/proc/self/mountinfo`.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = |digits: &[u8]| -> Option<u8> {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        let code = if first == b'\\' {
            after.get(..3).and_then(octal)
        } else {
            None
        };
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}
