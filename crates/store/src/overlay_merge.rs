//! Keeping stacks of overlays short, so that a read does not become slower with every fork and step.
//!
//! When a stack is sealed that has grown long, a run of small overlays in it is merged into one. Effects
//! belong to the overlay they were performed in, so that one with effects is left as it is. Others may
//! stand on the same overlays unmerged: the merged one knows of which it was made, stacks are compared
//! by those, and they are kept as long as it is.

use crate::{
    Store,
    row::{key, list_json, rows, signed, sql},
};
use forkpoint_model::{BranchId, Result, WorldId};
use rusqlite::params;

/// A stack longer than this is looked through for what can be merged.
const LONG: usize = 16;
/// A shorter run is not worth it.
const RUN: usize = 8;
/// Larger overlays are not copied: a fork costs the same whatever was written.
const SMALL: u64 = 64 << 10;

impl Store {
    /// The same stack of sealed overlays, shorter if it was long. Inside a write transaction.
    pub(crate) fn shortened(
        &self,
        (world, branch): (WorldId, BranchId),
        mut stack: Vec<u64>,
    ) -> Result<Vec<u64>> {
        if stack.len() <= LONG {
            return Ok(stack);
        }
        let small = stack
            .iter()
            .map(|&o| self.can_be_merged(o))
            .collect::<Result<Vec<_>>>()?;
        let (mut from, mut best) = (0, 0..0);
        for (n, small) in small.iter().chain([&false]).enumerate() {
            if !small {
                if n - from > best.len() {
                    best = from..n;
                }
                from = n + 1;
            }
        }
        if best.len() >= RUN {
            let merged = self.merge(world, branch, &stack[best.clone()])?;
            stack.splice(best, [merged]);
        }
        Ok(stack)
    }

    fn can_be_merged(&self, overlay: u64) -> Result<bool> {
        let text = "SELECT bytes <= ?2 AND NOT EXISTS (SELECT 1 FROM effects WHERE overlay = ?1) \
                    FROM overlays WHERE id = ?1";
        let found = rows(
            &mut *self.cached(text)?,
            params![signed(overlay), signed(SMALL)],
            |r| r.get::<bool>(),
        )?;
        Ok(found == [true])
    }

    fn merge(&self, world: WorldId, branch: BranchId, run: &[u64]) -> Result<u64> {
        let parts = self.expanded(run)?;
        self.cached("INSERT INTO overlays (world, branch, merged) VALUES (?, ?, ?)")?
            .execute(params![
                key(world.bits()),
                key(branch.bits()),
                list_json(&parts)?
            ])
            .map_err(sql("making an overlay"))?;
        let id = self.conn.last_insert_rowid();
        // The topmost that has a key decides.
        for &overlay in run {
            for text in [
                "INSERT OR IGNORE INTO overlay_kv (overlay, key, version, value) \
                 SELECT ?1, key, version, value FROM overlay_kv WHERE overlay = ?2",
                "INSERT OR IGNORE INTO overlay_reads (overlay, prefix, key) \
                 SELECT ?1, prefix, key FROM overlay_reads WHERE overlay = ?2",
            ] {
                self.cached(text)?
                    .execute(params![id, signed(overlay)])
                    .map_err(sql("merging overlays"))?;
            }
        }
        self.cached(
            "UPDATE overlays SET bytes = coalesce((SELECT sum(length(key) + \
             coalesce(length(value), 0)) FROM overlay_kv WHERE overlay = ?1), 0) + \
             coalesce((SELECT sum(length(key)) FROM overlay_reads WHERE overlay = ?1), 0) \
             WHERE id = ?1",
        )?
        .execute([id])
        .map_err(sql("merging overlays"))?;
        Ok(id.cast_unsigned())
    }

    /// A stack with every merged overlay replaced by those it was made of.
    pub(crate) fn expanded(&self, stack: &[u64]) -> Result<Vec<u64>> {
        let mut find = self.cached("SELECT merged FROM overlays WHERE id = ?")?;
        let mut all = Vec::with_capacity(stack.len());
        for &overlay in stack {
            let parts = rows(&mut find, [signed(overlay)], |r| r.list::<u64>())?;
            match parts.into_iter().next() {
                Some(parts) if !parts.is_empty() => all.extend(parts),
                _ => all.push(overlay),
            }
        }
        Ok(all)
    }
}
