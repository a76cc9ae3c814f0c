//! `forkpoint explore`.

use forkpoint_explore::params;
use forkpoint_explore::spec::{
    AttemptSpec, CommandLine, EnvVar, ExploreSpec, Keep, LimitSpec, MountSpec, NetworkSpec,
    PrepareSpec, ScoreSpec, StrategyName, VerifySpec,
};
use forkpoint_explore::text::OsText;
use forkpoint_explore::units::{Size, Time};
use forkpoint_explore::{Cancel, EngineBackend, Report};
use forkpoint_model::Result;
use forkpoint_model::strategy::Direction;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::app::{App, Masks, variable};
use crate::progress::{self, Lines};
use crate::signals::Signals;
use crate::{codes, exit, output};

/// Try several ways at once, each in a branch of its own, and commit the one that passes
///
/// Prepares once, forks one branch for each attempt, runs them side by side, lets the verifier (and
/// the score) look at each in a throwaway fork, commits one winner into the directory, and rolls all
/// others back.
///
/// Every --attempt (or the command after --) is combined with every combination of the --param lists.
/// -n is the number of attempts in all: a multiple of the number of combinations, which are then made
/// equally often, with different seeds.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 a winner was committed (or chosen, with --no-commit); 1 no attempt \
    passed; 2 usage; 3 conflict, drift or stale; 4 something is left to resolve; 5 this machine cannot do \
    it; 124 total time out; 130 interrupted; 125 internal error.\n\n\
    Each attempt sees FORKPOINT_BRANCH, FORKPOINT_EXPLORATION, FORKPOINT_ATTEMPT (from 0), FORKPOINT_SEED, \
    FORKPOINT_DEADLINE (Unix seconds, where there is a time limit), FORKPOINT_PARAM_<NAME>, FORKPOINT_OUT (a \
    directory that is collected even when it loses) and FORKPOINT_SOCK."
)]
pub(crate) struct Args {
    /// The directory to explore from. Default: the current one
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Fork from a copy of the directory, so that editing it meanwhile changes no attempt
    #[arg(long)]
    snapshot: bool,
    /// How many attempts in all. Default: one for each combination
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// A way to try, as a line for the shell (may be repeated)
    #[arg(long = "attempt", value_name = "CMD", conflicts_with = "command")]
    attempts: Vec<OsString>,
    /// A parameter and its values; each attempt is made with each (may be repeated). Quote a value
    /// that holds a comma: 'NAME="a,b",c'
    #[arg(long = "param", value_name = "NAME=A,B,C")]
    params: Vec<String>,
    /// Run this once, before the fork; what it leaves lies under every attempt
    #[arg(long, value_name = "CMD")]
    prepare: Option<OsString>,
    /// Files of the base that the preparation's result depends on: it is run again only when one of
    /// them has changed (may be repeated). Without any it is run each time
    #[arg(long = "prepare-input", value_name = "GLOB", requires = "prepare")]
    prepare_inputs: Vec<String>,
    /// The network the preparation sees
    #[arg(long, value_name = "NETWORK", default_value = "loopback", requires = "prepare", value_parser = network)]
    prepare_network: NetworkSpec,
    /// The time limit of the preparation
    #[arg(long, value_name = "T", requires = "prepare")]
    prepare_timeout: Option<Time>,
    /// The gate: an attempt passes when this exits with 0. Without it, when the attempt does
    #[arg(long, value_name = "CMD")]
    verify: Option<OsString>,
    /// The verifier must pass this many times
    #[arg(long, value_name = "K", requires = "verify", value_parser = clap::value_parser!(u32).range(1..=1000))]
    verify_repeat: Option<u32>,
    /// The time limit of one run of the verifier
    #[arg(long, value_name = "T", requires = "verify")]
    verify_timeout: Option<Time>,
    /// A file or directory that only the verifier and the score see, read-only (may be repeated)
    #[arg(long = "verify-mount", value_name = "SRC:DEST", requires = "verify", value_parser = clap::value_parser!(OsString))]
    verify_mounts: Vec<OsString>,
    /// Paths that are made exactly what the base has before the verifier looks (may be repeated)
    #[arg(long, value_name = "GLOB")]
    protect: Vec<String>,
    /// The score: the last line of its output that is a number, or {"score": 1.5} on descriptor 3
    #[arg(long, value_name = "CMD")]
    score: Option<OsString>,
    /// Run the score this many times; the median counts
    #[arg(long, value_name = "K", requires = "score", value_parser = clap::value_parser!(u32).range(1..=1000))]
    score_repeat: Option<u32>,
    /// The time limit of one run of the score
    #[arg(long, value_name = "T", requires = "score")]
    score_timeout: Option<Time>,
    /// Score one at a time, after every attempt has stopped
    #[arg(long, requires = "score")]
    exclusive: bool,
    /// A lower score is better
    #[arg(long, requires = "score", conflicts_with = "maximize")]
    minimize: bool,
    /// A higher score is better. This is the default
    #[arg(long, requires = "score")]
    maximize: bool,
    /// first-wins commits the first that passes; best-of-n the best score of all that pass. Default:
    /// best-of-n where there is a score
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<StrategyName>,
    /// A variable for every command: NAME=VALUE, or NAME for the caller's value even if it is a
    /// secret (may be repeated)
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// The network of attempts, verifier and score: loopback or host. Nothing captures what is sent
    /// to the host's network
    #[arg(long, value_name = "NETWORK", default_value = "loopback", value_parser = network)]
    network: NetworkSpec,
    /// The time limit of one attempt
    #[arg(long, value_name = "T")]
    timeout: Option<Time>,
    /// The time limit of the whole exploration
    #[arg(long, value_name = "T")]
    total_timeout: Option<Time>,
    /// How many run at once. Default: the number of processors
    #[arg(long, short, value_name = "J", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Memory of one attempt
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Processor time of one attempt
    #[arg(long, value_name = "T")]
    cpu: Option<Time>,
    /// Processes of one attempt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Option<u32>,
    /// What one attempt may write
    #[arg(long, value_name = "SIZE")]
    disk: Option<Size>,
    /// Choose a winner but do not commit it: `forkpoint commit last/INDEX` does
    #[arg(long)]
    no_commit: bool,
    /// What is kept of attempts that did not win, to look at and fork from: none, losers, or all (with
    /// --no-commit they all stay branches that can be committed)
    #[arg(long, value_name = "WHAT", default_value = "losers", value_parser = keep)]
    keep: Keep,
    /// Paths that are not committed (may be repeated)
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Leave what the preparation changed out of the commit
    #[arg(long, requires = "prepare")]
    exclude_prepared: bool,
    /// An attempt that changes nothing may pass
    #[arg(long)]
    allow_empty: bool,
    /// Commit also changes that would make the host run something (git hooks and configuration) or grant rights on it (set-id files, file capabilities, overlay attributes)
    #[arg(long)]
    allow_host_exec: bool,
    /// Do not commit if anything in the base has changed meanwhile
    #[arg(long)]
    strict: bool,
    /// Do not print the attempts' output as it comes
    #[arg(long)]
    no_output: bool,
    #[command(flatten)]
    masks: Masks,
    /// The way to try, as a program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Reads a network's name.
pub(crate) fn network(text: &str) -> std::result::Result<NetworkSpec, String> {
    match text {
        "loopback" => Ok(NetworkSpec::Loopback),
        "host" => Ok(NetworkSpec::Host),
        _ => Err("loopback or host".into()),
    }
}

fn keep(text: &str) -> std::result::Result<Keep, String> {
    match text {
        "none" => Ok(Keep::None),
        "losers" => Ok(Keep::Losers),
        "all" => Ok(Keep::All),
        _ => Err("none, losers or all".into()),
    }
}

/// Explores.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    let signals = Signals::ending()?;
    let cancel = Cancel::new()?;
    signals.raise(cancel.clone());
    let masks = args.masks.clone();
    let show_output = !args.no_output;
    let spec = spec(app, args)?;
    // Mistakes are told before anything is made.
    spec.expand()?;
    let engine = app.engine(&masks)?;
    let world = app.world(&engine, Some(spec.base()), spec.snapshot)?;
    let backend = EngineBackend::new(engine, world, app.cwd.clone(), spec.network);
    let caller = |name: &OsStr| std::env::var_os(name);
    let mut observer = Lines::new(app.common.quiet, show_output);
    let report = forkpoint_explore::run(&backend, &spec, &caller, &mut observer, &cancel)?;
    answer(app, &report)?;
    Ok(exit::of_report(&report))
}

