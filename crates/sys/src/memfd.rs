//! Executables and messages in sealed anonymous files.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// A sealed, executable anonymous file that holds `bytes`: nothing can change it any more. Fails
/// with `EACCES` where `vm.memfd_noexec` is 2.
pub fn executable(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match memfd_create(name, flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 the flag is unknown, and every memfd is executable.
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        other => other?,
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&fd, rest)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rest = &rest[written..];
    }
    fcntl_add_seals(
        &fd,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_cannot_be_written() {
        let fd = match executable("test", b"#!/bin/true\n") {
            Ok(fd) => fd,
            Err(e) => {
                eprintln!("SKIP: no executable memfd here: {e}");
                return;
            }
        };
        assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::PERM));
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    }
}
