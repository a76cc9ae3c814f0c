//! The key-value store of a world: scratch memory that is forked, committed and rolled back with the
//! files.

use crate::branch::Branch;
use crate::engine::Engine;
use crate::wait;
use crate::world::World;
use forkpoint_model::{BranchId, Epoch, Result, WorldId};
use forkpoint_store::{KvEntry, KvPage, KvWritten, SharedRecord, codes};
use std::time::Duration;

/// How often a write from outside is tried while a commit of the world is under way.
const TRIES: u32 = 100;
/// How long it waits in between.
const PAUSE: Duration = Duration::from_millis(20);

/// The keys as a branch sees them: as of its fork, with its own writes, never with a sibling's. It acts
/// in the epoch it was asked for: after a seal it is refused.
///
/// ```
/// # use forkpoint_engine::*;
/// # fn main() -> Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # std::fs::create_dir(dir.path().join("project")).expect("a project");
/// # let engine = Engine::open(EngineOptions {
/// #     store: dir.path().join("store"), ..EngineOptions::default()
/// # })?;
/// # let world = engine.world(&dir.path().join("project"), WorldOptions::default())?;
/// world.kv().put(b"plan", b"draft")?;
/// let forks = world.fork(&ForkOptions { count: 2, ..ForkOptions::default() })?;
/// let forks = forks.into_iter().collect::<Result<Vec<_>>>()?;
/// let (one, other) = (forks[0].kv()?, forks[1].kv()?);
/// one.put(b"plan", b"better")?;
/// assert_eq!(other.get(b"plan")?.expect("a key").value, b"draft");
///
/// let report = forks[0].commit(&CommitOptions::default())?;
/// assert_eq!((report.changed.items, report.keys), (0, 1));
/// assert_eq!(world.kv().get(b"plan")?.expect("a key").value, b"better");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Kv {
    engine: Engine,
    branch: BranchId,
    epoch: Epoch,
}

impl Branch {
    /// The keys, as this branch sees them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn kv(&self) -> Result<Kv> {
        let epoch = self.record()?.epoch;
        Ok(self.kv_in(epoch))
    }

    /// The same, in an epoch that was given before.
    pub fn kv_in(&self, epoch: Epoch) -> Kv {
        Kv {
            engine: self.engine.clone(),
            branch: self.id,
            epoch,
        }
    }

    /// For looking at its keys from outside, whatever its state: nothing counts as read by the branch.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn kv_view(&self) -> Result<KvView> {
        let record = self.record()?;
        Ok(KvView {
            engine: self.engine.clone(),
            world: record.world,
            shared: record.shared,
        })
    }

    /// What it changes of the keys, in their order, behind `after`; at most `limit`, with the key to go
    /// on behind.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn kv_changes(
        &self,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<(Vec<forkpoint_store::KvChange>, Option<Vec<u8>>)> {
        self.engine.store().kv_changes(self.id, after, limit)
    }

    /// How many keys it changes.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn kv_changed(&self) -> Result<u64> {
        Ok(self.engine.store().kv_write_set(self.id)?.0)
    }
}

impl Kv {
    /// A key. That it was read counts from now on: if another changes it before this branch is
    /// committed, the commit is a conflict.
    ///
    /// # Errors
    /// `FP0112` after a seal, `FP0114` for a key out of bounds, `FP0115` when the branch holds too much.
    pub fn get(&self, key: &[u8]) -> Result<Option<KvEntry>> {
        self.engine.store().kv_get(self.branch, self.epoch, key)
    }

