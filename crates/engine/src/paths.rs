//! Where things lie in the store. Must not touch the file system.

use forkpoint_model::{BranchId, CommitId, ExplorationId, LayerId, WorldId};
use std::path::{Path, PathBuf};

/// What follows a layer's name in the name of its work directory.
pub(crate) const WORK: &str = ".work";

/// The layout of a store directory, as `docs/architecture.md` draws it.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    store: PathBuf,
}

impl Paths {
    pub(crate) fn new(store: PathBuf) -> Self {
        Self { store }
    }
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }
    pub(crate) fn tmp(&self) -> PathBuf {
        self.store.join("tmp")
    }
    /// A layer: an overlay's upper, live or sealed; in copy mode a whole tree.
    pub(crate) fn layer(&self, id: LayerId) -> PathBuf {
        self.store.join("layers").join(id.to_string())
    }
    pub(crate) fn branch(&self, id: BranchId) -> PathBuf {
        self.store.join("branches").join(id.to_string())
    }
    pub(crate) fn branch_lock(&self, id: BranchId) -> PathBuf {
        self.branch(id).join("lock")
    }
    /// The work directory of a live upper: beside it, since overlayfs wants both under one mount, and
    /// a branch's layers are reached through one idmapped clone of their common parent.
    pub(crate) fn work(&self, upper: LayerId) -> PathBuf {
        self.store.join("layers").join(format!("{upper}{WORK}"))
    }
    pub(crate) fn root_upper(&self, id: BranchId) -> PathBuf {
        self.branch(id).join("root")
    }
    pub(crate) fn out(&self, id: BranchId) -> PathBuf {
        self.branch(id).join("out")
    }
    pub(crate) fn log(&self, id: BranchId) -> PathBuf {
        self.branch(id).join("log")
    }
    /// Logs of an exploration's preparation and baseline.
    pub(crate) fn exploration(&self, id: ExplorationId) -> PathBuf {
        self.store.join("explorations").join(id.to_string())
    }
    /// Shared by whoever starts something in a branch of a world, held alone by a commit into it.
    pub(crate) fn starts(&self, world: WorldId) -> PathBuf {
        self.store.join("locks").join(world.to_string())
    }
    pub(crate) fn socket(&self, id: BranchId) -> PathBuf {
        self.branch(id).join("sock")
    }
    /// The preferred staging directory of a commit; the target may force another place.
    pub(crate) fn stage(&self, txn: CommitId) -> PathBuf {
        self.store.join("commits").join(txn.to_string())
    }
}
