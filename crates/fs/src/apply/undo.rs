//! Undo: the exact reverse of a redo, refused path by path where something was edited since.

use super::api::Redo;
use super::attrs;
use super::ident::{Ident, name};
use super::io::Io;
use super::journal::{Journal, Op};
use super::place::{Blocked, Place, blocked, why};
use super::stage;
use super::subtree;
use super::times;
use forkpoint_model::Result;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Takes back what [`super::redo`] did, all or part of it: the originals return, inode and
/// directory times included, and what was new lies in the stage again. Can be called again after
/// any interruption. Everything is looked at before the first change: a path that was edited since
/// it was applied blocks all of it.
///
/// # Errors
/// `FP0258` when the stage is gone or another.
pub fn undo(base: &Path, journal: &Journal) -> Result<Redo> {
    undo_with(Io::default(), base, journal)
}

/// As [`undo`], with every change made through `io`.
pub fn undo_with(io: Io<'_>, base: &Path, journal: &Journal) -> Result<Redo> {
    crate::view::settle();
    let place = match Place::open(base, journal)? {
        Ok(place) => place,
        Err(item) => return Ok(Redo::Blocked(vec![item])),
    };
    let items = looked_at(&place);
    if !items.is_empty() {
        return Ok(Redo::Blocked(items));
    }
    let mut sync_all = false;
    for op in journal.ops.iter().rev() {
        match run(&place, Some(io), op) {
            Ok(durable) => sync_all |= !durable,
            Err(item) => return Ok(Redo::Blocked(vec![item])),
        }
    }
    match times::finish(&place, io, sync_all, |_| false, |dir| dir.old_mtime) {
        Ok(()) => Ok(Redo::Done),
        Err(item) => Ok(Redo::Blocked(vec![item])),
    }
}

/// What would block an undo now. Changes nothing.
///
/// # Errors
/// As [`undo`].
pub fn check_undo(base: &Path, journal: &Journal) -> Result<Redo> {
    let items = match Place::open(base, journal)? {
        Ok(place) => looked_at(&place),
        Err(item) => vec![item],
    };
    Ok(if items.is_empty() {
        Redo::Done
    } else {
        Redo::Blocked(items)
    })
}

fn looked_at(place: &Place<'_>) -> Vec<Blocked> {
    let ops = &place.journal.ops;
    let mut items: Vec<_> = ops
        .iter()
        .rev()
        .filter_map(|op| run(place, None, op).err())
        .collect();
    items.reverse();
    items
}

/// One operation, backwards; without an `io` it is only looked at.
fn run(place: &Place<'_>, io: Option<Io<'_>>, op: &Op) -> Result<bool, Blocked> {
    let (dir, entry) = op.place();
    let fd = place.dir(dir)?;
    let back = Back {
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
        } => back.exchange(name, stage, old, new),
        Op::Add {
            name, stage, new, ..
        } => back.add(name, stage, new),
        Op::Remove {
            name, stage, old, ..
        } => back.remove(name, stage, old),
        Op::Attrs {
            name,
            id,
            old,
            new,
            mtime,
            size,
            ..
        } => {
            let mtime = mtime.map(|(old, new)| (new, old));
            let change = attrs::Change {
                id,
                from: new,
                to: old,
                mtime,
                size: *size,
            };
            return attrs::apply(io, back.dir, name, &change).map_err(|why| back.block(why));
        }
    }?;
    Ok(true)
}

struct Back<'p> {
    place: &'p Place<'p>,
    io: Option<Io<'p>>,
    dir: BorrowedFd<'p>,
    path: PathBuf,
}