fn answer(app: &App, report: &Report) -> Result<()> {
    if app.json() {
        return output::print_json(report);
    }
    output::print(&progress::summary(report, crate::style::Style::of_stdout()))
}

fn spec(app: &App, args: Args) -> Result<ExploreSpec> {
    let shell = |line: OsString| CommandLine::Shell(line.into());
    let attempt = |command| AttemptSpec {
        command,
        params: Default::default(),
        env: Vec::new(),
    };
    let mut attempts: Vec<AttemptSpec> =
        args.attempts.into_iter().map(shell).map(attempt).collect();
    if !args.command.is_empty() {
        attempts.push(attempt(CommandLine::Argv(
            args.command.into_iter().map(OsText).collect(),
        )));
    }
    let mounts = args
        .verify_mounts
        .iter()
        .map(|m| mount(app, m))
        .collect::<Result<Vec<_>>>()?;
    let base = args
        .base
        .map_or_else(|| app.cwd.clone(), |b| app.cwd.join(b));
    Ok(ExploreSpec {
        base: base.into(),
        snapshot: args.snapshot,
        attempts,
        params: args
            .params
            .iter()
            .map(|p| params::parse(p))
            .collect::<Result<_>>()?,
        count: args.count,
        prepare: args.prepare.map(|line| PrepareSpec {
            command: shell(line),
            inputs: args.prepare_inputs,
            network: args.prepare_network,
            timeout: args.prepare_timeout,
        }),
        verify: args.verify.map(|line| VerifySpec {
            command: shell(line),
            repeat: args.verify_repeat.unwrap_or(1),
            mounts,
            timeout: args.verify_timeout,
        }),
        score: args.score.map(|line| ScoreSpec {
            command: shell(line),
            repeat: args.score_repeat.unwrap_or(1),
            exclusive: args.exclusive,
            direction: if args.minimize {
                Direction::Minimize
            } else {
                Direction::Maximize
            },
            timeout: args.score_timeout,
        }),
        strategy: args.strategy,
        protect: args.protect,
        env: args.env.iter().map(|v| env_var(v)).collect::<Result<_>>()?,
        timeout: args.timeout,
        total_timeout: args.total_timeout,
        jobs: args.jobs,
        no_commit: args.no_commit,
        keep: args.keep,
        exclude: args.exclude,
        exclude_prepared: args.exclude_prepared,
        allow_empty: args.allow_empty,
        allow_host_exec: args.allow_host_exec,
        strict: args.strict,
        limits: LimitSpec {
            memory: args.memory,
            cpu: args.cpu,
            pids: args.pids,
            disk: args.disk,
        },
        network: args.network,
    })
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
