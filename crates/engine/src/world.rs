//! A world: a directory (with the git data that belongs to it) that branches are forked from.

use crate::base;
use crate::branch::Branch;
use crate::codes;
use crate::detail::Detail;
use crate::device;
use crate::engine::Engine;
use crate::options::{ForkOptions, Layer, WorldOptions};
use forkpoint_fs::conflict::Baseline;
use forkpoint_fs::probe;
use forkpoint_fs::stamp;
use forkpoint_fs::tree::CopyReport;
use forkpoint_model::state::{ForkLayer, check_fork_point};
use forkpoint_model::{BranchId, CommitId, Generation, GroupId, LayerId, Result, Source, WorldId};
use forkpoint_sandbox::Network;
use forkpoint_store::{
    BranchRecord, CommitState, DiskKind, DiskRecord, Durability, LayerKind, LayerRecord,
    NetworkKind, SharedRecord, Store, WorldRecord,
};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A world. Clones are handles of the same one.
#[derive(Clone)]
pub struct World {
    pub(crate) engine: Engine,
    pub(crate) record: WorldRecord,
    copy: bool,
    snapshot: bool,
    notes: Vec<String>,
    baselines: Arc<Mutex<Vec<(PathBuf, IndexSeen, Baseline)>>>,
    /// The head as it was seen last, if no commit was half applied then.
    settled: Arc<Mutex<Option<Generation>>>,
}

/// How often a fork that a commit overtakes is begun again.
const FORK_TRIES: u32 = 16;

/// Inode, change time and size of a git index that was read.
type IndexSeen = (u64, i64, i64, u64);

impl Engine {
    /// The world of a directory; made if there is none yet.
    ///
    /// # Errors
    /// `FP0401`–`FP0403` when the directory cannot be a base, `FP02xx` (kind `Unavailable`) when its
    /// file system cannot serve.
    pub fn world(&self, base: &Path, options: WorldOptions) -> Result<World> {
        let dirs = base::disks(base, self.paths().store())?;
        let mut copy = false;
        let mut notes = Vec::new();
        for dir in &dirs {
            let below = probe::mounts_below(dir)?;
            if !below.is_empty() {
                let list: Vec<_> = below.iter().map(|p| p.display().to_string()).collect();
                return Err(codes::MOUNTS_BELOW
                    .error(format!(
                        "{} has mounts below it: {}",
                        dir.display(),
                        list.join(", ")
                    ))
                    .hint("unmount them, or choose a base that does not contain them"));
            }
            if let Some(why) = self.why_no_overlay(dir)? {
                copy = true;
                notes.push(format!(
                    "overlayfs cannot serve {} ({why}): every fork copies the whole directory",
                    dir.display()
                ));
            }
        }
        let record = self.world_record(dirs)?;
        Ok(World {
            copy,
            snapshot: options.snapshot,
            notes,
            ..self.handle(record)
        })
    }

