//! A branch: running things in it, looking at it, sealing it. Forking, judging, committing and
//! aborting have files of their own.

use crate::codes;
use crate::command::Command;
use crate::detail::Detail;
use crate::engine::Engine;
use crate::env::environment;
use crate::layers::{self, DiskLayers};
use crate::lock::{self, Lock};
use crate::options::{Deltas, Dropped, SealOptions, SealReport, Side};
use crate::wait::pause;
use crate::world::World;
use forkpoint_fs::delta::ChangeSet;
use forkpoint_model::state::{BranchEvent, BranchState, ForkLayer};
use forkpoint_model::{BranchId, Error, Result};
use forkpoint_sandbox::{ProcessIdentity, Sandbox, is_alive, kill_process};
use forkpoint_store::{BranchRecord, ProcessRecord, WorldRecord};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long somebody else's short work on a branch is waited for, and how often it is looked at.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Where `FORKPOINT_OUT` is inside a branch.
pub const OUT_INSIDE: &str = "/run/forkpoint/out";
/// Where `FORKPOINT_SOCK` is inside a branch.
pub const SOCK_INSIDE: &str = "/run/forkpoint/sock";
/// The effect path of a branch on the host's network, as it is named everywhere.
pub const NETWORK_HOST: &str = "network host";

/// A branch. Clones are handles of the same one; the record is read from the store each time.
#[derive(Clone)]
pub struct Branch {
    pub(crate) engine: Engine,
    pub(crate) id: BranchId,
}

/// What is held while a branch does something to itself. Let go of in this order: whoever waits for
/// the turn finds the lock free.
pub(crate) struct ByItself {
    _lock: Lock,
    _turn: Lock,
}

impl Branch {
    pub(crate) fn new(engine: Engine, id: BranchId) -> Self {
        Self { engine, id }
    }

    /// Its identifier.
    pub fn id(&self) -> BranchId {
        self.id
    }

