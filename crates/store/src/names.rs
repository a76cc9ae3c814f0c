//! The names in a store, for whoever completes what is typed: read without opening the store for
//! anything else, so that nothing is made, mended or waited for.

use crate::row::{path_bytes, rows, sql, sql_error};
use crate::schema;
use forkpoint_model::{BranchId, CheckpointId, ExplorationId, Result};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// Somebody who types waits: a store that is busy longer has no names.
const PATIENCE: Duration = Duration::from_millis(20);

/// What can be named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Names of branches, or identifiers where they have none, and their states; the newest first.
    pub branches: Vec<(String, String)>,
    /// Explorations, their states, and how many attempts they have; the newest first.
    pub explorations: Vec<(ExplorationId, String, u32)>,
    /// The last exploration in `cwd`, if there is one.
    pub last: Option<ExplorationId>,
    /// Names of checkpoints, or identifiers where they have none, and what they are of.
    pub checkpoints: Vec<String>,
}

/// The names in the store at `dir`, at most `limit` of each kind. A store that is not there, or is of
/// another version, has none. `cwd` is where the last exploration is looked for.
///
/// # Errors
/// When it cannot be read, or is busy for more than a moment.
pub fn names(dir: &Path, cwd: &Path, limit: u32) -> Result<Names> {
    let file = dir.join("forkpoint.db");
    if !file.is_file() {
        return Ok(Names::default());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(&file, flags)
        .map_err(|e| sql_error(&format!("opening {}", file.display()), &e))?;
    conn.busy_timeout(PATIENCE)
        .map_err(sql("configuring the store"))?;
    if schema::version(&conn)? != schema::VERSION {
        return Ok(Names::default());
    }
    let limit = i64::from(limit);
    let ask = |text: &str| conn.prepare(text).map_err(sql("listing names"));
    let branches = rows(
        &mut ask(
            "SELECT id, name, state FROM branches WHERE ended_ns IS NULL \
             ORDER BY created_ns DESC LIMIT ?",
        )?,
        [limit],
        |r| {
            let id = r.id(BranchId::from_bits)?;
            let name: Option<String> = r.get()?;
            Ok((name.unwrap_or_else(|| id.to_string()), r.get()?))
        },
    )?;
    let explorations = rows(
        &mut ask(
            "SELECT x.id, x.state, (SELECT count(*) FROM branches b WHERE b.exploration = x.id) \
             FROM explorations x ORDER BY x.created_ns DESC LIMIT ?",
        )?,
        [limit],
        |r| Ok((r.id(ExplorationId::from_bits)?, r.get()?, r.get()?)),
    )?;
    let last = rows(
        &mut ask("SELECT id FROM explorations WHERE cwd = ? ORDER BY created_ns DESC LIMIT 1")?,
        [path_bytes(cwd)],
        |r| r.id(ExplorationId::from_bits),
    )?
    .pop();
    let checkpoints = rows(
        &mut ask(
            "SELECT id, name FROM checkpoints WHERE name IS NULL OR name NOT LIKE 'step:%' \
             ORDER BY created_ns DESC LIMIT ?",
        )?,
        [limit],
        |r| {
            let id = r.id(CheckpointId::from_bits)?;
            let name: Option<String> = r.get()?;
            Ok(name.unwrap_or_else(|| id.to_string()))
        },
    )?;
    Ok(Names {
        branches,
        explorations,
        last,
        checkpoints,
    })
}
