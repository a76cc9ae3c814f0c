//! Forking a branch: nested forks to any depth.
//!
//! A stopped source costs one transaction. Its upper becomes a sealed layer that source and forks
//! share, and each gets an upper of its own above it; no directory is touched. A running source is
//! frozen and its upper cloned, since nobody may write to a layer that lies under another view.

use crate::branch::{Branch, name};
use crate::codes;
use crate::detail::Detail;
use crate::layers::{DiskLayers, is_sealed};
use crate::options::{ForkOptions, Layer};
use crate::world::{Template, insert};
use forkpoint_model::state::{BranchState, ForkLayer, check_fork_point};
use forkpoint_model::{LayerId, Result, Source};
use forkpoint_store::{BranchRecord, Durability, LayerKind, LayerRecord};

/// A stack deeper than this is compacted when it is forked again.
const DEEPEST: usize = 16;
/// How many layers one compaction merges into one.
const MERGED: usize = 8;

impl Branch {
    /// Forks branches off this one, as it now is. One result for each; an outer error means that
    /// none was made.
    ///
    /// # Errors
    /// `FP0404` for a fork at the reasoning layer of a branch that has an effect path, `FP0405` when
    /// it is being committed or its delta is gone, `FP0406` when another process works on it.
    pub fn fork(&self, options: &ForkOptions) -> Result<Vec<Result<Branch>>> {
        let _lock = self.lock()?;
        let _making = self.engine.making_layers()?;
        let record = self.record()?;
        forkable(&record)?;
        if options.layer == Layer::Reasoning && record.layer == ForkLayer::Effect {
            let mut paths: Vec<String> = (0..record.stacks.len())
                .map(|n| crate::disk::participant(n).0)
                .collect();
            paths.extend(record.uncaptured.iter().cloned());
            check_fork_point(ForkLayer::Reasoning, &paths)?;
        }
        if options.over.is_some() {
            return Err(codes::INTERNAL.error("a preparation is put under a world's forks only"));
        }
        let detail = Detail::of(&record)?;
        let template = |stacks: Vec<Vec<LayerId>>, root_layers| Template {
            world: record.world,
            parent: Source::Branch(self.id),
            generation: record.generation,
            stacks,
            root_layers,
            stamp_ns: record.stamp_ns,
            detail: detail.clone(),
        };
        if detail.copy {
            return self.fork_copies(
                &record,
                options,
                &template(below_uppers(&record), Vec::new()),
            );
        }
        if self.engine.is_running(&record)?
            && let Some(sandbox) = self.attach(&record)?
        {
            sandbox.freeze()?;
            let cloned = self.clone_uppers(&record);
            sandbox.thaw()?;
            let stacks = self.compacted(&record, cloned?)?;
            return insert(
                &self.engine,
                options,
                &template(stacks, record.root_layers.clone()),
            );
        }
        let disks = self.disks(&record)?;
        let (own, stacks) = self.seal_uppers(&record, &disks)?;
        let stacks = self.compacted(&record, stacks)?;
        // The layers become shared, the source moves above them, and the forks appear: all or none.
        let store = self.engine.store();
        let (tx, now) = (Durability::Normal, self.engine.now());
        let live = record.state == BranchState::Open;
        store.batch(tx, |store| {
            for (id, _) in &own {
                if !is_sealed(store, *id)? {
                    store.insert_layer(&sealed(*id, now))?;
                }
            }
            if live && !own.is_empty() {
                let fresh = own.iter().map(|(_, disk)| *disk).collect::<Vec<_>>();
                store.modify_branch(self.id, |b| {
                    for disk in fresh {
                        b.stacks[disk].insert(0, self.engine.draw(LayerId::from_bits));
                    }
                })?;
            }
            Ok(())
        })?;
        drop(store);
        for (id, _) in &own {
            self.engine.drop_work(*id)?;
        }
        insert(
            &self.engine,
            options,
            &template(stacks, record.root_layers.clone()),
        )
    }

    /// Which uppers hold anything, and the stacks of what is forked off them.
    #[allow(clippy::type_complexity)]
    fn seal_uppers(
        &self,
        record: &BranchRecord,
        disks: &[DiskLayers],
    ) -> Result<(Vec<(LayerId, usize)>, Vec<Vec<LayerId>>)> {
        let mut own = Vec::new();
        let mut stacks = Vec::with_capacity(disks.len());
        for (index, (disk, stack)) in disks.iter().zip(&record.stacks).enumerate() {
            if disk.upper.is_dir() {
                own.push((stack[0], index));
                stacks.push(stack.clone());
            } else {
                stacks.push(stack[1..].to_vec());
            }
        }
        Ok((own, stacks))
    }

