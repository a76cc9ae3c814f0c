//! `forkpoint doctor`.

use forkpoint_engine::{Check, CheckState, Engine};
use forkpoint_explore::logs::printable;
use forkpoint_model::Result;
use serde_json::json;
use std::path::PathBuf;

use crate::app::App;
use crate::style::Style;
use crate::{exit, output, records};

/// Say what this machine can do, by really trying, and how to mend what it cannot
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 everything needed works, perhaps by a fallback; 5 something is missing."
)]
pub(crate) struct Args {
    /// The directory that would be forked. Default: the current one
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
}

/// Examines.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let base = args
        .base
        .as_ref()
        .map_or_else(|| app.cwd.clone(), |b| app.cwd.join(b));
    let mut checks = Engine::doctor(&app.store()?, &base);
    let (config, held) = configuration(app);
    checks.push(config);
    let missing = checks.iter().any(|c| c.state == CheckState::Missing);
    let word = |state| match state {
        CheckState::Ok => "ok",
        CheckState::Degraded => "degraded",
        CheckState::Missing => "missing",
    };
    if app.json() {
        let rows: Vec<_> = checks
            .iter()
            .map(|c| json!({"name": c.name, "state": word(c.state), "detail": c.detail, "mend": c.mend}))
            .collect();
        output::print_json(&json!({
            "schema": "forkpoint.doctor/1", "ok": !missing, "checks": rows,
            "config": {
                "path": app.config_path().map(|path| records::path_json(&path)),
                "set": held.iter().map(|(k, v)| json!({"key": k, "value": v})).collect::<Vec<_>>(),
            },
        }))?;
    } else {
        let style = Style::of_stdout();
        let mut text = String::new();
        for check in &checks {
            let state = format!("{:<9}", word(check.state));
            let state = if check.state == CheckState::Ok {
                style.green(&state)
            } else {
                style.red(&state)
            };
            text.push_str(&format!("{state} {}: {}\n", check.name, check.detail));
            if let Some(mend) = &check.mend {
                text.push_str(&format!("          mend: {mend}\n"));
            }
        }
        for (key, value) in &held {
            text.push_str(&format!("          {key} = {}\n", printable(value)));
        }
        output::print(&text)?;
    }
    Ok(if missing {
        exit::UNAVAILABLE
    } else {
        exit::DONE
    })
}

/// Which configuration is read, and every key that it sets.
fn configuration(app: &App) -> (Check, Vec<(&'static str, String)>) {
    let (state, detail, mend, held) = match (app.config(), app.config_path()) {
        (Err(error), _) => (
            CheckState::Missing,
            error.message,
            Some(error.hint),
            Vec::new(),
        ),
        (Ok(_), None) => (CheckState::Ok, "none is read".into(), None, Vec::new()),
        (Ok(config), Some(path)) => {
            let what = match (path.exists(), config.held().len()) {
                (false, _) => "is not there: every default holds",
                (true, 0) => "sets nothing",
                (true, _) => "sets:",
            };
            let detail = format!("{} {what}", path.display());
            (CheckState::Ok, detail, None, config.held())
        }
    };
    let name = "configuration".into();
    let check = Check {
        name,
        state,
        detail,
        mend,
    };
    (check, held)
}