impl Back<'_> {
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

    /// Whether what was applied is as it was applied.
    fn unedited(&self, entry: &[u8], new: &Ident, now: &Ident) -> Result<bool, Blocked> {
        if !new.same_but_renamed(now) {
            return Ok(false);
        }
        match new.below.filter(|_| new.is_dir()) {
            None => Ok(true),
            Some(pinned) => {
                let below = subtree::digest(self.dir, name(entry)).map_err(|e| self.os(e))?;
                Ok(below == pinned)
            }
        }
    }

    /// Whether git's index was only refreshed since it was applied: it lists the same entries, with
    /// whatever it now remembers of the files. Git writes it as a new file.
    fn refreshed(&self, entry: &[u8], new: &Ident, now: &Ident) -> Result<bool, Blocked> {
        let same_owner = (new.mode, new.uid, new.gid) == (now.mode, now.uid, now.gid);
        if new.is_dir() || new.below.is_none() || !same_owner {
            return Ok(false);
        }
        let as_index = (entry, self.dir, name(entry));
        Ok(stage::index_entries(as_index).map_err(|e| self.os(e))? == new.below)
    }

    fn settle(&self, entry: &[u8], old: &Ident) -> Result<(), Blocked> {
        let at = (self.dir, name(entry));
        self.io.map_or(Ok(()), |io| {
            times::after_move(io, at, old).map_err(|e| self.os(e))
        })
    }

    fn exchange(
        &self,
        entry: &[u8],
        stage: &[u8],
        old: &Ident,
        new: &Ident,
    ) -> Result<(), Blocked> {
        let applied = match self.here(entry)? {
            Some(now) if now.id == old.id => return self.settle(entry, old),
            Some(now) if now.id == new.id && self.unedited(entry, new, &now)? => now,
            Some(now) if self.refreshed(entry, new, &now)? => now,
            Some(now) if now.id == new.id => {
                return Err(self.block("edited since it was applied"));
            }
            Some(_) => return Err(self.block("replaced since it was applied")),
            None => return Err(self.block("removed since it was applied")),
        };
        match self.staged(stage)? {
            Some(kept) if kept.id == old.id => {}
            _ => return Err(self.block("its original is no longer kept")),
        }
        let Some(io) = self.io else {
            return Ok(());
        };
        let (at, kept) = (
            (self.dir, name(entry)),
            (self.place.stage.as_fd(), name(stage)),
        );
        io.exchange(kept, at).map_err(|e| self.os(e))?;
        match self.staged(stage)? {
            Some(now) if applied.same_but_renamed(&now) => self.settle(entry, old),
            // Edited between the look and the exchange: the edit goes back to where it was made.
            _ => {
                io.exchange(kept, at).map_err(|e| self.os(e))?;
                Err(self.block("edited since it was applied"))
            }
        }
    }

    fn add(&self, entry: &[u8], stage: &[u8], new: &Ident) -> Result<(), Blocked> {
        let applied = match self.here(entry)? {
            // Never applied, undone already, or removed by its user: nothing is here.
            None => return Ok(()),
            Some(now) if now.id == new.id => now,
            Some(now) if self.refreshed(entry, new, &now)? => now,
            Some(_) if self.staged(stage)?.is_some_and(|s| s.id == new.id) => return Ok(()),
            Some(_) => return Err(self.block("replaced since it was applied")),
        };
        let known = self.unedited(entry, new, &applied)? || self.refreshed(entry, new, &applied)?;
        if !known {
            return Err(self.block("edited since it was applied"));
        }
        let Some(io) = self.io else {
            return Ok(());
        };
        let (at, kept) = (
            (self.dir, name(entry)),
            (self.place.stage.as_fd(), name(stage)),
        );
        io.relocate(at, kept).map_err(|e| self.os(e))?;
        match self.staged(stage)? {
            Some(now) if applied.same_but_renamed(&now) => {
                times::after_move(io, kept, &applied).map_err(|e| self.os(e))
            }
            _ => {
                io.relocate(kept, at).map_err(|e| self.os(e))?;
                Err(self.block("edited since it was applied"))
            }
        }
    }

    fn remove(&self, entry: &[u8], stage: &[u8], old: &Ident) -> Result<(), Blocked> {
        let here = self.here(entry)?;
        match (self.staged(stage)?, here) {
            (Some(kept), None) if kept.id == old.id => {}
            (Some(_), _) => return Err(self.block("something was added here since")),
            (None, Some(now)) if now.id == old.id => return self.settle(entry, old),
            // Its user had removed it too, so there was nothing to keep.
            (None, _) => return Ok(()),
        }
        let Some(io) = self.io else {
            return Ok(());
        };
        let (at, kept) = (
            (self.dir, name(entry)),
            (self.place.stage.as_fd(), name(stage)),
        );
        match io.relocate(kept, at) {
            Ok(()) => self.settle(entry, old),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(self.block("something was added here since"))
            }
            Err(e) => Err(self.os(e)),
        }
    }
}