    /// Clones the uppers of a frozen branch into sealed layers.
    fn clone_uppers(&self, record: &BranchRecord) -> Result<Vec<Vec<LayerId>>> {
        let mut stacks = below_uppers(record);
        for (disk, stack) in self.disks(record)?.iter().zip(&mut stacks) {
            if !disk.upper.is_dir() {
                continue;
            }
            let id = self.engine.draw(LayerId::from_bits);
            let report =
                self.engine
                    .copy_tree(&disk.upper, &self.engine.paths().layer(id), true)?;
            let mut layer = sealed(id, self.engine.now());
            layer.bytes = report.bytes;
            layer.entries = report.files;
            self.engine.store().insert_layer(&layer)?;
            stack.insert(0, id);
        }
        Ok(stacks)
    }

    /// In copy mode each fork gets a copy of the source's whole tree.
    fn fork_copies(
        &self,
        record: &BranchRecord,
        options: &ForkOptions,
        template: &Template,
    ) -> Result<Vec<Result<Branch>>> {
        let sandbox = self.attach(record)?;
        if let Some(sandbox) = &sandbox {
            sandbox.freeze()?;
        }
        let copied = insert(&self.engine, options, template).map(|forks| {
            forks
                .into_iter()
                .map(|fork| fork.and_then(|f| f.copy_from(self)))
                .collect()
        });
        if let Some(sandbox) = &sandbox {
            sandbox.thaw()?;
        }
        copied
    }

    fn copy_from(self, source: &Branch) -> Result<Branch> {
        let from = source.disks(&source.record()?)?;
        for (to, from) in self.disks(&self.record()?)?.iter().zip(&from) {
            self.engine.copy_tree(&from.upper, &to.upper, false)?;
        }
        Ok(self)
    }

    /// In copy mode: copies the base into the branch's own tree.
    pub(crate) fn copy_base(self) -> Result<Branch> {
        for disk in self.disks(&self.record()?)? {
            self.engine.copy_tree(&disk.bottom, &disk.upper, false)?;
        }
        Ok(self)
    }

    /// Keeps stacks short: the newest sealed layers of one that grew too deep are merged into one.
    fn compacted(
        &self,
        record: &BranchRecord,
        mut stacks: Vec<Vec<LayerId>>,
    ) -> Result<Vec<Vec<LayerId>>> {
        let disks = self.disks(record)?;
        for (disk, stack) in disks.iter().zip(&mut stacks) {
            if stack.len() <= DEEPEST {
                continue;
            }
            let paths = self.engine.paths();
            let merge: Vec<_> = stack[..MERGED].iter().map(|&l| paths.layer(l)).collect();
            let mut below: Vec<_> = stack[MERGED..].iter().map(|&l| paths.layer(l)).collect();
            if !below.contains(&disk.bottom) {
                below.push(disk.bottom.clone());
            }
            let id = self.engine.draw(LayerId::from_bits);
            self.engine.merge_layers(merge, below, paths.layer(id))?;
            let mut layer = sealed(id, self.engine.now());
            layer.kind = LayerKind::Compacted;
            layer.merged = MERGED as u32;
            self.engine.store().insert_layer(&layer)?;
            stack.splice(..MERGED, [id]);
        }
        Ok(stacks)
    }
}

fn sealed(id: LayerId, created_ns: i64) -> LayerRecord {
    LayerRecord {
        id,
        kind: LayerKind::Sealed,
        bytes: 0,
        entries: 0,
        merged: 1,
        created_ns,
    }
}

fn below_uppers(record: &BranchRecord) -> Vec<Vec<LayerId>> {
    record
        .stacks
        .iter()
        .map(|stack| stack.get(1..).unwrap_or_default().to_vec())
        .collect()
}

fn forkable(record: &BranchRecord) -> Result<()> {
    let live = matches!(
        record.state,
        BranchState::Open | BranchState::Sealed | BranchState::Verified { .. }
    );
    if live || record.retained {
        return Ok(());
    }
    Err(codes::STATE
        .error(format!(
            "{} is {}: it cannot be forked",
            name(record),
            record.state
        ))
        .hint("only a live branch, or an ended one whose delta is retained, can be forked"))
}
