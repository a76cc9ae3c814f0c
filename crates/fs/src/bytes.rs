//! Paths as bytes in what is serialized: serde's own form of a path refuses what is not UTF-8.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// For `#[serde(with = "crate::bytes")]` on a path. A text format gets text with other bytes
/// escaped (see [`escape`]) and reads that back; a binary format gets the bytes.
pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        to.serialize_str(&escape(path.as_os_str().as_bytes()))
    } else {
        path.as_os_str().as_bytes().serialize(to)
    }
}

/// See [`serialize`].
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let bytes = if from.is_human_readable() {
        unescape(&String::deserialize(from)?).ok_or_else(|| {
            serde::de::Error::custom("a path holds a backslash that escapes nothing")
        })?
    } else {
        Vec::deserialize(from)?
    };
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// For lists of paths.
pub(crate) mod list {
    use super::{Deserialize, Deserializer, PathBuf, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Item(#[serde(with = "super")] PathBuf);

    /// See [`super::serialize`].
    pub(crate) fn serialize<S: Serializer>(list: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|path| Item(path.clone())))
    }

    /// See [`super::serialize`].
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<Item>::deserialize(from)?
            .into_iter()
            .map(|item| item.0)
            .collect())
    }
}

/// Bytes as text: a backslash is doubled, and bytes that are not UTF-8 become `\xNN`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [b'x', high, low, after @ ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = after;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_text_and_binary() {
        #[derive(Serialize, Deserialize, PartialEq, Debug)]
        struct Holder {
            #[serde(with = "crate::bytes")]
            path: PathBuf,
            #[serde(with = "crate::bytes::list")]
            more: Vec<PathBuf>,
        }
        for bytes in [
            &b""[..],
            b"a\\x41",
            b"\xff\n\\",
            "dir/\u{e9}".as_bytes(),
            b"\xe9\xff/x",
        ] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let holder = Holder {
                more: vec![path.clone(), PathBuf::new()],
                path,
            };
            let binary = postcard::to_stdvec(&holder).expect("to binary");
            assert_eq!(
                postcard::from_bytes::<Holder>(&binary).expect("from binary"),
                holder
            );
            assert_eq!(unescape(&escape(bytes)).as_deref(), Some(bytes));
        }
        assert_eq!(unescape("\\q"), None);
    }
}
