//! Going through the keys of several places in one order: a stack of overlays, and the world.

use crate::{
    Store,
    row::{rows, signed},
};
use forkpoint_model::{Result, WorldId};
use rusqlite::params;

/// A position that everything committed lies below.
pub(crate) const NO_BOUND: u64 = i64::MAX as u64;

/// Every key that any place has below a prefix, once, in the order of its bytes; removed ones too.
pub(crate) struct Scan<'a> {
    store: &'a Store,
    pub(crate) world: Option<(WorldId, u64)>,
    pub(crate) stack: Vec<u64>,
    prefix: Vec<u8>,
    /// Where the next key is looked for: at or behind this.
    low: Vec<u8>,
    /// The next key of each place, the world's last; not looked for yet where none.
    heads: Vec<Option<Head>>,
}

enum Head {
    At(Vec<u8>),
    End,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(
        store: &'a Store,
        world: Option<(WorldId, u64)>,
        stack: Vec<u64>,
        prefix: &[u8],
        after: Option<&[u8]>,
    ) -> Self {
        let low = match after.map(behind) {
            Some(low) if low.as_slice() > prefix => low,
            _ => prefix.to_vec(),
        };
        let heads = (0..=stack.len()).map(|_| None).collect();
        Self {
            store,
            world,
            stack,
            prefix: prefix.to_vec(),
            low,
            heads,
        }
    }

    pub(crate) fn next_key(&mut self) -> Result<Option<Vec<u8>>> {
        for place in 0..self.heads.len() {
            let known = match &self.heads[place] {
                None => false,
                Some(Head::End) => true,
                Some(Head::At(key)) => *key >= self.low,
            };
            if !known {
                self.heads[place] = Some(match self.look(place)? {
                    Some(key) if key.starts_with(&self.prefix) => Head::At(key),
                    _ => Head::End,
                });
            }
        }
        let keys = self.heads.iter().filter_map(|head| match head {
            Some(Head::At(key)) => Some(key),
            _ => None,
        });
        let next = keys.min().cloned();
        if let Some(key) = &next {
            self.low = behind(key);
        }
        Ok(next)
    }

    fn look(&self, place: usize) -> Result<Option<Vec<u8>>> {
        let found = match (self.stack.get(place), self.world) {
            (Some(&overlay), _) => {
                let text = "SELECT key FROM overlay_kv WHERE overlay = ? AND key >= ? \
                            ORDER BY key LIMIT 1";
                let at = params![signed(overlay), self.low];
                rows(&mut *self.store.cached(text)?, at, |r| r.get())?
            }
            (None, Some((world, _))) => {
                let text = "SELECT key FROM kv WHERE world = ? AND key >= ? \
                            ORDER BY key, position LIMIT 1";
                let at = params![crate::row::key(world.bits()), self.low];
                rows(&mut *self.store.cached(text)?, at, |r| r.get())?
            }
            (None, None) => Vec::new(),
        };
        Ok(found.into_iter().next())
    }
}

/// The first byte string behind a key.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
