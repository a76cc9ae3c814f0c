//! Committing a nested branch into the branch it was forked from.
//!
//! No file is touched: the parent's stack becomes the child's, with a fresh upper on top. When the
//! parent changed other paths since the fork, its upper goes between: the child's layers over the
//! parent's show both, as long as no path of one lies at or below a path of the other.

use crate::branch::{Branch, name};
use crate::codes;
use crate::commit::lost;
use crate::detail::Detail;
use crate::disk::participant;
use crate::keys::key_conflicts;
use crate::layers::{DiskLayers, is_sealed};
use crate::lock::Lock;
use crate::nested_copies::copies_turn;
use crate::options::{CommitOptions, CommitOutcome, CommitReport, SealOptions};
use forkpoint_fs::delta::{Change, ChangeKind, ChangeSet, FileType};
use forkpoint_model::commit::Lost;
use forkpoint_model::state::{BranchEvent, BranchState};
use forkpoint_model::{BranchId, CommitId, Conflict, LayerId, Result};
use forkpoint_store::{BranchRecord, Durability, HistoryRecord, LayerKind, LayerRecord};
use std::path::Path;

/// What the one transaction of a nested commit does to the layers.
#[derive(Default)]
pub(crate) struct Turn {
    /// The parent's stacks from now on, uppers included.
    pub(crate) parent: Vec<Vec<LayerId>>,
    /// The committed branch's own, where it gives its upper away.
    pub(crate) own: Option<Vec<Vec<LayerId>>>,
    /// Layers that nobody writes to any more.
    pub(crate) sealed: Vec<LayerId>,
}

/// Why the transaction did not decide.
enum Beaten {
    Lost(Lost),
    Keys(Vec<Conflict>),
}

impl Branch {
    pub(crate) fn commit_into(
        &self,
        lock: &Lock,
        parent: BranchId,
        options: &CommitOptions,
    ) -> Result<CommitReport> {
        let parent = self.engine.branch_by_id(parent)?;
        let _parent_lock = parent.lock()?;
        let _making = self.engine.making_layers()?;
        self.seal_locked(lock, &SealOptions::default())?;
        let record = self.record()?;
        let into = parent.record()?;
        check(&into, &parent)?;
        let mut report =
            CommitReport::new(self.engine.draw(CommitId::from_bits), record.generation);
        if !options.exclude.is_empty() {
            return Err(codes::STATE
                .error("paths cannot be left out when a nested branch is committed")
                .hint("leave them out when the outermost branch is committed"));
        }
        let mine = self.disks(&record)?;
        let theirs = parent.disks(&into)?;
        let mut turn = Turn::default();
        let mut conflicts = self.effects_in_the_way()?;
        report.effects = self.effects_to_commit()?;
        let store = self.engine.store();
        conflicts.extend(key_conflicts(
            store.kv_nested_conflicts(self.id, parent.id)?,
        ));
        report.keys = store.kv_nested_changes(self.id, parent.id)?;
        drop(store);
        if Detail::of(&record)?.copy {
            conflicts.extend(self.against_copy(&parent, (&record, &into), &mut report)?);
            turn = copies_turn(&self.engine, &record, &into);
        }
        let overlays = mine.iter().zip(&theirs).filter(|(own, _)| !own.copy);
        for (index, (own, their)) in overlays.enumerate() {
            let shared = shared_below(&record.stacks[index], &into.stacks[index]);
            let own_count = record.stacks[index].len() - shared;
            let changes = self.delta_above(own, own_count)?;
            report.changed.items += changes.changes.len() as u64;
            report.changed.bytes += changes.bytes;
            let since = into.stacks[index].len() - shared;
            let others = parent.delta_above(their, since)?;
            conflicts.extend(overlap(&changes, &others, index));
            let used = usize::from(!own.upper.is_dir());
            let mut stack = record.stacks[index][used..own_count].to_vec();
            let kept = usize::from(!their.upper.is_dir());
            stack.extend_from_slice(&into.stacks[index][kept..]);
            turn.sealed.extend_from_slice(&stack);
            stack.insert(0, self.engine.draw(LayerId::from_bits));
            turn.parent.push(stack);
        }
        if !conflicts.is_empty() {
            report.outcome = CommitOutcome::Conflict(conflicts);
            return Ok(report);
        }
        if report.is_empty() && !options.allow_empty {
            return Ok(report);
        }
        report.outcome = match self.flip(&parent, turn, options)? {
            Ok(losers) => {
                report.losers = losers;
                for id in record
                    .stacks
                    .iter()
                    .chain(&into.stacks)
                    .filter_map(|s| s.first())
                {
                    self.engine.drop_work(*id)?;
                }
                // What was the parent's is nobody's, now that the copy is in its place.
                for their in theirs.iter().filter(|their| their.copy) {
                    self.engine.remove_tree(&their.upper)?;
                }
                self.engine.release_layers(&self.record()?)?;
                CommitOutcome::Committed
            }
            Err(Beaten::Lost(why)) => CommitOutcome::Lost { why: lost(&why) },
            Err(Beaten::Keys(conflicts)) => CommitOutcome::Conflict(conflicts),
        };
        Ok(report)
    }

    /// What the topmost `count` layers of a stack change.
    fn delta_above(&self, disk: &DiskLayers, count: usize) -> Result<ChangeSet> {
        // The live upper is counted in a stack whether its directory was made or not.
        let top = if disk.upper.is_dir() {
            count
        } else {
            count.saturating_sub(1)
        };
        if top == 0 {
            return Ok(ChangeSet::default());
        }
        self.engine.diff(disk, Some(top))
    }