    /// The world of a directory, if there is one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn find_world(&self, base: &Path) -> Result<Option<World>> {
        let Ok(base) = std::fs::canonicalize(base) else {
            return Ok(None);
        };
        let found = self.store().find_world(&base, DiskKind::InPlace)?;
        Ok(found.map(|record| self.handle(record)))
    }

    /// A world by its identifier.
    ///
    /// # Errors
    /// `FP0108` when there is none.
    pub fn world_by_id(&self, id: WorldId) -> Result<World> {
        let record = self.store().world(id)?;
        Ok(self.handle(record))
    }

    fn handle(&self, record: WorldRecord) -> World {
        World {
            engine: self.clone(),
            record,
            copy: false,
            snapshot: false,
            notes: Vec::new(),
            baselines: Arc::default(),
            settled: Arc::default(),
        }
    }

    fn world_record(&self, dirs: Vec<PathBuf>) -> Result<WorldRecord> {
        let mut disks = Vec::with_capacity(dirs.len());
        for path in dirs {
            let meta = std::fs::metadata(&path)
                .map_err(|e| codes::BASE.io(format!("cannot look at {}", path.display()), e))?;
            disks.push(DiskRecord {
                path,
                dev: meta.dev(),
                ino: meta.ino(),
                kind: DiskKind::InPlace,
                snapshot_layer: None,
            });
        }
        let created_ns = self.now();
        let store = self.store();
        if let Some(found) = store.find_world(&disks[0].path, DiskKind::InPlace)? {
            if found.disks == disks {
                return Ok(found);
            }
            // The directory was made anew, or its git data moved. Branches of the old one would find
            // another lower layer under them.
            let live = store.branches(Some(found.id), false)?;
            if let Some(first) = live.first() {
                return Err(codes::BASE
                    .error(format!(
                        "{} is not the directory it was when {} was forked",
                        disks[0].path.display(),
                        first.id
                    ))
                    .hint("abort the branches of the old one: forkpoint list"));
            }
            store.update_disks(found.id, &disks)?;
            return store.world(found.id);
        }
        let record = WorldRecord {
            id: self.draw(WorldId::from_bits),
            disks,
            head: Generation(0),
            created_ns,
        };
        store.batch(Durability::Normal, |store| {
            // Another process may have been faster.
            let path = &record.disks[0].path;
            if let Some(found) = store.find_world(path, DiskKind::InPlace)? {
                return Ok(found);
            }
            store.insert_world(&record)?;
            Ok(record.clone())
        })
    }
}

impl World {
    /// Its identifier.
    pub fn id(&self) -> WorldId {
        self.record.id
    }

    /// The directory it is about, canonical.
    pub fn base(&self) -> &Path {
        &self.record.disks[0].path
    }

    /// Its disks; the first is the base.
    pub fn disks(&self) -> &[DiskRecord] {
        &self.record.disks
    }

