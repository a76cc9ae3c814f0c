//! Checkpoints: immutable, named states to fork from.

use crate::branch::{Branch, name};
use crate::codes;
use crate::detail::Detail;
use crate::engine::Engine;
use crate::layers::is_sealed;
use crate::options::ForkOptions;
use crate::world::{Template, World, insert};
use forkpoint_fs::conflict::Drift;
use forkpoint_fs::stamp;
use forkpoint_model::{BranchId, CheckpointId, Epoch, Error, LayerId, Result, Source, WorldId};
use forkpoint_store::{
    BranchRecord, CheckpointRecord, Durability, HistoryFilter, HistoryRecord, LayerKind,
    LayerRecord, SharedRecord, Store,
};

/// So many checkpoints may a branch take of itself, and so long may their names be, in bytes.
const MAX_OWN: usize = 16;
const MAX_OWN_NAME: usize = 64;
/// What the log keeps of those.
const BY_ITSELF: &str = "{\"by\":\"the branch itself\"}";
/// The log is searched this far back for them: further than the steps that a branch may take of itself
/// reach, which are logged too.
const LOG_SEARCHED: u32 = 20_000;

/// A checkpoint.
#[derive(Clone)]
pub struct Checkpoint {
    engine: Engine,
    record: CheckpointRecord,
    notes: Vec<String>,
}

impl Branch {
    /// Takes a checkpoint of it, as it now is. What it wrote costs the same whatever its size: its
    /// upper becomes a sealed layer, and it goes on above it. A base in place, which its user may
    /// change, is copied first (sharing blocks where the file system can), and the notes say so.
    ///
    /// # Errors
    /// `FP0405` when it is running (stop it first: nobody may write to a sealed layer) or where
    /// branches are whole copies, `FP0407` when the base changed while it was copied, `FP0110` when
    /// the name is taken.
    pub fn checkpoint(&self, label: Option<&str>) -> Result<Checkpoint> {
        self.take_checkpoint(label, None)
    }

    /// The checkpoint that it takes of itself, asked for from inside in `epoch`. It may run: then it is
    /// held for as long as its uppers are cloned. Its name lies below its own identifier, so that no
    /// branch takes a name, or learns of one, that is another's.
    pub(crate) fn checkpoint_itself(&self, own: Option<&str>, epoch: Epoch) -> Result<Checkpoint> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let label = match own {
            Some(own) if own.is_empty() || own.len() > MAX_OWN_NAME || !own.chars().all(fits) => {
                return Err(codes::SOCKET_REQUEST
                    .error("a checkpoint's name has 1 to 64 letters, digits, dots and dashes")
                    .hint("choose another name, or give none"));
            }
            own => own.map(|own| format!("{}.{own}", self.id)),
        };
        self.take_checkpoint(label.as_deref(), Some(epoch))
    }

    fn take_checkpoint(&self, label: Option<&str>, itself: Option<Epoch>) -> Result<Checkpoint> {
        // Of a branch that has ended nothing waits for a collection, which may wait for it.
        let _locks = match itself {
            None => (Some(self.lock()?), None),
            Some(epoch) => {
                let own = self.lock_itself()?;
                self.engine.store().access(self.id, epoch)?;
                self.may_take_another()?;
                (None, Some(own))
            }
        };
        let _making = self.engine.making_layers()?;
        let record = self.record()?;
        let running = match (self.is_running()?, itself) {
            (false, _) => None,
            (true, Some(_)) => self.attach(&record)?,
            (true, None) => {
                return Err(codes::STATE
                    .error(format!("{} is running", name(&record)))
                    .hint("stop it first"));
            }
        };
        let detail = Detail::of(&record)?;
        if detail.copy {
            return Err(copies());
        }
        if record.ended_ns.is_some() && !record.retained {
            return Err(codes::STATE.error(format!(
                "{} is {}, and what it wrote is not kept",
                name(&record),
                record.state
            )));
        }
        self.engine.name_is_free(label)?;
        let disks = self.disks(&record)?;
        let now = self.engine.now();
        let mut stacks = record.stacks.clone();
        let mut sealed = Vec::new();
        let mut held = None;
        if let Some(sandbox) = &running {
            sandbox.hold()?;
            let cloned = self.clone_uppers(&record);
            let shared = self.engine.store().seal_overlay(self.id);
            sandbox.thaw()?;
            (stacks, held) = (cloned?, Some(shared?));
            self.sync_cloned(&record, &stacks)?;
        }
        let stopped = disks.iter().zip(&mut stacks);
        for (disk, stack) in stopped.filter(|_| running.is_none()) {
            if disk.upper.is_dir() {
                self.engine.sync(&disk.upper)?;
                sealed.push(stack[0]);
            } else {
                stack.remove(0);
            }
        }
        let world = self.world()?;
        let mut notes = Vec::new();
        if !detail.snapshot {
            world.snapshot_under(&mut stacks, &mut notes)?;
        }
        let live = record.ended_ns.is_none();
        let mut checkpoint = CheckpointRecord {
            id: self.engine.draw(CheckpointId::from_bits),
            name: label.map(str::to_owned),
            world: record.world,
            generation: record.generation,
            stacks,
            root_layers: record.root_layers.clone(),
            shared: SharedRecord::default(),
            stamp_ns: record.stamp_ns,
            created_ns: now,
        };
        let what = format!("of {}", name(&record));
        self.engine.store().batch(Durability::Full, |store| {
            checkpoint.shared = match held {
                Some(shared) => shared,
                None => store.seal_overlay(self.id)?,
            };
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
            let by = itself.map(|_| BY_ITSELF);
            insert_checkpoint(store, &checkpoint, &what, Some(self.id), by)?;
            if !live {
                return Ok(());
            }
            store.modify_branch(self.id, |b| {
                for stack in &mut b.stacks {
                    if sealed.contains(&stack[0]) {
                        stack.insert(0, self.engine.draw(LayerId::from_bits));
                    }
                }
            })?;
            Ok(())
        })?;
        for &id in &sealed {
            self.engine.drop_work(id)?;
        }
        Ok(Checkpoint {
            engine: self.engine.clone(),
            record: checkpoint,
            notes,
        })
    }
}

