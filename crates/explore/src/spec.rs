//! What an exploration is to do, as plain data: built from the command's flags today, readable from a
//! file as well. It must not know how anything of it is done.

use forkpoint_model::Result;
use forkpoint_model::strategy::Direction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::budget::BudgetSpec;
use crate::codes;
use crate::params::{Param, Values};
pub use crate::search::{CompareSpec, SearchSpec, StrategyName};
use crate::text::OsText;
use crate::units::{Size, Time};

/// A command: a line for `/bin/sh -c`, or a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// A program and its arguments, run as they are.
    Argv(Vec<OsText>),
    /// A line for the shell.
    Shell(OsText),
}

impl CommandLine {
    /// What is executed.
    pub fn argv(&self) -> Vec<OsString> {
        match self {
            Self::Argv(words) => words.iter().map(|w| w.0.clone()).collect(),
            Self::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.0.clone()],
        }
    }

    /// One line for a person. Not to be executed: words are joined by spaces.
    pub fn display(&self) -> String {
        match self {
            Self::Argv(words) => words
                .iter()
                .map(OsText::lossy)
                .collect::<Vec<_>>()
                .join(" "),
            Self::Shell(line) => line.lossy(),
        }
    }

    pub(crate) fn check(&self, what: &str) -> Result<()> {
        let empty = match self {
            Self::Argv(words) => words.first().is_none_or(|w| w.0.is_empty()),
            Self::Shell(line) => line.lossy().trim().is_empty(),
        };
        if empty {
            return Err(codes::SPEC.error(format!("{what} is an empty command")));
        }
        Ok(())
    }
}

/// `NAME` (the caller's value) or `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvVar {
    /// The variable's name.
    pub name: String,
    /// Its value; none means the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<OsText>,
}

/// One kind of attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptSpec {
    /// What it is called in tables and reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it runs.
    pub command: CommandLine,
    /// Parameters of its own; one that the exploration has too takes these values instead.
    #[serde(default)]
    pub params: BTreeMap<String, Values>,
    /// Variables of its own, after the exploration's.
    #[serde(default)]
    pub env: Vec<EnvVar>,
    /// Its time limit, instead of the exploration's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// Its limits; one that is not given is the exploration's.
    #[serde(default)]
    pub limits: LimitSpec,
    /// How often each of its combinations is made. None: once, or as `count` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
}

impl AttemptSpec {
    /// An attempt that runs `command` and has nothing of its own.
    pub fn new(command: CommandLine) -> Self {
        Self {
            name: None,
            command,
            params: BTreeMap::new(),
            env: Vec::new(),
            timeout: None,
            limits: LimitSpec::default(),
            repeat: None,
        }
    }
}

/// The set-up that is run once, before the fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareSpec {
    /// What it runs.
    pub command: CommandLine,
    /// Globs of the base's files its result depends on; none means that it is never cached.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// The network it sees.
    #[serde(default)]
    pub network: NetworkSpec,
    /// Its time limit.
    #[serde(default)]
    pub timeout: Option<Time>,
    /// It is given the secrets too.
    #[serde(default)]
    pub secrets: bool,
}

impl PrepareSpec {
    /// A preparation that runs `command` and has no setting.
    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            inputs: Vec::new(),
            network: NetworkSpec::default(),
            timeout: None,
            secrets: false,
        }
    }
}

/// A file or directory of the host that only the verifier and the score see, read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountSpec {
    /// Where it is on the host.
    pub source: OsText,
    /// Where it appears.
    pub dest: OsText,
}

/// The gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifySpec {
    /// Passes with exit status 0.
    pub command: CommandLine,
    /// How often it must pass.
    #[serde(default = "one")]
    pub repeat: u32,
    /// What it sees beside the attempt.
    #[serde(default)]
    pub mounts: Vec<MountSpec>,
    /// The time limit of one run.
    #[serde(default)]
    pub timeout: Option<Time>,
    /// One at a time, while nothing else of the exploration runs.
    #[serde(default)]
    pub exclusive: bool,
}

