//! The specification file: what the flags of `explore` say, as TOML (docs/spec.md). Every mistake in it
//! is told with its line and column. Flags are laid over it by whoever has them.
//!
//! The configuration file ([`Config`]) is read by the same means.
//!
//! `shape` lists the keys, `read` checks a file against them, `convert` makes an [`ExploreSpec`] of it,
//! `schema` describes it to editors.

mod config;
mod convert;
mod meant;
mod read;
mod schema;
mod shape;
#[cfg(test)]
mod tests;

use forkpoint_model::{Code, Error, Result};
use std::path::{Path, PathBuf};
use toml::de::DeTable;

use crate::codes;
use crate::logs::printable;
use crate::spec::ExploreSpec;

pub use config::Config;
pub use schema::schema;

/// The largest file that is read.
const MOST_BYTES: u64 = 4 << 20;

/// Reads the file at `path`. Its relative paths begin at the directory it lies in, which is canonical
/// in what comes back. An empty base means that the file names none. `others`: attempts come from
/// elsewhere too, so that the file need not have one.
///
/// # Errors
/// `FP0510` with line and column.
pub fn load(path: &Path, others: bool) -> Result<ExploreSpec> {
    let name = printable(&path.display().to_string());
    let (text, dir) = SPEC.text(path, &name)?;
    parse(&text, &name, &dir, others)
}

/// Reads `text`, which is called `name` in errors, with relative paths beginning at `dir`.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, name: &str, dir: &Path, others: bool) -> Result<ExploreSpec> {
    SPEC.parse(text, name, |table, checker| {
        convert::spec(table, dir, others, checker)
    })
}

/// A kind of file that is read here.
struct Format {
    code: Code,
    /// What it is called.
    what: &'static str,
    /// What to do where there is none.
    hint: &'static str,
    shape: &'static shape::Shape,
    all: &'static [&'static shape::Shape],
}

static SPEC: Format = Format {
    code: codes::SPEC_FILE,
    what: "specification",
    hint: "give a TOML file; `forkpoint explain --schema` says what it may hold",
    shape: &shape::ROOT,
    all: shape::ALL,
};

impl Format {
    /// The file's text, and the directory it lies in.
    fn text(&self, path: &Path, name: &str) -> Result<(String, PathBuf)> {
        let what = self.what;
        let io = |e: std::io::Error| {
            self.code
                .io(format!("cannot read the {what} {name}"), e)
                .hint(self.hint)
        };
        let whole = std::fs::canonicalize(path).map_err(io)?;
        let meta = std::fs::metadata(&whole).map_err(io)?;
        if !meta.is_file() {
            return Err(self
                .code
                .error(format!("the {what} {name} is not a file"))
                .hint("give a TOML file; for a directory to explore from write --base DIR"));
        }
        if meta.len() > MOST_BYTES {
            return Err(self
                .code
                .error(format!("the {what} {name} is larger than 4 MiB"))
                .hint("give a TOML file; data belongs into the base"));
        }
        let bytes = std::fs::read(&whole).map_err(io)?;
        let dir = whole.parent().unwrap_or(Path::new("/")).to_owned();
        match String::from_utf8(bytes) {
            Ok(text) => Ok((text, dir)),
            Err(e) => {
                let valid = e.utf8_error().valid_up_to();
                let good = String::from_utf8_lossy(&e.as_bytes()[..valid]).into_owned();
                let at = good.len();
                let hint = "TOML files are UTF-8 text";
                Err(self.told(&good, name, at, "this byte is not UTF-8", hint))
            }
        }
    }

    /// Checks the text against the shapes and has it converted. Every mistake is told by its place.
    fn parse<T>(
        &self,
        text: &str,
        name: &str,
        convert: impl FnOnce(&DeTable<'_>, &mut read::Checker) -> T,
    ) -> Result<T> {
        let table = DeTable::parse(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            let hint = "mend the TOML there; https://toml.io describes it";
            self.told(text, name, at, e.message(), hint)
        })?;
        let mut checker = read::Checker::new(self.all);
        checker.table(self.shape, table.get_ref(), 0..0);
        if checker.mistakes.is_empty() {
            let made = convert(table.get_ref(), &mut checker);
            if checker.mistakes.is_empty() {
                return Ok(made);
            }
        }
        checker.mistakes.sort_by_key(|m| m.at);
        let Some((first, more)) = checker.mistakes.split_first() else {
            return Err(codes::INTERNAL.error("mistakes that are none"));
        };
        let mut lines: Vec<String> = more
            .iter()
            .map(|m| place(text, m.at).0.to_string())
            .collect();
        lines.dedup();
        let hint = match lines.is_empty() {
            true => first.hint.clone(),
            false => format!(
                "{} (more mistakes in line {})",
                first.hint,
                lines.join(", ")
            ),
        };
        Err(self.told(text, name, first.at, &first.what, &hint))
    }

    fn told(&self, text: &str, name: &str, at: usize, what: &str, hint: &str) -> Error {
        let (line, column) = place(text, at);
        let what = printable(&what.lines().collect::<Vec<_>>().join("; "));
        self.code
            .error(format!("{name}:{line}:{column}: {what}"))
            .hint(printable(hint))
    }
}

/// The line and the column of a byte, both from 1; the column counts characters.
fn place(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (line, column)
}
