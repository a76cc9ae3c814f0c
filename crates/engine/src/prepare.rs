//! Preparation: a set-up that runs once, whose sealed layers lie under every attempt.
//!
//! It is cached by the content of what it declares to depend on. A cached layer is used only while
//! every path of the base that it changed or copied is still what it was: an overlay copies a whole
//! file up when one byte of it changes, so a stale copy would hide the user's later edit.

use crate::codes;
use crate::files::Scratch;
use crate::judge::{Judged, Run, throwaway};
use crate::options::{PrepareOptions, Prepared, PreparedLayers};
use crate::tail::Tail;
use crate::world::World;
use forkpoint_fs::delta::{ChangeSet, FileType};
use forkpoint_model::participant::ChangeSummary;
use forkpoint_model::{BranchId, Digest, LayerId, Result};
use forkpoint_sandbox::{ExecRequest, ExitKind, ExitReport};
use forkpoint_store::{Durability, LayerKind, LayerRecord, PrepareRecord};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A base path as it was when a preparation ran over it. `None`: it was not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    disk: usize,
    path: Vec<u8>,
    was: Option<Fingerprint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fingerprint {
    ino: u64,
    mode: u32,
    size: u64,
    /// A directory's times change with its entries, which other pins look at.
    ctime: Option<(i64, i64)>,
}

impl World {
    /// Runs a preparation, or finds the layers of an earlier run of the same one.
    ///
    /// # Errors
    /// `FP0413` when the command does not exit with 0; nothing is kept then.
    pub fn prepare(&self, options: &PrepareOptions) -> Result<Prepared> {
        let key = match options.inputs.is_empty() {
            true => None,
            false => Some(self.key(options)?),
        };
        if let Some(key) = key
            && let Some(found) = self.cached(key)?
        {
            return Ok(found);
        }
        let _making = self.engine.making_layers()?;
        let prepared = self.run_preparation(options)?;
        if let Some(key) = key {
            self.remember(key, &prepared)?;
        }
        Ok(prepared.result)
    }

    fn key(&self, options: &PrepareOptions) -> Result<Digest> {
        let mut text = b"forkpoint prepare 1".to_vec();
        let mut part = |bytes: &[u8]| {
            text.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            text.extend_from_slice(bytes);
        };
        for arg in &options.argv {
            part(arg.as_bytes());
        }
        part(b"env");
        for (key, value) in &options.env {
            part(key.as_bytes());
            part(value.as_bytes());
        }
        part(format!("{:?} {:?}", options.network, self.engine.inner.identity).as_bytes());
        for (path, digest) in crate::inputs::digests(self.base(), &options.inputs)? {
            part(path.as_os_str().as_bytes());
            part(&digest.0);
        }
        Ok(Digest::of(&text))
    }

    fn cached(&self, key: Digest) -> Result<Option<Prepared>> {
        let store = self.engine.store();
        let Some(found) = store.prepare(key, self.base())? else {
            return Ok(None);
        };
        let pins: Vec<Pin> = match serde_json::from_slice(&found.pinned) {
            Ok(pins) => pins,
            // Written by another version: as good as none.
            Err(_) => return Ok(None),
        };
        let fresh = pins.iter().all(|pin| {
            self.disks().get(pin.disk).is_some_and(|disk| {
                let path = disk.path.join(std::ffi::OsStr::from_bytes(&pin.path));
                fingerprint(&path).is_ok_and(|now| now == pin.was)
            })
        });
        if !fresh {
            return Ok(None);
        }
        store.touch_prepare(key, self.base(), self.engine.now())?;
        drop(store);
        let layers = PreparedLayers {
            disks: found.disk_layers,
            root: found.root_layers,
        };
        let changes = summarise(&self.prepared_changes(&layers)?);
        Ok(Some(Prepared {
            layers,
            cached: true,
            exit: None,
            changes,
        }))
    }

    /// What a preparation's layers change, disk by disk.
    pub(crate) fn prepared_changes(&self, layers: &PreparedLayers) -> Result<Vec<ChangeSet>> {
        let paths = self.engine.paths();
        let mut all = Vec::new();
        for (disk, ids) in self.disks().iter().zip(&layers.disks) {
            let mut stack: Vec<_> = ids.iter().map(|&id| paths.layer(id)).collect();
            let top = stack.len();
            stack.push(disk.path.clone());
            all.push(self.engine.diff_layers(stack, top, self.copies())?);
        }
        Ok(all)
    }

