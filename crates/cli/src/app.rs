//! What every verb needs: where the store is, who the caller is, how to answer.

use clap::Args;
use forkpoint_engine::{Branch, Engine, EngineOptions, World, WorldOptions};
use forkpoint_model::Result;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::codes;
use crate::output;

/// Options of every command.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// The store. Default: `$XDG_DATA_HOME/forkpoint`, or `~/.local/share/forkpoint`
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "FORKPOINT_HOME",
        hide_env_values = true
    )]
    pub store: Option<PathBuf>,
    /// Print one JSON document on standard output, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress on standard error; errors are still told
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// What branches may see of the host.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "What branches see")]
pub(crate) struct Masks {
    /// Do not mask PATH, although it holds credentials (may be repeated)
    #[arg(long, value_name = "PATH")]
    pub expose: Vec<PathBuf>,
    /// Mask PATH too (may be repeated)
    #[arg(long, value_name = "PATH")]
    pub hide: Vec<PathBuf>,
}

/// The command at work.
pub(crate) struct App {
    /// Options of every command.
    pub common: Common,
    /// The directory it was started in, canonical.
    pub cwd: PathBuf,
}

impl App {
    /// Looks at where it is.
    ///
    /// # Errors
    /// `FP0001` where the current directory is gone.
    pub(crate) fn new(common: Common) -> Result<Self> {
        let cwd = std::env::current_dir()
            .and_then(std::fs::canonicalize)
            .map_err(|e| codes::USAGE.io("the current directory cannot be used", e))?;
        Ok(Self { common, cwd })
    }

    /// Whether to answer in JSON.
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    /// The store's directory.
    ///
    /// # Errors
    /// `FP0002` where neither `FORKPOINT_HOME` nor a home directory says.
    pub(crate) fn store(&self) -> Result<PathBuf> {
        place(self.common.store.clone(), |name| std::env::var_os(name))
            .map(|dir| self.cwd.join(dir))
    }

    /// Opens the store. What recovery mended is told.
    ///
    /// # Errors
    /// Whatever the engine says.
    pub(crate) fn engine(&self, masks: &Masks) -> Result<Engine> {
        let engine = Engine::open(EngineOptions {
            store: self.store()?,
            home: home(|name| std::env::var_os(name)),
            env: std::env::vars_os().collect(),
            expose: masks.expose.iter().map(|p| self.cwd.join(p)).collect(),
            hide: masks.hide.iter().map(|p| self.cwd.join(p)).collect(),
        })?;
        for line in engine.recovered() {
            output::say(&format!("recovered: {line}"));
        }
        Ok(engine)
    }

    /// The branch or attempt of that name.
    ///
    /// # Errors
    /// As `forkpoint_explore::resolve::branch`.
    pub(crate) fn branch(&self, engine: &Engine, name: &str) -> Result<Branch> {
        forkpoint_explore::resolve::branch(engine, name, &self.cwd)
    }

    /// The world of a directory, the current one by default. What is unusual about it is told.
    ///
    /// # Errors
    /// Whatever the engine says.
    pub(crate) fn world(
        &self,
        engine: &Engine,
        base: Option<&Path>,
        snapshot: bool,
    ) -> Result<World> {
        let base = base.map_or_else(|| self.cwd.clone(), |b| self.cwd.join(b));
        engine.world(&base, WorldOptions { snapshot })
    }

    /// Tells something on standard error, unless that is not wanted.
    pub(crate) fn say(&self, line: &str) {
        // Much of what is said names paths, which are an attempt's to choose.
        if !self.common.quiet {
            output::say(&forkpoint_explore::logs::printable(line));
        }
    }
}

fn home(var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    var("HOME")
        .filter(|h| Path::new(h).is_absolute())
        .map(PathBuf::from)
}

/// Where the store is. A relative `XDG_DATA_HOME` is ignored, as its specification says.
fn place(given: Option<PathBuf>, var: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    if let Some(dir) = given.filter(|d| !d.as_os_str().is_empty()) {
        return Ok(dir);
    }
    if let Some(data) = var("XDG_DATA_HOME").filter(|d| Path::new(d).is_absolute()) {
        return Ok(PathBuf::from(data).join("forkpoint"));
    }
    home(&var)
        .map(|h| h.join(".local/share/forkpoint"))
        .ok_or_else(|| {
            codes::NO_HOME
                .error("there is no home directory to keep the store in")
                .hint("set FORKPOINT_HOME to a directory, or give --store DIR")
        })
}

/// Reads `NAME=VALUE`, or `NAME` for the caller's value.
pub(crate) fn variable(text: &OsStr) -> std::result::Result<(String, Option<OsString>), String> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&b| b == b'=');
    let name = std::str::from_utf8(&bytes[..at.unwrap_or(bytes.len())])
        .map_err(|_| "a variable's name must be UTF-8".to_owned())?;
    if name.is_empty() {
        return Err("a variable needs a name: NAME or NAME=VALUE".into());
    }
    Ok((
        name.to_owned(),
        at.map(|at| OsString::from_vec(bytes[at + 1..].to_vec())),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_where_the_design_says() {
        let of = |given: Option<&str>, vars: &[(&str, &str)]| {
            let var = |name: &str| {
                vars.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| OsString::from(*v))
            };
            place(given.map(PathBuf::from), var)
                .map(|p| p.display().to_string())
                .map_err(|e| e.code)
        };
        assert_eq!(of(Some("/s"), &[("HOME", "/h")]), Ok("/s".into()));
        assert_eq!(
            of(None, &[("XDG_DATA_HOME", "/d"), ("HOME", "/h")]),
            Ok("/d/forkpoint".into())
        );
        assert_eq!(
            of(None, &[("XDG_DATA_HOME", "d"), ("HOME", "/h")]),
            Ok("/h/.local/share/forkpoint".into())
        );
        assert_eq!(
            of(Some(""), &[("HOME", "/h")]),
            Ok("/h/.local/share/forkpoint".into())
        );
        assert_eq!(of(None, &[]), Err("FP0002".into()));
    }

    #[test]
    fn variables_are_read() {
        let read = |text: &str| variable(OsStr::new(text));
        assert_eq!(read("A=b=c"), Ok(("A".into(), Some("b=c".into()))));
        assert_eq!(read("A"), Ok(("A".into(), None)));
        assert_eq!(read("A="), Ok(("A".into(), Some("".into()))));
        assert!(read("=x").is_err() && read("").is_err());
    }
}
