//! The keys of a world as a branch sees them: its own writes, over the sealed overlays it stands on,
//! over the world's newest version at its position.
//!
//! What is read from below the branch's own overlay is recorded before the answer is given, so that a
//! commit can tell whether it still holds.
//!
//! **Versions.** 0 means that there is no such key. A committed value has the position it was committed
//! at. What is not committed has a version from [`HELD`] on, which no position reaches; no two writes of
//! one key ever have the same, also not after a rewind, since each overlay has its own range.

use crate::kv_scan::{NO_BOUND, Scan};
use crate::{
    Access, Durability, SharedRecord, Store, codes,
    row::{rows, signed, sql},
};
use forkpoint_model::{BranchId, Epoch, Result, WorldId};
use rusqlite::params;

/// The participant's name.
pub const KV: &str = "kv";
/// The longest key, in bytes; the shortest is one byte.
pub const MAX_KEY: usize = 1024;
/// The largest value, in bytes.
pub const MAX_VALUE: usize = 1 << 20;
/// The most entries one list returns.
pub const MAX_LIST: u32 = 1000;
/// A list ends early once the values it returns have this many bytes.
pub const MAX_LIST_BYTES: usize = 4 << 20;
/// The most that the overlays of a branch hold together, in bytes of keys and values; what is
/// remembered of reads counts.
pub const MAX_OVERLAY: u64 = 1 << 30;
/// Versions from here on are of what is not committed. Small enough for programs whose numbers are
/// floating point.
pub const HELD: u64 = 1 << 52;
/// How many versions of one key an overlay has room for.
const RANGE: u64 = 1 << 20;

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEntry {
    /// The key: any bytes.
    pub key: Vec<u8>,
    /// The value: any bytes.
    pub value: Vec<u8>,
    /// Its version.
    pub version: u64,
}

/// A part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvPage {
    /// In the order of the keys' bytes.
    pub entries: Vec<KvEntry>,
    /// Where the next part begins: behind this key. None at the end.
    pub next: Option<Vec<u8>>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvWritten {
    /// Whether it was written: not where another version was expected.
    pub done: bool,
    /// The version the key has now; 0 when there is none.
    pub version: u64,
    /// The version it had, where that was asked for (by a delete, or with an expected version).
    pub was: Option<u64>,
}

/// A key as something sees it.
pub(crate) struct Seen {
    pub(crate) version: u64,
    pub(crate) value: Option<Vec<u8>>,
    /// Whether the topmost overlay that was looked at has it.
    own: bool,
}

impl Seen {
    /// The version as it is told: 0 where a removal is what is seen.
    pub(crate) fn told(&self) -> u64 {
        match self.value {
            Some(_) => self.version,
            None => 0,
        }
    }
}

impl Store {
    /// A key as a branch sees it.
    ///
    /// # Errors
    /// FP0112 when `epoch` is over, FP0114 for a key out of bounds, FP0115 when nothing more of its
    /// reads can be remembered.
    pub fn kv_get(&self, branch: BranchId, epoch: Epoch, key: &[u8]) -> Result<Option<KvEntry>> {
        check_key(key)?;
        let known = self.look(|store| {
            let access = store.access(branch, epoch)?;
            let seen = store.see(&access, key)?;
            let known = seen.own || store.is_recorded(access.overlay, false, key)?;
            Ok(known.then_some(seen))
        })?;
        let seen = match known {
            Some(seen) => seen,
            None => self.write(self.durability(Durability::Normal), |_| {
                let (own, access) = self.own_overlay(branch, epoch)?;
                self.see_recorded(branch, own, &access, key)
            })?,
        };
        Ok(entry(key, seen))
    }

    /// Writes a key of a branch, or removes it (`value` none). With `expected`, only where it has that
    /// version, 0 for a key that must not be there. A plain write is no read: it says nothing of what
    /// was there.
    ///
    /// # Errors
    /// FP0112 when `epoch` is over, FP0114 for what is out of bounds, FP0115 when the branch holds too
    /// much.
    pub fn kv_write(
        &self,
        branch: BranchId,
        epoch: Epoch,
        key: &[u8],
        value: Option<&[u8]>,
        expected: Option<u64>,
    ) -> Result<KvWritten> {
        check(key, value)?;
        self.write(self.durability(Durability::Normal), |_| {
            let (own, access) = self.own_overlay(branch, epoch)?;
            let was = match expected.is_some() || value.is_none() {
                true => Some(self.see_recorded(branch, own, &access, key)?.told()),
                false => None,
            };
            if let (Some(expected), Some(was)) = (expected, was)
                && expected != was
            {
                return Ok(KvWritten {
                    done: false,
                    version: was,
                    was: Some(was),
                });
            }
            if value.is_none() && was == Some(0) {
                return Ok(KvWritten {
                    done: true,
                    version: 0,
                    was,
                });
            }
            let version = self.put_own(branch, epoch, own, &access, (key, value))?;
            let version = value.map_or(0, |_| version);
            Ok(KvWritten {
                done: true,
                version,
                was,
            })
        })
    }

