//! Redo: makes the base what the journal says, from whatever point an earlier redo stopped at.

use super::api::Redo;
use super::attrs;
use super::ident::{FileId, Ident, name};
use super::io::Io;
use super::journal::{Journal, Op};
use super::place::{Blocked, Place, blocked, why};
use super::subtree;
use super::times;
use forkpoint_model::Result;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Applies what was staged. Can be called again after any interruption, and then goes on; when it
/// says `Done`, all of it is in place and durable. `Blocked` names what stands in the way (an edit
/// made since, a permission, a full disk); before the first change of a call everything is looked
/// at, so that what is blocked from the start changes nothing.
///
/// What an earlier call did stays done whatever its user did since: an original that lies in the stage
/// was displaced, and what stands in its place now, if not what was decided, is a later edit.
///
/// # Errors
/// `FP0258` when the stage is gone or another.
pub fn redo(base: &Path, journal: &Journal) -> Result<Redo> {
    redo_with(Io::default(), base, journal)
}

/// As [`redo`], with every change made through `io`.
pub fn redo_with(io: Io<'_>, base: &Path, journal: &Journal) -> Result<Redo> {
    // A mounted lower must not change.
    crate::view::settle();
    let place = match Place::open(base, journal)? {
        Ok(place) => place,
        Err(item) => return Ok(Redo::Blocked(vec![item])),
    };
    let mut items = Vec::new();
    for op in &journal.ops {
        if let Err(item) = run(&place, None, op) {
            items.push(item);
        }
    }
    if !items.is_empty() {
        return Ok(Redo::Blocked(items));
    }
    let mut sync_all = false;
    for op in &journal.ops {
        match run(&place, Some(io), op) {
            Ok(durable) => sync_all |= !durable,
            Err(item) => return Ok(Redo::Blocked(vec![item])),
        }
    }
    let left = |dir| outlived(&place, dir);
    match times::finish(&place, io, sync_all, left, |dir| dir.new_mtime) {
        Ok(()) => Ok(Redo::Done),
        Err(item) => Ok(Redo::Blocked(vec![item])),
    }
}

/// One operation; without an `io` it is only looked at. Says whether syncing its directory is
/// enough to make it durable.
fn run(place: &Place<'_>, io: Option<Io<'_>>, op: &Op) -> Result<bool, Blocked> {
    let (dir, entry) = op.place();
    let fd = match place.dir(dir) {
        Ok(fd) => fd,
        Err(_) if displaced(place, op) => return Ok(true),
        Err(item) => return Err(item),
    };
    let step = Step {
        place,
        io,
        dir: fd.as_fd(),
        path: place.path(dir, entry),
    };
    match op {
        Op::Exchange {
            name,
            stage,
            old,
            new,
            ..
        } => step.exchange(name, stage, old, new),
        Op::Add {
            name, stage, new, ..
        } => step.add(name, stage, new),
        Op::Remove {
            name, stage, old, ..
        } => step.remove(name, stage, old),
        Op::Attrs {
            name,
            id,
            old,
            new,
            mtime,
            size,
            ..
        } => {
            let change = attrs::Change {
                id,
                from: old,
                to: new,
                mtime: *mtime,
                size: *size,
            };
            return attrs::apply(io, step.dir, name, &change).map_err(|why| step.block(why));
        }
    }?;
    Ok(true)
}

/// Whether the stage holds the original that an operation displaces, unchanged: then it was done.
fn displaced(place: &Place<'_>, op: &Op) -> bool {
    let (Op::Exchange { stage, old, .. } | Op::Remove { stage, old, .. }) = op else {
        return false;
    };
    let (kept, stage) = (place.stage.as_fd(), name(stage));
    let same = |now: &Ident| old.same_but_renamed(now);
    let below = || match old.below {
        None => true,
        Some(pinned) => subtree::digest(kept, stage).is_ok_and(|now| now == pinned),
    };
    matches!(Ident::at(kept, stage), Ok(Some(now)) if same(&now)) && below()
}

/// Whether a directory that is no longer what it was may be passed over: all that was to be done in it
/// was done before its user moved or removed it.
fn outlived(place: &Place<'_>, index: u32) -> bool {
    let mut here = place.journal.ops.iter().filter(|op| op.place().0 == index);
    here.all(|op| displaced(place, op))
}

struct Step<'p> {
    place: &'p Place<'p>,
    io: Option<Io<'p>>,
    dir: BorrowedFd<'p>,
    path: std::path::PathBuf,
}

