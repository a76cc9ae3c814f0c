//! Collecting old events of the bus, and what of the effect journal belongs to branches that are
//! forgotten.

use crate::{
    Durability, Store,
    row::{rows, sql},
};
use forkpoint_model::Result;
use rusqlite::params;

/// So many rows are removed in one transaction, so that nobody waits long for it.
const CHUNK: i64 = 10_000;
/// So many transactions one run takes at most; the rest waits for the next.
const CHUNKS: usize = 100;

/// An event of world ?1 from before ?2 that nobody can see who was forked since, and that every
/// consumer of its topic has acknowledged. A branch sees all events up to its position, also those it
/// has not read yet.
const OLD_EVENTS: &str = "b.world = ?1 AND b.at_ns < ?2 AND b.position > (SELECT max( \
     coalesce((SELECT max(position) FROM branches WHERE world = ?1 \
         AND (ended_ns IS NULL OR retained)), 0), \
     coalesce((SELECT max(position) FROM checkpoints WHERE world = ?1), 0))) \
     AND NOT EXISTS (SELECT 1 FROM bus_consumers c WHERE c.world = ?1 \
         AND c.topic IN ('', b.topic) AND (c.position, c.n) < (b.position, b.n))";

/// A row that is settled, whose branch is forgotten, and on whose overlay nobody stands.
const OLD_EFFECTS: &str = "e.settled_ns < ?2 \
     AND NOT EXISTS (SELECT 1 FROM branches r WHERE r.id = e.branch) \
     AND NOT EXISTS (SELECT 1 FROM overlays o WHERE o.id = e.overlay)";

/// What was collected, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedFreed {
    /// Committed events.
    pub events: u64,
    /// Rows of the effect journal.
    pub effects: u64,
    /// The bytes of what both said.
    pub bytes: u64,
    /// Something was left for the next run.
    pub more: bool,
}

impl Store {
    /// Frees committed events and settled rows of the effect journal that are from before `before_ns`
    /// and that nobody needs; with `dry`, only counts. After [`Store::kv_collect`], which frees the
    /// overlays. The work of one call is bounded.
    pub fn shared_collect(&self, before_ns: i64, dry: bool) -> Result<SharedFreed> {
        let text = "SELECT DISTINCT world FROM bus";
        let worlds = rows(&mut *self.cached(text)?, [], |r| r.get::<i64>())?;
        let mut freed = SharedFreed::default();
        for world in worlds {
            let bytes = "length(topic) + length(payload)";
            let old = ("bus AS b", "world, position, n", OLD_EVENTS, bytes);
            let gone = self.drop_old(old, (world, before_ns), dry, &mut freed)?;
            freed.events += gone;
        }
        let bytes = "length(intent) + coalesce(length(inverse), 0) + coalesce(length(response), 0)";
        let old = ("effects AS e", "branch, ordinal", OLD_EFFECTS, bytes);
        freed.effects = self.drop_old(old, (0, before_ns), dry, &mut freed)?;
        Ok(freed)
    }

    /// Removes what of a table is old, or counts it, with its bytes.
    fn drop_old(
        &self,
        (table, key, old, bytes): (&str, &str, &str, &str),
        (world, before_ns): (i64, i64),
        dry: bool,
        freed: &mut SharedFreed,
    ) -> Result<u64> {
        let count = format!("SELECT count(*), coalesce(sum({bytes}), 0) FROM {table} WHERE {old}");
        // What has no parameter 1 takes it all the same.
        let count = format!("{count} AND ?1 IS NOT NULL");
        let found = rows(&mut *self.cached(&count)?, [world, before_ns], |r| {
            Ok((r.unsigned()?, r.unsigned()?))
        })?;
        let (all, bytes) = found.into_iter().next().unwrap_or_default();
        freed.bytes += bytes;
        if dry || all == 0 {
            return Ok(all);
        }
        let text = format!(
            "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {old} LIMIT ?3)"
        );
        let mut gone = 0;
        for _ in 0..CHUNKS {
            // Who was forked meanwhile sees everything: looked at again in each transaction.
            let removed = self.write(Durability::Normal, |_| {
                self.cached(&text)?
                    .execute(params![world, before_ns, CHUNK])
                    .map_err(sql("removing what is old"))
            })?;
            gone += removed as u64;
            if (removed as i64) < CHUNK {
                return Ok(gone);
            }
        }
        freed.more = true;
        Ok(gone)
    }
}
