//! The flags that say what to explore, shared by `explore` and `explain`, and how they are laid over a
//! specification file: a flag is stronger than the file (docs/spec.md).

use clap::ArgGroup;
use forkpoint_explore::globs;
use forkpoint_explore::params;
use forkpoint_explore::spec::{
    AttemptSpec, CommandLine, EnvVar, ExploreSpec, Keep, MountSpec, NetworkSpec, PrepareSpec,
    ScoreSpec, StrategyName, VerifySpec,
};
use forkpoint_explore::spec_file;
use forkpoint_explore::text::OsText;
use forkpoint_explore::units::{Size, Time};
use forkpoint_model::strategy::Direction;
use forkpoint_model::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::app::{App, Masks, variable};
use crate::codes;
use crate::searching::{BudgetFlags, SearchFlags};

/// A flag that belongs to something which a flag or the file must give.
fn part(name: &'static str, flag: &'static str) -> ArgGroup {
    ArgGroup::new(name).args([flag, "spec"]).multiple(true)
}

/// What to explore.
#[derive(clap::Args, Debug)]
#[command(group = part("preparation", "prepare"), group = part("verifier", "verify"), group = part("scorer", "score"))]
pub(crate) struct SpecFlags {
    /// A file that says what to explore (docs/spec.md). Flags are stronger than it
    #[arg(value_name = "SPEC.toml")]
    pub(crate) spec: Option<PathBuf>,
    /// The directory to explore from. Default: the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) base: Option<PathBuf>,
    /// Fork from a copy of the directory, so that editing it meanwhile changes no attempt
    #[arg(long)]
    pub(crate) snapshot: bool,
    /// How many attempts in all. Default: one for each combination
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,
    /// A way to try, as a line for the shell (may be repeated)
    #[arg(long = "attempt", value_name = "CMD", conflicts_with = "command")]
    pub(crate) attempts: Vec<OsString>,
    /// A parameter and its values; each attempt is made with each (may be repeated). Quote a value
    /// that holds a comma: 'NAME="a,b",c'
    #[arg(long = "param", value_name = "NAME=A,B,C")]
    pub(crate) params: Vec<String>,
    /// Run this once, before the fork; what it leaves lies under every attempt
    #[arg(long, value_name = "CMD")]
    pub(crate) prepare: Option<OsString>,
    /// Files of the base that the preparation's result depends on: it is run again only when one of
    /// them has changed (may be repeated). Without any it is run each time
    #[arg(long = "prepare-input", value_name = "GLOB", value_parser = input, requires = "preparation")]
    pub(crate) prepare_inputs: Vec<String>,
    /// The network the preparation sees: loopback or host. Default: loopback
    #[arg(long, value_name = "NETWORK", requires = "preparation", value_parser = network)]
    pub(crate) prepare_network: Option<NetworkSpec>,
    /// The time limit of the preparation
    #[arg(long, value_name = "T", requires = "preparation")]
    pub(crate) prepare_timeout: Option<Time>,
    /// The gate: an attempt passes when this exits with 0. Without it, when the attempt does
    #[arg(long, value_name = "CMD")]
    pub(crate) verify: Option<OsString>,
    /// The verifier must pass this many times
    #[arg(long, value_name = "K", requires = "verifier", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) verify_repeat: Option<u32>,
    /// The time limit of one run of the verifier
    #[arg(long, value_name = "T", requires = "verifier")]
    pub(crate) verify_timeout: Option<Time>,
    /// Verify one at a time, while no attempt runs
    #[arg(long, requires = "verifier")]
    pub(crate) verify_exclusive: bool,
    /// A file or directory that only the verifier and the score see, read-only (may be repeated)
    #[arg(long = "verify-mount", value_name = "SRC:DEST", requires = "verifier", value_parser = clap::value_parser!(OsString))]
    pub(crate) verify_mounts: Vec<OsString>,
    /// Paths that are made exactly what the base has before the verifier looks (may be repeated)
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub(crate) protect: Vec<String>,
    /// The score: the last line of its output that is a number, or {"score": 1.5} on descriptor 3
    #[arg(long, value_name = "CMD")]
    pub(crate) score: Option<OsString>,
    /// Run the score this many times; the median counts
    #[arg(long, value_name = "K", requires = "scorer", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) score_repeat: Option<u32>,
    /// The time limit of one run of the score
    #[arg(long, value_name = "T", requires = "scorer")]
    pub(crate) score_timeout: Option<Time>,
    /// Score one at a time, after every attempt has stopped
    #[arg(long, requires = "scorer")]
    pub(crate) exclusive: bool,
    /// A lower score is better
    #[arg(long, requires = "scorer", conflicts_with = "maximize")]
    pub(crate) minimize: bool,
    /// A higher score is better. This is the default
    #[arg(long, requires = "scorer")]
    pub(crate) maximize: bool,
    /// How the winner is found: first-wins, best-of-n, beam, halving, tournament or refine
    /// (docs/strategies.md). Default: best-of-n where there is a score, else first-wins
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) strategy: Option<StrategyName>,
    #[command(flatten)]
    pub(crate) search: SearchFlags,
    /// A variable for every command: NAME=VALUE, or NAME for the caller's value even if it is a
    /// secret (may be repeated)
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// A variable of the caller that only the attempts are given, and whose value is taken out of logs
    /// and events (may be repeated)
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,
    /// The network of attempts, verifier and score: loopback or host. Nothing captures what is sent
    /// to the host's network. Default: loopback
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub(crate) network: Option<NetworkSpec>,
    /// The time limit of one attempt
    #[arg(long, value_name = "T")]
    pub(crate) timeout: Option<Time>,
    /// The time limit of the whole exploration
    #[arg(long, value_name = "T", visible_alias = "budget-wall")]
    pub(crate) total_timeout: Option<Time>,
    /// How many run at once. Default: the number of processors
    #[arg(long, short, value_name = "J", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,
    /// Memory of one attempt
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// Processor time of one attempt
    #[arg(long, value_name = "T")]
    pub(crate) cpu: Option<Time>,
    /// Processes of one attempt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pids: Option<u32>,
    /// What one attempt may write
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Size>,
    #[command(flatten)]
    pub(crate) budget: BudgetFlags,
    /// Choose a winner but do not commit it: `forkpoint commit last/INDEX` does
    #[arg(long)]
    pub(crate) no_commit: bool,
    /// What is kept of attempts that did not win, to look at and fork from: none, losers, or all (with
    /// --no-commit they all stay branches that can be committed). Default: losers
    #[arg(long, value_name = "WHAT", value_parser = keep)]
    pub(crate) keep: Option<Keep>,
    /// Paths that are not committed (may be repeated)
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub(crate) exclude: Vec<String>,
    /// Leave what the preparation changed out of the commit
    #[arg(long, requires = "preparation")]
    pub(crate) exclude_prepared: bool,
    /// Give the secrets to the preparation too
    #[arg(long, requires = "preparation")]
    pub(crate) prepare_secrets: bool,
    /// An attempt that changes nothing may pass
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Commit also changes that would make the host run something (git hooks and configuration) or grant rights on it (set-id files, file capabilities, overlay attributes)
    #[arg(long)]
    pub(crate) allow_host_exec: bool,
    /// Do not commit if anything in the base has changed meanwhile
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) masks: Masks,
    /// The way to try, as a program and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Reads a network's name.
