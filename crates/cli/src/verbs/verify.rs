//! `forkpoint verify`.

use forkpoint_engine::{Cancel, ExitKind, JudgeSpec, Limits, Network, SealOptions, words};
use forkpoint_explore::spec::NetworkSpec;
use forkpoint_explore::units::Time;
use forkpoint_model::Result;
use serde_json::json;
use std::ffi::OsString;

use crate::app::{App, Masks};
use crate::signals::Signals;
use crate::{exit, output};

/// Judge a branch with a command
///
/// Seals the branch (ends its processes; nothing can be run in it any more), then runs the command in a
/// throwaway fork of it, over a fresh system root. The branch passes when the command exits with 0.
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 it passed; 1 it did not.")]
pub(crate) struct Args {
    /// The branch
    #[arg(value_name = "BRANCH")]
    branch: String,
    /// Paths that are made exactly what the base has first (may be repeated)
    #[arg(long, value_name = "GLOB", value_parser = crate::flags::glob)]
    protect: Vec<String>,
    /// A time limit
    #[arg(long, value_name = "T")]
    timeout: Option<Time>,
    /// The network the verifier sees: loopback or host
    #[arg(long, value_name = "NETWORK", default_value = "loopback", value_parser = crate::flags::network)]
    network: NetworkSpec,
    #[command(flatten)]
    masks: Masks,
    /// The verifier
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Verifies.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    let signals = Signals::ending()?;
    let cancel = Cancel::new()?;
    signals.raise(cancel.clone());
    let engine = app.engine(&args.masks)?;
    let branch = app.branch(&engine, &args.branch)?;
    let label = branch.label()?;
    let sealed = branch.seal(&SealOptions {
        protect: args.protect,
    })?;
    for path in &sealed.restored {
        app.say(&format!("restored {}", path.display()));
    }
    let log = branch.log_path().with_file_name("verify.log");
    let result = branch.verify(&JudgeSpec {
        argv: args.command,
        env: Vec::new(),
        timeout: args.timeout.map(|t| t.0),
        limits: Limits::default(),
        network: match args.network {
            NetworkSpec::Loopback => Network::Loopback,
            NetworkSpec::Host => Network::Host,
        },
        mounts: Vec::new(),
        log: Some(log.clone()),
        redactor: Default::default(),
        capture_limit: 0,
        score: false,
        cancel: cancel.clone(),
    });
    let judged = match result {
        Err(_) if cancel.is_cancelled() => return Ok(exit::INTERRUPTED),
        other => other?,
    };
    let passed = judged.passed();
    let exit_code = match judged.exit.status {
        ExitKind::Code(code) => Some(code),
        ExitKind::Signal(signal) => Some(128 + signal),
        _ => None,
    };
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.verify/1", "branch": branch.id(), "passed": passed,
            "exit_code": exit_code, "wall_s": judged.exit.wall_ns as f64 / 1e9, "log": log,
            "restored": sealed.restored,
        }))?;
    } else {
        let verdict = if passed { "passed" } else { "did not pass" };
        output::print(&format!(
            "{label} {verdict} ({})\n",
            words(&judged.exit.status)
        ))?;
        app.say(&format!("log: {}", log.display()));
    }
    Ok(if passed {
        exit::DONE
    } else {
        exit::NONE_PASSED
    })
}