    /// The one transaction that makes the child's change the parent's.
    fn flip(
        &self,
        parent: &Branch,
        turn: Turn,
        options: &CommitOptions,
    ) -> Result<Result<Vec<BranchId>, Beaten>> {
        let now = self.engine.now();
        let store = self.engine.store();
        store.batch(Durability::Full, |store| {
            let record = store.branch(self.id)?;
            if !record.state.is_live() {
                return Ok(Err(Beaten::Lost(Lost::Sibling { winner: None })));
            }
            let siblings = match record.group {
                Some(group) => store.siblings(group)?,
                None => Vec::new(),
            };
            if let Some(winner) = siblings.iter().find(|s| s.state == BranchState::Committed) {
                return Ok(Err(Beaten::Lost(Lost::Sibling {
                    winner: Some(winner.id),
                })));
            }
            // Once more, in the transaction that decides: whoever acts for the parent may write keys.
            let keys = store.kv_nested_conflicts(self.id, parent.id)?;
            if !keys.is_empty() {
                return Ok(Err(Beaten::Keys(key_conflicts(keys))));
            }
            store.transition(
                self.id,
                &BranchEvent::StageBegan {
                    force: options.force,
                },
                now,
            )?;
            store.transition(self.id, &BranchEvent::Decided { in_place: false }, now)?;
            let mut losers = Vec::new();
            for sibling in siblings
                .iter()
                .filter(|s| s.id != self.id && s.state.is_live())
            {
                store.transition_with(sibling.id, &BranchEvent::SiblingCommitted, now, |b| {
                    b.reason = Some("sibling_committed".into());
                })?;
                losers.push(sibling.id);
            }
            for id in &turn.sealed {
                if !is_sealed(store, *id)? {
                    store.insert_layer(&LayerRecord {
                        id: *id,
                        kind: LayerKind::Sealed,
                        bytes: 0,
                        entries: 0,
                        merged: 1,
                        created_ns: now,
                    })?;
                }
            }
            let into = store.branch(parent.id)?;
            if matches!(into.state, BranchState::Verified { .. }) {
                store.transition(parent.id, &BranchEvent::DriftFound, now)?;
            }
            store.modify_branch(parent.id, |b| {
                b.stacks = turn.parent;
            })?;
            if let Some(own) = turn.own {
                store.modify_branch(self.id, |b| b.stacks = own)?;
            }
            store.kv_commit_into(self.id, parent.id)?;
            store.move_effects(self.id, parent.id)?;
            store.append_history(&HistoryRecord {
                seq: 0,
                at_ns: now,
                verb: "commit".into(),
                world: Some(record.world),
                branch: Some(self.id),
                commit: None,
                text: format!("committed {} into {}", name(&record), name(&into)),
                json: None,
            })?;
            Ok(Ok(losers))
        })
    }
}

fn check(into: &BranchRecord, parent: &Branch) -> Result<()> {
    if parent.is_running()? {
        return Err(codes::STATE
            .error(format!(
                "{} is running: its files cannot be changed under it",
                name(into)
            ))
            .hint("stop it first"));
    }
    if !matches!(
        into.state,
        BranchState::Open | BranchState::Sealed | BranchState::Verified { .. }
    ) {
        return Err(codes::STATE
            .error(format!(
                "{} is {}: nothing can be committed into it",
                name(into),
                into.state
            ))
            .hint("its changes can be taken from it: forkpoint diff --patch, forkpoint export"));
    }
    Ok(())
}

/// How many layers at the bottom two stacks have in common.
pub(crate) fn shared_below(a: &[LayerId], b: &[LayerId]) -> usize {
    a.iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(a, b)| a == b)
        .count()
}

/// The paths at which two deltas meet. Directories that both only touched do not.
fn overlap(mine: &ChangeSet, theirs: &ChangeSet, disk: usize) -> Vec<Conflict> {
    let harmless = |c: &Change| c.kind == ChangeKind::Metadata && c.file_type == FileType::Dir;
    let above = |set: &ChangeSet, path: &Path| {
        path.ancestors()
            .skip(1)
            .any(|up| set.get(up).is_some_and(|c| !harmless(c)))
    };
    let clash = |path: &Path| Conflict {
        participant: participant(disk),
        item: path
            .as_os_str()
            .as_encoded_bytes()
            .escape_ascii()
            .to_string(),
        why: "changed in both since the fork".into(),
    };
    let mut found = Vec::new();
    for change in &mine.changes {
        let both = theirs
            .get(&change.path)
            .is_some_and(|c| !(harmless(c) && harmless(change)));
        if both || above(theirs, &change.path) {
            found.push(clash(&change.path));
        }
    }
    for change in theirs.changes.iter().filter(|c| above(mine, &c.path)) {
        found.push(clash(&change.path));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(ids: &[u64]) -> Vec<LayerId> {
        ids.iter().map(|&id| LayerId::from_bits(id)).collect()
    }

    #[test]
    fn stacks_share_their_bottoms() {
        assert_eq!(shared_below(&layers(&[9, 2, 1]), &layers(&[8, 2, 1])), 2);
        assert_eq!(shared_below(&layers(&[9]), &layers(&[8])), 0);
        assert_eq!(shared_below(&layers(&[9, 1]), &layers(&[8, 3, 1])), 1);
    }
}
