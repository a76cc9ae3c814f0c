//! Overlays of a world's shared state: who may write to one, and how they are stacked.
//!
//! A branch writes to an overlay of its own, made when it is first needed, over the sealed ones it
//! was forked on, over the world's state up to its position. A fork seals the overlay, as it seals an
//! upper of a disk: both stand on it from then on, whatever it holds.

use crate::{
    CommitRecord, Durability, SharedRecord, Store, codes,
    row::{key, list_json, rows, signed, sql},
};
use forkpoint_model::state::BranchState;
use forkpoint_model::{BranchId, Epoch, Result, WorldId};
use rusqlite::params;

/// What a branch may touch, found and checked in one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Its world.
    pub world: WorldId,
    /// The last change of the world's shared state that it sees.
    pub position: u64,
    /// The overlay it writes to, once it has.
    pub overlay: Option<u64>,
    /// The sealed overlays it stands on, topmost first.
    pub overlays: Vec<u64>,
}

impl Access {
    /// All its overlays, topmost first.
    pub fn stack(&self) -> impl Iterator<Item = u64> + '_ {
        self.overlay
            .into_iter()
            .chain(self.overlays.iter().copied())
    }
}

impl Store {
    /// What the branch may touch, if it is open, at the effect layer, and still in `epoch`: what comes
    /// from before its seal is refused, however late it arrives. To be asked in the transaction that
    /// does what was asked for.
    ///
    /// # Errors
    /// FP0112 when the epoch is over; FP0108 when there is no such branch.
    pub fn access(&self, id: BranchId, epoch: Epoch) -> Result<Access> {
        let text = "SELECT world, position, overlay, overlays, epoch, state, layer FROM branches \
                    WHERE id = ?";
        let (access, now, state, layer) = rows(&mut *self.cached(text)?, [key(id.bits())], |r| {
            let access = Access {
                world: r.id(WorldId::from_bits)?,
                position: r.unsigned()?,
                overlay: r.get::<Option<i64>>()?.map(i64::cast_unsigned),
                overlays: r.list()?,
            };
            let now = Epoch(r.unsigned()?);
            let state: BranchState = r.text(|s| s.parse().ok())?;
            let layer: String = r.get()?;
            Ok((access, now, state, layer))
        })?
        .pop()
        .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no branch {id}")))?;
        if now != epoch || state != BranchState::Open {
            return Err(codes::FENCED
                .error(format!(
                    "branch {id} is {state}, in epoch {} and not {}",
                    now.0, epoch.0
                ))
                .hint("what a branch did before it was sealed counts; nothing is taken after"));
        }
        if layer != "effect" {
            return Err(codes::FENCED
                .error(format!("branch {id} is at the {layer} layer"))
                .hint("its only output is what it says; fork with --layer effect"));
        }
        Ok(access)
    }

    /// As [`Store::access`], for writing: makes the branch's own overlay where it has none. Inside a
    /// write transaction.
    pub fn own_overlay(&self, id: BranchId, epoch: Epoch) -> Result<(u64, Access)> {
        self.write(self.durability(Durability::Normal), |conn| {
            let mut access = self.access(id, epoch)?;
            if let Some(own) = access.overlay {
                return Ok((own, access));
            }
            self.cached("INSERT INTO overlays (world, branch) VALUES (?, ?)")?
                .execute(params![key(access.world.bits()), key(id.bits())])
                .map_err(sql("making an overlay"))?;
            let own = conn.last_insert_rowid();
            self.cached("UPDATE branches SET overlay = ? WHERE id = ?")?
                .execute(params![own, key(id.bits())])
                .map_err(sql("giving a branch its overlay"))?;
            access.overlay = Some(own.cast_unsigned());
            Ok((own.cast_unsigned(), access))
        })
    }

    /// Seals what a branch wrote so far, so that forks and checkpoints can stand on it; the branch
    /// itself goes on above. Returns what a fork of it sees. Costs the same whatever was written.
    pub fn seal_overlay(&self, id: BranchId) -> Result<SharedRecord> {
        let branch = self.branch(id)?;
        if branch.shared.overlay.is_none() || branch.ended_ns.is_some() {
            return Ok(branch.shared.sealed());
        }
        self.write(self.durability(Durability::Normal), |_| {
            let branch = self.branch(id)?;
            let mut sealed = branch.shared.sealed();
            sealed.overlays = self.shortened((branch.world, id), sealed.overlays)?;
            self.set_shared(id, &sealed)?;
            Ok(sealed)
        })
    }

