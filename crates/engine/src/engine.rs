//! The engine: one open store, who the caller is, and (for an ordinary user) the worker that
//! operates on deltas.

use crate::branch::Branch;
use crate::codes;
use crate::effects::Remote;
use crate::options::{BranchFilter, EngineOptions};
use crate::paths::Paths;
use crate::recover;
use crate::serve::Hub;
use crate::spare::Spares;
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_model::{BranchId, Result};
use forkpoint_sandbox::{Check, Identity, Worker, default_masks};
use forkpoint_store::{BranchRecord, HistoryFilter, HistoryRecord, Store};
use forkpoint_sys::{clock, rand};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// An open store. Clones share it.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) paths: Paths,
    pub(crate) options: EngineOptions,
    pub(crate) identity: Identity,
    store: Mutex<Store>,
    worker: Mutex<Option<Arc<Worker>>>,
    pub(crate) hub: Mutex<Option<Hub>>,
    pub(crate) spares: Spares,
    recovered: OnceLock<Vec<String>>,
    /// Who performs and undoes effects, by participant.
    pub(crate) remotes: Mutex<BTreeMap<String, Arc<dyn Remote>>>,
}

impl Engine {
    /// Opens the store, making it if it is missing, and mends what a crash left: processes without
    /// their supervisor are ended, undecided commits discarded, decided ones finished.
    ///
    /// # Errors
    /// `FP0414` for a device that is none, `FP01xx` when the store cannot be opened; what recovery could not finish is in
    /// [`Engine::recovered`], not an error.
    pub fn open(mut options: EngineOptions) -> Result<Engine> {
        options.devices = crate::device::resolve(&options.devices)?;
        let store = Store::open(&options.store)?;
        // The store's path takes part in comparisons with bases, which are canonical.
        let dir = std::fs::canonicalize(store.dir())
            .map_err(|e| codes::IO.io("cannot resolve the store's path", e))?;
        forkpoint_sandbox::keep_program_in(&dir);
        let paths = Paths::new(dir);
        let engine = Engine {
            inner: Arc::new(Inner {
                spares: Spares::new(paths.spare()),
                paths,
                options,
                identity: forkpoint_sandbox::identity()?,
                store: Mutex::new(store),
                worker: Mutex::new(None),
                hub: Mutex::new(None),
                recovered: OnceLock::new(),
                remotes: Mutex::new(BTreeMap::new()),
            }),
        };
        let said = recover::run(&engine)?;
        engine.inner.recovered.set(said).ok();
        Ok(engine)
    }

    /// Starts, ahead of time, the process that the next branch started by this process runs in, so
    /// that it comes into being while the store is opened and read. For a program that will start
    /// exactly one branch of this store and nothing else. Where there is no such store yet, or
    /// anything is unusual about it, nothing happens: the start itself will tell.
    pub fn start_ahead(store: &Path) {
        use std::os::unix::fs::MetadataExt;
        let Ok(dir) = std::fs::canonicalize(store) else {
            return;
        };
        let me = rustix::process::geteuid().as_raw();
        // As the store itself asks for, since a program is executed from there.
        if std::fs::metadata(&dir).is_ok_and(|m| m.uid() == me && m.mode() & 0o077 == 0) {
            forkpoint_sandbox::start_ahead(&dir);
        }
    }

    /// What recovery did when the store was opened, one line each.
    pub fn recovered(&self) -> &[String] {
        self.inner.recovered.get().map_or(&[], Vec::as_slice)
    }

    /// The metadata store, locked for this thread. Do not hold it across a call of the engine, which
    /// locks it itself: bind what it returns before going on (the head of a `for`, `match` or `if let`
    /// keeps it locked for the whole body).
    pub fn store(&self) -> MutexGuard<'_, Store> {
        // A panic elsewhere cannot leave a transaction open: the store rolls back when it unwinds.
        self.inner
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices of the host that everything started here is shown ([`EngineOptions::devices`]), less those
    /// that every branch has.
    pub fn devices(&self) -> &[PathBuf] {
        &self.inner.options.devices
    }

    /// The store's canonical directory.
    pub fn store_dir(&self) -> &Path {
        self.inner.paths.store()
    }

    /// A branch by name, identifier, or unambiguous beginning of an identifier.
    ///
    /// # Errors
    /// `FP0108` when there is none, `FP0109` when several fit.
    pub fn branch(&self, name: &str) -> Result<Branch> {
        let id = self.store().find_branch(name)?.id;
        Ok(Branch::new(self.clone(), id))
    }

    /// A branch by its identifier.
    ///
    /// # Errors
    /// `FP0108` when there is none.
    pub fn branch_by_id(&self, id: BranchId) -> Result<Branch> {
        let id = self.store().branch(id)?.id;
        Ok(Branch::new(self.clone(), id))
    }

    /// The branches, newest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn branches(&self, filter: BranchFilter) -> Result<Vec<BranchRecord>> {
        self.store().branches(filter.world, filter.ended)
    }

    /// The operation log, newest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn history(&self, filter: &HistoryFilter) -> Result<Vec<HistoryRecord>> {
        self.store().history(filter)
    }

    /// What this machine can do, by really trying.
    pub fn doctor(store: &Path, base: &Path) -> Vec<Check> {
        forkpoint_sandbox::doctor(store, base)
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.inner.paths
    }

    pub(crate) fn rootless(&self) -> bool {
        self.inner.identity.rootless()
    }

    /// Runs a file operation where the caller's deltas can be touched: here for root, in the worker
    /// for an ordinary user.
    pub(crate) fn fs(&self, request: FsRequest) -> Result<FsResponse> {
        if self.rootless() {
            self.worker()?.call(request)
        } else {
            forkpoint_fs::ops::execute(request)
        }
    }

    pub(crate) fn worker(&self) -> Result<Arc<Worker>> {
        let mut slot = self
            .inner
            .worker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = &*slot {
            return Ok(worker.clone());
        }
        let worker = Arc::new(Worker::start(&self.inner.identity)?);
        *slot = Some(worker.clone());
        Ok(worker)
    }

    /// What a branch must not see.
    pub(crate) fn masks(&self) -> Vec<PathBuf> {
        let options = &self.inner.options;
        let home = options.home.as_deref().unwrap_or(Path::new("/nonexistent"));
        let mut masks = default_masks(home, self.paths().store());
        masks.extend(options.hide.iter().cloned());
        // What is exposed by name is not masked; the store always is.
        masks.retain(|m| m == self.paths().store() || !options.expose.contains(m));
        masks
    }

    /// Draws an identifier.
    pub(crate) fn draw<T>(&self, make: impl FnOnce(u64) -> T) -> T {
        make(rand::bits())
    }

    pub(crate) fn now(&self) -> i64 {
        clock::wall_ns()
    }

    /// Appends to the operation log. A log that cannot be written is an error of the verb.
    pub(crate) fn log(&self, record: HistoryRecord) -> Result<()> {
        self.store().append_history(&record).map(drop)
    }
}

/// The process that runs this code, recognisable after its death.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn process_identity() -> Result<forkpoint_store::ProcessRecord> {
    let io = |e| codes::IO.io("cannot identify this process", e);
    let pid = std::process::id();
    Ok(forkpoint_store::ProcessRecord {
        boot_id: clock::boot_id().map_err(io)?,
        pid,
        start_time: clock::process_start_time(pid).map_err(io)?,
    })
}
