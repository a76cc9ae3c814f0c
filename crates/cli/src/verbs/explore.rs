//! `forkpoint explore`.

use forkpoint_engine::{Engine, GcOptions};
use forkpoint_explore::events::Tee;
use forkpoint_explore::spec::ExploreSpec;
use forkpoint_explore::units::{Size, Time};
use forkpoint_explore::{Cancel, EngineBackend, Report};
use forkpoint_model::{Kind, Result};
use std::ffi::OsStr;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::flags::SpecFlags;
use crate::live::{self, Live};
use crate::outputs::Outputs;
use crate::progress::{self, Lines};
use crate::signals::Signals;
use crate::style::Style;
use crate::verbs::report::Patches;
use crate::{codes, detach, exit, output};

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
    FORKPOINT_DEADLINE (Unix seconds, where there is a time limit), FORKPOINT_PARAM_<NAME>, FORKPOINT_DEPTH, \
    FORKPOINT_COST_FILE, and where it goes on from another FORKPOINT_PARENT and FORKPOINT_FEEDBACK; FORKPOINT_OUT (a \
    directory that is collected even when it loses) and FORKPOINT_SOCK."
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: SpecFlags,
    /// Do not print the attempts' output as it comes
    #[arg(long)]
    no_output: bool,
    /// Plain lines of progress, also on a terminal
    #[arg(long)]
    plain: bool,
    /// Write what happens as JSON lines (docs/json.md): to a file, to - for standard output, or to
    /// fd:N for an open descriptor
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Write a report as one page of HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Copy what each attempt left in $FORKPOINT_OUT to DIR/INDEX
    #[arg(long, value_name = "DIR")]
    pub(crate) collect: Option<PathBuf>,
    /// Print the exploration's identifier and return at once; a supervisor goes on in the background,
    /// whatever becomes of the terminal. See forkpoint wait and forkpoint abort
    #[arg(long)]
    detach: bool,
    #[arg(long, hide = true, conflicts_with = "detach")]
    supervised: bool,
    /// When it is over, what is kept of ended attempts, of this and of earlier explorations, is freed
    /// where it is older than this. Default: what the configuration says, else 7d
    #[arg(long, value_name = "T")]
    keep_age: Option<Time>,
    /// And the oldest, until the rest takes no more than this. Default: what the
    /// configuration says, else 5G
    #[arg(long, value_name = "SIZE")]
    keep_size: Option<Size>,
}

/// How many branches one exploration frees when it is over, so that its end does not take long.
const COLLECTED_AT_ONCE: usize = 64;

/// Explores.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    if args.detach {
        // Mistakes are told here, where somebody reads them.
        args.flags.read(app)?.expand()?;
        if args.events.as_deref().is_some_and(|e| e.as_os_str() == "-") {
            return Err(codes::USAGE
                .error("a detached exploration has no standard output for its events")
                .hint("write them to a file: --events FILE"));
        }
        return detach::start(app);
    }
    if args.supervised {
        detach::leave_session()?;
    }
    let signals = Signals::ending()?;
    let cancel = Cancel::new()?;
    signals.raise(cancel.clone());
    let out = Outputs::new(&args);
    let page = args.report.clone();
    let plain = args.plain || app.common.quiet || !live::possible();
    let mut lines = Lines::new(app.common.quiet, !args.no_output);
    let config = app.config()?;
    let (age, size) = (args.keep_age.or(config.age), args.keep_size.or(config.size));
    let keep = GcOptions {
        max_age_s: age.map(|t| t.0.as_secs()),
        max_bytes: size.map(|s| s.0),
        at_most: Some(COLLECTED_AT_ONCE),
        ..GcOptions::default()
    };
    let spec = args.flags.read(app)?;
    // Mistakes are told before anything is made.
    spec.expand()?;
    let engine = app.engine(&masks(&spec))?;
    let world = app.world(&engine, Some(spec.base()), spec.snapshot)?;
    let mut patches = page.as_ref().map(|_| Patches::new(&engine));
    let backend = EngineBackend::new(engine.clone(), world, app.cwd.clone(), spec.network);
    let caller = |name: &OsStr| std::env::var_os(name);
    let mut live = if plain { None } else { Live::start() };
    let mut events = out.events(app)?;
    let mut tee = Tee::default();
    let mut begun = detach::Begun;
    if args.supervised {
        tee.0.push(&mut begun);
    }
    match &mut live {
        Some(live) => tee.0.push(live),
        None => tee.0.push(&mut lines),
    }
    if let Some(events) = &mut events {
        tee.0.push(events);
    }
    if let Some(patches) = &mut patches {
        tee.0.push(patches);
    }
    let report = forkpoint_explore::run(&backend, &spec, &caller, &mut tee, &cancel);
    // The view goes before anything else is written.
    drop(live);
    let report = report?;
    if let Some(why) = events.as_mut().and_then(|e| e.finish(&report)) {
        output::say(&format!("warning: not all events could be written: {why}"));
    }
    if out.on_stdout() {
        app.say(progress::summary(&report, Style::of_stderr()).trim_end());
    } else if !args.supervised {
        answer(app, &report)?;
    }
    // The result has been told, whatever becomes of these.
    out.collect(app, &report)?;
    if let (Some(file), Some(patches)) = (&page, &mut patches) {
        patches.finish(&report);
        super::report::write(app, &report, patches, file)?;
    }
    free(app, &engine, &keep);
    Ok(exit::of_report(&report))
}

/// Frees what is kept beyond the bounds. The exploration is over and its result is written: what cannot
/// be freed now is freed after a later one.
fn free(app: &App, engine: &Engine, keep: &GcOptions) {
    if let Err(error) = engine.gc(keep)
        && error.kind != Kind::Conflict
    {
        app.say(&format!("nothing was collected: {error}"));
    }
}

/// Prints the result.
pub(crate) fn answer(app: &App, report: &Report) -> Result<()> {
    if app.json() {
        return output::print_json(report);
    }
    output::print(&progress::summary(report, Style::of_stdout()))
}

/// What the branches of an exploration see of the host.
pub(crate) fn masks(spec: &ExploreSpec) -> Masks {
    let paths = |list: &[forkpoint_explore::text::OsText]| {
        list.iter().map(|p| p.0.clone().into()).collect()
    };
    Masks {
        devices: paths(&spec.devices),
        expose: paths(&spec.expose),
        hide: paths(&spec.hide),
    }
}
