//! The append-only operation log.

use crate::{
    Durability, HistoryRecord, Store,
    row::{Reader, key, rows, signed, sql},
};
use forkpoint_model::{BranchId, CommitId, Result, WorldId};
use rusqlite::params;

const HISTORY: &str = "SELECT seq, at_ns, verb, world, branch, txn, line, json FROM history";

/// Which lines of the log are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryFilter {
    /// Only of this world.
    pub world: Option<WorldId>,
    /// Only of this branch.
    pub branch: Option<BranchId>,
    /// At most this many, the newest; 0 for all.
    pub limit: u32,
}

impl Store {
    /// Appends to the log; returns the line's number. Best done in the batch of what it tells of.
    pub fn append_history(&self, h: &HistoryRecord) -> Result<u64> {
        let durability = self.durability(Durability::Normal);
        self.write(durability, |conn| {
            self.cached(
                "INSERT INTO history (at_ns, verb, world, branch, txn, line, json) \
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                h.at_ns,
                h.verb,
                h.world.map(|w| key(w.bits())),
                h.branch.map(|b| key(b.bits())),
                h.commit.map(|c| key(c.bits())),
                h.text,
                h.json,
            ])
            .map_err(sql("writing the operation log"))?;
            Ok(conn.last_insert_rowid().cast_unsigned())
        })
    }

    /// Lines of the log, newest first.
    pub fn history(&self, filter: &HistoryFilter) -> Result<Vec<HistoryRecord>> {
        let mut text = String::from(HISTORY);
        let mut values = Vec::new();
        let wanted = [
            ("world", filter.world.map(WorldId::bits)),
            ("branch", filter.branch.map(BranchId::bits)),
        ];
        for (column, value) in wanted {
            if let Some(value) = value {
                text += if values.is_empty() {
                    " WHERE "
                } else {
                    " AND "
                };
                text += column;
                text += " = ?";
                values.push(signed(value));
            }
        }
        text += " ORDER BY seq DESC";
        if filter.limit > 0 {
            text += " LIMIT ?";
            values.push(i64::from(filter.limit));
        }
        rows(
            &mut *self.cached(&text)?,
            rusqlite::params_from_iter(values),
            read_history,
        )
    }
}

fn read_history(r: &mut Reader<'_, '_>) -> Result<HistoryRecord> {
    Ok(HistoryRecord {
        seq: r.unsigned()?,
        at_ns: r.get()?,
        verb: r.get()?,
        world: r.opt_id(WorldId::from_bits)?,
        branch: r.opt_id(BranchId::from_bits)?,
        commit: r.opt_id(CommitId::from_bits)?,
        text: r.get()?,
        json: r.get()?,
    })
}
