//! Text that may be any bytes, as the arguments, paths and environment of a process are, in a form
//! that JSON and TOML can carry: a string where it is UTF-8, else a list of bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An argument, a path or a value: bytes without a zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OsText(pub OsString);

impl OsText {
    /// The bytes as the system takes them.
    pub fn as_os(&self) -> &OsStr {
        &self.0
    }

    /// Readable by a person; bytes that are not UTF-8 are replaced.
    pub fn lossy(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl<T: Into<OsString>> From<T> for OsText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl Serialize for OsText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => s.serialize_str(text),
            None => Form::Bytes(self.0.as_bytes().to_vec()).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for OsText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(match Form::deserialize(d)? {
            Form::Text(text) => Self(text.into()),
            Form::Bytes(bytes) => Self(OsString::from_vec(bytes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_survive_json() {
        for bytes in [
            &b"plain"[..],
            b"",
            b"\xff\xfe",
            b"a\xc3",
            "na\u{ef}ve".as_bytes(),
        ] {
            let text = OsText(OsString::from_vec(bytes.to_vec()));
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(
                serde_json::from_str::<OsText>(&json).unwrap(),
                text,
                "{json}"
            );
        }
    }
}
