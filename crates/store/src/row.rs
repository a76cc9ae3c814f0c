//! Between records and SQLite's values. Columns are read in the order of the statement, since a
//! look-up by name costs more than the value. What does not decode is damage, reported with its
//! column.

use crate::codes;
use forkpoint_model::{Error, Result};
use rusqlite::{
    Row,
    types::{FromSql, ValueRef},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Maps an SQLite error to ours.
pub(crate) fn sql(what: &str) -> impl Fn(rusqlite::Error) -> Error + '_ {
    move |e| sql_error(what, &e)
}

pub(crate) fn sql_error(what: &str, e: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as C;
    match e.sqlite_error_code() {
        Some(C::DiskFull) => codes::FULL
            .io(what, e)
            .hint("free some space on the store's file system (forkpoint gc), then try again"),
        Some(C::DatabaseCorrupt | C::NotADatabase) => codes::DAMAGED
            .io(what, e)
            .hint("set it aside and start with an empty store; sealed layers remain under layers/"),
        Some(C::DatabaseBusy | C::DatabaseLocked) => codes::BUSY
            .io(what, e)
            .hint("another process is using the store: try again"),
        Some(C::ConstraintViolation) => codes::TAKEN.io(what, e),
        Some(C::CannotOpen | C::PermissionDenied | C::ReadOnly) => codes::CANNOT_OPEN.io(what, e),
        _ => codes::FAILED.io(what, e),
    }
}

/// Reads the columns of a row, one after the other.
pub(crate) struct Reader<'a, 'stmt> {
    row: &'a Row<'stmt>,
    next: usize,
}

impl<'a, 'stmt> Reader<'a, 'stmt> {
    pub(crate) fn new(row: &'a Row<'stmt>) -> Self {
        Self { row, next: 0 }
    }

    fn damaged(&self) -> Error {
        let column = self.next.saturating_sub(1);
        let name = self.row.as_ref().column_name(column).unwrap_or("?");
        codes::DAMAGED.error(format!(
            "a row of the store has a bad value in column {name}"
        ))
    }

    fn value(&mut self) -> Result<ValueRef<'a>> {
        let value = self
            .row
            .get_ref(self.next)
            .map_err(sql("reading a row of the store"));
        self.next += 1;
        value
    }

    /// Any value that SQLite itself knows.
    pub(crate) fn get<T: FromSql>(&mut self) -> Result<T> {
        let value = self.value()?;
        T::column_result(value).map_err(|_| self.damaged())
    }

    /// An identifier of 40 bits.
    pub(crate) fn id<T>(&mut self, from_bits: fn(u64) -> T) -> Result<T> {
        self.opt_id(from_bits)?.ok_or_else(|| self.damaged())
    }

    pub(crate) fn opt_id<T>(&mut self, from_bits: fn(u64) -> T) -> Result<Option<T>> {
        match self.get::<Option<i64>>()? {
            None => Ok(None),
            Some(bits @ 0..=0xff_ffff_ffff) => Ok(Some(from_bits(bits.cast_unsigned()))),
            Some(_) => Err(self.damaged()),
        }
    }

    /// An unsigned number of at most 63 bits.
    pub(crate) fn unsigned(&mut self) -> Result<u64> {
        u64::try_from(self.get::<i64>()?).map_err(|_| self.damaged())
    }

    /// A device or inode number, of which all 64 bits count.
    pub(crate) fn bits(&mut self) -> Result<u64> {
        Ok(self.get::<i64>()?.cast_unsigned())
    }

    /// A value of a fixed set, as text.
    pub(crate) fn text<T>(&mut self, parse: fn(&str) -> Option<T>) -> Result<T> {
        let value = self.value()?.as_str().ok();
        value.and_then(parse).ok_or_else(|| self.damaged())
    }

    /// A path, as bytes.
    pub(crate) fn path(&mut self) -> Result<PathBuf> {
        Ok(PathBuf::from(OsString::from_vec(self.get()?)))
    }

    /// A JSON value, if there is one.
    pub(crate) fn opt_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let value = self.value()?.as_str_or_null();
        match value.map_err(|_| self.damaged())? {
            None => Ok(None),
            Some(text) => serde_json::from_str(text)
                .map(Some)
                .map_err(|_| self.damaged()),
        }
    }

    /// A JSON list, absent when empty.
    pub(crate) fn list<T: DeserializeOwned>(&mut self) -> Result<Vec<T>> {
        Ok(self.opt_json()?.unwrap_or_default())
    }
}

/// An unsigned number to be stored; SQLite has 63 bits for it.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The bits of an identifier, as SQLite stores them.
pub(crate) fn key(bits: u64) -> i64 {
    bits.cast_signed()
}

pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| codes::FAILED.io("encoding a row of the store", e))
}

/// JSON of a list, or nothing for an empty one: most are empty, and a fork should be cheap.
pub(crate) fn list_json<T: Serialize>(list: &[T]) -> Result<Option<String>> {
    if list.is_empty() {
        Ok(None)
    } else {
        to_json(list).map(Some)
    }
}

/// Runs a query and decodes each row.
pub(crate) fn rows<T>(
    statement: &mut rusqlite::Statement<'_>,
    params: impl rusqlite::Params,
    decode: impl Fn(&mut Reader<'_, '_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut found = statement.query(params).map_err(sql("reading the store"))?;
    let mut out = Vec::new();
    while let Some(row) = found.next().map_err(sql("reading the store"))? {
        out.push(decode(&mut Reader::new(row))?);
    }
    Ok(out)
}
