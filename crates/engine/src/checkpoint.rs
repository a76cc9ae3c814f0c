//! Checkpoints: immutable, named states to fork from.

use crate::branch::{Branch, name};
use crate::codes;
use crate::detail::Detail;
use crate::engine::Engine;
use crate::layers::is_sealed;
use crate::options::ForkOptions;
use crate::world::{Template, insert};
use forkpoint_model::{CheckpointId, LayerId, Result, Source};
use forkpoint_store::{CheckpointRecord, Durability, LayerKind, LayerRecord};

/// A checkpoint.
#[derive(Clone)]
pub struct Checkpoint {
    engine: Engine,
    record: CheckpointRecord,
}

impl Branch {
    /// Takes a checkpoint of it, as it now is. Costs the same whatever the size of what it wrote: its
    /// upper becomes a sealed layer, and it goes on above it.
    ///
    /// # Errors
    /// `FP0405` when it is running (stop it first: nobody may write to a sealed layer) or where
    /// branches are whole copies, `FP0110` when the name is taken.
    pub fn checkpoint(&self, label: &str) -> Result<Checkpoint> {
        let _lock = self.lock()?;
        let _making = self.engine.making_layers()?;
        let record = self.record()?;
        if self.is_running()? {
            return Err(codes::STATE
                .error(format!("{} is running", name(&record)))
                .hint("stop it first"));
        }
        if Detail::of(&record)?.copy {
            return Err(codes::STATE
                .error("where branches are whole copies there are no checkpoints")
                .hint("use a store on a file system that can hold overlays: forkpoint doctor"));
        }
        let disks = self.disks(&record)?;
        let now = self.engine.now();
        let mut stacks = record.stacks.clone();
        let mut sealed = Vec::new();
        for (disk, stack) in disks.iter().zip(&mut stacks) {
            if disk.upper.is_dir() {
                self.engine.sync(&disk.upper)?;
                sealed.push(stack[0]);
            } else {
                stack.remove(0);
            }
        }
        let checkpoint = CheckpointRecord {
            id: self.engine.draw(CheckpointId::from_bits),
            name: Some(label.to_owned()),
            world: record.world,
            generation: record.generation,
            stacks,
            root_layers: record.root_layers.clone(),
            stamp_ns: record.stamp_ns,
            created_ns: now,
        };
        self.engine.store().batch(Durability::Full, |store| {
            for &id in &sealed {
                if !is_sealed(store, id)? {
                    let kind = LayerKind::Sealed;
                    store.insert_layer(&LayerRecord {
                        id,
                        kind,
                        bytes: 0,
                        entries: 0,
                        merged: 1,
                        created_ns: now,
                    })?;
                }
            }
            store.insert_checkpoint(&checkpoint)?;
            store.modify_branch(self.id, |b| {
                for stack in &mut b.stacks {
                    if sealed.contains(&stack[0]) {
                        stack.insert(0, self.engine.draw(LayerId::from_bits));
                    }
                }
            })
        })?;
        for &id in &sealed {
            self.engine.drop_work(id)?;
        }
        Ok(Checkpoint {
            engine: self.engine.clone(),
            record: checkpoint,
        })
    }
}

impl Engine {
    /// A checkpoint by its name or identifier.
    ///
    /// # Errors
    /// `FP0108` when there is none.
    pub fn checkpoint(&self, label: &str) -> Result<Checkpoint> {
        let store = self.store();
        if let Some(record) = store
            .checkpoints(None)?
            .into_iter()
            .find(|c| c.name.as_deref() == Some(label))
        {
            return Ok(Checkpoint {
                engine: self.clone(),
                record,
            });
        }
        let id: CheckpointId = label
            .parse()
            .map_err(|_| codes::STATE.error(format!("there is no checkpoint {label:?}")))?;
        Ok(Checkpoint {
            engine: self.clone(),
            record: store.checkpoint(id)?,
        })
    }
}

impl Checkpoint {
    /// Its identifier.
    pub fn id(&self) -> CheckpointId {
        self.record.id
    }

    /// Its name.
    pub fn name(&self) -> Option<&str> {
        self.record.name.as_deref()
    }

    /// Forks branches off it. One result for each; an outer error means that none was made.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn fork(&self, options: &ForkOptions) -> Result<Vec<Result<Branch>>> {
        let template = Template {
            world: self.record.world,
            parent: Source::Checkpoint(self.record.id),
            generation: self.record.generation,
            stacks: self.record.stacks.clone(),
            root_layers: self.record.root_layers.clone(),
            stamp_ns: self.record.stamp_ns,
            detail: Detail::default(),
        };
        insert(&self.engine, options, &template)
    }

    /// Deletes it. Layers that nothing else uses are freed by the next collection.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn delete(self) -> Result<()> {
        self.engine
            .store()
            .remove_checkpoint(self.record.id)
            .map(drop)
    }
}
