//! `forkpoint report`.

use forkpoint_engine::{Against, Branch, Engine};
use forkpoint_explore::html::{self, Material};
use forkpoint_explore::text::OsText;
use forkpoint_explore::{AttemptReport, Observer, Progress, Report, resolve};
use forkpoint_model::{ExplorationId, Result};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::app::{App, Masks};
use crate::{codes, exit, output};

/// Write an exploration as one page of HTML
///
/// The page needs nothing else: it can be opened without a network, on a phone, and sent to somebody.
/// It shows when each attempt ran, the scores, what each changed beside what was there, their output,
/// and what the losers cost. What was changed is shown where nothing was committed since: `explore
/// --report` shows it in any case.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The exploration, or last
    #[arg(value_name = "EXPLORATION")]
    exploration: String,
    /// The file to write, or - for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Writes.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let record = resolve::exploration(&engine.store(), &args.exploration, &app.cwd)?;
    let report = record
        .result
        .as_deref()
        .and_then(|r| serde_json::from_str::<Report>(r).ok());
    let Some(report) = report else {
        return Err(codes::NOTHING
            .error(format!("exploration {} has no result to report", record.id))
            .hint("a result is there once it has ended; `forkpoint show` says how it stands"));
    };
    write(app, &report, &Patches::later(&engine, &report), &args.file)?;
    Ok(exit::DONE)
}

/// Why a report made afterwards has no changes.
const LATE: &str = "the winner is committed, so that the directory it would be compared with is another. \
                    explore --report takes the changes before the commit.";

/// The patches of an exploration. They are taken before its commit: afterwards the directory that an
/// attempt is compared with has the winner's changes.
pub(crate) struct Patches {
    engine: Engine,
    exploration: Option<ExplorationId>,
    attempts: u32,
    /// Each with whether it is cut, or why there is none.
    taken: BTreeMap<u32, std::result::Result<(String, bool), String>>,
    /// Nothing may be taken any more: a winner is committed.
    late: bool,
}

impl Patches {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            exploration: None,
            attempts: 0,
            taken: BTreeMap::new(),
            late: false,
        }
    }

    /// Of an exploration that is over: nothing where its winner is committed.
    fn later(engine: &Engine, report: &Report) -> Self {
        let mut all = Self::new(engine);
        all.late = report.committed;
        all.finish(report);
        all
    }

    /// Takes what has not been taken yet, where nothing was committed.
    pub(crate) fn finish(&mut self, report: &Report) {
        self.exploration = Some(report.exploration);
        self.attempts = report.attempts.len() as u32;
        if !report.committed {
            self.take();
        }
    }

    /// The patch of an attempt, whether it is cut, and why there is none although there should be.
    fn of(&self, attempt: &AttemptReport) -> (String, bool, Option<String>) {
        match self.taken.get(&attempt.index) {
            Some(Ok((patch, cut))) => (patch.clone(), *cut, None),
            // One that never ran, or changed nothing, has no patch to show.
            _ if attempt.changed.files == 0 => Default::default(),
            Some(Err(why)) => (String::new(), false, Some(why.clone())),
            None if self.late => (String::new(), false, Some(LATE.into())),
            None => (String::new(), false, Some("it was not looked at.".into())),
        }
    }

    fn take(&mut self) {
        let Some(exploration) = self.exploration else {
            return;
        };
        for index in (0..self.attempts).take(html::MOST_DETAILS) {
            let name = format!("{exploration}/{index}");
            let taken = resolve::branch(&self.engine, &name, Path::new("/"))
                .and_then(|branch| patch(&branch))
                .map_err(|error| error.to_string());
            self.taken.insert(index, taken);
        }
    }
}

impl Observer for Patches {
    fn on(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Begin {
                exploration,
                attempts,
                ..
            } => (self.exploration, self.attempts) = (Some(*exploration), *attempts),
            Progress::Started { index, .. } => self.attempts = self.attempts.max(index + 1),
            Progress::Committing { .. } => self.take(),
            _ => {}
        }
    }
}

/// Writes the page of `report` to `file`.
///
/// # Errors
/// `FP0003` where it cannot be written.
pub(crate) fn write(app: &App, report: &Report, patches: &Patches, file: &Path) -> Result<()> {
    let page = html::page(report, &mut |attempt| material(patches, attempt));
    if file.as_os_str() == "-" {
        return output::print(&page);
    }
    let path = app.cwd.join(file);
    std::fs::write(&path, page)
        .map_err(|e| codes::OUTPUT.io(format!("cannot write the report {}", path.display()), e))
}

/// What is left of an attempt to show.
fn material(patches: &Patches, attempt: &AttemptReport) -> Material {
    let log = |path: Option<&OsText>| path.map(|p| end_of(Path::new(&p.0))).unwrap_or_default();
    let verifier = attempt.verifier.as_ref().and_then(|v| v.log.as_ref());
    let (patch, cut, missing) = patches.of(attempt);
    Material {
        log: log(attempt.log.as_ref()),
        verifier: log(verifier),
        patch,
        cut,
        missing,
    }
}

/// The end of a log; nothing where it has been collected.
fn end_of(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(
            length.saturating_sub(html::LOG_BYTES as u64),
        ))?;
        let mut bytes = Vec::new();
        file.take(html::LOG_BYTES as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read()
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default()
}

/// The patch of what a branch itself changed, and whether it is cut.
fn patch(branch: &Branch) -> Result<(String, bool)> {
    let found = branch.compare(Against::Preparation)?;
    let (reader, writer) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|e| codes::OUTPUT.io("cannot make a pipe", e))?;
    let most = html::PATCH_BYTES as u64;
    std::thread::scope(|scope| {
        // Reading ends at the limit; whoever writes then finds the pipe closed.
        let read = scope.spawn(move || {
            let mut bytes = Vec::new();
            File::from(reader)
                .take(most + 1)
                .read_to_end(&mut bytes)
                .map(|_| bytes)
        });
        let written = found.patch(writer.as_fd());
        drop(writer);
        let bytes = read
            .join()
            .map_err(|_| codes::INTERNAL.error("the patch could not be read"))?
            .map_err(|e| codes::OUTPUT.io("cannot read the patch", e))?;
        let cut = bytes.len() as u64 > most;
        if !cut {
            written?;
        }
        let kept = &bytes[..bytes.len().min(html::PATCH_BYTES)];
        Ok((String::from_utf8_lossy(kept).into_owned(), cut))
    })
}
