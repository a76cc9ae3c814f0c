//! Write transactions: the lock, `BEGIN IMMEDIATE`, and how durable the commit has to be.

use crate::{Store, codes, row::sql, schema};
use forkpoint_model::{Error, Result};
use rusqlite::Connection;

/// How durable a transaction is when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Consistent whatever happens; a power loss may cost it, and those after it.
    Normal,
    /// Survives a power loss, with everything before it.
    Full,
}

impl Store {
    /// Runs `work` as one write transaction, in which every other function of the store takes part.
    /// If any of them fails, or `work` does, nothing of it happened.
    pub fn batch<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Store) -> Result<T>,
    ) -> Result<T> {
        self.write(durability, |_| work(self))
    }

    /// Lets `work` read as of one moment, and with one look at the database's log for all it reads. It
    /// must not write. Inside a batch it is part of that.
    pub fn look<T>(&self, work: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        if !self.conn.is_autocommit() {
            return work(self);
        }
        run(&self.conn, "BEGIN")?;
        let _open = OpenTx {
            store: self,
            open: true,
        };
        work(self)
    }

    /// As [`Store::batch`], for the store's own functions. One that runs inside a batch joins it;
    /// the batch's durability is the one that counts, so a decision is not to be nested in a
    /// batch that is less durable.
    pub(crate) fn write<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        if let Some(outer) = self.in_tx.get() {
            if durability == Durability::Full && outer == Durability::Normal {
                return Err(codes::FAILED.error("a decision inside a batch that is not durable"));
            }
            let result = work(&self.conn);
            if result.is_err() {
                self.poisoned.set(true);
            }
            return result;
        }
        let _guard = self.lock.take(self.patience)?;
        let _level = Level::raise(&self.conn, durability)?;
        run(&self.conn, "BEGIN IMMEDIATE")?;
        let mut open = OpenTx {
            store: self,
            open: true,
        };
        // Another version of this program may have brought the store on since it was opened here.
        schema::check_not_newer(schema::kept_version(&self.conn)?)?;
        self.in_tx.set(Some(durability));
        let result = work(&self.conn);
        self.in_tx.set(None);
        let poisoned = self.poisoned.replace(false);
        match result {
            Ok(_) if poisoned => Err(codes::FAILED.error("a step of the transaction had failed")),
            Ok(value) => {
                run(&self.conn, "COMMIT")?;
                open.open = false;
                Ok(value)
            }
            Err(e) => Err(e),
        }
    }

    /// The durability of a row that decides nothing: as wanted, or that of the batch it is part of.
    pub(crate) fn durability(&self, wanted: Durability) -> Durability {
        self.in_tx.get().unwrap_or(wanted)
    }

    /// A statement of the cache.
    pub(crate) fn cached(&self, text: &str) -> Result<rusqlite::CachedStatement<'_>> {
        self.conn
            .prepare_cached(text)
            .map_err(sql("preparing a statement of the store"))
    }
}

/// A transaction that is rolled back unless it was committed, whatever way it is left.
struct OpenTx<'a> {
    store: &'a Store,
    open: bool,
}

impl Drop for OpenTx<'_> {
    fn drop(&mut self) {
        self.store.in_tx.set(None);
        self.store.poisoned.set(false);
        // SQLite itself rolls back on a full disk or an I/O error; then there is nothing to do.
        if self.open && !self.store.conn.is_autocommit() {
            let rolled_back = run(&self.store.conn, "ROLLBACK");
            debug_assert!(rolled_back.is_ok(), "{rolled_back:?}");
        }
    }
}

/// `synchronous=FULL` for the length of one transaction.
struct Level<'a>(Option<&'a Connection>);

impl<'a> Level<'a> {
    fn raise(conn: &'a Connection, durability: Durability) -> Result<Self> {
        if durability == Durability::Normal {
            return Ok(Self(None));
        }
        conn.execute_batch("PRAGMA synchronous=FULL")
            .map_err(sql("PRAGMA synchronous"))?;
        Ok(Self(Some(conn)))
    }
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        if let Some(conn) = self.0 {
            // If this failed, later rows would only be more durable than they need to be.
            let lowered = conn.execute_batch("PRAGMA synchronous=NORMAL");
            debug_assert!(lowered.is_ok(), "{lowered:?}");
        }
    }
}

fn run(conn: &Connection, text: &str) -> Result<(), Error> {
    let mut statement = conn.prepare_cached(text).map_err(sql(text))?;
    statement.execute([]).map_err(sql(text))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{BranchRecord, Store, WorldRecord};
    use forkpoint_model::{BranchId, Generation, Source, WorldId};
    use rusqlite::StatementStatus;

    /// A statement that is prepared anew at each use costs more than all else it does.
    #[test]
    fn a_cached_statement_is_not_prepared_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let world = WorldRecord {
            id: WorldId::from_bits(1),
            disks: Vec::new(),
            head: Generation(0),
            created_ns: 0,
        };
        store.insert_world(&world).unwrap();
        for n in 1..20 {
            let head = Source::Head(Generation(0));
            let id = BranchId::from_bits(n);
            let branch = BranchRecord::new(id, world.id, head, Generation(0));
            store.insert_branch(&branch).unwrap();
            store.fork_point(world.id).unwrap();
            store.branch(id).unwrap();
            store.look(|store| store.world(world.id)).unwrap();
            store
                .modify_branch(id, |b| b.name = Some(n.to_string()))
                .unwrap();
            store.find_branch(&n.to_string()).unwrap();
        }
        let texts = [
            format!("{} WHERE b.id = ?", crate::branches::BRANCH),
            format!(
                "{} WHERE b.name = ? AND b.ended_ns IS NULL",
                crate::branches::BRANCH
            ),
            crate::branches::INSERT.to_owned(),
        ];
        for text in texts {
            let again = store
                .cached(&text)
                .unwrap()
                .get_status(StatementStatus::RePrepare);
            assert_eq!(again, 0, "{text}");
        }
    }
}