    fn run_preparation(&self, options: &PrepareOptions) -> Result<Ran> {
        let engine = &self.engine;
        if options.cancel.is_cancelled() {
            return Err(codes::CANCELLED.error("cancelled"));
        }
        let scratch = Scratch::new(engine, "prepare")?;
        let judged: Vec<_> = self
            .disks()
            .iter()
            .map(|d| Judged {
                target: d.path.clone(),
                lowers: vec![d.path.clone()],
                copy: self.copies(),
                copied: false,
            })
            .collect();
        let disks = throwaway(engine, scratch.path(), &judged)?;
        let root_upper = scratch.path().join("root");
        let run = Run {
            branch: engine.draw(BranchId::from_bits),
            disks: &disks,
            root_layers: &[],
            root_upper: root_upper.clone(),
            out: scratch.path().join("out"),
            mounts: &[],
            network: options.network,
            limits: options.limits,
            // A cached layer outlives a power loss, so what it holds has to as well.
            volatile: options.inputs.is_empty(),
            socket: false,
        };
        let exit = self.run_command(run, options)?;
        if exit.status != ExitKind::Code(0) {
            let log = options
                .log
                .as_ref()
                .map_or(String::new(), |l| format!(" (log: {})", l.display()));
            return Err(codes::PREPARE
                .error(format!(
                    "the preparation ended with {}{log}",
                    words(&exit.status)
                ))
                .hint("look at its log; no attempt was started"));
        }
        let changes = disks
            .iter()
            .map(|d| engine.diff(d, None))
            .collect::<Result<Vec<_>>>()?;
        let pins = self.pins(&changes)?;
        let mut layers = PreparedLayers::default();
        let now = engine.now();
        let mut rows = Vec::new();
        let mut adopt = |from: PathBuf, kind| {
            let id = engine.draw(LayerId::from_bits);
            engine.rename(&from, &engine.paths().layer(id))?;
            rows.push(LayerRecord {
                id,
                kind,
                bytes: 0,
                entries: 0,
                merged: 1,
                created_ns: now,
            });
            Ok::<_, forkpoint_model::Error>(id)
        };
        for disk in &disks {
            layers
                .disks
                .push(vec![adopt(disk.upper.clone(), LayerKind::Prepare)?]);
        }
        layers.root.push(adopt(root_upper, LayerKind::PrepareRoot)?);
        engine.store().batch(Durability::Normal, |store| {
            rows.iter().try_for_each(|row| store.insert_layer(row))
        })?;
        let result = Prepared {
            layers,
            cached: false,
            exit: Some(exit),
            changes: summarise(&changes),
        };
        Ok(Ran { result, pins })
    }

    fn run_command(&self, run: Run<'_>, options: &PrepareOptions) -> Result<ExitReport> {
        let engine = &self.engine;
        let sandbox = run.start(engine)?;
        let mut tail = Tail::start(options.log.as_deref(), &options.redactor, 0)?;
        let changes: Vec<(OsString, Option<OsString>)> = options
            .env
            .iter()
            .map(|(k, v)| (k.clone(), Some(v.clone())))
            .collect();
        let running = sandbox.exec(ExecRequest {
            argv: options.argv.clone(),
            env: crate::env::environment(&engine.inner.options.env, &[], &changes),
            cwd: self.base().to_owned(),
            stdin: crate::command::null()?,
            stdout: tail.take_stdout()?,
            stderr: tail.take_stderr()?,
            score_fd: None,
            new_session: true,
            terminal: None,
        })?;
        if crate::wait::either(running.wait_fd(), options.cancel.fd())? {
            sandbox.kill()?;
            return Err(codes::CANCELLED.error("cancelled"));
        }
        let exit = running.wait();
        sandbox.kill()?;
        tail.finish()?;
        let exit = exit?;
        if let ExitKind::StartFailed { errno, what } = &exit.status {
            return Err(codes::COMMAND.io(what, std::io::Error::from_raw_os_error(*errno)));
        }
        Ok(exit)
    }

    /// Every base path the preparation changed or copied, as it is now. `None` when that cannot be
    /// told by looking at single paths (a whole directory removed): then nothing is cached.
    fn pins(&self, changes: &[ChangeSet]) -> Result<Option<Vec<Pin>>> {
        let mut pins = Vec::new();
        for (index, set) in changes.iter().enumerate() {
            for change in &set.changes {
                if change.subtree
                    || change.old_type == Some(FileType::Dir) && change.file_type != FileType::Dir
                {
                    return Ok(None);
                }
                pins.push(Pin {
                    disk: index,
                    path: change.path.as_os_str().as_bytes().to_vec(),
                    was: fingerprint(&self.disks()[index].path.join(&change.path))?,
                });
            }
        }
        Ok(Some(pins))
    }

    fn remember(&self, key: Digest, ran: &Ran) -> Result<()> {
        let Some(pins) = &ran.pins else { return Ok(()) };
        for id in ran
            .result
            .layers
            .disks
            .iter()
            .flatten()
            .chain(&ran.result.layers.root)
        {
            self.engine.sync(&self.engine.paths().layer(*id))?;
        }
        let pinned = serde_json::to_vec(pins)
            .map_err(|e| codes::INTERNAL.io("cannot write a preparation's pins", e))?;
        let now = self.engine.now();
        self.engine.store().put_prepare(&PrepareRecord {
            key,
            base: self.base().to_owned(),
            disk_layers: ran.result.layers.disks.clone(),
            root_layers: ran.result.layers.root.clone(),
            pinned,
            created_ns: now,
            used_ns: now,
        })
    }
}

struct Ran {
    result: Prepared,
    pins: Option<Vec<Pin>>,
}

fn fingerprint(path: &Path) -> Result<Option<Fingerprint>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(Fingerprint {
            ino: meta.ino(),
            mode: meta.mode(),
            size: if meta.is_dir() { 0 } else { meta.size() },
            ctime: (!meta.is_dir()).then(|| (meta.ctime(), meta.ctime_nsec())),
        })),
        Err(e)
            if matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(codes::BASE.io(format!("cannot look at {}", path.display()), e)),
    }
}

fn summarise(changes: &[ChangeSet]) -> ChangeSummary {
    changes
        .iter()
        .map(crate::disk::summary)
        .fold(ChangeSummary::default(), |a, b| ChangeSummary {
            items: a.items + b.items,
            bytes: a.bytes + b.bytes,
        })
}

/// How a command ended, in words.
pub fn words(status: &ExitKind) -> String {
    match status {
        ExitKind::Code(code) => format!("exit status {code}"),
        ExitKind::Signal(signal) => format!("signal {signal}"),
        ExitKind::LimitHit(limit) => format!("its {limit:?} limit").to_lowercase(),
        ExitKind::StartFailed { what, .. } => format!("a failed start of {what}"),
    }
}
