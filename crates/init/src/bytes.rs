//! Paths on the wire are bytes: serde's own form of a path refuses one that is not UTF-8.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Bytes that serialise as a byte string rather than as a sequence of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes(pub Vec<u8>);

impl From<&OsStr> for Bytes {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&Path> for Bytes {
    fn from(path: &Path) -> Self {
        path.as_os_str().into()
    }
}

impl From<Bytes> for OsString {
    fn from(bytes: Bytes) -> Self {
        OsString::from_vec(bytes.0)
    }
}

impl From<Bytes> for PathBuf {
    fn from(bytes: Bytes) -> Self {
        OsString::from(bytes).into()
    }
}

/// For `#[serde(with)]` on a `PathBuf`.
pub mod path {
    use super::*;
    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Path, s: S) -> Result<S::Ok, S::Error> {
        Bytes::from(path).serialize(s)
    }
    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<PathBuf, D::Error> {
        Ok(Bytes::deserialize(d)?.into())
    }
}

/// For `#[serde(with)]` on an `Option<PathBuf>`.
pub mod option_path {
    use super::*;
    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, s: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Bytes::from).serialize(s)
    }
    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Bytes>::deserialize(d)?.map(Into::into))
    }
}

/// For `#[serde(with)]` on a `Vec<PathBuf>`.
pub mod paths {
    use super::*;
    /// Writes them.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(paths.iter().map(|p| Bytes::from(p.as_path())))
    }
    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<PathBuf>, D::Error> {
        let all = Vec::<Bytes>::deserialize(d)?;
        Ok(all.into_iter().map(Into::into).collect())
    }
}

/// For `#[serde(with)]` on a `Vec<(PathBuf, PathBuf)>`.
pub mod path_pairs {
    use super::*;
    /// Writes them.
    pub fn serialize<S: Serializer>(pairs: &[(PathBuf, PathBuf)], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(
            pairs
                .iter()
                .map(|(a, b)| (Bytes::from(a.as_path()), Bytes::from(b.as_path()))),
        )
    }
    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Vec<(PathBuf, PathBuf)>, D::Error> {
        let all = Vec::<(Bytes, Bytes)>::deserialize(d)?;
        Ok(all.into_iter().map(|(a, b)| (a.into(), b.into())).collect())
    }
}

/// For `#[serde(with)]` on a `Stack`.
pub mod stack {
    use super::*;
    use forkpoint_fs::Stack;
    /// Writes it.
    pub fn serialize<S: Serializer>(stack: &Stack, s: S) -> Result<S::Ok, S::Error> {
        let lowers: Vec<Bytes> = stack.lowers.iter().map(|p| p.as_path().into()).collect();
        let (upper, work) = (Bytes::from(&*stack.upper), Bytes::from(&*stack.work));
        (lowers, upper, work).serialize(s)
    }
    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Stack, D::Error> {
        let (lowers, upper, work) = <(Vec<Bytes>, Bytes, Bytes)>::deserialize(d)?;
        Ok(Stack {
            lowers: lowers.into_iter().map(Into::into).collect(),
            upper: upper.into(),
            work: work.into(),
        })
    }
}