    /// Writes a key; its new version. It is no read: what was there before may have been changed by
    /// others, and is a conflict all the same since both wrote it.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<u64> {
        self.write(key, Some(value), None).map(|w| w.version)
    }

    /// Writes a key only where it has this version, 0 where it must not be there. The answer says whether
    /// it did, and which version there is now.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn put_if(&self, key: &[u8], value: &[u8], version: u64) -> Result<KvWritten> {
        self.write(key, Some(value), Some(version))
    }

    /// Removes a key; whether it was there.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.write(key, None, None).map(|w| w.was != Some(0))
    }

    /// Removes a key only where it has this version.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn delete_if(&self, key: &[u8], version: u64) -> Result<KvWritten> {
        self.write(key, None, Some(version))
    }

    /// Writes a key, or removes it where `value` is none; with `version`, only where it has that one.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        version: Option<u64>,
    ) -> Result<KvWritten> {
        (self.engine.store()).kv_write(self.branch, self.epoch, key, value, version)
    }

    /// The keys that begin with `prefix`, in the order of their bytes, behind `after`. That they were
    /// listed counts: a key that another adds or removes below the prefix is a conflict. At most `limit`
    /// and [`forkpoint_store::kv::MAX_LIST`]; [`KvPage::next`] says where to go on.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn list(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<KvPage> {
        (self.engine.store()).kv_list(self.branch, self.epoch, prefix, after, limit)
    }
}

/// A branch's keys as they were when it was asked for, to be looked at.
#[derive(Clone)]
pub struct KvView {
    engine: Engine,
    world: WorldId,
    shared: SharedRecord,
}

impl KvView {
    /// A key.
    ///
    /// # Errors
    /// `FP0114` for a key out of bounds.
    pub fn get(&self, key: &[u8]) -> Result<Option<KvEntry>> {
        (self.engine.store()).kv_see(self.world, &self.shared, key)
    }

    /// As [`Kv::list`].
    ///
    /// # Errors
    /// `FP0114` for a prefix out of bounds.
    pub fn list(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<KvPage> {
        (self.engine.store()).kv_see_list(self.world, &self.shared, prefix, after, limit)
    }
}

/// The keys of a world, from outside every branch: what is committed, and writes that are committed at
/// once. While a commit of the world is under way a write waits for a moment (two seconds), then is
/// refused.
#[derive(Clone)]
pub struct WorldKv {
    engine: Engine,
    world: WorldId,
}

impl World {
    /// The keys from outside every branch.
    pub fn kv(&self) -> WorldKv {
        WorldKv {
            engine: self.engine.clone(),
            world: self.id(),
        }
    }
}

impl WorldKv {
    /// A committed key.
    ///
    /// # Errors
    /// `FP0114` for a key out of bounds.
    pub fn get(&self, key: &[u8]) -> Result<Option<KvEntry>> {
        self.engine.store().kv_get_head(self.world, key)
    }

    /// Writes a key, durably; its version.
    ///
    /// # Errors
    /// `FP0113` when a commit of the world stays under way, `FP0114` for what is out of bounds.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<u64> {
        self.write(key, Some(value), None).map(|w| w.version)
    }

    /// As [`Kv::put_if`].
    ///
    /// # Errors
    /// As [`WorldKv::put`].
    pub fn put_if(&self, key: &[u8], value: &[u8], version: u64) -> Result<KvWritten> {
        self.write(key, Some(value), Some(version))
    }

    /// Removes a key, durably; whether it was there.
    ///
    /// # Errors
    /// As [`WorldKv::put`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.write(key, None, None).map(|w| w.was != Some(0))
    }

    /// As [`Kv::delete_if`].
    ///
    /// # Errors
    /// As [`WorldKv::put`].
    pub fn delete_if(&self, key: &[u8], version: u64) -> Result<KvWritten> {
        self.write(key, None, Some(version))
    }

    /// The committed keys that begin with `prefix`, as [`Kv::list`].
    ///
    /// # Errors
    /// `FP0114` for a prefix out of bounds.
    pub fn list(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<KvPage> {
        (self.engine.store()).kv_list_head(self.world, prefix, after, limit)
    }

    /// As [`Kv::write`].
    ///
    /// # Errors
    /// As [`WorldKv::put`].
    pub fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        version: Option<u64>,
    ) -> Result<KvWritten> {
        for _ in 1..TRIES {
            let done = (self.engine.store()).kv_write_head(self.world, key, value, version);
            match done {
                Err(e) if e.code == codes::WORLD_BUSY.text => wait::pause(PAUSE)?,
                done => return done,
            }
        }
        (self.engine.store()).kv_write_head(self.world, key, value, version)
    }
}
