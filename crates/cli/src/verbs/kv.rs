//! `forkpoint kv`.

use forkpoint_engine::records::kv as bounds;
use forkpoint_engine::{Branch, BranchState, Engine, KvEntry, KvPage, KvWritten};
use forkpoint_model::Result;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::verbs::kv_inside;
use crate::{codes, exit, output};

/// Read and write the keys of a directory's world
///
/// A branch sees the keys as of its fork, with its own writes; they are committed and rolled back with
/// its files. What it read or listed and another changed meanwhile is a conflict when it is committed.
/// With --branch a read counts as one by the branch, as long as it is open.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: What,
}

/// What to do.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum What {
    /// Print a value as it is; status 1 where there is no such key
    Get(GetArgs),
    /// Write a key
    Put(PutArgs),
    /// Remove a key; status 1 where there is none
    Delete(DeleteArgs),
    /// List keys in the order of their bytes
    List(ListArgs),
}

/// Whose keys.
#[derive(clap::Args, Debug)]
pub(crate) struct Whose {
    /// As this branch sees them
    #[arg(long, value_name = "BRANCH", conflicts_with = "base")]
    pub(crate) branch: Option<String>,
    /// Of this directory's world (default: the current directory's)
    #[arg(long, value_name = "DIR")]
    pub(crate) base: Option<PathBuf>,
}

/// `get`.
#[derive(clap::Args, Debug)]
pub(crate) struct GetArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// `put`.
#[derive(clap::Args, Debug)]
pub(crate) struct PutArgs {
    /// The key: 1 to 1024 bytes
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
    /// The value, up to 1 MiB; standard input when absent or `-`
    #[arg(value_name = "VALUE", conflicts_with = "file")]
    pub(crate) value: Option<OsString>,
    /// Read the value from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only where the key has this version (0: where there is none); status 3 where it has not
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// `delete`.
#[derive(clap::Args, Debug)]
pub(crate) struct DeleteArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
    /// Only where the key has this version; status 3 where it has not
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// `list`.
#[derive(clap::Args, Debug)]
pub(crate) struct ListArgs {
    /// Only keys that begin with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: OsString,
    /// Only keys behind this one
    #[arg(long, value_name = "KEY")]
    pub(crate) after: Option<OsString>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// What of the keys a command asks for: of a store that this process opened, or of the branch it runs
/// in, through that one's socket.
pub(crate) trait Keys {
    /// A key.
    fn get(&mut self, key: &[u8]) -> Result<Option<KvEntry>>;
    /// Writes or removes a key, perhaps only where it has a version.
    fn write(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        version: Option<u64>,
    ) -> Result<KvWritten>;
    /// A part of the keys.
    fn list(&mut self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<KvPage>;
}

/// Reads or writes.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    let whose = match &args.what {
        What::Get(a) => &a.whose,
        What::Put(a) => &a.whose,
        What::Delete(a) => &a.whose,
        What::List(a) => &a.whose,
    };
    let mut keys = match kv_inside::keys(whose)? {
        Some(inside) => inside,
        None => outside(app, whose)?,
    };
    match args.what {
        What::Get(args) => get(app, &mut *keys, args.key.into_vec()),
        What::Put(args) => put(app, &mut *keys, args),
        What::Delete(args) => delete(app, &mut *keys, args),
        What::List(args) => list(app, &mut *keys, args),
    }
}

fn get(app: &App, keys: &mut dyn Keys, key: Vec<u8>) -> Result<u8> {
    let found = keys.get(&key)?;
    if app.json() {
        let mut row = match &found {
            Some(entry) => entry_json(entry),
            None => json!({"version": 0}),
        };
        row["schema"] = json!("forkpoint.key/1");
        row["found"] = json!(found.is_some());
        output::print_json(&row)?;
    } else if let Some(entry) = &found {
        raw(&entry.value)?;
    }
    Ok(match found {
        Some(_) => exit::DONE,
        None => exit::NONE_PASSED,
    })
}

/// A value as it is; on a terminal nothing that it would obey.
fn raw(value: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    if stdout.is_terminal() {
        drop(stdout);
        return output::print_foreign(&[value, b"\n"].concat());
    }
    let written = stdout.write_all(value).and_then(|()| stdout.flush());
    written.map_err(|e| codes::OUTPUT.io("the value cannot be written", e))
}

fn put(app: &App, keys: &mut dyn Keys, args: PutArgs) -> Result<u8> {
    let value = match (args.value, &args.file) {
        (_, Some(path)) => {
            let path = app.cwd.join(path);
            let file = std::fs::File::open(&path);
            bounded(file, &path.display().to_string())?
        }
        (Some(text), None) if text != "-" => text.into_vec(),
        _ => super::bus::standard_input(bounds::MAX_VALUE)?,
    };
    let done = keys.write(&args.key.into_vec(), Some(&value), args.if_version)?;
    told(app, done)
}

/// All of a file, if it is not more than fits; one byte above tells.
fn bounded(file: std::io::Result<std::fs::File>, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.and_then(|f| f.take(bounds::MAX_VALUE as u64 + 1).read_to_end(&mut bytes))
        .map_err(|e| codes::USAGE.io(format!("{name} cannot be read"), e))?;
    Ok(bytes)
}

fn delete(app: &App, keys: &mut dyn Keys, args: DeleteArgs) -> Result<u8> {
    let done = keys.write(&args.key.into_vec(), None, args.if_version)?;
    let status = told(app, done)?;
    Ok(match done.was {
        Some(0) if status == exit::DONE => exit::NONE_PASSED,
        _ => status,
    })
}

fn told(app: &App, done: KvWritten) -> Result<u8> {
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.written/1", "done": done.done, "version": done.version,
            "was": done.was,
        }))?;
    } else if !done.done {
        output::say(&format!(
            "not written: the key has version {}",
            done.version
        ));
    }
    Ok(match done.done {
        true => exit::DONE,
        false => exit::CONFLICT,
    })
}

