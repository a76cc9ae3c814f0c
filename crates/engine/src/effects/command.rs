//! Host commands as effects: `forkpoint effect BRANCH --undo CMD -- CMD`.
//!
//! A command's status 0 says that it happened. Any other says nothing: it may have failed half way.
//! Then the query is asked, where there is one: 0 for "it happened", 1 for "it did not", and anything
//! else for "it cannot be told".

use super::{Remote, Sent};
use crate::codes;
use forkpoint_model::effect::Answer;
use forkpoint_model::{Error, Result};
use forkpoint_store::EffectRecord;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The participant's name.
pub const COMMAND: &str = "command";
/// What of a command's output is recorded as its response, in bytes.
const RESPONSE: u64 = 64 << 10;

/// A command of the host that a branch has performed, and what undoes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandEffect {
    /// The command.
    pub command: Vec<OsString>,
    /// What undoes it. It finds the response at its standard input, and the key of the effect in
    /// `FORKPOINT_EFFECT_KEY`. None: the command is held, and runs once the branch is committed.
    pub undo: Option<Vec<OsString>>,
    /// Tells whether it happened: status 0 yes, 1 no, anything else cannot be told.
    pub query: Option<Vec<OsString>>,
    /// The inverse does nothing where the command had not happened.
    pub absence_safe: bool,
    /// Where all of them run.
    pub cwd: PathBuf,
}

/// The canonical form of what is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Intent {
    command: Vec<OsString>,
    cwd: PathBuf,
}

/// The form of what undoes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Inverse {
    undo: Vec<OsString>,
    #[serde(default)]
    query: Option<Vec<OsString>>,
    #[serde(default)]
    absence_safe: bool,
}

impl CommandEffect {
    /// Its canonical intent.
    pub(super) fn intent(&self) -> Result<Vec<u8>> {
        let named = |argv: &Vec<OsString>| argv.first().is_some_and(|program| !program.is_empty());
        let others = [self.undo.as_ref(), self.query.as_ref()];
        if !named(&self.command) || !others.into_iter().flatten().all(named) {
            return Err(codes::EFFECT
                .error("a command without a program")
                .hint("name the program to run"));
        }
        json(&Intent {
            command: self.command.clone(),
            cwd: self.cwd.clone(),
        })
    }

    /// Its inverse, unless it is held.
    pub(super) fn inverse(&self) -> Result<Option<Vec<u8>>> {
        let Some(undo) = &self.undo else {
            return Ok(None);
        };
        let inverse = Inverse {
            undo: undo.clone(),
            query: self.query.clone(),
            absence_safe: self.absence_safe,
        };
        json(&inverse).map(Some)
    }
}

/// Another inverse for an effect, keeping its query.
pub(super) fn other_inverse(effect: &EffectRecord, undo: &[OsString]) -> Result<Vec<u8>> {
    let query = inverse(effect).and_then(|i| i.query);
    json(&Inverse {
        undo: undo.to_vec(),
        query,
        // A person who gives an inverse now has looked.
        absence_safe: true,
    })
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| codes::INTERNAL.io("cannot write an effect", e))
}

fn intent(effect: &EffectRecord) -> Result<Intent, String> {
    serde_json::from_slice(&effect.intent).map_err(|e| format!("its intent cannot be read: {e}"))
}

fn inverse(effect: &EffectRecord) -> Option<Inverse> {
    serde_json::from_slice(effect.inverse.as_deref()?).ok()
}

/// Runs them.
pub(super) struct Commands;

impl Remote for Commands {
    fn perform(&self, effect: &EffectRecord, lock: BorrowedFd<'_>) -> Sent {
        // The locked file is empty, so as its standard input it is as good as /dev/null, and is held
        // by the command and whatever it leaves running.
        let stdin = lock
            .try_clone_to_owned()
            .map_err(|e| format!("its lock cannot be passed on: {e}"));
        let done =
            intent(effect).and_then(|i| run(effect, &i.command, &i.cwd, Stdio::from(stdin?)));
        match done {
            Ok((status, said)) if status.success() => Sent::Acknowledged(said),
            Ok((status, _)) => Sent::Lost(format!("the command ended with {status}")),
            Err(why) => Sent::Refused(why),
        }
    }