pub(crate) fn network(text: &str) -> std::result::Result<NetworkSpec, String> {
    match text {
        "loopback" => Ok(NetworkSpec::Loopback),
        "host" => Ok(NetworkSpec::Host),
        _ => Err("loopback or host".into()),
    }
}

/// A glob, read where it is given.
pub(crate) fn glob(text: &str) -> std::result::Result<String, String> {
    forkpoint_engine::glob_fault(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// A glob or a plain path.
fn input(text: &str) -> std::result::Result<String, String> {
    globs::input_fault(text).map_or_else(|| Ok(text.to_owned()), Err)
}

fn keep(text: &str) -> std::result::Result<Keep, String> {
    match text {
        "none" => Ok(Keep::None),
        "losers" => Ok(Keep::Losers),
        "all" => Ok(Keep::All),
        _ => Err("none, losers or all".into()),
    }
}

impl SpecFlags {
    /// The file, where one is given, with the flags laid over it. The base is absolute.
    ///
    /// # Errors
    /// `FP0510` for the file, `FP0501` and `FP0001` for the flags.
    pub(crate) fn read(self, app: &App) -> Result<ExploreSpec> {
        let attempts = !self.attempts.is_empty() || !self.command.is_empty();
        let mut spec = match &self.spec {
            Some(path) => {
                spec_file::load(&app.cwd.join(path), attempts).map_err(|e| shorten(e, app))?
            }
            None => ExploreSpec::default(),
        };
        self.lay_over(app, &mut spec)?;
        Ok(spec)
    }

    fn lay_over(self, app: &App, spec: &mut ExploreSpec) -> Result<()> {
        if let Some(base) = &self.base {
            spec.base = app.cwd.join(base).into();
        } else if spec.base.0.is_empty() {
            spec.base = app.cwd.clone().into();
        }
        self.what(spec)?;
        self.judges(app, spec)?;
        set(&mut spec.count, self.count);
        set(&mut spec.strategy, self.strategy);
        self.search.over(&mut spec.search);
        set(&mut spec.timeout, self.timeout);
        set(&mut spec.total_timeout, self.total_timeout);
        set(&mut spec.jobs, self.jobs);
        spec.keep = self.keep.unwrap_or(spec.keep);
        spec.network = self.network.unwrap_or(spec.network);
        let (given, file) = (self.network.is_some(), self.spec.is_some());
        spec.snapshot |= self.snapshot;
        spec.no_commit |= self.no_commit;
        spec.exclude_prepared |= self.exclude_prepared;
        spec.allow_empty |= self.allow_empty;
        spec.allow_host_exec |= self.allow_host_exec;
        spec.strict |= self.strict;
        set(&mut spec.limits.memory, self.memory);
        set(&mut spec.limits.cpu, self.cpu);
        set(&mut spec.limits.pids, self.pids);
        set(&mut spec.limits.disk, self.disk);
        self.budget.over(&mut spec.budget);
        spec.protect.extend(self.protect);
        spec.exclude.extend(self.exclude);
        for secret in self.secrets {
            if !spec.secrets.contains(&secret) {
                spec.secrets.push(secret);
            }
        }
        let absolute = |paths: Vec<PathBuf>| paths.into_iter().map(|p| app.cwd.join(p).into());
        spec.expose.extend(absolute(self.masks.expose));
        spec.hide.extend(absolute(self.masks.hide));
        spec.devices.extend(absolute(self.masks.devices));
        app.config()?.under(spec, given, file);
        Ok(())
    }

    /// The attempts, their parameters and variables.
    fn what(&self, spec: &mut ExploreSpec) -> Result<()> {
        if !self.attempts.is_empty() || !self.command.is_empty() {
            let lines = self.attempts.iter().map(shell);
            spec.attempts = lines.map(AttemptSpec::new).collect();
            if !self.command.is_empty() {
                let words = self.command.iter().cloned().map(OsText).collect();
                spec.attempts
                    .push(AttemptSpec::new(CommandLine::Argv(words)));
            }
        }
        let mut given = Vec::new();
        for text in &self.params {
            let param = params::parse(text)?;
            if given.contains(&param.name) {
                return Err(codes::USAGE
                    .error(format!("the parameter '{}' is given twice", param.name))
                    .hint("give all its values in one --param"));
            }
            given.push(param.name.clone());
            match spec.params.iter_mut().find(|p| p.name == param.name) {
                Some(old) => *old = param,
                None => spec.params.push(param),
            }
        }
        for text in &self.env {
            let var = env_var(text)?;
            spec.env.retain(|v| v.name != var.name);
            spec.env.push(var);
        }
        Ok(())
    }

    /// The preparation, the verifier and the score.
    fn judges(&self, app: &App, spec: &mut ExploreSpec) -> Result<()> {
        if let Some(line) = &self.prepare {
            let old = spec.prepare.take();
            spec.prepare = Some(PrepareSpec {
                command: shell(line),
                ..old.unwrap_or_else(|| PrepareSpec::new(shell(line)))
            });
        }
        let flags = !self.prepare_inputs.is_empty()
            || self.prepare_network.is_some()
            || self.prepare_timeout.is_some()
            || self.prepare_secrets
            || self.exclude_prepared;
        if let Some(prepare) = part_of(&mut spec.prepare, flags, "--prepare")? {
            prepare.inputs.extend(self.prepare_inputs.iter().cloned());
            prepare.network = self.prepare_network.unwrap_or(prepare.network);
            set(&mut prepare.timeout, self.prepare_timeout);
            prepare.secrets |= self.prepare_secrets;
        }
        if let Some(line) = &self.verify {
            let old = spec.verify.take();
            spec.verify = Some(VerifySpec {
                command: shell(line),
                ..old.unwrap_or_else(|| VerifySpec::new(shell(line)))
            });
        }
        let flags = self.verify_repeat.is_some()
            || self.verify_timeout.is_some()
            || self.verify_exclusive
            || !self.verify_mounts.is_empty();
        if let Some(verify) = part_of(&mut spec.verify, flags, "--verify")? {
            verify.repeat = self.verify_repeat.unwrap_or(verify.repeat);
            set(&mut verify.timeout, self.verify_timeout);
            verify.exclusive |= self.verify_exclusive;
            for text in &self.verify_mounts {
                verify.mounts.push(mount(app, text)?);
            }
        }
        if let Some(line) = &self.score {
            let old = spec.score.take();
            spec.score = Some(ScoreSpec {
                command: shell(line),
                ..old.unwrap_or_else(|| ScoreSpec::new(shell(line)))
            });
        }
        let flags = self.score_repeat.is_some()
            || self.score_timeout.is_some()
            || self.exclusive
            || self.minimize
            || self.maximize;
        if let Some(score) = part_of(&mut spec.score, flags, "--score")? {
            score.repeat = self.score_repeat.unwrap_or(score.repeat);
            set(&mut score.timeout, self.score_timeout);
            score.exclusive |= self.exclusive;
            if self.minimize || self.maximize {
                score.direction = match self.minimize {
                    true => Direction::Minimize,
                    false => Direction::Maximize,
                };
            }
        }
        Ok(())
    }
}

/// A flag that is given takes the place of what the file says.
pub(crate) fn set<T>(value: &mut Option<T>, flag: Option<T>) {
    if flag.is_some() {
        *value = flag;
    }
}

fn shell(line: &OsString) -> CommandLine {
    CommandLine::Shell(line.clone().into())
}

/// What `flags` are about; refused where neither a flag nor the file gives it.
fn part_of<'a, T>(part: &'a mut Option<T>, flags: bool, name: &str) -> Result<Option<&'a mut T>> {
    if part.is_none() && flags {
        return Err(codes::USAGE
            .error(format!(
                "flags about {name} are given, and the file has none"
            ))
            .hint(format!(
                "give {name} CMD, or a [{}] in the file",
                name.trim_start_matches('-')
            )));
    }
    Ok(part.as_mut())
}

