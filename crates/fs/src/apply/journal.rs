//! The redo journal: its operations and its bytes.
//!
//! Layout (version 1): the 8 bytes `FPREDO\0\x01`, whose last is the version; the payload's length
//! as 8 bytes, little endian; the payload, [`Journal`] in postcard's encoding; the BLAKE3 digest of
//! everything before it, 32 bytes. A journal pins files by [`FileId`], so it means nothing on
//! another file system or on a restored backup: there every operation is blocked, none guessed.

use super::ident::{Attrs, FileId, Ident};
use crate::codes;
use crate::delta::FileTime;
use forkpoint_model::{Digest, Result};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"FPREDO\0\x01";
const HEADER: usize = 16;
const DIGEST: usize = 32;

/// A directory of the base in which something changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dir {
    /// Relative to the base, bytes; empty for the base itself.
    pub path: Vec<u8>,
    /// Who it is: another directory at this path is not written to.
    pub id: FileId,
    /// Its time before.
    pub old_mtime: FileTime,
    /// Its time in the branch's view.
    pub new_mtime: FileTime,
}

/// One step. Each can be told done or not done by looking at identities alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Swaps the entry with the staged one. The original lands in the stage.
    Exchange {
        /// Index of the directory in [`Journal::dirs`].
        dir: u32,
        /// Its name there.
        name: Vec<u8>,
        /// Its name in the stage.
        stage: Vec<u8>,
        /// What is there before.
        old: Ident,
        /// What is there after.
        new: Ident,
    },
    /// Moves a staged entry to where nothing is.
    Add {
        /// Index of the directory in [`Journal::dirs`].
        dir: u32,
        /// Its name there.
        name: Vec<u8>,
        /// Its name in the stage.
        stage: Vec<u8>,
        /// What is there after.
        new: Ident,
    },
    /// Moves an entry into the stage.
    Remove {
        /// Index of the directory in [`Journal::dirs`].
        dir: u32,
        /// Its name there.
        name: Vec<u8>,
        /// Its name in the stage, afterwards.
        stage: Vec<u8>,
        /// What is there before.
        old: Ident,
    },
    /// Changes attributes of a directory, or of a file with one link, in place.
    Attrs {
        /// Index of the directory in [`Journal::dirs`]: the one changed if `name` is empty, else
        /// the one that holds the file.
        dir: u32,
        /// The file's name; empty for the directory itself.
        name: Vec<u8>,
        /// Who it is.
        id: FileId,
        /// Before.
        old: Attrs,
        /// After.
        new: Attrs,
        /// A file's time before and after. A directory's is in its [`Dir`].
        mtime: Option<(FileTime, FileTime)>,
        /// A file's size, which must not have changed.
        size: u64,
    },
}

impl Op {
    /// The directory's index and the name in it.
    pub fn place(&self) -> (u32, &[u8]) {
        match self {
            Self::Exchange { dir, name, .. }
            | Self::Add { dir, name, .. }
            | Self::Remove { dir, name, .. }
            | Self::Attrs { dir, name, .. } => (*dir, name),
        }
    }
}

/// Everything that a redo and an undo need to know. What is new lies in the stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Who the base is.
    pub base: FileId,
    /// Where the stage is, absolute, bytes.
    pub stage: Vec<u8>,
    /// Who the stage is.
    pub stage_id: FileId,
    /// The directories, parents before children.
    pub dirs: Vec<Dir>,
    /// The steps, in order.
    pub ops: Vec<Op>,
}

impl Journal {
    /// The journal's bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let payload = postcard::to_stdvec(self)
            .map_err(|e| codes::JOURNAL.io("a redo journal cannot be encoded", e))?;
        let mut bytes = Vec::with_capacity(HEADER + payload.len() + DIGEST);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&payload);
        let digest = Digest::of(&bytes);
        bytes.extend_from_slice(&digest.0);
        Ok(bytes)
    }

    /// The journal in `bytes`, if they are whole and of a version this program knows.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |why: &str| {
            codes::JOURNAL
                .error(format!("a redo journal is damaged: {why}"))
                .hint("restore the store from a backup; the base and the stage are untouched")
        };
        if bytes.len() < HEADER + DIGEST {
            return Err(bad("it is too short"));
        }
        if bytes[..7] != MAGIC[..7] {
            return Err(bad("it does not begin as one"));
        }
        if bytes[7] != MAGIC[7] {
            return Err(codes::JOURNAL
                .error(format!("a redo journal has version {}, not 1", bytes[7]))
                .hint("use the program's version that wrote it"));
        }
        let (body, digest) = bytes.split_at(bytes.len() - DIGEST);
        if Digest::of(body).0 != digest {
            return Err(bad("its checksum does not match"));
        }
        let payload = &body[HEADER..];
        if body[8..HEADER] != (payload.len() as u64).to_le_bytes() {
            return Err(bad("its length does not match"));
        }
        let (journal, rest): (Self, _) =
            postcard::take_from_bytes(payload).map_err(|e| bad(&e.to_string()))?;
        if !rest.is_empty() {
            return Err(bad("something follows its end"));
        }
        journal.check().map_err(|why| bad(&why))?;
        Ok(journal)
    }

    /// Pins exactly this journal: the digest of its bytes.
    pub fn digest(&self) -> Result<Digest> {
        Ok(Digest::of(&self.to_bytes()?))
    }

    /// Whether names are single components and indices exist: nothing later trusts them unseen.
    fn check(&self) -> std::result::Result<(), String> {
        let plain = |name: &[u8]| {
            !name.is_empty()
                && name != b"."
                && name != b".."
                && !name.contains(&b'/')
                && !name.contains(&0)
        };
        for dir in &self.dirs {
            let path = &dir.path;
            if !path.is_empty() && !path.split(|&b| b == b'/').all(plain) {
                return Err("a directory's path leads elsewhere".into());
            }
        }
        for op in &self.ops {
            let (dir, name) = op.place();
            if dir as usize >= self.dirs.len() {
                return Err("an operation names no directory".into());
            }
            let staged: Option<&[u8]> = match op {
                Op::Exchange { stage, .. } | Op::Add { stage, .. } | Op::Remove { stage, .. } => {
                    Some(stage)
                }
                Op::Attrs { .. } => None,
            };
            let empty_ok = staged.is_none() && name.is_empty();
            if !(empty_ok || plain(name)) || !staged.is_none_or(plain) {
                return Err("a name leads elsewhere".into());
            }
        }
        Ok(())
    }
}
