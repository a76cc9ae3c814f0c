//! Operations whose result is a stream: it is written to a descriptor that the caller gives, by
//! whoever can read the files (see [`crate::ops`]).

use crate::archive::{self, ArchiveReport, Wanted};
use crate::blobs::{self, Paths};
use crate::delta::{ChangeSet, Sides};
use crate::patch::{self, PatchReport};
use forkpoint_model::Result;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamRequest {
    /// [`patch::write`].
    Patch {
        /// What is compared.
        sides: Sides,
        /// What of their difference is written.
        changes: ChangeSet,
    },
    /// [`archive::write`].
    Tar(Wanted),
    /// [`blobs::import`].
    Import {
        /// What.
        paths: Paths,
        /// Where the disk's root lies in the repository.
        #[serde(with = "crate::bytes")]
        prefix: PathBuf,
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamResponse {
    /// Of `Patch`.
    Patched(PatchReport),
    /// Of `Tar`.
    Packed(ArchiveReport),
    /// Of `Import`.
    Imported,
}

/// Performs a request; `output` is closed when it is done.
pub fn execute(request: StreamRequest, output: OwnedFd) -> Result<StreamResponse> {
    let output = File::from(output);
    match request {
        StreamRequest::Patch { sides, changes } => {
            patch::write(&sides, &changes, output).map(StreamResponse::Patched)
        }
        StreamRequest::Tar(wanted) => archive::write(&wanted, output).map(StreamResponse::Packed),
        StreamRequest::Import { paths, prefix } => {
            blobs::import(&paths, &prefix, output).map(|()| StreamResponse::Imported)
        }
    }
}