impl VerifySpec {
    /// A verifier that runs `command` once and has no setting.
    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            repeat: 1,
            mounts: Vec::new(),
            timeout: None,
            exclusive: false,
        }
    }
}

/// The score.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreSpec {
    /// Says a number on its last line, or a JSON object of metrics on descriptor 3.
    pub command: CommandLine,
    /// How often it is run; the median counts.
    #[serde(default = "one")]
    pub repeat: u32,
    /// One at a time, after every attempt has stopped.
    #[serde(default)]
    pub exclusive: bool,
    /// Which score is better.
    #[serde(default)]
    pub direction: Direction,
    /// The time limit of one run.
    #[serde(default)]
    pub timeout: Option<Time>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl ScoreSpec {
    /// A score that runs `command` once and has no setting.
    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            repeat: 1,
            exclusive: false,
            direction: Direction::default(),
            timeout: None,
        }
    }
}

fn one() -> u32 {
    1
}

/// What is kept of attempts that did not win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Nothing but the rows of the report.
    None,
    /// Their sealed deltas and logs, read-only, until collected.
    #[default]
    Losers,
    /// As `losers`; and where nothing is committed, every attempt that finished stays a sealed
    /// branch that can be committed later.
    All,
}

/// What a command inside can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkSpec {
    /// Only itself.
    #[default]
    Loopback,
    /// Everything the host can. Nothing captures what goes out.
    Host,
}

/// What one attempt may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSpec {
    /// Memory of all its processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Processor time of all its processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Time>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// What it may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Size>,
}

impl LimitSpec {
    /// These limits, and where one is not given the `other`'s.
    pub fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.or(other.memory),
            cpu: self.cpu.or(other.cpu),
            pids: self.pids.or(other.pids),
            disk: self.disk.or(other.disk),
        }
    }
}

/// An exploration: prepare, attempt, verify, score, choose, commit one, roll back the rest.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExploreSpec {
    /// The directory to explore from.
    pub base: OsText,
    /// Fork from a copy of it.
    pub snapshot: bool,
    /// The kinds of attempt.
    pub attempts: Vec<AttemptSpec>,
    /// Parameters; each kind of attempt is made with each combination.
    pub params: Vec<Param>,
    /// Values of several parameters that belong together; each kind of attempt is made with each of
    /// these, combined with each combination of `params`.
    pub combinations: Vec<BTreeMap<String, String>>,
    /// What is left out: every combination that has all the values of one of these.
    pub exclusions: Vec<BTreeMap<String, String>>,
    /// How many attempts run in all. See [`ExploreSpec::expand`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The set-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare: Option<PrepareSpec>,
    /// The gate. None: an attempt passes with exit status 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
    /// The score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreSpec>,
    /// How the winner is chosen. None: best-of-n where there is a score, else first-wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<StrategyName>,
    /// The strategy's options.
    #[serde(skip_serializing_if = "is_default")]
    pub search: SearchSpec,
    /// Globs of paths that are made what the base has before the verifier looks.
    pub protect: Vec<String>,
    /// Variables for every command of the exploration.
    pub env: Vec<EnvVar>,
    /// Variables of the caller that only attempts (and a preparation that says so) are given, by
    /// name; their values are written to no log.
    pub secrets: Vec<String>,
    /// The time limit of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// The time limit of the whole exploration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_timeout: Option<Time>,
    /// How many attempts, verifiers and scores run at once. None: the number of processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Choose a winner, but do not commit it.
    pub no_commit: bool,
    /// What is kept of the losers.
    pub keep: Keep,
    /// Globs of paths that are not committed, and listed.
    pub exclude: Vec<String>,
    /// Leave what the preparation changed out of the commit.
    pub exclude_prepared: bool,
    /// An attempt that changes nothing may pass.
    pub allow_empty: bool,
    /// Commit also what would make the host run something (git hooks and configuration).
    pub allow_host_exec: bool,
    /// Refuse to commit if anything of the base changed meanwhile.
    pub strict: bool,
    /// What one attempt may use.
    pub limits: LimitSpec,
    /// What all attempts may use together.
    #[serde(skip_serializing_if = "is_default")]
    pub budget: BudgetSpec,
    /// The network of attempts, verifier and score.
    pub network: NetworkSpec,
    /// Paths of the host that are not masked, although they hold credentials.
    pub expose: Vec<OsText>,
    /// Paths of the host that are masked too.
    pub hide: Vec<OsText>,
    /// Devices of the host that everything in the exploration is shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<OsText>,
}

