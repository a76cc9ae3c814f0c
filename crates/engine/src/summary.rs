//! What a stretch of time changed in a branch: its topmost layer's changes, compared with those of a
//! moment before. Costs as much as the layer holds, not as much as the base; where branches are whole
//! copies, as much as both trees.

use crate::branch::Branch;
use crate::detail::Detail;
use crate::layers::DiskLayers;
use forkpoint_fs::delta::{Change, ChangeKind, ChangeSet};
use forkpoint_model::{LayerId, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The first so many paths are named.
const NAMED: usize = 10;

/// A moment of a branch, to compare a later one with.
pub struct Mark {
    branch: Branch,
    /// Per disk the live upper, and what it changed by then.
    disks: Vec<(LayerId, ChangeSet)>,
}

/// What changed since a mark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Paths that were not there.
    pub added: u64,
    /// Paths that are another way now.
    pub modified: u64,
    /// Paths that are gone.
    pub removed: u64,
    /// The first of them, in order: `A`, `M` or `D`, and the path (relative to the base; absolute on
    /// a further disk).
    pub paths: Vec<(char, PathBuf)>,
}

impl Summary {
    /// How many paths changed.
    pub fn total(&self) -> u64 {
        self.added + self.modified + self.removed
    }

    fn add(&mut self, letter: char, path: PathBuf) {
        match letter {
            'A' => self.added += 1,
            'D' => self.removed += 1,
            _ => self.modified += 1,
        }
        if self.paths.len() < NAMED {
            self.paths.push((letter, path));
        }
    }
}

impl Branch {
    /// Notes how it is now. Where its disks are whole copies that costs as much as the base: `None`
    /// unless `at_any_cost`.
    ///
    /// # Errors
    /// When its layers cannot be read.
    pub fn mark(&self, at_any_cost: bool) -> Result<Option<Mark>> {
        let record = self.record()?;
        if !at_any_cost && Detail::of(&record)?.copy {
            return Ok(None);
        }
        let mut disks = Vec::with_capacity(record.stacks.len());
        for (disk, stack) in self.disks(&record)?.iter().zip(&record.stacks) {
            disks.push((stack[0], self.top(disk)?));
        }
        let branch = self.clone();
        Ok(Some(Mark { branch, disks }))
    }

    fn top(&self, disk: &DiskLayers) -> Result<ChangeSet> {
        match disk.upper.is_dir() {
            true if disk.copy => self.engine.diff(disk, None),
            true => self.engine.diff(disk, Some(1)),
            false => Ok(ChangeSet::default()),
        }
    }
}

impl Mark {
    /// What changed since. `None` where the branch has been forked, rewound or committed into
    /// meanwhile: then its layers are others.
    ///
    /// # Errors
    /// When its layers cannot be read.
    pub fn since(&self) -> Result<Option<Summary>> {
        let record = self.branch.record()?;
        let mut summary = Summary::default();
        let disks = self.branch.disks(&record)?;
        if disks.len() != self.disks.len() {
            return Ok(None);
        }
        for (index, (disk, (upper, before))) in disks.iter().zip(&self.disks).enumerate() {
            if record.stacks[index][0] != *upper {
                return Ok(None);
            }
            let after = self.branch.top(disk)?;
            for (letter, path) in compare(&before.changes, &after.changes) {
                let path = match index {
                    0 => path,
                    _ => disk.target.join(path),
                };
                summary.add(letter, path);
            }
        }
        Ok(Some(summary))
    }
}

/// From one list of changes of the same thing to a later one.
fn compare(before: &[Change], after: &[Change]) -> Vec<(char, PathBuf)> {
    let mut all: BTreeMap<&PathBuf, (Option<&Change>, Option<&Change>)> = BTreeMap::new();
    for change in before {
        all.entry(&change.path).or_default().0 = Some(change);
    }
    for change in after {
        all.entry(&change.path).or_default().1 = Some(change);
    }
    let there = |change: Option<&Change>, other: Option<&Change>| match (change, other) {
        (Some(change), _) => change.kind != ChangeKind::Removed,
        // Unchanged then: there, unless the other side says that it had not been.
        (None, Some(other)) => other.kind != ChangeKind::Added,
        (None, None) => false,
    };
    let letter = |(was, is): (Option<&Change>, Option<&Change>)| {
        if was == is {
            return None;
        }
        match (there(was, is), there(is, was)) {
            (false, true) => Some('A'),
            (true, false) => Some('D'),
            (true, true) => Some('M'),
            (false, false) => None,
        }
    };
    all.into_iter()
        .filter_map(|(path, pair)| Some((letter(pair)?, path.clone())))
        .collect()
}