    /// The keys that begin with `prefix`, behind `after`, as a branch sees them. That it listed the
    /// prefix is recorded: a key that another adds below it is a conflict. At most `limit` entries, and
    /// never more than [`MAX_LIST`].
    ///
    /// # Errors
    /// As [`Store::kv_get`].
    pub fn kv_list(
        &self,
        branch: BranchId,
        epoch: Epoch,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<KvPage> {
        check_prefix(prefix)?;
        let page = |access: &Access| {
            let stack = access.stack().collect();
            self.page(
                Some((access.world, access.position)),
                stack,
                (prefix, after),
                limit,
            )
        };
        let known = self.look(|store| {
            let access = store.access(branch, epoch)?;
            match store.is_recorded(access.overlay, true, prefix)? {
                true => page(&access).map(Some),
                false => Ok(None),
            }
        })?;
        match known {
            Some(page) => Ok(page),
            None => self.write(self.durability(Durability::Normal), |_| {
                let (own, access) = self.own_overlay(branch, epoch)?;
                self.record_read(branch, own, &access, (true, prefix))?;
                page(&access)
            }),
        }
    }

    /// A key as somebody who stands where `shared` says would see it. Nothing is recorded: for looking
    /// at a branch from outside, and at what is sealed.
    pub fn kv_see(
        &self,
        world: WorldId,
        shared: &SharedRecord,
        key: &[u8],
    ) -> Result<Option<KvEntry>> {
        check_key(key)?;
        let position = shared.position.unwrap_or(NO_BOUND);
        Ok(entry(
            key,
            self.find(Some((world, position)), &shared.stack(), key)?,
        ))
    }

    /// As [`Store::kv_list`], of what [`Store::kv_see`] sees.
    pub fn kv_see_list(
        &self,
        world: WorldId,
        shared: &SharedRecord,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<KvPage> {
        check_prefix(prefix)?;
        let position = shared.position.unwrap_or(NO_BOUND);
        self.page(
            Some((world, position)),
            shared.stack(),
            (prefix, after),
            limit,
        )
    }

    /// Records that a branch may have read anything, as one whose last records a power loss took.
    pub fn kv_read_all(&self, branch: BranchId) -> Result<()> {
        self.write(self.durability(Durability::Normal), |_| {
            let epoch = self.branch(branch)?.epoch;
            let (own, access) = self.own_overlay(branch, epoch)?;
            self.record_read(branch, own, &access, (true, b""))
        })
    }

    fn see(&self, access: &Access, key: &[u8]) -> Result<Seen> {
        let stack: Vec<u64> = access.stack().collect();
        let mut seen = self.find(Some((access.world, access.position)), &stack, key)?;
        seen.own &= access.overlay.is_some();
        Ok(seen)
    }

    fn see_recorded(
        &self,
        branch: BranchId,
        own: u64,
        access: &Access,
        key: &[u8],
    ) -> Result<Seen> {
        let seen = self.see(access, key)?;
        if !seen.own {
            self.record_read(branch, own, access, (false, key))?;
        }
        Ok(seen)
    }

    /// What the topmost overlay that has a key says of it, else the world at a position.
    pub(crate) fn find(
        &self,
        world: Option<(WorldId, u64)>,
        stack: &[u64],
        key: &[u8],
    ) -> Result<Seen> {
        let mut find =
            self.cached("SELECT version, value FROM overlay_kv WHERE overlay = ? AND key = ?")?;
        for (n, &overlay) in stack.iter().enumerate() {
            let found = rows(&mut find, params![signed(overlay), key], |r| {
                Ok(Seen {
                    version: r.unsigned()?,
                    value: r.get()?,
                    own: n == 0,
                })
            })?;
            if let Some(seen) = found.into_iter().next() {
                return Ok(seen);
            }
        }
        let absent = Seen {
            version: 0,
            value: None,
            own: false,
        };
        let Some((world, position)) = world else {
            return Ok(absent);
        };
        let text = "SELECT position, value FROM kv WHERE world = ? AND key = ? AND position <= ? \
                    ORDER BY position DESC LIMIT 1";
        let at = params![crate::row::key(world.bits()), key, signed(position)];
        let found = rows(&mut *self.cached(text)?, at, |r| {
            Ok(Seen {
                version: r.unsigned()?,
                value: r.get()?,
                own: false,
            })
        })?;
        Ok(found.into_iter().next().unwrap_or(absent))
    }

    /// A part of what is seen through a stack.
    pub(crate) fn page(
        &self,
        world: Option<(WorldId, u64)>,
        stack: Vec<u64>,
        (prefix, after): (&[u8], Option<&[u8]>),
        limit: u32,
    ) -> Result<KvPage> {
        let limit = limit.clamp(1, MAX_LIST) as usize;
        let mut page = KvPage::default();
        let mut bytes = 0;
        let mut last = None;
        let mut scan = Scan::new(self, world, stack, prefix, after);
        for looked in 0.. {
            let Some(key) = scan.next_key()? else {
                return Ok(page);
            };
            // Removed keys are looked at too, and are no reason to look for ever.
            let full = page.entries.len() == limit || bytes >= MAX_LIST_BYTES;
            if full || looked >= 10 * MAX_LIST {
                page.next = last;
                return Ok(page);
            }
            let seen = self.find(scan.world, &scan.stack, &key)?;
            last = Some(key.clone());
            if let Some(entry) = entry(&key, seen) {
                bytes += entry.value.len();
                page.entries.push(entry);
            }
        }
        Ok(page)
    }

    fn put_own(
        &self,
        branch: BranchId,
        epoch: Epoch,
        own: u64,
        access: &Access,
        (key, value): (&[u8], Option<&[u8]>),
    ) -> Result<u64> {
        let text = "SELECT version, coalesce(length(value), 0) FROM overlay_kv \
                    WHERE overlay = ? AND key = ?";
        let before = rows(&mut *self.cached(text)?, params![signed(own), key], |r| {
            Ok((r.unsigned()?, r.unsigned()?))
        })?;
        let new = value.map_or(0, <[u8]>::len) as u64;
        let (version, added) = match before.first() {
            // Its range is used up: what follows belongs to the next overlay's.
            Some((version, _)) if version % RANGE == RANGE - 1 => {
                self.seal_overlay(branch)?;
                let (own, access) = self.own_overlay(branch, epoch)?;
                return self.put_own(branch, epoch, own, &access, (key, value));
            }
            Some((version, old)) => (version + 1, new as i64 - *old as i64),
            None => (HELD + own * RANGE, (key.len() as u64 + new) as i64),
        };
        self.grow(branch, own, access, added)?;
        self.cached(
            "INSERT INTO overlay_kv (overlay, key, version, value) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (overlay, key) DO UPDATE SET version = ?3, value = ?4",
        )?
        .execute(params![signed(own), key, signed(version), value])
        .map_err(sql("writing a key"))?;
        Ok(version)
    }

    fn is_recorded(&self, own: Option<u64>, prefix: bool, key: &[u8]) -> Result<bool> {
        let Some(own) = own else { return Ok(false) };
        let text = "SELECT 1 FROM overlay_reads WHERE overlay = ? AND prefix = ? AND key = ?";
        let found = rows(
            &mut *self.cached(text)?,
            params![signed(own), prefix, key],
            |r| r.get::<i64>(),
        )?;
        Ok(!found.is_empty())
    }

    fn record_read(
        &self,
        branch: BranchId,
        own: u64,
        access: &Access,
        (prefix, key): (bool, &[u8]),
    ) -> Result<()> {
        let added = self
            .cached("INSERT OR IGNORE INTO overlay_reads (overlay, prefix, key) VALUES (?, ?, ?)")?
            .execute(params![signed(own), prefix, key])
            .map_err(sql("recording a read"))?;
        match added {
            0 => Ok(()),
            _ => self.grow(branch, own, access, key.len() as i64),
        }
    }

    /// Counts what is added to a branch's own overlay, and refuses what is too much.
    fn grow(&self, branch: BranchId, own: u64, access: &Access, added: i64) -> Result<()> {
        if added > 0 {
            let mut size = self.cached("SELECT bytes FROM overlays WHERE id = ?")?;
            let mut total = added.cast_unsigned();
            for overlay in access.stack() {
                let found = rows(&mut size, [signed(overlay)], |r| r.unsigned())?;
                total += found.first().copied().unwrap_or(0);
            }
            if total > MAX_OVERLAY {
                return Err(codes::OVERLAY_FULL
                    .error(format!(
                        "branch {branch} holds {} bytes of keys, and {MAX_OVERLAY} is the most",
                        total - added.cast_unsigned()
                    ))
                    .hint("keep large data in files of the branch, with their paths as values"));
            }
        }
        self.cached("UPDATE overlays SET bytes = max(bytes + ?2, 0) WHERE id = ?1")?
            .execute(params![signed(own), added])
            .map_err(sql("counting the bytes of an overlay"))?;
        Ok(())
    }
}

pub(crate) fn entry(key: &[u8], seen: Seen) -> Option<KvEntry> {
    Some(KvEntry {
        key: key.to_vec(),
        value: seen.value?,
        version: seen.version,
    })
}

pub(crate) fn check(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    check_key(key)?;
    match value {
        Some(value) if value.len() > MAX_VALUE => Err(codes::BOUNDS
            .error(format!(
                "a value of {} bytes is above {MAX_VALUE}",
                value.len()
            ))
            .hint("write it to a file of the branch and keep its path as the value")),
        _ => Ok(()),
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        1..=MAX_KEY => Ok(()),
        n => Err(codes::BOUNDS
            .error(format!("a key has 1 to {MAX_KEY} bytes, and this one {n}"))
            .hint("choose another key")),
    }
}

pub(crate) fn check_prefix(prefix: &[u8]) -> Result<()> {
    match prefix.len() {
        0..=MAX_KEY => Ok(()),
        n => Err(codes::BOUNDS
            .error(format!(
                "no key begins with a prefix of {n} bytes; {MAX_KEY} is the most"
            ))
            .hint("choose a shorter prefix")),
    }
}
