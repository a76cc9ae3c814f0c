//! Views made ahead: while a program looks into one branch after the other, the directories and the mount
//! of the next view are made beside it, so that it finds them ready.
//!
//! A spare belongs to no branch. It is an upper and a work directory of a process's own, mounted over a base
//! that nothing was looked up in yet, so that whoever takes it sees the base as it is then; a spare whose
//! base has another root by then (its mode, owner, attributes or times) is not taken. What takes one, under
//! its branch's lock, moves the two directories to where the branch's own would have been made. Spares that
//! nobody takes are given up after a moment, and what a process that died leaves is swept like any
//! scratch directory.
//!
//! Only root's, and only volatile ones: an ordinary user's views are mounted by the worker.

use crate::codes;
use crate::files::make_dir;
use crate::layers::DiskLayers;
use crate::lock::{self, Lock};
use forkpoint_fs::{MountOptions, Stack};
use forkpoint_model::Result;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Spares of one engine at most, each of another base.
const MOST: usize = 8;
/// A spare that nobody took in this time is given up.
const KEPT: Duration = Duration::from_secs(2);

/// The spares of an engine.
pub(crate) struct Spares {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// The place for all processes' directories.
    place: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: Vec<Spare>,
    wanted: Vec<PathBuf>,
    working: bool,
    ending: bool,
}

struct Spare {
    base: PathBuf,
    root: Root,
    upper: PathBuf,
    work: PathBuf,
    view: OwnedFd,
    made: Instant,
}

/// What of a base's root is copied into a view's when that is made.
#[derive(PartialEq, Eq)]
struct Root([i64; 8]);

impl Root {
    fn of(base: &Path) -> std::io::Result<Self> {
        let meta = std::fs::metadata(base)?;
        Ok(Self([
            meta.dev().cast_signed(),
            meta.ino().cast_signed(),
            (u64::from(meta.mode()) << 32 | u64::from(meta.uid())).cast_signed(),
            meta.gid().into(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        ]))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spares {
    pub(crate) fn new(place: PathBuf) -> Self {
        Self {
            shared: Arc::new(Shared {
                place,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
            thread: Mutex::new(None),
        }
    }

    /// A view for `disk`, whose directories are not made yet and which lies on its base alone; its
    /// directories are there then. Nothing where no spare fits: then it is made as ever.
    pub(crate) fn take(&self, disk: &DiskLayers) -> Option<OwnedFd> {
        let spare = {
            let mut state = self.shared.state();
            let at = state.ready.iter().position(|s| s.base == disk.bottom)?;
            state.ready.swap_remove(at)
        };
        let root = Root::of(&disk.bottom);
        let fits = disk.sealed.is_empty() && root.is_ok_and(|root| root == spare.root);
        let moved = fits && std::fs::rename(&spare.work, &disk.work).is_ok();
        if moved && std::fs::rename(&spare.upper, &disk.upper).is_ok() {
            return Some(spare.view);
        }
        // The next attempt finds the names free again; if not, making them says what is wrong.
        let left = if moved { &disk.work } else { &spare.work };
        drop(spare.view);
        for dir in [left, &spare.upper] {
            forkpoint_fs::tree::remove(dir).ok();
        }
        None
    }

    /// Has a spare made for a base, unless there is one.
    pub(crate) fn want(&self, base: &Path) {
        let mut state = self.shared.state();
        let there = state.ready.iter().any(|s| s.base == base);
        if there || state.ending || state.ready.len() + state.wanted.len() >= MOST {
            return;
        }
        state.wanted.push(base.to_owned());
        if std::mem::replace(&mut state.working, true) {
            self.shared.changed.notify_one();
            return;
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("spare-views".into());
        let mut slot = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = slot.take() {
            drop(ended.join());
        }
        match thread.spawn(move || work(&shared)) {
            Ok(handle) => *slot = Some(handle),
            // Without the thread there are no spares.
            Err(_) => self.shared.state().working = false,
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.shared.state().ending = true;
        self.shared.changed.notify_all();
        let slot = self.thread.get_mut();
        if let Some(thread) = slot.unwrap_or_else(PoisonError::into_inner).take() {
            // One that panicked has left its directory to the sweep.
            drop(thread.join());
        }
    }
}

/// The thread's work, until nobody has wanted anything for a while.
fn work(shared: &Shared) {
    let Ok(own) = Own::new(&shared.place) else {
        // A store that cannot be written to tells so where something has to be.
        let mut state = shared.state();
        state.wanted.clear();
        state.working = false;
        return;
    };
    let mut made = 0u64;
    let mut state = shared.state();
    loop {
        if let Some(base) = state.wanted.pop().filter(|_| !state.ending) {
            drop(state);
            made += 1;
            let spare = own.make(&base, made);
            state = shared.state();
            state.ready.extend(spare);
            continue;
        }
        let old = |spare: &Spare| spare.made.elapsed() >= KEPT;
        let given_up: Vec<_> = match state.ending {
            true => std::mem::take(&mut state.ready),
            false => state.ready.extract_if(.., |s| old(s)).collect(),
        };
        if !given_up.is_empty() {
            drop(state);
            for spare in given_up {
                drop(spare.view);
                // What is left goes with the directory they lie in.
                forkpoint_fs::tree::remove(&spare.work).ok();
                forkpoint_fs::tree::remove(&spare.upper).ok();
            }
            state = shared.state();
            continue;
        }
        if state.ending {
            break;
        }
        // Nothing in a whole wait: with the spares gone, the thread goes, too.
        let (next, waited) = shared
            .changed
            .wait_timeout(state, KEPT)
            .unwrap_or_else(PoisonError::into_inner);
        state = next;
        if waited.timed_out() && state.ready.is_empty() && state.wanted.is_empty() {
            break;
        }
    }
    state.wanted.clear();
    state.working = false;
}

/// A directory of this process, locked as long as it has it.
struct Own {
    dir: PathBuf,
    _lock: Lock,
}

impl Own {
    fn new(place: &Path) -> Result<Self> {
        let dir = place.join(format!("{:016x}", forkpoint_sys::rand::bits()));
        let making = place.with_file_name(crate::files::MAKING_SCRATCH_LOCK);
        let _making = lock::shared(&making)?;
        make_dir(&dir)?;
        let lock = lock::file(&dir.join(crate::files::SCRATCH_LOCK), || {
            codes::BUSY.error("a fresh lock is held")
        })?;
        Ok(Self { dir, _lock: lock })
    }

    /// One spare; none where anything is in its way.
    fn make(&self, base: &Path, number: u64) -> Option<Spare> {
        let stack = Stack {
            lowers: vec![base.to_owned()],
            upper: self.dir.join(format!("{number}")),
            work: self.dir.join(format!("{number}.work")),
        };
        let options = MountOptions {
            volatile: true,
            userxattr: false,
        };
        let root = Root::of(base).ok()?;
        let made = forkpoint_fs::view::prepare_pair(&stack.upper, &stack.work, base)
            .and_then(|()| forkpoint_fs::view::mount(&stack, &options));
        match made {
            Ok(view) => Some(Spare {
                base: base.to_owned(),
                root,
                upper: stack.upper,
                work: stack.work,
                view,
                made: Instant::now(),
            }),
            Err(_) => {
                forkpoint_fs::tree::remove(&stack.work).ok();
                forkpoint_fs::tree::remove(&stack.upper).ok();
                None
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // What cannot be removed now is swept when the store is collected.
        forkpoint_fs::tree::remove(&self.dir).ok();
    }
}