    /// Replaces what a branch sees of the shared state.
    pub fn set_shared(&self, id: BranchId, shared: &SharedRecord) -> Result<()> {
        self.write(self.durability(Durability::Normal), |_| {
            let text = "UPDATE branches SET position = coalesce(?2, position), overlay = ?3, \
                        overlays = ?4 WHERE id = ?1";
            self.cached(text)?
                .execute(params![
                    key(id.bits()),
                    shared.position.map(signed),
                    shared.overlay.map(signed),
                    list_json(&shared.overlays)?,
                ])
                .map_err(sql("changing what a branch sees"))?;
            Ok(())
        })
    }

    /// The last change of a world's shared state. FP0108 if there is no such world.
    pub fn position(&self, world: WorldId) -> Result<u64> {
        let text = "SELECT position FROM worlds WHERE id = ?";
        rows(&mut *self.cached(text)?, [key(world.bits())], |r| {
            r.unsigned()
        })?
        .pop()
        .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no world {world}")))
    }

    /// Takes the next position of a world, for a change in the same transaction. Refused while a
    /// commit of the world is between its reservation and its end: what that validated must hold.
    ///
    /// # Errors
    /// FP0113 then; it is over soon.
    pub fn advance(&self, world: WorldId) -> Result<u64> {
        if let Some(by) = self.active_commit(world)? {
            return Err(codes::WORLD_BUSY
                .error(format!("commit {by} of the same world is under way"))
                .hint("try again in a moment; if it is blocked, forkpoint history says by what"));
        }
        self.next_position(world)
    }

    /// Takes the next position for a commit, which holds the reservation itself.
    pub(crate) fn next_position(&self, world: WorldId) -> Result<u64> {
        self.cached("UPDATE worlds SET position = position + 1 WHERE id = ?")?
            .execute([key(world.bits())])
            .map_err(sql("moving the position of a world"))?;
        self.position(world)
    }

    /// The branches that made these overlays; of a merged one, those it was made of.
    pub fn overlay_owners(&self, stack: &[u64]) -> Result<Vec<BranchId>> {
        let mut find = self.cached("SELECT branch FROM overlays WHERE id = ?")?;
        let mut owners = Vec::new();
        for overlay in self.expanded(stack)? {
            owners.extend(rows(&mut find, [signed(overlay)], |r| {
                r.id(BranchId::from_bits)
            })?);
        }
        Ok(owners)
    }

    /// How many keys and prefixes were read through these overlays from below each.
    pub fn overlay_read_count(&self, stack: &[u64]) -> Result<u64> {
        let mut count = self.cached("SELECT count(*) FROM overlay_reads WHERE overlay = ?")?;
        let mut all = 0;
        for &overlay in stack {
            all += rows(&mut count, [signed(overlay)], |r| r.unsigned())?
                .iter()
                .sum::<u64>();
        }
        Ok(all)
    }

    /// Makes what a committed branch holds of the shared state the world's, in the deciding
    /// transaction: its keys, then its events; and settles its effects.
    pub(crate) fn publish_shared(&self, commit: &CommitRecord, now_ns: i64) -> Result<()> {
        let stack = self.branch(commit.branch)?.shared.stack();
        if stack.is_empty() {
            return Ok(());
        }
        let position = self.next_position(commit.world)?;
        self.cached("UPDATE commits SET position = ? WHERE id = ?")?
            .execute(params![signed(position), key(commit.id.bits())])
            .map_err(sql("recording where a commit changed keys"))?;
        self.publish_keys(commit, &stack, position)?;
        self.publish_events(commit, &stack, position, now_ns)?;
        self.commit_effects(commit.branch, &stack, now_ns)
    }

    /// The keys' part: the topmost overlay that has a key decides.
    fn publish_keys(&self, commit: &CommitRecord, stack: &[u64], position: u64) -> Result<()> {
        let mut insert = self.cached(
            "INSERT OR IGNORE INTO kv (world, key, position, value) \
             SELECT ?1, key, ?2, value FROM overlay_kv WHERE overlay = ?3",
        )?;
        for &overlay in stack {
            insert
                .execute(params![
                    key(commit.world.bits()),
                    signed(position),
                    signed(overlay)
                ])
                .map_err(sql("publishing keys"))?;
        }
        Ok(())
    }
}
