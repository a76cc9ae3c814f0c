//! The database's layout and its versions. `PRAGMA user_version` holds the version, and
//! `PRAGMA application_id` says that the file is ours. A version is reached from the one before by
//! running its script; released scripts are never edited.

use crate::{codes, row::sql};
use forkpoint_model::Result;
use rusqlite::Connection;

/// `FkPt`, in SQLite's header.
pub(crate) const APPLICATION_ID: i32 = 0x466b_5074;

/// The scripts; the n-th makes version n + 1.
const VERSIONS: &[&str] = &[
    include_str!("schema/v1.sql"),
    include_str!("schema/v2.sql"),
    include_str!("schema/v3.sql"),
    include_str!("schema/v4.sql"),
    include_str!("schema/v5.sql"),
];

/// The version this program writes.
pub(crate) const VERSION: i32 = VERSIONS.len() as i32;

/// What an existing file says of itself.
pub(crate) fn version(conn: &Connection) -> Result<i32> {
    let application: i32 = pragma(conn, "application_id")?;
    let version: i32 = pragma(conn, "user_version")?;
    if application == APPLICATION_ID && version >= 1 {
        return Ok(version);
    }
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(sql("reading the store's schema"))?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(0),
        _ => Err(codes::DAMAGED
            .error("forkpoint.db is not a Forkpoint store")
            .hint("set the file aside, or point FORKPOINT_HOME elsewhere")),
    }
}

/// Refuses a version that this program does not know.
pub(crate) fn check_not_newer(found: i32) -> Result<()> {
    if found <= VERSION {
        return Ok(());
    }
    Err(codes::NEWER
        .error(format!(
            "the store has version {found}, and this program knows up to {VERSION}"
        ))
        .hint("use the newer Forkpoint that wrote it, or another FORKPOINT_HOME"))
}

/// Brings the database from version `found` to the present one. Runs inside a write transaction.
pub(crate) fn migrate(conn: &Connection, found: i32) -> Result<()> {
    migrate_with(conn, found, VERSIONS)
}

fn migrate_with(conn: &Connection, found: i32, versions: &[&str]) -> Result<()> {
    let done = usize::try_from(found).unwrap_or(0);
    for (script, version) in versions.iter().zip(1i32..).skip(done) {
        conn.execute_batch(script)
            .map_err(sql("migrating the store"))?;
        conn.pragma_update(None, "user_version", version)
            .map_err(sql("migrating the store"))?;
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(sql("migrating the store"))
}

/// The version as it is now, by a statement that is kept prepared.
pub(crate) fn kept_version(conn: &Connection) -> Result<i32> {
    let mut statement = conn
        .prepare_cached("PRAGMA user_version")
        .map_err(sql("reading the store's header"))?;
    statement
        .query_row([], |row| row.get(0))
        .map_err(sql("reading the store's header"))
}

pub(crate) fn pragma<T: rusqlite::types::FromSql>(conn: &Connection, name: &str) -> Result<T> {
    conn.pragma_query_value(None, name, |row| row.get(0))
        .map_err(sql("reading the store's header"))
}
