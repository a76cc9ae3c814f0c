//! Names of explorations and attempts: an exploration's identifier or an unambiguous beginning of
//! one, `last` for the last one of a directory, and `/INDEX` behind either for an attempt.

use forkpoint_engine::records::{ExplorationRecord, Store};
use forkpoint_engine::{Branch, Engine};
use forkpoint_model::{BranchId, Result};
use std::path::Path;

use crate::codes;

/// How many candidates an ambiguity lists.
const CANDIDATES: usize = 5;

/// What a name can stand for.
#[derive(Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// `EXPLORATION/INDEX`.
    Attempt(&'a str, u32),
    /// Something without a slash.
    Plain(&'a str),
}

/// Takes a name apart.
///
/// # Errors
/// `FP0502` for what follows a slash and is no number.
pub fn parse(name: &str) -> Result<Name<'_>> {
    let Some((exploration, index)) = name.split_once('/') else {
        return Ok(Name::Plain(name));
    };
    let digits = !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit());
    match index.parse() {
        Ok(index) if digits && !exploration.is_empty() => Ok(Name::Attempt(exploration, index)),
        _ => Err(codes::UNKNOWN
            .error(format!("'{name}' names no attempt"))
            .hint("write EXPLORATION/INDEX, as in last/2")),
    }
}

/// Finds an exploration; `cwd` is the canonical directory for `last`.
///
/// # Errors
/// `FP0502` where there is none, or several begin so.
pub fn exploration(store: &Store, name: &str, cwd: &Path) -> Result<ExplorationRecord> {
    if name == "last" {
        return store.last_exploration(cwd)?.ok_or_else(|| {
            codes::UNKNOWN
                .error(format!("nothing was explored in {} yet", cwd.display()))
                .hint("forkpoint list --explorations shows those of other directories")
        });
    }
    if let Ok(id) = name.parse() {
        return store.exploration(id);
    }
    let mut found = store.explorations(false)?;
    found.retain(|x| !name.is_empty() && x.id.to_string().starts_with(name));
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(codes::UNKNOWN
            .error(format!("there is no exploration '{name}'"))
            .hint("forkpoint list --explorations shows what there is")),
        n => {
            let ids = found.iter().take(CANDIDATES).map(|x| x.id.to_string());
            let list = ids.collect::<Vec<_>>().join(", ");
            Err(codes::UNKNOWN
                .error(format!("{n} explorations begin with '{name}': {list}"))
                .hint("give more characters of the identifier"))
        }
    }
}

/// Finds the branch that `name` stands for: a branch's name, identifier or beginning of one, or an
/// attempt.
///
/// # Errors
/// `FP0502` where an attempt has no branch, and whatever the store says of a name it does not know.
pub fn branch(engine: &Engine, name: &str, cwd: &Path) -> Result<Branch> {
    let (exploration_name, index) = match parse(name)? {
        Name::Plain(name) => return engine.branch(name),
        Name::Attempt(exploration, index) => (exploration, index),
    };
    let id = attempt_branch(&engine.store(), exploration_name, index, cwd)?;
    engine.branch_by_id(id)
}

fn attempt_branch(store: &Store, name: &str, index: u32, cwd: &Path) -> Result<BranchId> {
    let found = exploration(store, name, cwd)?;
    let rows = store.attempts(found.id)?;
    let row = rows.iter().find(|row| row.index == index).ok_or_else(|| {
        codes::UNKNOWN
            .error(format!("exploration {} has no attempt {index}", found.id))
            .hint(match rows.len() {
                0 => "it ended before its attempts were forked".to_owned(),
                n => format!("its attempts are 0 to {}", n - 1),
            })
    })?;
    row.branch.ok_or_else(|| {
        codes::UNKNOWN.error(format!(
            "attempt {index} of {} could not be forked",
            found.id
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(parse("last/2").unwrap(), Name::Attempt("last", 2));
        assert_eq!(
            parse("x0000000a/10").unwrap(),
            Name::Attempt("x0000000a", 10)
        );
        assert_eq!(parse("fix-1").unwrap(), Name::Plain("fix-1"));
        for bad in [
            "last/",
            "/2",
            "last/-1",
            "last/+1",
            "last/x",
            "last/99999999999",
            "a/1/2",
        ] {
            assert_eq!(
                parse(bad).map_err(|e| e.code),
                Err("FP0502".into()),
                "{bad}"
            );
        }
    }
}
