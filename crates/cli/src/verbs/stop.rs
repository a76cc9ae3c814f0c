//! `forkpoint stop`.

use forkpoint_engine::records::ExplorationState;
use forkpoint_engine::{Activity, Branch, Engine};
use forkpoint_explore::resolve;
use forkpoint_model::Result;
use serde_json::{Value, json};

use crate::app::{App, Masks};
use crate::style::Style;
use crate::{exit, output};

/// End everything that runs in branches, and keep what they wrote
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Every process is killed, paused ones too. What was written to /tmp, /run and the like \
    is gone with them; the disks stay, and the branch can be run in again.\n\n\
    Of an exploration, the processes of all its attempts are killed. If it still runs, its supervisor goes \
    on: these attempts count as failed, and those that wait are begun. To end all of it, and roll it back: \
    forkpoint abort EXPLORATION."
)]
pub(crate) struct Args {
    /// The branches, or explorations (x…, last)
    #[arg(value_name = "BRANCH", required = true)]
    branches: Vec<String>,
}

/// Stops. All names are looked up before anything happens.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let (mut found, mut running) = (Vec::new(), Vec::new());
    for name in &args.branches {
        match app.branch(&engine, name) {
            Ok(branch) => found.push(branch),
            Err(error) => {
                let Ok(exploration) = resolve::exploration(&engine.store(), name, &app.cwd) else {
                    return Err(error);
                };
                let branches = engine.store().exploration_branches(exploration.id)?;
                // Those that wait are their supervisor's to begin.
                for branch in branches {
                    if engine.activity(&branch)? != Activity::Stopped {
                        found.push(engine.branch_by_id(branch.id)?);
                    }
                }
                if exploration.state == ExplorationState::Running {
                    running.push(exploration.id);
                }
            }
        }
    }
    let status = each_of(app, found, "forkpoint.stop/1", |branch| {
        let what = match branch.stop()? {
            true => "is stopped",
            false => "was not running",
        };
        Done::active(branch, what)
    })?;
    for id in running {
        app.say(&format!(
            "note: {id} is still supervised, and what waits in it is begun; to end it: forkpoint abort {id}"
        ));
    }
    Ok(status)
}

/// What was done to one branch.
pub(crate) struct Done {
    /// For a person, after the branch's name.
    pub(crate) words: String,
    /// In JSON, beside `branch`.
    pub(crate) fields: Value,
    /// Further lines for a person.
    pub(crate) more: Vec<String>,
    /// The exit status that it asks for.
    pub(crate) status: u8,
}

impl Done {
    /// Something that changes what its processes do.
    pub(crate) fn active(branch: &Branch, words: &str) -> Result<Self> {
        Ok(Self {
            words: words.to_owned(),
            fields: json!({"activity": branch.activity()?}),
            more: Vec::new(),
            status: exit::DONE,
        })
    }
}

/// Does something to each of the branches named, all of which are looked up before.
pub(crate) fn each(
    app: &App,
    names: &[String],
    schema: &str,
    act: impl Fn(&Branch) -> Result<&'static str>,
) -> Result<u8> {
    let engine: Engine = app.engine(&Masks::default())?;
    let found = names
        .iter()
        .map(|name| app.branch(&engine, name))
        .collect::<Result<Vec<_>>>()?;
    each_of(app, found, schema, |branch| {
        Done::active(branch, act(branch)?)
    })
}

/// Does something to each of these branches; an error of one keeps it from none of the others.
pub(crate) fn each_of(
    app: &App,
    branches: Vec<Branch>,
    schema: &str,
    act: impl Fn(&Branch) -> Result<Done>,
) -> Result<u8> {
    let (mut rows, mut status) = (Vec::new(), exit::DONE);
    for branch in branches {
        let label = branch.label()?;
        let mut row = json!({"branch": branch.id()});
        match act(&branch) {
            Ok(done) => {
                if !app.json() {
                    output::print(&format!("{label} {}\n", done.words))?;
                    done.more.iter().for_each(|line| app.say(line));
                }
                if let (Value::Object(row), Value::Object(fields)) = (&mut row, done.fields) {
                    row.extend(fields);
                }
                status = status.max(done.status);
            }
            Err(error) => {
                output::say(&output::error_lines(&error, Style::of_stderr()));
                status = status.max(exit::of_error(error.kind));
                row["error"] = json!(error);
            }
        }
        rows.push(row);
    }
    if app.json() {
        output::print_json(&json!({"schema": schema, "branches": rows}))?;
    }
    Ok(status)
}
