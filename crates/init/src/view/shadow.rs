//! Copies of the password files that hold no passwords.

use crate::codes::SETUP;
use forkpoint_model::Result;
use forkpoint_sys::mount::{self, MountAttrFlags};
use forkpoint_sys::openat;
use rustix::fs::{AtFlags, CWD, Mode};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A layer in memory with copies of the password files that hold no passwords: root's branch may
/// read them, and programs that add users must find them writable.
pub(super) fn cover() -> Result<Option<OwnedFd>> {
    make_shadow_cover().map_err(|e| SETUP.io("cannot cover the password files", e))
}

fn make_shadow_cover() -> io::Result<Option<OwnedFd>> {
    let mut memory = None;
    for file in ["shadow", "gshadow"] {
        let host = Path::new("/etc").join(file);
        let text = match std::fs::read(&host) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let meta = openat::stat(CWD, host.as_os_str())?;
        if !meta.is_file() {
            continue;
        }
        if memory.is_none() {
            memory = Some(cover_with_etc()?);
        }
        if let Some(memory) = &memory {
            write_file(
                memory.as_fd(),
                &format!("etc/{file}"),
                &without_passwords(&text),
                meta.permissions(),
            )?;
        }
    }
    Ok(memory)
}

/// A merged directory shows the topmost layer's mode and times: give it the host's.
fn cover_with_etc() -> io::Result<OwnedFd> {
    let options = [("mode", Some("755")), ("size", Some("4m"))];
    let memory = mount::new_fs("tmpfs", &options, MountAttrFlags::empty()).map_err(|e| e.source)?;
    let etc = openat::stat(CWD, OsStr::new("/etc"))?;
    rustix::fs::mkdirat(&memory, "etc", Mode::from_raw_mode(0o700))?;
    rustix::fs::chmodat(
        &memory,
        "etc",
        Mode::from_raw_mode(etc.permissions()),
        AtFlags::empty(),
    )?;
    Ok(memory)
}

fn write_file(dir: BorrowedFd<'_>, path: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    use rustix::fs::OFlags;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let fd = openat::beneath(dir, Path::new(path), flags, Mode::from_raw_mode(0o600))?;
    io::Write::write_all(&mut std::fs::File::from(fd), bytes)?;
    Ok(rustix::fs::chmodat(
        dir,
        path,
        Mode::from_raw_mode(mode),
        AtFlags::empty(),
    )?)
}

/// Each line with its second field, the password's hash, replaced by one that nothing matches.
fn without_passwords(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&b| b == b'\n') {
        let mut fields = line.splitn(3, |&b| b == b':');
        let (name, secret, rest) = (fields.next(), fields.next(), fields.next());
        if let (Some(name), Some(_), Some(rest)) = (name, secret, rest) {
            out.extend_from_slice(name);
            out.extend_from_slice(b":*:");
            out.extend_from_slice(rest);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hash_stays_in_a_password_file() {
        let text = b"root:$y$j9T$secret:19000:0:99999:7:::\nann:!:1::::::\nbroken\n";
        let covered = without_passwords(text);
        assert_eq!(
            String::from_utf8_lossy(&covered),
            "root:*:19000:0:99999:7:::\nann:*:1::::::\n"
        );
    }
}