impl Branch {
    /// Each copies the base where that is used in place: a branch may not fill the disk with them.
    fn may_take_another(&self) -> Result<()> {
        let lines = self.engine.history(&HistoryFilter {
            branch: Some(self.id),
            limit: LOG_SEARCHED,
            ..HistoryFilter::default()
        })?;
        let own = lines
            .iter()
            .filter(|l| l.json.as_deref() == Some(BY_ITSELF));
        match own.count() < MAX_OWN {
            true => Ok(()),
            false => Err(codes::SOCKET_FULL
                .error(format!(
                    "the branch has taken {MAX_OWN} checkpoints of itself"
                ))
                .hint("take steps, of which the oldest go, or take checkpoints from outside")),
        }
    }

    /// Makes what was cloned of its uppers durable.
    fn sync_cloned(&self, record: &BranchRecord, stacks: &[Vec<LayerId>]) -> Result<()> {
        for (was, stack) in record.stacks.iter().zip(stacks) {
            if let Some(&id) = stack.first().filter(|_| stack.len() == was.len()) {
                self.engine.sync(&self.engine.paths().layer(id))?;
            }
        }
        Ok(())
    }
}

impl World {
    /// Takes a checkpoint of the directory as it now is, by copying it (sharing blocks where the file
    /// system can).
    ///
    /// # Errors
    /// `FP0405` where branches are whole copies, `FP0407` when the directory changed while it was
    /// copied, `FP0110` when the name is taken.
    pub fn checkpoint(&self, label: Option<&str>) -> Result<Checkpoint> {
        if self.copies() {
            return Err(copies());
        }
        let _making = self.engine.making_layers()?;
        self.engine.name_is_free(label)?;
        let stamp = stamp::take(&self.engine.paths().tmp())?;
        let generation = self.head()?;
        let mut stacks = vec![Vec::new(); self.disks().len()];
        let mut notes = Vec::new();
        self.snapshot_under(&mut stacks, &mut notes)?;
        let checkpoint = CheckpointRecord {
            id: self.engine.draw(CheckpointId::from_bits),
            name: label.map(str::to_owned),
            world: self.id(),
            generation,
            stacks,
            root_layers: Vec::new(),
            shared: SharedRecord::default(),
            stamp_ns: stamp.0,
            created_ns: self.engine.now(),
        };
        let what = format!("of {}", self.base().display());
        self.engine.store().batch(Durability::Full, |store| {
            insert_checkpoint(store, &checkpoint, &what, None, None)
        })?;
        Ok(Checkpoint {
            engine: self.engine.clone(),
            record: checkpoint,
            notes,
        })
    }

    /// Puts a copy of each disk at the bottom of its stack.
    fn snapshot_under(&self, stacks: &mut [Vec<LayerId>], notes: &mut Vec<String>) -> Result<()> {
        let engine = &self.engine;
        for (disk, stack) in self.disks().iter().zip(stacks) {
            let stamp = stamp::take(&engine.paths().tmp())?;
            let (id, report) = self.take_snapshot(&disk.path)?;
            engine.sync(&engine.paths().layer(id))?;
            if let Drift::Paths(paths) = engine.changed_since(&disk.path, stamp)? {
                let first = paths.first().map(|p| p.display().to_string());
                return Err(codes::BASE_BUSY
                    .error(format!(
                        "{} changed while it was copied: {}",
                        disk.path.display(),
                        first.unwrap_or_default()
                    ))
                    .hint("try again when nobody writes to it"));
            }
            stack.push(id);
            let how = match report.reflinked {
                true => "shares its blocks with a snapshot",
                false => "was copied, since it is used in place",
            };
            notes.push(format!(
                "{} {how}: {} files, {} bytes",
                disk.path.display(),
                report.files,
                report.bytes
            ));
        }
        Ok(())
    }
}