fn list(app: &App, keys: &mut dyn Keys, args: ListArgs) -> Result<u8> {
    let after = args.after.map(OsString::into_vec);
    let page = keys.list(&args.prefix.into_vec(), after.as_deref(), args.limit)?;
    if app.json() {
        let rows: Vec<Value> = page.entries.iter().map(entry_json).collect();
        let next = page.next.as_deref().map(|next| bytes_json("next", next));
        let mut document = json!({"schema": "forkpoint.keys/1", "keys": rows, "next": null});
        if let Some(Value::Object(next)) = next {
            for (name, value) in next {
                document[name] = value;
            }
        }
        output::print_json(&document)?;
        return Ok(exit::DONE);
    }
    for entry in &page.entries {
        output::print_foreign(&[&entry.key[..], b"\n"].concat())?;
    }
    if let Some(next) = &page.next {
        app.say(&format!("there are more: --after {}", next.escape_ascii()));
    }
    Ok(exit::DONE)
}

/// A key and its value, for programs.
fn entry_json(entry: &KvEntry) -> Value {
    let mut row = bytes_json("key", &entry.key);
    let value = bytes_json("value", &entry.value);
    for name in ["value", "value_hex"] {
        row[name] = value[name].clone();
    }
    row["version"] = json!(entry.version);
    row
}

/// Text as `NAME`; what is not text in base 16 as `NAME_hex`. The other one is null.
pub(crate) fn bytes_json(name: &str, bytes: &[u8]) -> Value {
    let hex = || bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let (text, hex) = match std::str::from_utf8(bytes) {
        Ok(text) => (json!(text), json!(null)),
        Err(_) => (json!(null), json!(hex())),
    };
    json!({name: text, format!("{name}_hex"): hex})
}

/// From outside: of a branch, or of a world itself.
fn outside(app: &App, whose: &Whose) -> Result<Box<dyn Keys>> {
    let engine = app.engine(&Masks::default())?;
    match &whose.branch {
        Some(name) => Ok(Box::new(OfBranch(app.branch(&engine, name)?))),
        None => Ok(Box::new(OfWorld(world(app, &engine, whose)?))),
    }
}

fn world(app: &App, engine: &Engine, whose: &Whose) -> Result<forkpoint_engine::WorldKv> {
    Ok(app.world(engine, whose.base.as_deref(), false)?.kv())
}

struct OfBranch(Branch);

impl OfBranch {
    /// What is sealed can be looked at: nothing that the branch does depends on it any more.
    fn open(&self) -> Result<bool> {
        Ok(self.0.state()? == BranchState::Open)
    }
}

impl Keys for OfBranch {
    fn get(&mut self, key: &[u8]) -> Result<Option<KvEntry>> {
        match self.open()? {
            true => self.0.kv()?.get(key),
            false => self.0.kv_view()?.get(key),
        }
    }

    fn write(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        version: Option<u64>,
    ) -> Result<KvWritten> {
        self.0.kv()?.write(key, value, version)
    }

    fn list(&mut self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<KvPage> {
        match self.open()? {
            true => self.0.kv()?.list(prefix, after, limit),
            false => self.0.kv_view()?.list(prefix, after, limit),
        }
    }
}

struct OfWorld(forkpoint_engine::WorldKv);

impl Keys for OfWorld {
    fn get(&mut self, key: &[u8]) -> Result<Option<KvEntry>> {
        self.0.get(key)
    }

    fn write(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        version: Option<u64>,
    ) -> Result<KvWritten> {
        self.0.write(key, value, version)
    }

    fn list(&mut self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<KvPage> {
        self.0.list(prefix, after, limit)
    }
}
