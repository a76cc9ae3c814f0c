//! What becomes of the branches that stand on one that was committed.

use crate::branch::Branch;
use crate::detail::Detail;
use crate::disk::then;
use crate::engine::Engine;
use crate::layers::DiskLayers;
use crate::nested::shared_below;
use crate::world::World;
use forkpoint_fs::delta::{Change, ChangeKind, FileType};
use forkpoint_fs::stamp;
use forkpoint_model::{BranchId, Generation, LayerId, Result};
use forkpoint_store::BranchRecord;
use std::path::{Component, Path};

impl Engine {
    /// Moves what was forked off a committed branch onto the new generation, where the layers it
    /// shares with the committed branch say what the base now says: not where that one changed the
    /// same again after the fork, which would be taken back, or committed less than all. Not where
    /// both wrote the same after the fork. Not where a
    /// layer holds a renamed directory: that is found in the layers below by its old name, which the
    /// base no longer has. Such a descendant stays stale, and so does one that read a key which the
    /// commit changed.
    pub(crate) fn settle_descendants(
        &self,
        branch: BranchId,
        _world: &World,
        generation: Generation,
    ) -> Result<()> {
        let committed = self.store().branch(branch)?;
        let mut parents = vec![branch];
        let mut settled = Vec::new();
        while let Some(parent) = parents.pop() {
            let children = self.store().children(parent)?;
            for child in children {
                let based = child.generation.0 + 1 == generation.0;
                if !child.state.is_live() || !based {
                    continue;
                }
                // The files first: who stays stale sees keys and events as it did before.
                let settles = !self.has_redirects(&child)?
                    && self.agrees_with_base(&child, &committed)?
                    && (self.store()).kv_settle(child.id, branch, generation)?;
                if settles {
                    settled.push(child.id);
                    parents.push(child.id);
                }
            }
        }
        if settled.is_empty() {
            return Ok(());
        }
        let stamp = stamp::take(&self.paths().tmp())?;
        for id in settled {
            self.store().modify_branch(id, |b| {
                b.generation = generation;
                b.stamp_ns = stamp.0;
            })?;
        }
        Ok(())
    }

    /// Whether what a branch has of a committed one below itself is as the base now is, and what it
    /// wrote itself over anything else meets nothing that the commit changed.
    fn agrees_with_base(&self, child: &BranchRecord, committed: &BranchRecord) -> Result<bool> {
        let detail = Detail::of(child)?;
        if detail.copy || detail.snapshot {
            // Nothing of what the other did after the fork is seen through it.
            return Ok(false);
        }
        let disks = Branch::new(self.clone(), child.id).disks(child)?;
        let stacks = child.stacks.iter().zip(&committed.stacks);
        for (index, (disk, (own, other))) in disks.into_iter().zip(stacks).enumerate() {
            let shared = shared_below(own, other);
            let below = &own[own.len() - shared..];
            let below: Vec<_> = below.iter().map(|&id| self.paths().layer(id)).collect();
            let beneath = DiskLayers {
                sealed: below.clone(),
                // None: what it wrote itself is another question.
                upper: self.paths().layer(self.draw(LayerId::from_bits)),
                ..disk.clone()
            };
            let harmless =
                |c: &Change| c.kind == ChangeKind::Metadata && c.file_type == FileType::Dir;
            let differs = self.diff(&beneath, None)?;
            if !differs.changes.iter().all(harmless) {
                return Ok(false);
            }
            // The live upper is counted in a stack whether its directory was made or not.
            let top = own.len() - shared - usize::from(!disk.upper.is_dir());
            if top == 0 {
                continue;
            }
            let mut changes = self.diff(&disk, Some(top))?;
            changes
                .changes
                .retain(|c| !below.iter().any(|layer| holds(layer, &c.path)));
            if !self
                .check(&disk, &changes, &then(child, index)?)?
                .is_empty()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_redirects(&self, record: &BranchRecord) -> Result<bool> {
        if self.rootless() {
            // Mounted in a user namespace, an overlay renames no directory of a lower layer.
            return Ok(false);
        }
        if Detail::of(record)?.copy {
            return Ok(false);
        }
        for id in record.stacks.iter().flatten() {
            let layer = self.paths().layer(*id);
            if layer.is_dir() && forkpoint_fs::written::has_redirect(&layer)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a layer says anything of a path, be it that it is gone. A link on the way leads to nothing.
fn holds(layer: &Path, path: &Path) -> bool {
    let mut place = layer.to_owned();
    let mut dir = true;
    for part in path.components() {
        let Component::Normal(name) = part else {
            return false;
        };
        place.push(name);
        match (dir, place.symlink_metadata()) {
            (true, Ok(meta)) => dir = meta.is_dir(),
            _ => return false,
        }
    }
    true
}