    fn release(&self, effect: &EffectRecord) -> Result<Vec<u8>, String> {
        let intent = intent(effect)?;
        match run(effect, &intent.command, &intent.cwd, Stdio::null())? {
            (status, said) if status.success() => Ok(said),
            (status, _) => Err(format!("the command ended with {status}")),
        }
    }

    fn inquire(&self, effect: &EffectRecord) -> Answer {
        let (Some(inverse), Ok(intent)) = (inverse(effect), intent(effect)) else {
            return Answer::Failed("its query cannot be read".into());
        };
        let Some(query) = inverse.query else {
            return Answer::Failed("there is no query".into());
        };
        match run(effect, &query, &intent.cwd, Stdio::piped()) {
            Ok((status, _)) => match status.code() {
                Some(0) => Answer::Happened,
                Some(1) => Answer::Absent,
                _ => Answer::Failed(format!("the query ended with {status}")),
            },
            Err(why) => Answer::Failed(why),
        }
    }

    fn compensate(&self, effect: &EffectRecord) -> Answer {
        let (Some(inverse), Ok(intent)) = (inverse(effect), intent(effect)) else {
            return Answer::Failed("its inverse cannot be read".into());
        };
        match run(effect, &inverse.undo, &intent.cwd, Stdio::piped()) {
            Ok((status, _)) if status.success() => Answer::Compensated,
            Ok((status, _)) => Answer::Failed(format!("the inverse ended with {status}")),
            Err(why) => Answer::Failed(why),
        }
    }

    fn can_inquire(&self, effect: &EffectRecord) -> bool {
        inverse(effect).is_some_and(|inverse| inverse.query.is_some())
    }

    fn absence_safe(&self, effect: &EffectRecord) -> bool {
        inverse(effect).is_some_and(|inverse| inverse.absence_safe)
    }

    fn describe(&self, effect: &EffectRecord) -> String {
        match intent(effect) {
            Ok(intent) => {
                let words: Vec<_> = intent.command.iter().map(|w| w.to_string_lossy()).collect();
                words.join(" ")
            }
            Err(why) => why,
        }
    }
}

/// Runs one to its end; returns how it ended and, for the effect itself, what it said. An error means
/// that it was not started.
fn run(
    effect: &EffectRecord,
    argv: &[OsString],
    cwd: &Path,
    stdin: Stdio,
) -> Result<(ExitStatus, Vec<u8>), String> {
    let program = argv.first().ok_or("a command without a program")?;
    let mut child = Command::new(program)
        .args(&argv[1..])
        .current_dir(cwd)
        .env("FORKPOINT_EFFECT_KEY", &effect.key)
        .env("FORKPOINT_BRANCH", effect.branch.to_string())
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{} cannot be started: {e}", program.to_string_lossy()))?;
    // Fed beside the reading: either side may fill its pipe. What does not read its input is no fault.
    let feeding = child.stdin.take().map(|mut stdin| {
        let response = effect.response.clone().unwrap_or_default();
        std::thread::spawn(move || stdin.write_all(&response).unwrap_or(()))
    });
    let mut said = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |mut stdout| {
        let kept = stdout.by_ref().take(RESPONSE).read_to_end(&mut said);
        // The rest is read so that it can end, and dropped.
        std::io::copy(&mut stdout, &mut std::io::sink()).and(kept)
    });
    let status = child.wait();
    if let Some(feeding) = feeding {
        feeding.join().unwrap_or(());
    }
    match (status, read) {
        (Ok(status), Ok(_)) => Ok((status, said)),
        // It ran, and nothing certain is known of it: as a status that says nothing.
        (Ok(_), Err(_)) | (Err(_), _) => {
            use std::os::unix::process::ExitStatusExt;
            Ok((ExitStatus::from_raw(255 << 8), said))
        }
    }
}

/// For reports: what an inverse given by a person looks like when it is wrong.
pub(super) fn not_a_command(effect: &EffectRecord) -> Error {
    codes::EFFECT
        .error(format!(
            "effect {} is one of {}, whose inverse is not a command",
            effect.ordinal, effect.participant
        ))
        .hint("see to it by hand, then: forkpoint resolve BRANCH --mark N --reason TEXT")
}