fn copies() -> Error {
    codes::STATE
        .error("where branches are whole copies there are no checkpoints")
        .hint("use a store on a file system that can hold overlays: forkpoint doctor")
}

fn insert_checkpoint(
    store: &Store,
    checkpoint: &CheckpointRecord,
    what: &str,
    branch: Option<BranchId>,
    json: Option<&str>,
) -> Result<()> {
    store.insert_checkpoint(checkpoint)?;
    store.append_history(&HistoryRecord {
        seq: 0,
        at_ns: checkpoint.created_ns,
        verb: "checkpoint".into(),
        world: Some(checkpoint.world),
        branch,
        commit: None,
        text: format!("checkpoint {} {what}", shown(checkpoint)),
        json: json.map(str::to_owned),
    })?;
    Ok(())
}

fn shown(record: &CheckpointRecord) -> String {
    record.name.clone().unwrap_or_else(|| record.id.to_string())
}

impl Engine {
    /// Refuses a name before anything is copied for it.
    fn name_is_free(&self, label: Option<&str>) -> Result<()> {
        let Some(label) = label else { return Ok(()) };
        let all = self.store().checkpoints(None)?;
        match all.iter().any(|c| c.name.as_deref() == Some(label)) {
            false => Ok(()),
            true => Err(forkpoint_store::codes::TAKEN
                .error(format!("there is a checkpoint {label} already"))
                .hint("choose another name, or delete that one")),
        }
    }

    /// The checkpoints, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn checkpoints(&self, world: Option<WorldId>) -> Result<Vec<Checkpoint>> {
        let all = self.store().checkpoints(world)?;
        let handle = |record| Checkpoint {
            engine: self.clone(),
            record,
            notes: Vec::new(),
        };
        Ok(all.into_iter().map(handle).collect())
    }

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
                notes: Vec::new(),
            });
        }
        let id: CheckpointId = label
            .parse()
            .map_err(|_| codes::STATE.error(format!("there is no checkpoint {label:?}")))?;
        Ok(Checkpoint {
            engine: self.clone(),
            record: store.checkpoint(id)?,
            notes: Vec::new(),
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

    /// Whether it is a step of a branch, to go back to.
    pub fn is_step(&self) -> bool {
        crate::steps::step_of(self.name()).is_some()
    }

    /// Its record.
    pub fn record(&self) -> &CheckpointRecord {
        &self.record
    }

    /// What a person should know of how it was taken.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The live branches that were forked from it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn branches(&self) -> Result<Vec<BranchRecord>> {
        let mut all = self
            .engine
            .store()
            .branches(Some(self.record.world), false)?;
        all.retain(|b| b.parent == Source::Checkpoint(self.record.id));
        Ok(all)
    }

    /// Bytes its layers take on the device, those it shares with others included.
    ///
    /// # Errors
    /// When they cannot be measured.
    pub fn usage(&self) -> Result<u64> {
        let layers = self.record.stacks.iter().flatten();
        layers
            .map(|&id| self.engine.usage(&self.engine.paths().layer(id)))
            .sum()
    }

    /// Whether the base lies under it as a copy, as it does for all but the oldest checkpoints.
    fn on_snapshot(&self) -> Result<bool> {
        let store = self.engine.store();
        let mut bottoms = self.record.stacks.iter().map(|stack| stack.last());
        bottoms.try_fold(true, |all, bottom| {
            let Some(&id) = bottom else { return Ok(false) };
            Ok(all && store.layer(id)?.kind == LayerKind::Snapshot)
        })
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
            shared: self.record.shared.clone(),
            stamp_ns: self.record.stamp_ns,
            detail: Detail {
                snapshot: self.on_snapshot()?,
                ..Detail::default()
            },
        };
        insert(&self.engine, options, &template)
    }

    /// Deletes it. Branches that were forked from it stay: each refers to the layers it stands on, and
    /// a collection frees only what nothing refers to.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn delete(self) -> Result<()> {
        let now = self.engine.now();
        self.engine.store().batch(Durability::Full, |store| {
            if !store.remove_checkpoint(self.record.id)? {
                return Ok(());
            }
            store.append_history(&HistoryRecord {
                seq: 0,
                at_ns: now,
                verb: "checkpoint".into(),
                world: Some(self.record.world),
                branch: None,
                commit: None,
                text: format!("deleted checkpoint {}", shown(&self.record)),
                json: None,
            })?;
            Ok(())
        })
    }
}
