//! What is mounted where, by `/proc/self/mountinfo`.

use super::unescape;
use crate::codes;
use forkpoint_model::Result;
use forkpoint_sys::openat;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo {
    /// The kernel's number of it.
    pub id: u64,
    /// Where it is.
    pub target: PathBuf,
    /// The type of its file system, such as `ext4` or `fuse.sshfs`.
    pub fs_type: String,
}

fn read_all() -> Result<Vec<MountInfo>> {
    let text = std::fs::read("/proc/self/mountinfo")
        .map_err(|e| codes::READ.io("cannot read /proc/self/mountinfo", e))?;
    Ok(parse(&text))
}

/// A line is: id, parent, device, root, target, options, optional fields, `-`, type, source,
/// options. Lines that are not are skipped.
fn parse(text: &[u8]) -> Vec<MountInfo> {
    text.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|&b| b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let target = unescape(fields.nth(3)?);
    let fs_type = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(MountInfo {
        id,
        target,
        fs_type: String::from_utf8_lossy(fs_type).into_owned(),
    })
}

/// The mount that `path` lies on.
pub fn mount_of(path: &Path) -> Result<MountInfo> {
    let at = |e: io::Error| codes::READ.io(format_args!("cannot look at {}", path.display()), e);
    let dir = openat::directory_path(path).map_err(at)?;
    let id = openat::stat_fd(dir.as_fd()).map_err(at)?.mount_id;
    // Reached through a descriptor only, or hidden from this process: no line of it.
    let unknown = || MountInfo {
        id,
        target: PathBuf::new(),
        fs_type: "unknown".to_owned(),
    };
    Ok(read_all()?
        .into_iter()
        .find(|mount| mount.id == id)
        .unwrap_or_else(unknown))
}

/// What is mounted below `base`, sorted. An overlay of `base` shows none of it.
pub fn mounts_below(base: &Path) -> Result<Vec<PathBuf>> {
    let base = std::fs::canonicalize(base)
        .map_err(|e| codes::READ.io(format_args!("cannot look at {}", base.display()), e))?;
    let targets = read_all()?.into_iter().map(|mount| mount.target);
    let mut below: Vec<PathBuf> = targets
        .filter(|target| *target != base && target.starts_with(&base))
        .collect();
    below.sort();
    below.dedup();
    Ok(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_escapes_and_optional_fields_is_read() {
        let line = b"36 35 98:0 /mnt1 /a\\040b\\011\\134c rw,noatime master:1 shared:2 - fuse.x /dev rw\nbad\n";
        let mounts = parse(line);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].target, Path::new("/a b\t\\c"));
        assert_eq!((mounts[0].id, mounts[0].fs_type.as_str()), (36, "fuse.x"));
    }

    #[test]
    fn a_damaged_escape_is_taken_as_it_is() {
        assert_eq!(unescape(b"a\\9\\04"), Path::new("a\\9\\04"));
    }

    #[test]
    fn the_root_has_mounts_below_it() {
        let below = mounts_below(Path::new("/")).expect("mounts");
        assert!(below.contains(&PathBuf::from("/proc")), "{below:?}");
        assert_eq!(mount_of(Path::new("/proc")).expect("mount").fs_type, "proc");
    }
}
