//! The keys of a world from outside every branch: what is committed, and writes at once.

use crate::kv::{check, check_key, check_prefix, entry};
use crate::kv_scan::NO_BOUND;
use crate::{
    Durability, KvEntry, KvPage, KvWritten, Store,
    row::{key as bits, signed, sql},
};
use forkpoint_model::{Result, WorldId};
use rusqlite::params;

impl Store {
    /// A committed key.
    ///
    /// # Errors
    /// FP0114 for a key out of bounds.
    pub fn kv_get_head(&self, world: WorldId, key: &[u8]) -> Result<Option<KvEntry>> {
        check_key(key)?;
        Ok(entry(key, self.find(Some((world, NO_BOUND)), &[], key)?))
    }

    /// The committed keys that begin with `prefix`, behind `after`; at most `limit`.
    ///
    /// # Errors
    /// FP0114 for a prefix out of bounds.
    pub fn kv_list_head(
        &self,
        world: WorldId,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<KvPage> {
        check_prefix(prefix)?;
        self.look(|store| {
            let head = Some((world, NO_BOUND));
            store.page(head, Vec::new(), (prefix, after), limit)
        })
    }

    /// Writes a key, or removes it (`value` none), durably, at a position of its own. With `expected`,
    /// only where it has that version, 0 for a key that must not be there.
    ///
    /// # Errors
    /// FP0113 while a commit of the world is under way, FP0114 for what is out of bounds.
    pub fn kv_write_head(
        &self,
        world: WorldId,
        key: &[u8],
        value: Option<&[u8]>,
        expected: Option<u64>,
    ) -> Result<KvWritten> {
        check(key, value)?;
        self.write(self.durability(Durability::Full), |_| {
            let was = self.find(Some((world, NO_BOUND)), &[], key)?.told();
            let written = |done, version| KvWritten {
                done,
                version,
                was: Some(was),
            };
            if expected.is_some_and(|expected| expected != was) {
                return Ok(written(false, was));
            }
            if value.is_none() && was == 0 {
                return Ok(written(true, 0));
            }
            let position = self.advance(world)?;
            self.put_version(world, key, position, value)?;
            Ok(written(true, value.map_or(0, |_| position)))
        })
    }

    pub(crate) fn put_version(
        &self,
        world: WorldId,
        key: &[u8],
        position: u64,
        value: Option<&[u8]>,
    ) -> Result<()> {
        self.cached("INSERT INTO kv (world, key, position, value) VALUES (?, ?, ?, ?)")?
            .execute(params![bits(world.bits()), key, signed(position), value])
            .map_err(sql("writing a key"))?;
        Ok(())
    }
}