/// One attempt to make, as [`ExploreSpec::expand`] lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// What it is called, where it has a name.
    pub name: Option<String>,
    /// What it runs.
    pub command: CommandLine,
    /// Its parameters, in the order of their names.
    pub params: BTreeMap<String, String>,
    /// Variables of its own.
    pub env: Vec<EnvVar>,
    /// Its time limit.
    pub timeout: Option<Time>,
    /// Its limits.
    pub limits: LimitSpec,
}

impl ExploreSpec {
    /// The base directory.
    pub fn base(&self) -> &Path {
        Path::new(&self.base.0)
    }

    /// The strategy in effect.
    pub fn strategy(&self) -> StrategyName {
        self.strategy.unwrap_or(match self.score {
            Some(_) => StrategyName::BestOfN,
            None => StrategyName::FirstWins,
        })
    }

    /// The mounts that the verifier and the score see.
    pub fn judge_mounts(&self) -> Vec<(PathBuf, PathBuf)> {
        let mounts = self.verify.iter().flat_map(|v| &v.mounts);
        mounts
            .map(|m| (PathBuf::from(&m.source.0), PathBuf::from(&m.dest.0)))
            .collect()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.attempts.is_empty() {
            return Err(codes::SPEC
                .error("there is nothing to attempt")
                .hint("give --attempt 'COMMAND' (as often as you like), or a command after --"));
        }
        for attempt in &self.attempts {
            attempt.command.check("an attempt")?;
            if let Some(name) = attempt.name.as_ref().filter(|n| !valid_label(n)) {
                return Err(codes::SPEC
                    .error(format!("'{name}' is not a name for an attempt"))
                    .hint("use letters, digits, '.', '_' and '-', at most 64; no '..'"));
            }
        }
        if let Some(prepare) = &self.prepare {
            prepare.command.check("the preparation")?;
        }
        if self.jobs == Some(0) {
            return Err(codes::SPEC.error("no attempt can run with 0 jobs"));
        }
        self.check_globs()?;
        self.check_judges()?;
        self.budget.check(&self.limits)?;
        let own = self.attempts.iter().flat_map(|a| &a.env);
        self.env.iter().chain(own).try_for_each(check_env)?;
        self.secrets.iter().try_for_each(|name| {
            check_env(&EnvVar {
                name: name.clone(),
                value: None,
            })
        })
    }

    fn check_judges(&self) -> Result<()> {
        if let Some(verify) = &self.verify {
            verify.command.check("the verifier")?;
            if !(1..=1000).contains(&verify.repeat) {
                return Err(codes::SPEC.error("the verifier is repeated 1 to 1000 times"));
            }
            for mount in &verify.mounts {
                let dest = Path::new(&mount.dest.0);
                let source = Path::new(&mount.source.0);
                if !dest.is_absolute() || !source.is_absolute() {
                    return Err(codes::SPEC.error(format!(
                        "the verifier's mount {} is not from one absolute path to another",
                        dest.display()
                    )));
                }
            }
        }
        let Some(score) = &self.score else {
            return Ok(());
        };
        score.command.check("the score")?;
        if !(1..=1000).contains(&score.repeat) {
            return Err(codes::SPEC.error("the score is repeated 1 to 1000 times"));
        }
        Ok(())
    }
}

/// Whether `name` can be the name of an attempt: it ends up in file names, tables and pages.
pub fn valid_label(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.len() <= 64
        && !name.contains("..")
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn check_env(variable: &EnvVar) -> Result<()> {
    let name = &variable.name;
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(codes::SPEC.error(format!("'{name}' is not a variable's name")));
    }
    if name.starts_with("FORKPOINT_") {
        return Err(codes::SPEC
            .error(format!("{name} is set by Forkpoint itself"))
            .hint("choose a name that does not begin with FORKPOINT_"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
