//! From a branch's record to directories: which layers each of its disks has, and the views made of
//! them.

use crate::paths::Paths;
use forkpoint_fs::Stack;
use forkpoint_model::{LayerId, Result};
use forkpoint_sandbox::DiskMount;
use forkpoint_store::Store;
use std::path::PathBuf;

/// One disk of one branch (or of a judge's throwaway fork).
#[derive(Debug, Clone)]
pub(crate) struct DiskLayers {
    /// Where it appears inside, and where a commit goes.
    pub(crate) target: PathBuf,
    /// What lies at the bottom: the target itself, or a snapshot of it.
    pub(crate) bottom: PathBuf,
    /// Sealed layers between, topmost first.
    pub(crate) sealed: Vec<PathBuf>,
    /// The live upper. Missing until something is first run in the branch.
    pub(crate) upper: PathBuf,
    /// Its work directory.
    pub(crate) work: PathBuf,
    /// The upper is a whole tree, since overlayfs cannot serve here.
    pub(crate) copy: bool,
}

impl DiskLayers {
    /// Every layer that exists, topmost first, the bottom last. In copy mode the tree alone stands
    /// for all layers of the branch.
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        let mut layers = Vec::with_capacity(self.sealed.len() + 2);
        if self.upper.is_dir() {
            layers.push(self.upper.clone());
        }
        layers.extend(self.sealed.iter().cloned());
        layers.push(self.bottom.clone());
        layers
    }

    /// The layers as applying needs them. One alone is a whole copy: there is nothing to be seen
    /// through it, and no overlay could be made of it and what it was copied from.
    pub(crate) fn compared(&self) -> Vec<PathBuf> {
        match self.copy {
            true => vec![self.upper.clone()],
            false => self.all(),
        }
    }

    /// The layers without the live upper.
    pub(crate) fn lowers(&self) -> Vec<PathBuf> {
        let mut layers = self.sealed.clone();
        layers.push(self.bottom.clone());
        layers
    }

    pub(crate) fn stack(&self) -> Stack {
        Stack {
            lowers: self.lowers(),
            upper: self.upper.clone(),
            work: self.work.clone(),
        }
    }

    pub(crate) fn mount(&self, volatile: bool, read_only: bool) -> DiskMount {
        DiskMount {
            target: self.target.clone(),
            stack: self.stack(),
            volatile,
            copy_tree: self.copy.then(|| self.upper.clone()),
            read_only,
        }
    }
}

/// Whether a layer was sealed: then others may lie on it. A store that cannot answer is an error: what
/// is taken for nobody else's is deleted.
pub(crate) fn is_sealed(store: &Store, id: LayerId) -> Result<bool> {
    match store.layer(id) {
        Ok(_) => Ok(true),
        Err(error) if error.code == forkpoint_store::codes::NOT_FOUND.text => Ok(false),
        Err(error) => Err(error),
    }
}

/// The disks of a branch whose stacks are `stacks` (per disk the live upper's id, then the sealed
/// layers, topmost first).
pub(crate) fn of_branch(
    paths: &Paths,
    bottoms: &[(PathBuf, PathBuf)],
    stacks: &[Vec<LayerId>],
    copy: bool,
) -> Vec<DiskLayers> {
    bottoms
        .iter()
        .zip(stacks)
        .filter_map(|((target, bottom), stack)| {
            let (upper, sealed) = stack.split_first()?;
            Some(DiskLayers {
                target: target.clone(),
                bottom: bottom.clone(),
                sealed: sealed.iter().map(|&id| paths.layer(id)).collect(),
                upper: paths.layer(*upper),
                work: paths.work(*upper),
                copy,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkpoint_store::{Durability, LayerKind, LayerRecord};
    use std::fs::OpenOptions;

    /// What is no sealed layer is deleted with its branch: so only the store itself may say so.
    #[test]
    fn law_10_a_store_that_cannot_answer_is_not_a_layer_nobody_shares() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = Store::open(&path).unwrap();
        let (known, unknown) = (LayerId::from_bits(7), LayerId::from_bits(8));
        store
            .batch(Durability::Full, |store| {
                store.insert_layer(&LayerRecord {
                    id: known,
                    kind: LayerKind::Sealed,
                    bytes: 0,
                    entries: 0,
                    merged: 1,
                    created_ns: 0,
                })
            })
            .unwrap();
        assert!(is_sealed(&store, known).unwrap());
        assert!(!is_sealed(&store, unknown).unwrap());

        // One that has not read the rows yet, and now cannot.
        let blind = Store::open(&path).unwrap();
        for file in ["forkpoint.db", "forkpoint.db-wal"] {
            let file = OpenOptions::new().write(true).open(path.join(file));
            file.unwrap().set_len(0).unwrap();
        }
        for id in [known, unknown] {
            let answer = is_sealed(&blind, id);
            assert!(answer.is_err(), "{id}: {answer:?}");
        }
    }
}
