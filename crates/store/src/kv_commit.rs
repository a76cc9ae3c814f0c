//! The keys of a branch in a commit: what conflicts, what is changed, a nested commit, what becomes of
//! those who stand on a committed branch, and taking a commit's keys back.
//!
//! A change at a position after the branch's own conflicts with it if the branch read or wrote the key,
//! or listed a prefix of it: then the branch's reads are those of the state it is committed onto, and
//! all commits together are as if each branch had run alone, in the order of the commits.

use crate::kv_scan::{NO_BOUND, Scan};
use crate::{
    BranchRecord, CommitRecord, Durability, SharedRecord, Store, codes,
    row::{key as bits, rows, signed, sql},
};
use forkpoint_model::{BranchId, Digest, Generation, Result, WorldId};
use rusqlite::params;
use std::collections::BTreeSet;
use std::ops::Bound::{Included, Unbounded};

/// No more conflicts than this are looked for.
pub const MAX_CONFLICTS: usize = 1000;
/// So many changes are read at a time.
const CHUNK: usize = 1000;

/// A key that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvConflict {
    /// The key.
    pub key: Vec<u8>,
    /// Why.
    pub why: String,
}

/// What a branch makes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvChange {
    /// The key.
    pub key: Vec<u8>,
    /// Whether it was there at the branch's position.
    pub was: bool,
    /// The size of its value, in bytes; none where it is removed.
    pub size: Option<u64>,
}

/// Some overlays, for asking what was done through them.
struct Touched<'a> {
    store: &'a Store,
    overlays: &'a [u64],
    /// The prefixes that were listed, without those that another covers.
    prefixes: BTreeSet<Vec<u8>>,
}

impl<'a> Touched<'a> {
    fn new(store: &'a Store, overlays: &'a [u64]) -> Result<Self> {
        let mut all = BTreeSet::new();
        let mut find =
            store.cached("SELECT key FROM overlay_reads WHERE overlay = ? AND prefix = 1")?;
        for &overlay in overlays {
            all.extend(rows(&mut find, [signed(overlay)], |r| r.get::<Vec<u8>>())?);
        }
        drop(find);
        let mut prefixes: BTreeSet<Vec<u8>> = BTreeSet::new();
        for prefix in all {
            if !prefixes
                .last()
                .is_some_and(|covers| prefix.starts_with(covers))
            {
                prefixes.insert(prefix);
            }
        }
        Ok(Self {
            store,
            overlays,
            prefixes,
        })
    }

    /// What was done with a key, in words.
    fn how(&self, key: &[u8]) -> Result<Option<String>> {
        let written = "SELECT 1 FROM overlay_kv WHERE overlay = ? AND key = ?";
        let read = "SELECT 1 FROM overlay_reads WHERE overlay = ? AND prefix = 0 AND key = ?";
        for (text, what) in [(written, "written"), (read, "read")] {
            let mut find = self.store.cached(text)?;
            for &overlay in self.overlays {
                if !rows(&mut find, params![signed(overlay), key], |r| r.get::<i64>())?.is_empty() {
                    return Ok(Some(what.to_owned()));
                }
            }
        }
        // None covers another, so that only the last one before the key can cover it.
        let near = self
            .prefixes
            .range::<[u8], _>((Unbounded, Included(key)))
            .next_back();
        Ok(near
            .filter(|p| key.starts_with(p))
            .map(|prefix| match prefix.is_empty() {
                true => "listed with all keys".to_owned(),
                false => format!("listed below {:?}", prefix.escape_ascii().to_string()),
            }))
    }
}

