//! Forking a branch: nested forks to any depth.
//!
//! A stopped source costs one transaction. Its upper becomes a sealed layer that source and forks
//! share, and each gets an upper of its own above it; no directory is touched. A running source is
//! frozen and its upper cloned, since nobody may write to a layer that lies under another view.

use crate::branch::{Branch, name};
use crate::codes;
use crate::detail::{Copied, Detail};
use crate::layers::{DiskLayers, is_sealed};
use crate::options::{AbortOptions, ForkOptions};
use crate::world::{Template, insert};
use forkpoint_model::state::BranchState;
use forkpoint_model::{LayerId, Result, Source};
use forkpoint_store::{BranchRecord, Durability, LayerKind, LayerRecord, SharedRecord};

/// A stack deeper than this is compacted when it is forked again.
const DEEPEST: usize = 16;
/// How many layers one compaction merges into one.
const MERGED: usize = 8;

impl Branch {
    /// Forks branches off this one, as it now is. One result for each; an outer error means that
    /// none was made.
    ///
    /// # Errors
    /// `FP0083` for a fork at the reasoning layer of a branch that has an effect path, and for one at
    /// the effect layer of a branch that may have none; `FP0405` when
    /// it is being committed or its delta is gone, `FP0406` when another process works on it.
    pub fn fork(&self, options: &ForkOptions) -> Result<Vec<Result<Branch>>> {
        let _lock = self.lock()?;
        let _making = self.engine.making_layers()?;
        let record = self.record()?;
        forkable(&record)?;
        self.check_fork_layer(&record, options.layer)?;
        if options.over.is_some() {
            return Err(codes::INTERNAL.error("a preparation is put under a world's forks only"));
        }
        if options.beside && options.group.is_none() {
            return Err(codes::INTERNAL.error("a sibling is forked without its group"));
        }
        let mut detail = Detail {
            git: None,
            ..Detail::of(&record)?
        };
        detail.of_origin &= options.beside;
        let template = |stacks: Vec<Vec<LayerId>>, shared| Template {
            world: record.world,
            parent: match options.beside {
                true => record.parent,
                false => Source::Branch(self.id),
            },
            generation: record.generation,
            stacks,
            root_layers: record.root_layers.clone(),
            shared,
            stamp_ns: record.stamp_ns,
            detail: detail.clone(),
        };
        if detail.copy {
            let shared = self.engine.store().seal_overlay(self.id)?;
            let template = template(below_uppers(&record), shared);
            return self.fork_copies(&record, options, &template);
        }
        if self.engine.is_running(&record)?
            && let Some(sandbox) = self.attach(&record)?
        {
            sandbox.hold()?;
            let cloned = self.clone_uppers(&record);
            let shared = self.engine.store().seal_overlay(self.id);
            sandbox.thaw()?;
            let stacks = self.compacted(&record, cloned?)?;
            return insert(&self.engine, options, &template(stacks, shared?));
        }
        let (stacks, shared) = self.share_uppers(&record)?;
        insert(&self.engine, options, &template(stacks, shared))
    }

    /// Makes the uppers of a stopped branch layers that its forks share: it goes on above them. What its
    /// forks stand on.
    pub(crate) fn share_uppers(
        &self,
        record: &BranchRecord,
    ) -> Result<(Vec<Vec<LayerId>>, SharedRecord)> {
        let disks = self.disks(record)?;
        let (own, stacks) = self.seal_uppers(record, &disks)?;
        let stacks = self.compacted(record, stacks)?;
        // The layers become shared, the source moves above them, and the forks appear: all or none.
        let store = self.engine.store();
        let (tx, now) = (Durability::Normal, self.engine.now());
        let live = record.state == BranchState::Open;
        let shared = store.batch(tx, |store| {
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
            store.seal_overlay(self.id)
        })?;
        drop(store);
        for (id, _) in &own {
            self.engine.drop_work(*id)?;
        }
        Ok((stacks, shared))
    }

    /// Which uppers hold anything, and the stacks of what is forked off them.
    #[allow(clippy::type_complexity)]
    pub(crate) fn seal_uppers(
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
    pub(crate) fn clone_uppers(&self, record: &BranchRecord) -> Result<Vec<Vec<LayerId>>> {
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
            sandbox.hold()?;
        }
        let copied = insert(&self.engine, options, template).map(|forks| {
            forks
                .into_iter()
                .map(|fork| fork.and_then(|f| f.filled(Branch::copy_from, self)))
                .collect()
        });
        if let Some(sandbox) = &sandbox {
            sandbox.thaw()?;
        }
        copied
    }

    /// In copy mode: fills the branch's tree. A branch without one is no branch: it is rolled back.
    /// Until the copy is complete it has another name, so that half a copy is never taken for what
    /// the branch made of the base.
    pub(crate) fn filled<T>(self, fill: impl Fn(&Self, T) -> Result<()>, from: T) -> Result<Self> {
        match fill(&self, from) {
            Ok(()) => Ok(self),
            Err(error) => match self.abort(&AbortOptions::default()) {
                Ok(_) => Err(error),
                Err(left) => Err(error.context(format_args!("{} is left ({left})", self.id))),
            },
        }
    }

    fn copy_from(&self, source: &Branch) -> Result<()> {
        let record = source.record()?;
        let from = source.disks(&record)?;
        for (to, from) in self.disks(&self.record()?)?.iter().zip(&from) {
            self.engine.copy_tree(&from.upper, &to.work, false)?;
            self.engine.rename(&to.work, &to.upper)?;
        }
        // Of both trees everything is older than this, and whatever is changed from now on is not.
        let at = forkpoint_fs::stamp::take(&self.engine.paths().tmp())?;
        let mut detail = Detail::of(&self.record()?)?;
        detail.copied = Some(Copied {
            from: record
                .stacks
                .iter()
                .flat_map(|s| s.first().copied())
                .collect(),
            at_ns: at.0,
        });
        let text = detail.text()?;
        self.engine
            .store()
            .modify_branch(self.id, |b| b.detail = text)
            .map(drop)
    }

    /// In copy mode: copies the base, or what the preparation made of it, into the branch's own tree.
    pub(crate) fn copy_base(&self) -> Result<()> {
        for disk in self.disks(&self.record()?)? {
            match disk.sealed.first() {
                Some(prepared) => self.engine.copy_tree(prepared, &disk.work, false)?,
                None => self.engine.copy_base_tree(&disk.bottom, &disk.work)?,
            };
            self.engine.rename(&disk.work, &disk.upper)?;
        }
        Ok(())
    }

    /// Keeps stacks short: the newest sealed layers of one that grew too deep are merged into one.
    pub(crate) fn compacted(
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