    /// The generation its head is at.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn head(&self) -> Result<Generation> {
        Ok(self.engine.store().world(self.record.id)?.head)
    }

    /// What a person should know of how it is served, such as copies in place of overlays.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn copies(&self) -> bool {
        self.copy
    }

    /// Forks branches off its head. One result for each; an outer error means that none was made.
    ///
    /// # Errors
    /// When the stamp or a snapshot cannot be taken, or the store cannot be written.
    pub fn fork(&self, options: &ForkOptions) -> Result<Vec<Result<Branch>>> {
        for _ in 0..FORK_TRIES {
            if let Some(branches) = self.try_fork(options)? {
                return Ok(branches);
            }
        }
        Err(codes::BASE_BUSY
            .error(format!(
                "{} was committed to {FORK_TRIES} times while it was forked",
                self.base().display()
            ))
            .hint("fork again"))
    }

    /// As [`World::fork`]; nothing where the head moved meanwhile.
    fn try_fork(&self, options: &ForkOptions) -> Result<Option<Vec<Result<Branch>>>> {
        let engine = &self.engine;
        let _making = match options.over.is_some() || self.snapshot || self.copy {
            true => Some(engine.making_layers()?),
            false => None,
        };
        // The stamp lies after a look at the head, however old, and the rows are written only while what
        // was seen still holds: as the head never goes back, no commit falls between them.
        let known = *self.last_settled();
        let generation = match known {
            Some(generation) => generation,
            None => self.settled_head()?,
        };
        let stamp = stamp::take(&engine.paths().tmp())?;
        let mut below: Vec<Vec<LayerId>> = match &options.over {
            Some(over) if over.disks.len() == self.record.disks.len() => over.disks.clone(),
            Some(_) => {
                return Err(codes::INTERNAL.error("a preparation of another world's disks"));
            }
            None => vec![Vec::new(); self.record.disks.len()],
        };
        let detail = Detail {
            copy: self.copy,
            copied: None,
            snapshot: self.snapshot && !self.copy,
            prepared: match &options.over {
                Some(over) => over.disks.iter().map(Vec::len).collect(),
                None => Vec::new(),
            },
            baselines: self.baselines()?,
            ..Detail::default()
        };
        if detail.snapshot {
            for (disk, stack) in self.record.disks.iter().zip(&mut below) {
                stack.push(self.take_snapshot(&disk.path)?.0);
            }
        }
        let root = options
            .over
            .as_ref()
            .map(|o| o.root.clone())
            .unwrap_or_default();
        let base = Template {
            world: self.record.id,
            parent: Source::Head(generation),
            generation,
            stacks: below,
            root_layers: root,
            shared: SharedRecord::default(),
            stamp_ns: stamp.0,
            detail,
        };
        let records = records(engine, options, &base)?;
        let moved = engine.store().batch(Durability::Normal, |store| {
            let (head, active) = store.fork_point(self.record.id)?;
            if head != generation || unsettled(active).is_some() {
                return Ok(true);
            }
            store.insert_branches(&records).map(|()| false)
        })?;
        *self.last_settled() = (!moved).then_some(generation);
        if moved {
            return Ok(None);
        }
        let branches = handles(engine, &records);
        if self.copy {
            let copied = branches
                .into_iter()
                .map(|b| b.and_then(|b| b.filled(|b, ()| b.copy_base(), ())));
            return Ok(Some(copied.collect()));
        }
        Ok(Some(branches))
    }

    /// What git's index lists now. Read again only when the index was rewritten, so that the cost of
    /// a fork stays flat.
    fn baselines(&self) -> Result<Vec<Option<Baseline>>> {
        let mut found = Vec::with_capacity(self.record.disks.len());
        for disk in &self.record.disks {
            let seen = ["index", ".git/index"]
                .iter()
                .find_map(|name| std::fs::symlink_metadata(disk.path.join(name)).ok())
                .map(|meta| (meta.ino(), meta.ctime(), meta.ctime_nsec(), meta.size()));
            let Some(seen) = seen else {
                found.push(None);
                continue;
            };
            let mut cache = self
                .baselines
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let known = cache
                .iter()
                .find(|(path, then, _)| *path == disk.path && *then == seen);
            let baseline = match known {
                Some((_, _, baseline)) => baseline.clone(),
                None => Baseline::take(&disk.path)?,
            };
            cache.retain(|(path, _, _)| *path != disk.path);
            cache.push((disk.path.clone(), seen, baseline.clone()));
            found.push(Some(baseline));
        }
        if found.iter().all(Option::is_none) {
            found.clear();
        }
        Ok(found)
    }

    fn last_settled(&self) -> MutexGuard<'_, Option<Generation>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The head, unless a commit is half applied to the base: that is nothing to fork from.
    fn settled_head(&self) -> Result<Generation> {
        let (head, active) = self.engine.store().fork_point(self.record.id)?;
        let Some(txn) = unsettled(active) else {
            return Ok(head);
        };
        Err(codes::BASE_BUSY
            .error(format!(
                "commit {txn} into {} is not finished",
                self.base().display()
            ))
            .hint("wait for it to end; if it is blocked, forkpoint history says by what"))
    }

    /// Copies a disk into a sealed layer.
    pub(crate) fn take_snapshot(&self, dir: &Path) -> Result<(LayerId, CopyReport)> {
        let id = self.engine.draw(LayerId::from_bits);
        let report = self
            .engine
            .copy_tree(dir, &self.engine.paths().layer(id), false)?;
        self.engine.store().insert_layer(&LayerRecord {
            id,
            kind: LayerKind::Snapshot,
            bytes: report.bytes,
            entries: report.files,
            merged: 1,
            created_ns: self.engine.now(),
        })?;
        Ok((id, report))
    }
}

/// The commit under way, if it may have begun to change the base.
fn unsettled(active: Option<(CommitId, CommitState)>) -> Option<CommitId> {
    active
        .filter(|(_, state)| *state != CommitState::Reserved)
        .map(|(txn, _)| txn)
}

