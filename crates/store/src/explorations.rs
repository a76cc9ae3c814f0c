//! Explorations and their attempts.

use crate::{
    AttemptRecord, Durability, ExplorationRecord, ExplorationState, Store, codes,
    row::{Reader, key, path_bytes, rows, sql, to_json},
};
use forkpoint_model::{BranchId, ExplorationId, Result, WorldId};
use rusqlite::params;
use std::path::Path;

const EXPLORATION: &str = "SELECT id, world, cwd, spec, state, supervisor, created_ns, ended_ns, result FROM explorations";
const ATTEMPT: &str = "SELECT exploration, attempt, branch, params, state, reason, exit_code, \
    score, passed, detail FROM attempts";

impl Store {
    /// Adds an exploration, or replaces the one of the same identifier.
    pub fn put_exploration(&self, x: &ExplorationRecord) -> Result<()> {
        // Its end is reported to the user, so it must be as durable as the report.
        let durability = if x.ended_ns.is_some() {
            Durability::Full
        } else {
            Durability::Normal
        };
        self.write(durability, |_| {
            self.cached(
                "INSERT OR REPLACE INTO explorations (id, world, cwd, spec, state, supervisor, \
                 created_ns, ended_ns, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                key(x.id.bits()),
                key(x.world.bits()),
                path_bytes(&x.cwd),
                x.spec,
                x.state.as_str(),
                x.supervisor.as_ref().map(to_json).transpose()?,
                x.created_ns,
                x.ended_ns,
                x.result,
            ])
            .map_err(sql("writing an exploration"))?;
            Ok(())
        })
    }

    /// An exploration. FP0108 if there is none.
    pub fn exploration(&self, id: ExplorationId) -> Result<ExplorationRecord> {
        let text = format!("{EXPLORATION} WHERE id = ?");
        rows(
            &mut *self.cached(&text)?,
            [key(id.bits())],
            read_exploration,
        )?
        .pop()
        .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no exploration {id}")))
    }

    /// The last exploration started in this canonical directory.
    pub fn last_exploration(&self, cwd: &Path) -> Result<Option<ExplorationRecord>> {
        let text = format!("{EXPLORATION} WHERE cwd = ? ORDER BY created_ns DESC, id LIMIT 1");
        Ok(rows(
            &mut *self.cached(&text)?,
            [path_bytes(cwd)],
            read_exploration,
        )?
        .pop())
    }

    /// Explorations, newest first; only those that have not ended if `running`.
    pub fn explorations(&self, running: bool) -> Result<Vec<ExplorationRecord>> {
        let condition = if running {
            "WHERE ended_ns IS NULL"
        } else {
            ""
        };
        let text = format!("{EXPLORATION} {condition} ORDER BY created_ns DESC, id");
        rows(&mut *self.cached(&text)?, [], read_exploration)
    }

    /// Adds attempts, or replaces those of the same index; all or none.
    pub fn put_attempts(&self, attempts: &[AttemptRecord]) -> Result<()> {
        let durability = self.durability(Durability::Normal);
        self.write(durability, |_| {
            let mut put = self.cached(
                "INSERT OR REPLACE INTO attempts (exploration, attempt, branch, params, state, \
                 reason, exit_code, score, passed, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            for a in attempts {
                put.execute(params![
                    key(a.exploration.bits()),
                    a.index,
                    a.branch.map(|b| key(b.bits())),
                    a.params,
                    a.state,
                    a.reason,
                    a.exit_code,
                    // SQLite would turn NaN into NULL; so do we, knowingly.
                    a.score.filter(|s| !s.is_nan()),
                    a.passed,
                    a.detail,
                ])
                .map_err(sql("writing an attempt"))?;
            }
            Ok(())
        })
    }

    /// The attempts of an exploration, in order.
    pub fn attempts(&self, exploration: ExplorationId) -> Result<Vec<AttemptRecord>> {
        let text = format!("{ATTEMPT} WHERE exploration = ? ORDER BY attempt");
        rows(
            &mut *self.cached(&text)?,
            [key(exploration.bits())],
            read_attempt,
        )
    }

    /// One attempt. FP0108 if there is none.
    pub fn attempt(&self, exploration: ExplorationId, index: u32) -> Result<AttemptRecord> {
        let text = format!("{ATTEMPT} WHERE exploration = ? AND attempt = ?");
        let params = params![key(exploration.bits()), index];
        rows(&mut *self.cached(&text)?, params, read_attempt)?
            .pop()
            .ok_or_else(|| {
                codes::NOT_FOUND.error(format!("exploration {exploration} has no attempt {index}"))
            })
    }

    /// Forgets an exploration and its attempts.
    pub fn remove_exploration(&self, id: ExplorationId) -> Result<()> {
        self.write(Durability::Normal, |_| {
            for text in [
                "DELETE FROM attempts WHERE exploration = ?",
                "DELETE FROM explorations WHERE id = ?",
            ] {
                self.cached(text)?
                    .execute([key(id.bits())])
                    .map_err(sql("removing an exploration"))?;
            }
            Ok(())
        })
    }
}

fn read_exploration(r: &mut Reader<'_, '_>) -> Result<ExplorationRecord> {
    Ok(ExplorationRecord {
        id: r.id(ExplorationId::from_bits)?,
        world: r.id(WorldId::from_bits)?,
        cwd: r.path()?,
        spec: r.get()?,
        state: r.text(ExplorationState::parse)?,
        supervisor: r.opt_json()?,
        created_ns: r.get()?,
        ended_ns: r.get()?,
        result: r.get()?,
    })
}

fn read_attempt(r: &mut Reader<'_, '_>) -> Result<AttemptRecord> {
    Ok(AttemptRecord {
        exploration: r.id(ExplorationId::from_bits)?,
        index: r.get()?,
        branch: r.opt_id(BranchId::from_bits)?,
        params: r.get()?,
        state: r.get()?,
        reason: r.get()?,
        exit_code: r.get()?,
        score: r.get()?,
        passed: r.get()?,
        detail: r.get()?,
    })
}