/// Names the file as it was given, where that is shorter.
fn shorten(error: Error, app: &App) -> Error {
    let prefix = format!("{}/", app.cwd.display());
    Error {
        message: error.message.replace(&prefix, ""),
        ..error
    }
}

fn env_var(text: &OsStr) -> Result<EnvVar> {
    let (name, value) =
        variable(text).map_err(|why| codes::USAGE.error(format!("--env: {why}")))?;
    Ok(EnvVar {
        name,
        value: value.map(OsText),
    })
}

/// Reads `SRC:DEST`; the last colon separates, since a destination rarely has one.
fn mount(app: &App, text: &OsStr) -> Result<MountSpec> {
    let bytes = text.as_bytes();
    let bad = || {
        codes::USAGE
            .error(format!(
                "--verify-mount {} is not SRC:DEST",
                text.to_string_lossy()
            ))
            .hint("DEST is an absolute path, as in --verify-mount hidden-tests:/hidden")
    };
    let at = bytes.iter().rposition(|&b| b == b':').ok_or_else(bad)?;
    let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let (source, dest) = (part(&bytes[..at]), part(&bytes[at + 1..]));
    if source.is_empty() || !dest.as_bytes().starts_with(b"/") {
        return Err(bad());
    }
    let source = std::fs::canonicalize(app.cwd.join(&source)).map_err(|e| {
        codes::USAGE.io(
            format!(
                "--verify-mount: {} cannot be used",
                source.to_string_lossy()
            ),
            e,
        )
    })?;
    Ok(MountSpec {
        source: source.into(),
        dest: dest.into(),
    })
}
