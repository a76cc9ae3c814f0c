//! Opening and creating a store.

use crate::{
    Durability, codes,
    lock::LockFile,
    reserve,
    row::{sql, sql_error},
    schema,
};
use forkpoint_model::Result;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::{
    cell::Cell,
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a write waits for others before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Statements kept prepared.
const STATEMENTS: usize = 64;

/// An open store: one connection of one process. Several may be open on one directory, in one
/// process or many. It can be sent between threads, not shared.
#[derive(Debug)]
pub struct Store {
    pub(crate) dir: PathBuf,
    pub(crate) conn: Connection,
    pub(crate) lock: LockFile,
    pub(crate) patience: Duration,
    /// The durability of the write transaction under way, if there is one.
    pub(crate) in_tx: Cell<Option<Durability>>,
    /// Whether a step of that transaction failed.
    pub(crate) poisoned: Cell<bool>,
}

impl Store {
    /// Opens the store in `dir`, and creates it (mode 0700, with its parents) where there is none.
    ///
    /// # Errors
    /// FP0101 where it cannot be opened or created, FP0102 for one of a newer version, FP0103 for a
    /// directory that is not the caller's alone, FP0104 for a damaged database, FP0106 when another
    /// process blocks it for too long.
    pub fn open(dir: &Path) -> Result<Self> {
        match Self::open_once(dir) {
            Err(e) if e.code == codes::FULL.text || e.code == codes::CANNOT_OPEN.text => {
                // Without a few free blocks not even a look at the store can be had.
                match dir.is_dir() && reserve::release(dir)? {
                    true => Self::open_once(dir),
                    false => Err(e),
                }
            }
            Ok(store) => {
                reserve::keep(&store.dir);
                Ok(store)
            }
            Err(e) => Err(e),
        }
    }

    fn open_once(dir: &Path) -> Result<Self> {
        let failed = |e| codes::CANNOT_OPEN.io(dir.display(), e);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(failed)?;
        let dir = fs::canonicalize(dir).map_err(failed)?;
        check_private(&dir)?;
        for sub in ["branches", "layers", "commits", "tmp"] {
            let sub = dir.join(sub);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&sub)
                .map_err(|e| codes::CANNOT_OPEN.io(sub.display(), e))?;
        }
        let lock = LockFile::new(dir.join("lock"))?;
        let conn = connect(&dir.join("forkpoint.db"))?;
        let store = Self {
            dir,
            conn,
            lock,
            patience: PATIENCE,
            in_tx: Cell::new(None),
            poisoned: Cell::new(false),
        };
        store.set_up()?;
        Ok(store)
    }

    /// The store's directory, canonical.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How long a write waits for other processes before it fails (30 s unless set).
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn set_up(&self) -> Result<()> {
        // A first look without the lock: the version of an existing store never goes back.
        let found = schema::version(&self.conn)?;
        schema::check_not_newer(found)?;
        if found == schema::VERSION {
            return self.configure();
        }
        {
            // Changing the journal mode is a write of its own, outside of any transaction.
            let _guard = self.lock.take(self.patience)?;
            self.configure()?;
        }
        self.write(Durability::Full, |conn| {
            let found = schema::version(conn)?;
            schema::check_not_newer(found)?;
            schema::migrate(conn, found)
        })
    }

    fn configure(&self) -> Result<()> {
        let mode: String = self
            .conn
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
            .map_err(sql("switching the store to WAL"))?;
        if mode != "wal" {
            return Err(codes::CANNOT_OPEN.error(format!(
                "the store's file system does not support SQLite's WAL (journal mode {mode})"
            )));
        }
        // A command that ends would otherwise checkpoint the log and sync it, which costs more than
        // all it did; the log is kept short instead, since whoever opens it next reads all of it.
        self.conn
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(sql("configuring the store"))?;
        // Plans must not depend on what is bound: of a statement whose plan could, SQLite forgets it at
        // each binding and prepares it anew, which costs more than all else it does.
        self.conn
            .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .map_err(sql("configuring the store"))?;
        self.conn
            .execute_batch(
                "PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF; PRAGMA wal_autocheckpoint=200;",
            )
            .map_err(sql("configuring the store"))
    }

    /// Looks through the whole database for damage. Slow: for `doctor` and tests.
    pub fn check(&self) -> Result<()> {
        let found: String = self
            .conn
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(sql("checking the store"))?;
        if found == "ok" {
            return Ok(());
        }
        Err(codes::DAMAGED.error(format!("the store is damaged: {found}")))
    }
}

/// Law 3 begins here: nobody else may reach into the store.
fn check_private(dir: &Path) -> Result<()> {
    let meta = fs::metadata(dir).map_err(|e| codes::CANNOT_OPEN.io(dir.display(), e))?;
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != me {
        return Err(codes::NOT_PRIVATE
            .error(format!(
                "the store {} belongs to user {}, and this is user {me}",
                dir.display(),
                meta.uid()
            ))
            .hint("set FORKPOINT_HOME to a directory of your own"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(codes::NOT_PRIVATE
            .error(format!(
                "the store {} can be entered by others (mode {:03o})",
                dir.display(),
                meta.mode() & 0o777
            ))
            .hint(format!("chmod 700 {}", dir.display())));
    }
    Ok(())
}

fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(path, flags)
        .map_err(|e| sql_error(&format!("opening {}", path.display()), &e))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Only WAL recovery and checkpoints ever wait here; writers wait at the lock.
    conn.busy_timeout(Duration::from_secs(10))
        .map_err(sql("configuring the store"))?;
    Ok(conn)
}
