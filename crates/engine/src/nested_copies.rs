//! Committing a nested branch into its parent where branches are whole copies.
//!
//! The child's tree becomes the parent's, by one transaction. That is right only if the parent is
//! what it was when the child was copied from it: nothing in it was changed (every entry's time is
//! before the copy's), and nobody else's tree has taken its place. Otherwise the commit is a
//! conflict: two copies hold no record of who changed what, and guessing could lose work.

use crate::branch::{Branch, name};
use crate::codes;
use crate::detail::Detail;
use crate::disk::{conflicts, participant};
use crate::engine::Engine;
use crate::nested::Turn;
use crate::options::CommitReport;
use forkpoint_fs::conflict::{Drift, PathConflict};
use forkpoint_fs::stamp::Stamp;
use forkpoint_model::{Conflict, LayerId, Result};
use forkpoint_store::BranchRecord;

impl Branch {
    /// Counts what the child changes of its parent, and says what stands in the way.
    pub(crate) fn against_copy(
        &self,
        parent: &Branch,
        (record, into): (&BranchRecord, &BranchRecord),
        report: &mut CommitReport,
    ) -> Result<Vec<Conflict>> {
        let copied = Detail::of(record)?.copied.ok_or_else(|| {
            codes::STATE
                .error(format!(
                    "it is not known what {} was when {} was copied from it",
                    name(into),
                    name(record)
                ))
                .hint("export what it changed: forkpoint diff BRANCH --patch")
        })?;
        let uppers: Vec<_> = into
            .stacks
            .iter()
            .filter_map(|s| s.first())
            .copied()
            .collect();
        if uppers != copied.from {
            return Ok(vec![Conflict {
                participant: participant(0),
                item: ".".into(),
                why: format!(
                    "another branch was committed into {} since the fork",
                    name(into)
                ),
            }]);
        }
        let mut found = Vec::new();
        let (mine, theirs) = (self.disks(record)?, parent.disks(into)?);
        for (index, (own, their)) in mine.iter().zip(&theirs).enumerate() {
            let trees = vec![own.upper.clone(), their.upper.clone()];
            let changes = self.engine.diff_layers(trees, 1, true)?;
            report.changed.items += changes.changes.len() as u64;
            report.changed.bytes += changes.bytes;
            let changed = match self
                .engine
                .changed_since(&their.upper, Stamp(copied.at_ns))?
            {
                Drift::None => continue,
                Drift::Paths(paths) => paths,
                Drift::Unknown { why, .. } => {
                    return Err(codes::IO.error(format!(
                        "{} could not be looked at: {why}",
                        their.upper.display()
                    )));
                }
            };
            let items = changed.into_iter().map(|path| PathConflict {
                path,
                why: format!("changed in {} since the fork", name(into)),
            });
            found.extend(conflicts(index, items.collect()));
        }
        Ok(found)
    }
}

/// The child's trees become the parent's; the child is left with names of trees that do not exist.
pub(crate) fn copies_turn(engine: &Engine, record: &BranchRecord, into: &BranchRecord) -> Turn {
    let with = |stack: &Vec<LayerId>, upper: LayerId| {
        let below = stack.iter().skip(1).copied();
        std::iter::once(upper).chain(below).collect::<Vec<_>>()
    };
    let parent = into
        .stacks
        .iter()
        .zip(&record.stacks)
        .map(|(their, own)| match own.first() {
            Some(&upper) => with(their, upper),
            None => their.clone(),
        });
    let own = record
        .stacks
        .iter()
        .map(|own| with(own, engine.draw(LayerId::from_bits)));
    Turn {
        parent: parent.collect(),
        own: Some(own.collect()),
        sealed: Vec::new(),
    }
}