    /// Its record, as it is now.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn record(&self) -> Result<BranchRecord> {
        self.engine.store().branch(self.id)
    }

    /// Its record and its disks, by one look into the store.
    pub(crate) fn record_and_disks(&self) -> Result<(BranchRecord, Vec<DiskLayers>)> {
        let (record, world) = self.engine.store().look(|store| {
            let record = store.branch(self.id)?;
            let world = store.world(record.world)?;
            Ok((record, world))
        })?;
        let disks = self.disks_of(&record, &world)?;
        Ok((record, disks))
    }

    /// Its name, or its identifier.
    ///
    /// # Errors
    /// As [`Branch::record`].
    pub fn label(&self) -> Result<String> {
        Ok(self.record()?.name.unwrap_or_else(|| self.id.to_string()))
    }

    /// Its state.
    ///
    /// # Errors
    /// As [`Branch::record`].
    pub fn state(&self) -> Result<BranchState> {
        Ok(self.record()?.state)
    }

    /// The world it belongs to.
    ///
    /// # Errors
    /// As [`Branch::record`].
    pub fn world(&self) -> Result<World> {
        self.engine.world_by_id(self.record()?.world)
    }

    /// What its commands get unless they ask otherwise.
    ///
    /// # Errors
    /// As [`Branch::record`].
    pub fn defaults(&self) -> Result<crate::start::Defaults> {
        crate::start::defaults(&self.record()?)
    }

    /// A command to run in it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Command::new(self.clone(), program.as_ref())
    }

    /// Where the output of its commands is kept.
    pub fn log_path(&self) -> PathBuf {
        self.engine.paths().log(self.id)
    }

    /// The directory its commands see as `FORKPOINT_OUT`.
    pub fn out_path(&self) -> PathBuf {
        self.engine.paths().out(self.id)
    }

    /// Whether anything runs in it.
    ///
    /// # Errors
    /// When the store or the process table cannot be read.
    pub fn is_running(&self) -> Result<bool> {
        self.engine.is_running(&self.record()?)
    }

    /// Kills everything in it and waits until all of it is dead. The branch stays open.
    ///
    /// # Errors
    /// When that cannot be made certain.
    pub fn kill(&self) -> Result<()> {
        kill_recorded(&self.engine, &self.record()?)
    }

    /// Stops every process in it until [`Branch::thaw`].
    ///
    /// # Errors
    /// When nothing runs in it.
    pub fn freeze(&self) -> Result<()> {
        self.attached()?.freeze()
    }

    /// Lets a frozen branch go on.
    ///
    /// # Errors
    /// When nothing runs in it.
    pub fn thaw(&self) -> Result<()> {
        self.attached()?.thaw()
    }

    fn attached(&self) -> Result<Sandbox> {
        let record = self.record()?;
        self.attach(&record)?
            .ok_or_else(|| codes::STATE.error(format!("nothing runs in {}", name(&record))))
    }

    pub(crate) fn attach(&self, record: &BranchRecord) -> Result<Option<Sandbox>> {
        let Some(process) = &record.process else {
            return Ok(None);
        };
        Sandbox::attach(&identity(process), &self.engine.paths().socket(self.id))
    }

    /// Asks what runs in it. `None`: nothing does; it may have ended between being found and being
    /// asked, which is no failure of who only looks.
    pub(crate) fn ask<T>(
        &self,
        record: &BranchRecord,
        question: impl FnOnce(&Sandbox) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(sandbox) = self.attach(record)? else {
            return Ok(None);
        };
        match question(&sandbox) {
            Ok(answer) => Ok(Some(answer)),
            Err(e) if e.code == forkpoint_sandbox::codes::GONE.text => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Ends its processes and makes it immutable. Sealing a sealed branch changes nothing.
    ///
    /// # Errors
    /// `FP0406` when another process works on it; `FP00xx` when it has ended.
    pub fn seal(&self, options: &SealOptions) -> Result<SealReport> {
        let lock = self.lock()?;
        self.seal_locked(&lock, options)
    }

    pub(crate) fn seal_locked(&self, _lock: &Lock, options: &SealOptions) -> Result<SealReport> {
        let record = self.record()?;
        kill_recorded(&self.engine, &record)?;
        let mut report = SealReport::default();
        let prepared = Detail::of(&record)?.prepared;
        if record.state == BranchState::Open && !options.protect.is_empty() {
            for (index, disk) in self.disks(&record)?.iter().enumerate() {
                if !disk.upper.is_dir() {
                    continue;
                }
                let below = prepared.get(index).copied().unwrap_or(0);
                let top = match disk.copy {
                    true => 1,
                    false => disk.all().len() - 1 - below,
                };
                let volatile = !record.durable;
                report.restored.extend(self.engine.protect(
                    disk,
                    top,
                    &options.protect,
                    volatile,
                )?);
            }
        }
        // The commit protocol asks for it once more; what is sealed needs no row written.
        if record.state != BranchState::Sealed {
            self.transition(&BranchEvent::Sealed)?;
        }
        Ok(report)
    }

    /// What it changes of the base, the preparation's changes included.
    ///
    /// # Errors
    /// When its layers cannot be read.
    pub fn diff(&self) -> Result<ChangeSet> {
        self.diff_disk(0)
    }

    /// The same of one disk of its world (0 is the base, 1 git data outside it).
    ///
    /// # Errors
    /// When its layers cannot be read, or there is no such disk.
    pub fn diff_disk(&self, disk: usize) -> Result<ChangeSet> {
        let record = self.record()?;
        let disks = self.disks(&record)?;
        let disk = disks
            .get(disk)
            .ok_or_else(|| codes::STATE.error(format!("{} has no disk {disk}", name(&record))))?;
        self.engine.diff(disk, None)
    }

    /// What it changes, apart from what its preparation changed.
    ///
    /// # Errors
    /// When its layers cannot be read.
    pub fn deltas(&self) -> Result<Deltas> {
        let record = self.record()?;
        let prepared = Detail::of(&record)?.prepared;
        let mut all = Deltas::default();
        for (index, disk) in self.disks(&record)?.iter().enumerate() {
            let below = prepared.get(index).copied().unwrap_or(0);
            let (attempt, prepared) = self.engine.diff_parts(disk, below)?;
            append(&mut all.attempt, attempt, index, disk);
            append(&mut all.prepared, prepared, index, disk);
        }
        Ok(all)
    }

    /// What was written outside its disks, which is thrown away.
    ///
    /// # Errors
    /// When the throw-away layers cannot be read.
    pub fn dropped(&self) -> Result<Dropped> {
        self.engine
            .dropped(&self.engine.paths().root_upper(self.id))
    }

    /// A file's bytes on one side, at most `max`; `None` where it is not a regular file there.
    ///
    /// # Errors
    /// When the layers cannot be read.
    pub fn read_file(&self, path: &Path, side: Side, max: u64) -> Result<Option<Vec<u8>>> {
        let record = self.record()?;
        let disks = self.disks(&record)?;
        let disk = &disks[0];
        let layers = match side {
            Side::Branch => disk.all(),
            Side::Base => vec![disk.bottom.clone()],
        };
        self.engine.read_file(disk, layers, path, max)
    }

    /// The branch's lock, without which nobody changes what it is. One that the branch holds itself is
    /// waited for, and then taken before the branch's next turn: whatever is asked for from inside, and
    /// how often, keeps nobody outside from sealing or aborting it. Another process that is at something
    /// short, such as a start, is waited for too.
    ///
    /// # Errors
    /// `FP0406` when another process works on it for long.
    pub(crate) fn lock(&self) -> Result<Lock> {
        match self.try_lock() {
            Err(e) if e.code == codes::BUSY.text => {
                let turns = self.engine.paths().turns();
                let _turn = lock::byte_waiting(&turns, self.id.bits())?;
                let begun = Instant::now();
                loop {
                    match self.try_lock() {
                        Err(e) if e.code == codes::BUSY.text && begun.elapsed() < PATIENCE => {
                            pause(LOOK_EVERY)?;
                        }
                        other => return other,
                    }
                }
            }
            other => other,
        }
    }

    /// The same for what is asked for from inside: it waits for nobody.
    pub(crate) fn lock_itself(&self) -> Result<ByItself> {
        let turns = self.engine.paths().turns();
        let turn = lock::byte(&turns, self.id.bits(), || self.is_busy())?;
        Ok(ByItself {
            _lock: self.try_lock()?,
            _turn: turn,
        })
    }

    fn try_lock(&self) -> Result<Lock> {
        let file = self.engine.paths().branch_locks();
        lock::byte(&file, self.id.bits(), || self.is_busy())
    }

    fn is_busy(&self) -> Error {
        codes::BUSY
            .error(format!("{} is being worked on by another process", self.id))
            .hint("wait for it to end, then try again")
    }

    pub(crate) fn transition(&self, event: &BranchEvent) -> Result<BranchRecord> {
        self.engine
            .store()
            .transition(self.id, event, self.engine.now())
    }

    pub(crate) fn base(&self) -> Result<PathBuf> {
        Ok(self.world()?.base().to_owned())
    }

    pub(crate) fn disks(&self, record: &BranchRecord) -> Result<Vec<DiskLayers>> {
        let world = self.engine.store().world(record.world)?;
        self.disks_of(record, &world)
    }

    /// As [`Branch::disks`], of a world that was read already.
    pub(crate) fn disks_of(
        &self,
        record: &BranchRecord,
        world: &WorldRecord,
    ) -> Result<Vec<DiskLayers>> {
        let detail = Detail::of(record)?;
        let mut stacks = record.stacks.clone();
        let bottoms = world
            .disks
            .iter()
            .zip(&mut stacks)
            .map(|(disk, stack)| {
                let bottom = match detail.snapshot {
                    true => stack.pop().map(|id| self.engine.paths().layer(id)),
                    false => None,
                };
                (
                    disk.path.clone(),
                    bottom.unwrap_or_else(|| disk.path.clone()),
                )
            })
            .collect::<Vec<_>>();
        Ok(layers::of_branch(
            self.engine.paths(),
            &bottoms,
            &stacks,
            detail.copy,
        ))
    }

    pub(crate) fn environment(
        &self,
        layer: ForkLayer,
        changes: &[(OsString, Option<OsString>)],
    ) -> Vec<(OsString, OsString)> {
        let mut ours = vec![
            ("FORKPOINT_BRANCH", OsString::from(self.id.to_string())),
            ("FORKPOINT_OUT", OUT_INSIDE.into()),
        ];
        if layer == ForkLayer::Effect {
            ours.push(("FORKPOINT_SOCK", SOCK_INSIDE.into()));
        }
        environment(&self.engine.inner.options.env, &ours, changes)
    }
}

/// Adds one disk's changes to a list over all disks: those of the base keep their relative paths,
/// those of a further disk are absolute.
fn append(all: &mut ChangeSet, mut one: ChangeSet, index: usize, disk: &DiskLayers) {
    if index > 0 {
        for change in &mut one.changes {
            change.path = disk.target.join(&change.path);
        }
        for (path, _) in &mut one.dir_times {
            *path = disk.target.join(&*path);
        }
    }
    all.changes.append(&mut one.changes);
    all.dir_times.append(&mut one.dir_times);
    all.bytes += one.bytes;
    all.skipped_noops += one.skipped_noops;
}

impl Engine {
    /// Whether anything runs in a branch. An init that holds nothing but the view is ended: a
    /// branch whose last command is over is a stopped one.
    pub(crate) fn is_running(&self, record: &BranchRecord) -> Result<bool> {
        let Some(process) = &record.process else {
            return Ok(false);
        };
        if !is_alive(&identity(process))? {
            return Ok(false);
        }
        match Branch::new(self.clone(), record.id).attach(record)? {
            Some(sandbox) if sandbox.usage()?.pids > 0 => Ok(true),
            // Nothing inside, or an init that answers nobody: neither can write any more once dead.
            _ => kill_recorded(self, record).map(|()| false),
        }
    }
}

/// Kills what the record says runs, and waits until it is dead.
pub(crate) fn kill_recorded(engine: &Engine, record: &BranchRecord) -> Result<()> {
    let Some(process) = &record.process else {
        return Ok(());
    };
    kill_process(&identity(process))?;
    engine
        .store()
        .modify_branch(record.id, |b| b.process = None)
        .map(drop)
}

pub(crate) fn identity(process: &ProcessRecord) -> ProcessIdentity {
    ProcessIdentity {
        boot_id: process.boot_id.clone(),
        pid: process.pid,
        start_time: process.start_time,
    }
}

pub(crate) fn process_record(process: &ProcessIdentity) -> ProcessRecord {
    ProcessRecord {
        boot_id: process.boot_id.clone(),
        pid: process.pid,
        start_time: process.start_time,
    }
}

pub(crate) fn name(record: &BranchRecord) -> String {
    record.name.clone().unwrap_or_else(|| record.id.to_string())
}