impl Step<'_> {
    fn block(&self, why: impl Into<String>) -> Blocked {
        blocked(&self.path, why)
    }

    fn os(&self, error: std::io::Error) -> Blocked {
        self.block(why(&error))
    }

    fn here(&self, entry: &[u8]) -> Result<Option<Ident>, Blocked> {
        Ident::at(self.dir, name(entry)).map_err(|e| self.os(e))
    }

    fn staged(&self, entry: &[u8]) -> Result<Option<Ident>, Blocked> {
        Ident::at(self.place.stage.as_fd(), name(entry)).map_err(|e| self.os(e))
    }

    /// Whether what lies below a directory is still what it was.
    fn below(&self, dir: BorrowedFd<'_>, entry: &[u8], known: &Ident) -> Result<bool, Blocked> {
        match known.below.filter(|_| known.is_dir()) {
            None => Ok(true),
            Some(pinned) => {
                Ok(subtree::digest(dir, name(entry)).map_err(|e| self.os(e))? == pinned)
            }
        }
    }

    /// The staged entry must still be the one that was voted for.
    fn check_staged(&self, entry: &[u8], new: &Ident) -> Result<(), Blocked> {
        match self.staged(entry)? {
            Some(now) if now.id == new.id => Ok(()),
            _ => Err(self.block("what was staged for it is gone")),
        }
    }

    /// Whether the original lies in the stage, unchanged.
    fn was_displaced(&self, stage: &[u8], old: &Ident) -> Result<bool, Blocked> {
        match self.staged(stage)? {
            Some(now) if old.same_but_renamed(&now) => {
                self.below(self.place.stage.as_fd(), stage, old)
            }
            _ => Ok(false),
        }
    }

    fn exchange(
        &self,
        entry: &[u8],
        stage: &[u8],
        old: &Ident,
        new: &Ident,
    ) -> Result<(), Blocked> {
        match self.here(entry)? {
            Some(now) if now.id == new.id => {
                return self.settle_exchange(entry, stage, old, new);
            }
            Some(now) if old.untouched(&now) && self.below(self.dir, entry, old)? => {}
            Some(now) if now.id == old.id => return Err(self.block("edited since")),
            // Exchanged by an earlier call, and edited after that.
            _ if self.was_displaced(stage, old)? => return Ok(()),
            Some(_) => return Err(self.block("replaced since")),
            None => return Err(self.block("removed since")),
        }
        self.check_staged(stage, new)?;
        let Some(io) = self.io else {
            return Ok(());
        };
        let (at, kept) = (
            (self.dir, name(entry)),
            (self.place.stage.as_fd(), name(stage)),
        );
        io.exchange(kept, at).map_err(|e| self.os(e))?;
        self.settle_exchange(entry, stage, old, new)
    }

    /// After an exchange, now or in an earlier run: what was displaced must be what was expected,
    /// else someone edited it between the look and the exchange, and it goes back.
    fn settle_exchange(
        &self,
        entry: &[u8],
        stage: &[u8],
        old: &Ident,
        new: &Ident,
    ) -> Result<(), Blocked> {
        let Some(io) = self.io else {
            return Ok(());
        };
        let kept = (self.place.stage.as_fd(), name(stage));
        let Some(displaced) = self.staged(stage)? else {
            // The original is no longer kept; what was decided is in place all the same.
            return times::after_move(io, (self.dir, name(entry)), new).map_err(|e| self.os(e));
        };
        if old.same_but_renamed(&displaced) && self.below(kept.0, stage, old)? {
            times::after_move(io, kept, old).map_err(|e| self.os(e))?;
            return times::after_move(io, (self.dir, name(entry)), new).map_err(|e| self.os(e));
        }
        let at = (self.dir, name(entry));
        io.exchange(kept, at).map_err(|e| self.os(e))?;
        let back = FileId::at_opt(kept.0, kept.1).map_err(|e| self.os(e))?;
        if back.as_ref() != Some(&new.id) {
            // It was replaced once more before it went back: the latest stays where users look.
            io.exchange(kept, at).map_err(|e| self.os(e))?;
        }
        Err(self.block("edited since"))
    }

    fn add(&self, entry: &[u8], stage: &[u8], new: &Ident) -> Result<(), Blocked> {
        let at = (self.dir, name(entry));
        match self.here(entry)? {
            Some(now) if now.id == new.id => {
                return self.io.map_or(Ok(()), |io| {
                    times::after_move(io, at, new).map_err(|e| self.os(e))
                });
            }
            Some(_) => return Err(self.block("something was added here since")),
            None => {}
        }
        self.check_staged(stage, new)?;
        let Some(io) = self.io else {
            return Ok(());
        };
        let from = (self.place.stage.as_fd(), name(stage));
        match io.relocate(from, at) {
            Ok(()) => times::after_move(io, at, new).map_err(|e| self.os(e)),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(self.block("something was added here since"))
            }
            Err(e) => Err(self.os(e)),
        }
    }

    fn remove(&self, entry: &[u8], stage: &[u8], old: &Ident) -> Result<(), Blocked> {
        let at = (self.dir, name(entry));
        let kept = (self.place.stage.as_fd(), name(stage));
        if self.staged(stage)?.is_none() {
            match self.here(entry)? {
                // Removed by its user too.
                None => return Ok(()),
                Some(now) if old.untouched(&now) && self.below(self.dir, entry, old)? => {}
                Some(now) if now.id == old.id => return Err(self.block("edited since")),
                Some(_) => return Err(self.block("replaced since")),
            }
            let Some(io) = self.io else {
                return Ok(());
            };
            io.relocate(at, kept).map_err(|e| self.os(e))?;
        }
        let Some(io) = self.io else {
            return Ok(());
        };
        match self.staged(stage)? {
            Some(now) if old.same_but_renamed(&now) && self.below(kept.0, stage, old)? => {
                times::after_move(io, kept, old).map_err(|e| self.os(e))
            }
            Some(_) => match io.relocate(kept, at) {
                Ok(()) => Err(self.block("edited since")),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    let kept = self.place.kept(stage);
                    Err(self.block(format!(
                        "edited since; the edited one is {}",
                        kept.display()
                    )))
                }
                Err(e) => Err(self.os(e)),
            },
            None => Err(self.block("what was moved away is gone")),
        }
    }
}
