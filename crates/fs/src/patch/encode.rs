//! What a git patch is made of below the level of lines: quoted names, object names, and binary
//! hunks. The format is described in git's `gitformat-patch`-producing code only; what is written
//! here is held to `git apply` by tests.

use flate2::Compression;
use flate2::read::ZlibEncoder;
use sha1::{Digest, Sha1};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The object name of a blob, by SHA-1.
pub type BlobName = [u8; 20];

/// The name that says "there is none".
pub(super) const NO_BLOB: BlobName = [0; 20];

/// Bytes read at once.
const CHUNK: usize = 128 * 1024;

/// Bytes in one line of a binary hunk; the format allows no more.
const LINE: usize = 52;

/// The blob that holds the next `size` bytes of `from`.
pub(crate) fn blob_name(mut from: impl Read, size: u64) -> io::Result<BlobName> {
    let mut hash = Sha1::new();
    hash.update(format!("blob {size}\0"));
    let mut left = size;
    let mut buffer = vec![0u8; CHUNK];
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        match from.read(&mut buffer[..want]) {
            Ok(0) => return Err(shorter()),
            Ok(got) => {
                hash.update(&buffer[..got]);
                left -= got as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(hash.finalize().into())
}

/// A file that ended before its size.
fn shorter() -> io::Error {
    io::Error::other("it became shorter while it was read")
}

/// An object name in hexadecimal digits.
pub fn hex(name: &BlobName) -> String {
    name.iter().map(|b| format!("{b:02x}")).collect()
}

/// `prefix` and `path` as git writes names: as they are, or in C's quotes where they hold anything
/// that a line of text cannot carry. A blank is quoted too, which git itself does not need, but
/// which leaves no doubt where a name ends.
pub(crate) fn quoted(prefix: &str, path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    let plain = |&b: &u8| b > b' ' && b < 0x7f && b != b'"' && b != b'\\';
    let mut out = Vec::with_capacity(prefix.len() + path.len() + 2);
    if path.iter().all(plain) {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(path);
        return out;
    }
    out.push(b'"');
    out.extend_from_slice(prefix.as_bytes());
    for &byte in path {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b' '..0x7f => out.push(byte),
            _ => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    out.push(b'"');
    out
}

/// Writes one half of a binary patch: the whole content, deflated, in lines of base 85. Nothing is
/// held in memory.
pub(super) fn literal(out: &mut impl Write, from: impl Read, size: u64) -> io::Result<()> {
    writeln!(out, "literal {size}")?;
    let mut counted = Counted {
        from: from.take(size),
        seen: 0,
    };
    let mut deflated = ZlibEncoder::new(&mut counted, Compression::default());
    let mut line = [0u8; LINE];
    loop {
        let len = fill(&mut deflated, &mut line)?;
        if len == 0 {
            break;
        }
        write_line(out, &line[..len])?;
    }
    drop(deflated);
    if counted.seen != size {
        return Err(shorter());
    }
    out.write_all(b"\n")
}

struct Counted<R> {
    from: R,
    seen: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(buffer)?;
        self.seen += got as u64;
        Ok(got)
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match from.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// The 85 digits, as git has them.
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// One line: how many bytes it holds as a letter, then five digits for every four bytes.
fn write_line(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let len = bytes.len() as u8;
    let mut line = Vec::with_capacity(2 + LINE.div_ceil(4) * 5);
    line.push(if len <= 26 {
        b'A' + len - 1
    } else {
        b'a' + len - 27
    });
    for group in bytes.chunks(4) {
        let mut four = [0u8; 4];
        four[..group.len()].copy_from_slice(group);
        let mut value = u32::from_be_bytes(four);
        let mut digits = [0u8; 5];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(value % 85) as usize];
            value /= 85;
        }
        line.extend_from_slice(&digits);
    }
    line.push(b'\n');
    out.write_all(&line)
}

/// Whether git refuses a path as one that leads into a repository's own directory, whatever the
/// file system: `.git` in any case, and the names other systems take for it.
pub(crate) fn is_git_own(path: &Path) -> bool {
    path.iter().any(|part| {
        let part = part.as_bytes().to_ascii_lowercase();
        let rest = part
            .strip_prefix(b".git")
            .or_else(|| part.strip_prefix(b"git~1"));
        rest.is_some_and(|rest| {
            let end = rest.iter().position(|b| !b" .".contains(b));
            end.is_none_or(|at| b":\\".contains(&rest[at]))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn names_of_blobs_are_gits() {
        assert_eq!(
            hex(&blob_name(&b""[..], 0).unwrap()),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
        );
        assert_eq!(
            hex(&blob_name(&b"hello\n"[..], 6).unwrap()),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        assert!(blob_name(&b"short"[..], 6).is_err());
    }

    #[test]
    fn an_empty_literal_is_gits() {
        let mut out = Vec::new();
        literal(&mut out, &b""[..], 0).unwrap();
        // An empty stream is eight bytes; its header names the level, which compressors fill in differently.
        let text = String::from_utf8(out).unwrap();
        let known = ["literal 0\nHcmV?d00001\n\n", "literal 0\nHc$@<O00001\n\n"];
        assert!(known.contains(&text.as_str()), "{text:?}");
    }

    #[test]
    fn names_are_quoted_where_they_must_be() {
        let text = |bytes: &[u8]| {
            String::from_utf8(quoted("a/", Path::new(OsStr::from_bytes(bytes)))).unwrap()
        };
        assert_eq!(text(b"dir/x.rs"), "a/dir/x.rs");
        assert_eq!(text(b"a b"), "\"a/a b\"");
        assert_eq!(
            text(b"q\"\\\n\t\x01\xff\xc3\xa4\x7f"),
            r#""a/q\"\\\n\t\001\377\303\244\177""#
        );
    }

    #[test]
    fn paths_of_a_repository_itself_are_known() {
        for own in [
            ".git",
            "a/.GIT/config",
            "git~1",
            ".git. ./x",
            ".git::$INDEX",
        ] {
            assert!(is_git_own(Path::new(own)), "{own}");
        }
        for other in [
            ".gitignore",
            ".github/x",
            "x.git",
            "git",
            "git~2",
            "a/.gitmodules",
        ] {
            assert!(!is_git_own(Path::new(other)), "{other}");
        }
    }
}
