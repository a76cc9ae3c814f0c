//! Collecting what nobody can see any more of keys: overlays that no branch, checkpoint or step stands
//! on, and versions that are older than what anybody sees.

use crate::{
    Durability, Store,
    row::{rows, signed, sql},
};
use forkpoint_model::Result;
use rusqlite::params;
use std::collections::BTreeSet;

/// So many rows are removed in one transaction, so that nobody waits long for it.
const CHUNK: i64 = 10_000;
/// So many transactions one run takes at most; the rest waits for the next.
const CHUNKS: usize = 100;

/// What was collected, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvFreed {
    /// Overlays, with all they held.
    pub overlays: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Old versions of keys.
    pub versions: u64,
    /// Something was left for the next run.
    pub more: bool,
}

impl Store {
    /// Frees them; with `dry`, only counts. The work of one call is bounded.
    pub fn kv_collect(&self, dry: bool) -> Result<KvFreed> {
        let mut freed = KvFreed::default();
        for overlay in self.forgotten()? {
            freed.overlays += 1;
            freed.bytes += overlay.1;
            if !dry && !self.drop_overlay(overlay.0)? {
                freed.more = true;
                return Ok(freed);
            }
        }
        for (world, mut at, floor) in self.floors()? {
            if dry {
                freed.versions += self.count_old(world, at, floor)?;
                continue;
            }
            for _ in 0..CHUNKS {
                if at >= floor {
                    break;
                }
                let (removed, upto) = self.drop_versions(world, at, floor)?;
                freed.versions += removed;
                at = upto;
            }
            freed.more |= at < floor;
        }
        Ok(freed)
    }

    /// The overlays that nobody stands on, with their bytes.
    fn forgotten(&self) -> Result<Vec<(u64, u64)>> {
        self.look(|store| {
            let mut used: BTreeSet<u64> = BTreeSet::new();
            let text = "SELECT overlay, overlays FROM branches WHERE ended_ns IS NULL OR retained \
                        UNION ALL SELECT NULL, overlays FROM checkpoints";
            for (own, below) in rows(&mut *store.cached(text)?, [], |r| {
                Ok((r.get::<Option<i64>>()?, r.list::<u64>()?))
            })? {
                used.extend(own.map(i64::cast_unsigned));
                used.extend(below);
            }
            // Those that a merged one was made of are older than it, and kept as long as it is.
            let text = "SELECT id, bytes, merged FROM overlays ORDER BY id DESC";
            let mut free = Vec::new();
            for (id, bytes, merged) in rows(&mut *store.cached(text)?, [], |r| {
                Ok((r.unsigned()?, r.unsigned()?, r.list::<u64>()?))
            })? {
                match used.contains(&id) {
                    true => used.extend(merged),
                    false => free.push((id, bytes)),
                }
            }
            Ok(free)
        })
    }

    /// Removes an overlay; false where something of it is left for the next time.
    fn drop_overlay(&self, id: u64) -> Result<bool> {
        let parts = [
            "DELETE FROM overlay_kv WHERE overlay = ?1 AND key IN \
             (SELECT key FROM overlay_kv WHERE overlay = ?1 LIMIT ?2)",
            "DELETE FROM overlay_reads WHERE overlay = ?1 AND (prefix, key) IN \
             (SELECT prefix, key FROM overlay_reads WHERE overlay = ?1 LIMIT ?2)",
        ];
        for text in parts {
            let mut left = true;
            for _ in 0..CHUNKS {
                let removed = self.write(Durability::Normal, |_| {
                    self.cached(text)?
                        .execute(params![signed(id), CHUNK])
                        .map_err(sql("removing an overlay"))
                })?;
                if (removed as i64) < CHUNK {
                    left = false;
                    break;
                }
            }
            if left {
                return Ok(false);
            }
        }
        self.write(Durability::Normal, |_| {
            self.cached("DELETE FROM overlays WHERE id = ?")?
                .execute([signed(id)])
                .map_err(sql("removing an overlay"))?;
            Ok(true)
        })
    }

    /// For each world up to where its versions were collected, and up to where they can be: what lies
    /// before is looked at by nobody. Somebody are live and retained branches, checkpoints, and the undo
    /// of commits that can be taken back, which needs what was before them.
    fn floors(&self) -> Result<Vec<(i64, u64, u64)>> {
        let text = "SELECT w.id, w.collected, min(w.position, \
            coalesce((SELECT min(position) FROM branches WHERE world = w.id \
                AND (ended_ns IS NULL OR retained)), w.position), \
            coalesce((SELECT min(position) FROM checkpoints WHERE world = w.id), w.position), \
            coalesce((SELECT min(c.position) - 1 FROM commits c WHERE c.world = w.id \
                AND c.state <> 'undone' AND EXISTS \
                (SELECT 1 FROM journals j WHERE j.txn = c.id)), w.position)) FROM worlds w";
        rows(&mut *self.cached(text)?, [], |r| {
            Ok((r.get()?, r.unsigned()?, r.unsigned()?))
        })
    }

    /// Goes on behind `at`: where a version is seen by everybody, those before it go, and it goes itself
    /// if it is a removal. Returns how many went, and up to where all is done.
    fn drop_versions(&self, world: i64, mut at: u64, floor: u64) -> Result<(u64, u64)> {
        self.write(Durability::Normal, |_| {
            let mut removed = 0;
            while removed < CHUNK as usize && at < floor {
                let text = "SELECT min(position) FROM kv \
                            WHERE world = ?1 AND position > ?2 AND position <= ?3";
                let next = rows(
                    &mut *self.cached(text)?,
                    params![world, signed(at), signed(floor)],
                    |r| r.get::<Option<i64>>(),
                )?;
                let Some(position) = next.into_iter().next().flatten() else {
                    at = floor;
                    break;
                };
                for text in [
                    "DELETE FROM kv WHERE world = ?1 AND position < ?2 AND key IN \
                     (SELECT key FROM kv WHERE world = ?1 AND position = ?2)",
                    "DELETE FROM kv WHERE world = ?1 AND position = ?2 AND value IS NULL",
                ] {
                    removed += self
                        .cached(text)?
                        .execute(params![world, position])
                        .map_err(sql("removing old keys"))?;
                }
                at = position.cast_unsigned();
            }
            self.cached("UPDATE worlds SET collected = ?2 WHERE id = ?1")?
                .execute(params![world, signed(at)])
                .map_err(sql("removing old keys"))?;
            Ok((removed as u64, at))
        })
    }

    fn count_old(&self, world: i64, at: u64, floor: u64) -> Result<u64> {
        let text = "SELECT count(*) FROM (SELECT DISTINCT a.key, a.position FROM kv b JOIN kv a \
                    ON a.world = b.world AND a.key = b.key AND (a.position < b.position \
                    OR a.position = b.position AND a.value IS NULL) \
                    WHERE b.world = ?1 AND b.position > ?2 AND b.position <= ?3)";
        let place = params![world, signed(at), signed(floor)];
        let found = rows(&mut *self.cached(text)?, place, |r| r.unsigned())?;
        Ok(found.into_iter().sum())
    }
}
