//! What every verb needs: where the store is, who the caller is, how to answer.

use clap::Args;
use forkpoint_engine::{Branch, Engine, EngineOptions, World, WorldOptions};
use forkpoint_explore::spec_file::Config;
use forkpoint_model::Result;
use std::cell::OnceCell;
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
    /// Show this device of the host, such as /dev/kvm. Nothing captures what is done with it, so that
    /// a branch which had one ends abandoned, not rolled back (may be repeated)
    #[arg(long = "device", value_name = "PATH")]
    pub devices: Vec<PathBuf>,
}

/// The command at work.
pub(crate) struct App {
    /// Options of every command.
    pub common: Common,
    /// The directory it was started in, canonical.
    pub cwd: PathBuf,
    config: OnceCell<Config>,
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
        let config = OnceCell::new();
        Ok(Self {
            common,
            cwd,
            config,
        })
    }

    /// What the caller wants by default (docs/configuration.md).
    ///
    /// # Errors
    /// `FP0511` where the file is wrong.
    pub(crate) fn config(&self) -> Result<&Config> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let loaded = match self.config_path() {
            Some(path) => Config::load(&path, home(|name| std::env::var_os(name)).as_deref())?,
            None => None,
        };
        Ok(self.config.get_or_init(|| loaded.unwrap_or_default()))
    }

    /// Where that file is, or would be. `None`: there is no home, or none is wanted.
    pub(crate) fn config_path(&self) -> Option<PathBuf> {
        config_place(|name| std::env::var_os(name)).map(|path| self.cwd.join(path))
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
        let config = self.config()?;
        let all = |flags: &[PathBuf], config: &[PathBuf]| {
            let flags = flags.iter().map(|p| self.cwd.join(p));
            flags.chain(config.iter().cloned()).collect()
        };
        let engine = Engine::open(EngineOptions {
            store: self.store()?,
            home: home(|name| std::env::var_os(name)),
            env: std::env::vars_os().collect(),
            expose: all(&masks.expose, &config.expose),
            hide: all(&masks.hide, &config.hide),
            devices: all(&masks.devices, &[]),
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

/// Where the configuration is: what `FORKPOINT_CONFIG` names (nothing, where it is empty), else in the
/// directory for such files. A relative `XDG_CONFIG_HOME` is ignored, as its specification says.
fn config_place(var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = var("FORKPOINT_CONFIG") {
        return Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
    }
    let given = var("XDG_CONFIG_HOME").filter(|d| Path::new(d).is_absolute());
    let dir = match given {
        Some(dir) => PathBuf::from(dir),
        None => home(&var)?.join(".config"),
    };
    Some(dir.join("forkpoint/config.toml"))
}

/// Where the store is. A relative `XDG_DATA_HOME` is ignored, as its specification says.
pub(crate) fn place(
    given: Option<PathBuf>,
    var: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf> {
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
    fn the_configuration_is_where_the_base_directories_say() {
        let of = |vars: &[(&str, &str)]| {
            let var = |name: &str| {
                vars.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| OsString::from(*v))
            };
            config_place(var).map(|path| path.display().to_string())
        };
        let (home, dir) = (("HOME", "/h"), ("XDG_CONFIG_HOME", "/c"));
        assert_eq!(
            of(&[home]).as_deref(),
            Some("/h/.config/forkpoint/config.toml")
        );
        assert_eq!(
            of(&[home, dir]).as_deref(),
            Some("/c/forkpoint/config.toml")
        );
        assert_eq!(
            of(&[dir, ("FORKPOINT_CONFIG", "/x.toml")]).as_deref(),
            Some("/x.toml")
        );
        assert_eq!(of(&[dir, ("FORKPOINT_CONFIG", "")]), None);
        assert_eq!(of(&[]), None);
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
