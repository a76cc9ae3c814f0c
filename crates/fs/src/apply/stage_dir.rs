//! Finding a directory to stage in, from which a rename into the base works.

use super::io::Io;
use super::{place::why, walk};
use crate::{codes, tree};
use forkpoint_model::{CommitId, Error, Result};
use forkpoint_sys::openat;
use rustix::fs::{AtFlags, IFlags, Mode, Timespec, Timestamps};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Makes an empty directory from which entries can be renamed into and exchanged with the base:
/// `preferred` (in the store) if it is on the base's file system and mount, else one beside the
/// base, else one inside it. Those two are called `.forkpoint-` and the commit's id.
///
/// Where the file system is one of the usual ones, that is known without touching the base;
/// elsewhere an exchange with a probe file in the base is tried, and the base's time put back.
///
/// # Errors
/// `FP0253` says what each place lacks.
pub fn stage_dir(base: &Path, preferred: &Path, txn: CommitId) -> Result<PathBuf> {
    let own = own_name(txn);
    let places = stage_places(base, preferred, txn);
    let mut reasons = Vec::new();
    for place in places {
        match try_place(base, &place, &own) {
            Ok(()) => return Ok(place),
            Err(reason) => reasons.push(format!("{}: {reason}", place.display())),
        }
    }
    Err(codes::NO_STAGE
        .error(format!(
            "no place to stage a change of {}: {}",
            base.display(),
            reasons.join("; ")
        ))
        .hint("make the base's directory or the one above it writable"))
}

/// The places [`stage_dir`] tries, in its order; what lies there of a commit is its stage.
pub fn stage_places(base: &Path, preferred: &Path, txn: CommitId) -> Vec<PathBuf> {
    let own = own_name(txn);
    let mut places = vec![preferred.to_owned()];
    places.extend(base.parent().map(|parent| parent.join(&own)));
    places.push(base.join(&own));
    places
}

/// Whether [`stage_dir`] will take a directory of the store `store` for the base, as far as can be told
/// without trying. A no that is wrong does no harm.
pub fn stays_in_store(base: &Path, store: &Path) -> bool {
    let look = |dir: &Path| {
        let fd = openat::directory(dir)?;
        let meta = openat::stat_fd(fd.as_fd())?;
        io::Result::Ok((fd, meta.dev, meta.mount_id))
    };
    match (look(base), look(store)) {
        (Ok((fd, dev, mount)), Ok((_, store_dev, store_mount))) => {
            (dev, mount) == (store_dev, store_mount) && known(fd.as_fd())
        }
        _ => false,
    }
}

/// What a stage outside the store is called.
pub fn own_name(txn: CommitId) -> String {
    format!(".forkpoint-{txn}")
}

fn try_place(base: &Path, place: &Path, own: &str) -> Result<(), String> {
    let io_text = |e: io::Error| why(&e);
    let existed = place.exists();
    std::fs::create_dir_all(place).map_err(io_text)?;
    let usable = check(base, place, own);
    if usable.is_err() && !existed {
        tree::remove(place).map_err(|e: Error| e.to_string())?;
    }
    usable
}

fn check(base: &Path, place: &Path, own: &str) -> Result<(), String> {
    let io_text = |e: io::Error| why(&e);
    let stage = openat::directory(place).map_err(io_text)?;
    let base = openat::directory(base).map_err(io_text)?;
    if !walk::names(stage.as_fd()).map_err(io_text)?.is_empty() {
        return Err("it is not empty".into());
    }
    rustix::fs::fchmod(&stage, Mode::RWXU).map_err(|e| io_text(e.into()))?;
    let (here, there) = (
        openat::stat_fd(stage.as_fd()).map_err(io_text)?,
        openat::stat_fd(base.as_fd()).map_err(io_text)?,
    );
    if here.dev != there.dev || here.mount_id != there.mount_id {
        return Err("it lies on another file system or mount than the base".into());
    }
    let inside = exchange_works(stage.as_fd(), stage.as_fd(), own);
    inside.map_err(|e| format!("entries cannot be exchanged there: {}", why(&e)))?;
    if known(base.as_fd()) {
        return Ok(());
    }
    exchange_works(stage.as_fd(), base.as_fd(), own)
        .map_err(|e| format!("entries cannot be exchanged with the base: {}", why(&e)))
}

/// File systems on which a rename within one mount and device works, except where directories pass
/// a project quota on.
fn known(fd: BorrowedFd<'_>) -> bool {
    // ext4, XFS, btrfs, tmpfs, F2FS.
    const USUAL: [u32; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010];
    let usual = rustix::fs::fstatfs(fd).is_ok_and(|stat| USUAL.contains(&(stat.f_type as u32)));
    let project =
        rustix::fs::ioctl_getflags(fd).is_ok_and(|flags| flags.contains(IFlags::PROJECT_INHERIT));
    usual && !project
}

/// Exchanges two probe files, one in each directory, and leaves nothing behind.
fn exchange_works(stage: BorrowedFd<'_>, other: BorrowedFd<'_>, own: &str) -> io::Result<()> {
    let before = openat::stat_fd(other)?;
    let (one, two) = (format!("{own}.probe-1"), format!("{own}.probe-2"));
    let (one, two) = ((stage, OsStr::new(&one)), (other, OsStr::new(&two)));
    let io = Io::default();
    let tried = io
        .create(one)
        .and_then(|_| io.create(two))
        .and_then(|_| io.exchange(one, two));
    let mut cleaned = Ok(());
    for (dir, name) in [one, two] {
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => cleaned = Err(io::Error::from(errno)),
        }
    }
    let spec = |t: openat::FileTime| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    let times = Timestamps {
        last_access: spec(before.atime),
        last_modification: spec(before.mtime),
    };
    rustix::fs::futimens(other, &times)?;
    tried.and(cleaned)
}
