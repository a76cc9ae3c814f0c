//! The cases of the conformance suite, by subject. Each has a directory of its own, a part that makes what it works on, and a
//! part that checks; on a branch the first may have been done before the fork.

mod attributes;
mod data;
mod directories;
mod links;
mod names;
mod opening;
mod renaming;
mod special;

use rustix::io::Errno;
use std::fmt::Debug;
use std::path::Path;

/// What a check found wrong.
pub(crate) type Verdict = Result<(), String>;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) setup: fn(&Path) -> Verdict,
    pub(crate) check: fn(&Path) -> Verdict,
}

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for part in [
        attributes::CASES,
        data::CASES,
        directories::CASES,
        links::CASES,
        names::CASES,
        opening::CASES,
        renaming::CASES,
        special::CASES,
    ] {
        for (name, setup, check) in part {
            cases.push(Case {
                name,
                setup: *setup,
                check: *check,
            });
        }
    }
    cases
}

/// Name, what it needs, what it checks.
pub(crate) type Row = (&'static str, fn(&Path) -> Verdict, fn(&Path) -> Verdict);

/// Nothing is needed.
pub(crate) fn nothing(_: &Path) -> Verdict {
    Ok(())
}

/// A file `f` with ten bytes, and an empty directory `d`.
pub(crate) fn file_and_dir(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("f"), b"0123456789"))?;
    ok(std::fs::create_dir(dir.join("d")))
}

/// A directory `d` that holds `d/f` and `d/s/g`, and a file `f`.
pub(crate) fn tree(dir: &Path) -> Verdict {
    file_and_dir(dir)?;
    ok(std::fs::write(dir.join("d/f"), b"inner"))?;
    ok(std::fs::create_dir(dir.join("d/s")))?;
    ok(std::fs::write(dir.join("d/s/g"), b"deep"))
}

/// The value, or why there is none.
#[track_caller]
pub(crate) fn ok<T, E: Debug>(result: Result<T, E>) -> Result<T, String> {
    let at = std::panic::Location::caller().line();
    result.map_err(|e| format!("line {at}: {e:?}"))
}

/// It must fail, with one of these.
#[track_caller]
pub(crate) fn fails<T>(result: Result<T, Errno>, with: &[Errno]) -> Verdict {
    let at = std::panic::Location::caller().line();
    match result {
        Ok(_) => Err(format!("line {at}: it succeeded, {with:?} was expected")),
        Err(e) if with.contains(&e) => Ok(()),
        Err(e) => Err(format!("line {at}: {e:?}, {with:?} was expected")),
    }
}

#[track_caller]
pub(crate) fn same<T: PartialEq + Debug>(came: T, right: T) -> Verdict {
    let at = std::panic::Location::caller().line();
    if came == right {
        Ok(())
    } else {
        Err(format!("line {at}: {came:?} instead of {right:?}"))
    }
}

#[track_caller]
pub(crate) fn holds(is: bool, what: &str) -> Verdict {
    let at = std::panic::Location::caller().line();
    if is {
        Ok(())
    } else {
        Err(format!("line {at}: not so: {what}"))
    }
}

/// Not root, whom permissions do not bind.
pub(crate) fn bound_by_permissions() -> bool {
    !rustix::process::geteuid().is_root()
}
