//! What is mounted on this machine, from `/proc/self/mountinfo`.

use forkpoint_model::Result;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::codes::SETUP;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its file system's type.
    pub fs_type: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
}

/// File systems without files of their own: the branch has fresh ones, or none.
const PSEUDO: &[&str] = &[
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "autofs",
    "mqueue",
    "debugfs",
    "tracefs",
    "securityfs",
    "pstore",
    "bpf",
    "configfs",
    "fusectl",
    "hugetlbfs",
    "binfmt_misc",
    "rpc_pipefs",
    "nsfs",
    "efivarfs",
    "selinuxfs",
];

/// Top-level directories that a branch has its own of.
pub const OWN: &[&str] = &["proc", "sys", "dev", "run", "tmp"];

impl Mount {
    /// Whether its files should appear in a branch.
    pub fn real(&self) -> bool {
        let first = self.point.components().nth(1);
        let own = first.is_some_and(|c| OWN.iter().any(|name| c.as_os_str() == *name));
        !own && !PSEUDO.contains(&self.fs_type.as_str())
    }
}

/// Every mount of this process's mount namespace: for a point mounted on several times, the last.
pub fn list() -> Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mountinfo")
        .map_err(|e| SETUP.io("cannot read /proc/self/mountinfo", e))?;
    Ok(parse(&text))
}

/// The mounts of a `mountinfo` text, parents before children.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = text.split(|&b| b == b'\n').filter_map(parse_line).collect();
    // Stable, so of several on one point the last one, which is on top, comes last.
    mounts.sort_by(|a, b| a.point.cmp(&b.point));
    let mut unique: Vec<Mount> = Vec::with_capacity(mounts.len());
    for mount in mounts {
        match unique.last_mut() {
            Some(last) if last.point == mount.point => *last = mount,
            _ => unique.push(mount),
        }
    }
    unique
}

/// `id parent major:minor root point options tags… - type source super-options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let point = unescape(fields.nth(4)?);
    let options = fields.next()?;
    let mut after = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(after.next()?).into_owned();
    Some(Mount {
        point: PathBuf::from(OsString::from_vec(point)),
        fs_type,
        read_only: options.split(|&b| b == b',').any(|option| option == b"ro"),
    })
}

/// Blanks and backslashes are written as `\` and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 4);
        match digits {
            Some(d) if text[at] == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)) => {
                let value = d.iter().fold(0u32, |v, b| v * 8 + u32::from(b - b'0'));
                out.push(value as u8);
                at += 4;
            }
            _ => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// Whether something is mounted strictly below `dir`.
pub fn any_below(mounts: &[Mount], dir: &Path) -> bool {
    mounts
        .iter()
        .any(|mount| mount.point != dir && mount.point.starts_with(dir))
}

/// The name under which writes to `path` are kept: its components joined, `/` and `%` escaped;
/// the root itself is `%2F`.
pub fn entry_name(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let trimmed = bytes.strip_prefix(b"/").unwrap_or(bytes);
    if trimmed.is_empty() {
        return "%2F".into();
    }
    let mut name = Vec::with_capacity(trimmed.len());
    for &byte in trimmed {
        match byte {
            b'/' => name.extend_from_slice(b"%2F"),
            b'%' => name.extend_from_slice(b"%25"),
            other => name.push(other),
        }
    }
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed_with_blanks_and_tags() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n\
            30 27 0:27 / /mnt/a\\040b\\134 ro,nosuid - tmpfs x ro\n\
            31 27 0:28 / /mnt/a\\040b\\134 rw - ext4 y rw\nnonsense\n";
        let mounts = parse(text);
        let points: Vec<_> = mounts.iter().map(|m| m.point.to_str().unwrap()).collect();
        assert_eq!(points, vec!["/", "/mnt/a b\\", "/proc"]);
        assert_eq!(mounts[1].fs_type, "ext4", "the topmost counts");
        assert!(!mounts[1].read_only);
        assert!(mounts[0].real() && mounts[1].real() && !mounts[2].real());
        assert!(any_below(&mounts, Path::new("/mnt")));
        assert!(!any_below(&mounts, Path::new("/mnt/a b\\")));
        assert!(!any_below(&mounts, Path::new("/mn")));
    }

    #[test]
    fn entry_names_are_single_components() {
        assert_eq!(entry_name(Path::new("/")), "%2F");
        assert_eq!(entry_name(Path::new("/usr")), "usr");
        assert_eq!(entry_name(Path::new("/home/a%n")), "home%2Fa%25n");
    }
}