/// What the branches of one fork have in common.
pub(crate) struct Template {
    pub(crate) world: WorldId,
    pub(crate) parent: Source,
    pub(crate) generation: Generation,
    /// Per disk, the layers below the new upper.
    pub(crate) stacks: Vec<Vec<LayerId>>,
    pub(crate) root_layers: Vec<LayerId>,
    /// What it sees of keys and events; the default is the head's.
    pub(crate) shared: SharedRecord,
    pub(crate) stamp_ns: i64,
    pub(crate) detail: Detail,
}

/// Records `options.count` new branches. Their directories are made when they are first used.
pub(crate) fn insert(
    engine: &Engine,
    options: &ForkOptions,
    base: &Template,
) -> Result<Vec<Result<Branch>>> {
    insert_if(engine, options, base, |_| Ok(()))
}

/// As [`insert`], if `allowed` says so in the same transaction.
pub(crate) fn insert_if(
    engine: &Engine,
    options: &ForkOptions,
    base: &Template,
    allowed: impl FnOnce(&Store) -> Result<()>,
) -> Result<Vec<Result<Branch>>> {
    let records = records(engine, options, base)?;
    engine.store().batch(Durability::Normal, |store| {
        allowed(store)?;
        store.insert_branches(&records)
    })?;
    Ok(handles(engine, &records))
}

fn handles(engine: &Engine, records: &[BranchRecord]) -> Vec<Result<Branch>> {
    records
        .iter()
        .map(|record| Ok(Branch::new(engine.clone(), record.id)))
        .collect()
}

/// The rows of `options.count` new branches.
fn records(engine: &Engine, options: &ForkOptions, base: &Template) -> Result<Vec<BranchRecord>> {
    let count = options.count.max(1);
    let layer = match options.layer {
        Layer::Effect => ForkLayer::Effect,
        Layer::Reasoning => ForkLayer::Reasoning,
    };
    let network = match options.network {
        Network::Loopback => NetworkKind::Loopback,
        Network::Host => NetworkKind::Host,
    };
    let mut detail = base.detail.clone();
    detail.devices = device::resolve(&options.devices)?;
    detail.shown_devices.clear();
    detail.secrets.clone_from(&options.secrets);
    let host = (network == NetworkKind::Host).then(|| crate::branch::NETWORK_HOST.to_owned());
    let devices = detail.devices.iter().map(|path| device::effect(path));
    let open: Vec<_> = host.into_iter().chain(devices).collect();
    if !open.is_empty() {
        check_fork_point(layer, &open)?;
    }
    let group = match options.group {
        Some(group) => Some(group),
        None => (count > 1).then(|| engine.draw(GroupId::from_bits)),
    };
    let created_ns = engine.now();
    let detail = detail.text()?;
    let mut records = Vec::with_capacity(count as usize);
    for index in 0..count {
        let id = engine.draw(BranchId::from_bits);
        let mut record = BranchRecord::new(id, base.world, base.parent, base.generation);
        record.name = options.name.as_ref().map(|name| match count {
            1 => name.clone(),
            _ => format!("{name}-{}", index + 1),
        });
        record.group = group;
        record.exploration = options.exploration.map(|(id, first)| (id, first + index));
        record.stacks = base
            .stacks
            .iter()
            .map(|below| {
                let mut stack = Vec::with_capacity(below.len() + 1);
                stack.push(engine.draw(LayerId::from_bits));
                stack.extend_from_slice(below);
                stack
            })
            .collect();
        record.root_layers = base.root_layers.clone();
        record.shared = base.shared.clone();
        record.stamp_ns = base.stamp_ns;
        record.durable = options.durable;
        record.layer = layer;
        record.network = network;
        record.created_ns = created_ns;
        record.detail.clone_from(&detail);
        records.push(record);
    }
    Ok(records)
}
