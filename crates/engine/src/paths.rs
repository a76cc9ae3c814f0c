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
    /// Directories of views made ahead, by process.
    pub(crate) fn spare(&self) -> PathBuf {
        self.store.join("spare")
    }
    /// A layer: an overlay's upper, live or sealed; in copy mode a whole tree.
    pub(crate) fn layer(&self, id: LayerId) -> PathBuf {
        self.store.join("layers").join(id.to_string())
    }
    pub(crate) fn branch(&self, id: BranchId) -> PathBuf {
        self.store.join("branches").join(id.to_string())
    }
    /// The locks of all branches: each its own byte, at the offset of its identifier. So a branch that
    /// nothing ran in has no directory.
    pub(crate) fn branch_locks(&self) -> PathBuf {
        self.store.join("locks").join("branches")
    }
    /// Who serves the socket of a branch that nobody runs commands in: a byte each, as above.
    pub(crate) fn servers(&self) -> PathBuf {
        self.store.join("locks").join("servers")
    }
    /// Held, beside the branch's own lock, by what a branch does to itself: a byte each, as above.
    pub(crate) fn turns(&self) -> PathBuf {
        self.store.join("locks").join("turns")
    }
    /// Held while a branch is the frozen origin of its children: a byte each, as above.
    pub(crate) fn origins(&self) -> PathBuf {
        self.store.join("locks").join("origins")
    }
    /// Layers that nothing refers to and that somebody will fork from: a byte each.
    pub(crate) fn kept(&self) -> PathBuf {
        self.store.join("locks").join("kept")
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
    /// What commits staged, and what they keep to be undone.
    pub(crate) fn commits(&self) -> PathBuf {
        self.store.join("commits")
    }
    /// The preferred staging directory of a commit; the target may force another place.
    pub(crate) fn stage(&self, txn: CommitId) -> PathBuf {
        self.commits().join(txn.to_string())
    }
    /// The boot in which recovery last looked for what only a power loss leaves.
    pub(crate) fn boot(&self) -> PathBuf {
        self.store.join("boot")
    }
}