impl Store {
    /// Whether anything was read or written of keys through these overlays.
    pub fn kv_touched(&self, overlays: &[u64]) -> Result<bool> {
        let text = "SELECT EXISTS (SELECT 1 FROM overlay_kv WHERE overlay = ?1) \
                    OR EXISTS (SELECT 1 FROM overlay_reads WHERE overlay = ?1)";
        let mut find = self.cached(text)?;
        for &overlay in overlays {
            if rows(&mut find, [signed(overlay)], |r| r.get::<bool>())?.contains(&true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The keys that were changed since a branch was forked and that it read or wrote, in the order of
    /// their changes; at most [`MAX_CONFLICTS`].
    pub fn kv_conflicts(&self, branch: BranchId) -> Result<Vec<KvConflict>> {
        self.look(|store| {
            let record = store.branch(branch)?;
            let from = record.shared.position.unwrap_or(NO_BOUND);
            let between = (from, store.position(record.world)?);
            store.meet(record.world, between, &record.shared.stack(), |_, _| {
                Ok(true)
            })
        })
    }

    /// What meets the changes behind `from` up to `upto`, of those that `counts` says count.
    fn meet(
        &self,
        world: WorldId,
        (from, upto): (u64, u64),
        overlays: &[u64],
        counts: impl Fn(u64, &[u8]) -> Result<bool>,
    ) -> Result<Vec<KvConflict>> {
        let mut found: Vec<KvConflict> = Vec::new();
        if from >= upto || overlays.is_empty() {
            return Ok(found);
        }
        let touched = Touched::new(self, overlays)?;
        let text = "SELECT position, key FROM kv WHERE world = ?1 AND position <= ?2 \
                    AND (position, key) > (?3, ?4) ORDER BY position, key LIMIT ?5";
        // Behind every key of the position itself.
        let mut at = (from, vec![0xff; crate::kv::MAX_KEY + 1]);
        loop {
            let place = params![
                bits(world.bits()),
                signed(upto),
                signed(at.0),
                at.1,
                CHUNK as i64
            ];
            let chunk = rows(&mut *self.cached(text)?, place, |r| {
                Ok((r.unsigned()?, r.get::<Vec<u8>>()?))
            })?;
            for (position, key) in &chunk {
                if !counts(*position, key)? || found.iter().any(|c| c.key == *key) {
                    continue;
                }
                if let Some(how) = touched.how(key)? {
                    let why = format!("{how} here, and changed since the fork");
                    found.push(KvConflict {
                        key: key.clone(),
                        why,
                    });
                }
                if found.len() >= MAX_CONFLICTS {
                    return Ok(found);
                }
            }
            match chunk.into_iter().last() {
                Some(last) => at = last,
                None => return Ok(found),
            }
        }
    }

    /// What a branch changes of the keys, in their order, behind `after`; at most `limit`, with the key
    /// to go on behind. A removal of what was not there is no change.
    pub fn kv_changes(
        &self,
        branch: BranchId,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<(Vec<KvChange>, Option<Vec<u8>>)> {
        self.look(|store| {
            let record = store.branch(branch)?;
            let below = Some((record.world, record.shared.position.unwrap_or(NO_BOUND)));
            let mut scan = Scan::new(store, None, record.shared.stack(), b"", after);
            let mut found = Vec::new();
            while let Some(key) = scan.next_key()? {
                let is = store.find(None, &scan.stack, &key)?.value;
                let was = store.find(below, &[], &key)?.value.is_some();
                if is.is_none() && !was {
                    continue;
                }
                let size = is.map(|value| value.len() as u64);
                found.push(KvChange { key, was, size });
                if found.len() >= limit {
                    let next = found.last().map(|c| c.key.clone());
                    return Ok((found, next));
                }
            }
            Ok((found, None))
        })
    }

    /// How many keys a branch changes, their bytes, and a digest of what it makes of them.
    pub fn kv_write_set(&self, branch: BranchId) -> Result<(u64, u64, Digest)> {
        self.look(|store| {
            let record = store.branch(branch)?;
            store.write_set(&record, record.shared.stack(), &[])
        })
    }

    /// How many keys a child changes of its parent.
    pub fn kv_nested_changes(&self, child: BranchId, parent: BranchId) -> Result<u64> {
        self.look(|store| {
            let (c, p) = (store.branch(child)?, store.branch(parent)?);
            let (mine, _) = store.apart(&c.shared, &p.shared)?;
            // What the parent did since has no key in common with it, or it is not committed.
            Ok(store.write_set(&c, mine, &p.shared.stack())?.0)
        })
    }

    /// The same of some overlays over others, over the world at a branch's position.
    fn write_set(
        &self,
        of: &BranchRecord,
        overlays: Vec<u64>,
        under: &[u64],
    ) -> Result<(u64, u64, Digest)> {
        let below = Some((of.world, of.shared.position.unwrap_or(NO_BOUND)));
        let mut scan = Scan::new(self, None, overlays, b"", None);
        let (mut count, mut bytes, mut digest) = (0, 0, Digest::of(b"kv"));
        while let Some(key) = scan.next_key()? {
            let is = self.find(None, &scan.stack, &key)?.value;
            if is.is_some() || self.find(below, under, &key)?.value.is_some() {
                count += 1;
                bytes += (key.len() + is.as_ref().map_or(0, Vec::len)) as u64;
            }
            let value = is.map(|value| Digest::of(&value).0);
            let text = [
                &digest.0[..],
                &(key.len() as u64).to_be_bytes(),
                &key,
                value.as_ref().map_or(&[][..], |v| &v[..]),
            ];
            digest = Digest::of(&text.concat());
        }
        Ok((count, bytes, digest))
    }

    /// Why a child cannot be committed into its parent: what both touched since the fork, where one of
    /// them wrote it.
    pub fn kv_nested_conflicts(
        &self,
        child: BranchId,
        parent: BranchId,
    ) -> Result<Vec<KvConflict>> {
        self.look(|store| {
            let (c, p) = (store.branch(child)?, store.branch(parent)?);
            let (mine, theirs) = self.apart(&c.shared, &p.shared)?;
            // Where one of them was moved to another position meanwhile.
            let (a, b) = (
                c.shared.position.unwrap_or(0),
                p.shared.position.unwrap_or(0),
            );
            let between = (a.min(b), a.max(b));
            let mut found = store.meet(c.world, between, &mine, |_, _| Ok(true))?;
            for (of, by, who) in [
                (&mine, &theirs, "the parent"),
                (&theirs, &mine, "the child"),
            ] {
                let touched = Touched::new(store, of)?;
                let mut scan = Scan::new(store, None, by.clone(), b"", None);
                while let Some(key) = scan.next_key()? {
                    if found.len() >= MAX_CONFLICTS {
                        return Ok(found);
                    }
                    if found.iter().any(|c| c.key == key) {
                        continue;
                    }
                    if let Some(how) = touched.how(&key)? {
                        let why =
                            format!("written by {who} since the fork, and {how} by the other");
                        found.push(KvConflict { key, why });
                    }
                }
            }
            Ok(found)
        })
    }

    /// Puts a committed child's overlays on top of its parent's, in the transaction that decides it.
    pub fn kv_commit_into(&self, child: BranchId, parent: BranchId) -> Result<()> {
        self.write(self.durability(Durability::Full), |_| {
            let (c, p) = (self.branch(child)?, self.branch(parent)?);
            let (mine, _) = self.apart(&c.shared, &p.shared)?;
            if mine.is_empty() {
                return Ok(());
            }
            let overlays = mine.into_iter().chain(p.shared.stack()).collect();
            let shared = SharedRecord {
                position: p.shared.position,
                overlay: None,
                overlays,
            };
            self.set_shared(parent, &shared)
        })
    }

    /// Lets a branch that stands on a committed one see what became of it: drops the overlays that both
    /// have and moves it to the commit's position, where what it read still holds. Says whether.
    pub fn kv_settle(&self, branch: BranchId, committed: BranchId, to: Generation) -> Result<bool> {
        self.write(self.durability(Durability::Normal), |_| {
            let Some(at) = self.committed_at(committed, to)? else {
                return Ok(true);
            };
            let (c, p) = (self.branch(branch)?, self.branch(committed)?);
            let from = c.shared.position.unwrap_or(NO_BOUND);
            if from >= at {
                return Ok(true);
            }
            let (mine, theirs) = self.apart(&c.shared, &p.shared)?;
            let theirs = Touched {
                store: self,
                overlays: &theirs,
                prefixes: BTreeSet::new(),
            };
            // Of the commit itself, what the branch has seen below itself already is no change.
            let found = self.meet(c.world, (from, at), &mine, |position, key| {
                Ok(position != at || theirs.how(key)?.as_deref() == Some("written"))
            })?;
            if !found.is_empty() {
                return Ok(false);
            }
            let own = c.shared.overlay.filter(|own| mine.first() == Some(own));
            let shared = SharedRecord {
                position: Some(at),
                overlay: own,
                overlays: mine[usize::from(own.is_some())..].to_vec(),
            };
            self.set_shared(branch, &shared).map(|()| true)
        })
    }

    fn committed_at(&self, branch: BranchId, to: Generation) -> Result<Option<u64>> {
        let text = "SELECT position FROM commits WHERE branch = ? AND to_generation = ? \
                    AND decided_ns IS NOT NULL AND state <> 'undone' AND position IS NOT NULL";
        let at = params![bits(branch.bits()), signed(to.0)];
        Ok(rows(&mut *self.cached(text)?, at, |r| r.unsigned())?.pop())
    }

    /// Where a commit changed keys.
    pub(crate) fn position_of(&self, commit: &CommitRecord) -> Result<Option<u64>> {
        let text = "SELECT position FROM commits WHERE id = ?";
        let found = rows(&mut *self.cached(text)?, [bits(commit.id.bits())], |r| {
            r.get::<Option<i64>>()
        })?;
        Ok(found.into_iter().next().flatten().map(i64::cast_unsigned))
    }

    /// How many keys a commit changed, for its undo.
    pub fn kv_committed(&self, commit: &CommitRecord) -> Result<u64> {
        let Some(at) = self.position_of(commit)? else {
            return Ok(0);
        };
        let text = "SELECT count(*) FROM kv WHERE world = ? AND position = ?";
        let place = params![bits(commit.world.bits()), signed(at)];
        let found = rows(&mut *self.cached(text)?, place, |r| r.unsigned())?;
        Ok(found.into_iter().sum())
    }

    /// Refuses to take a commit back where one of its keys was changed after it.
    pub(crate) fn check_keys_undoable(&self, commit: &CommitRecord) -> Result<()> {
        let Some(at) = self.position_of(commit)? else {
            return Ok(());
        };
        let text = "SELECT a.key FROM kv a WHERE a.world = ?1 AND a.position = ?2 AND EXISTS \
                    (SELECT 1 FROM kv b WHERE b.world = ?1 AND b.key = a.key AND b.position > ?2) \
                    LIMIT 1";
        let place = params![bits(commit.world.bits()), signed(at)];
        let later = rows(&mut *self.cached(text)?, place, |r| r.get::<Vec<u8>>())?;
        match later.first() {
            None => Ok(()),
            Some(key) => Err(codes::COMMIT_STATE
                .error(format!(
                    "the key {:?}, which commit {} wrote, was changed since",
                    key.escape_ascii().to_string(),
                    commit.id
                ))
                .hint("put the keys it wrote as they were by hand: forkpoint kv put")),
        }
    }

    /// Gives the keys of a commit that is taken back what they had before it, in the transaction that
    /// says so. What nobody can have been forked from leaves no trace.
    pub(crate) fn undo_keys(&self, commit: &CommitRecord) -> Result<()> {
        let Some(at) = self.position_of(commit)? else {
            return Ok(());
        };
        let world = bits(commit.world.bits());
        let text = "SELECT EXISTS (SELECT 1 FROM branches WHERE world = ?1 AND position >= ?2) \
                    OR EXISTS (SELECT 1 FROM checkpoints WHERE world = ?1 AND position >= ?2)";
        let seen = rows(&mut *self.cached(text)?, params![world, signed(at)], |r| {
            r.get::<bool>()
        })?;
        if !seen.contains(&true) {
            self.cached("DELETE FROM kv WHERE world = ? AND position = ?")?
                .execute(params![world, signed(at)])
                .map_err(sql("taking keys back"))?;
            return Ok(());
        }
        let back = self.next_position(commit.world)?;
        self.cached(
            "INSERT INTO kv (world, key, position, value) SELECT a.world, a.key, ?3, \
             (SELECT b.value FROM kv b WHERE b.world = a.world AND b.key = a.key \
             AND b.position < a.position ORDER BY b.position DESC LIMIT 1) \
             FROM kv a WHERE a.world = ?1 AND a.position = ?2",
        )?
        .execute(params![world, signed(at), signed(back)])
        .map_err(sql("taking keys back"))?;
        Ok(())
    }

    /// The overlays of each of two that the other has not, topmost first. What both have lies at the
    /// bottom, but for that of a nested branch which was committed into one and forked to the other.
    fn apart(&self, a: &SharedRecord, b: &SharedRecord) -> Result<(Vec<u64>, Vec<u64>)> {
        let (mut a, mut b) = (self.expanded(&a.stack())?, self.expanded(&b.stack())?);
        let both: BTreeSet<u64> = a.iter().copied().filter(|o| b.contains(o)).collect();
        a.retain(|o| !both.contains(o));
        b.retain(|o| !both.contains(o));
        Ok((a, b))
    }
}
