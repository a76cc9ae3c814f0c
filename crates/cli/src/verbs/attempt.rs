//! `forkpoint attempt`: what a process inside a branch says to the engine, through the branch's socket.

use forkpoint_engine::Client;
use forkpoint_model::Result;
use serde_json::{Value, json};
use std::path::PathBuf;

use crate::app::App;
use crate::{codes, exit, output};

/// Speak for the branch this runs in: report a score, a cost or progress; keep how it is now
///
/// It works inside a branch only, through the socket that FORKPOINT_SOCK names. No store is opened, and
/// nothing but this very branch can be spoken for. A branch at the reasoning layer has no such socket.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "What an attempt says of itself is its claim: its score is kept beside that of the score \
    command and ranks nothing, its costs count against the budget as those in FORKPOINT_COST_FILE do."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

/// What is said.
#[derive(clap::Subcommand, Debug)]
enum Verb {
    /// Say which branch this is
    Info,
    /// Report a score; the last one counts
    Score {
        /// The score
        #[arg(value_name = "N", allow_hyphen_values = true)]
        score: f64,
        /// A further number (may be repeated)
        #[arg(long = "metric", value_name = "NAME=N", value_parser = metric)]
        metrics: Vec<(String, f64)>,
    },
    /// Report a cost that was incurred since the last report
    Cost {
        /// The cost
        #[arg(value_name = "N")]
        cost: f64,
    },
    /// Say how far it is, for whoever watches
    Progress {
        /// In words, at most 1024 bytes
        #[arg(value_name = "TEXT")]
        text: String,
        /// How much is done, from 0 to 1
        #[arg(long, value_name = "F")]
        fraction: Option<f64>,
    },
    /// Keep how the branch is now, to go back to: forkpoint rewind BRANCH. Prints the step's number
    Step {
        /// What is about to happen
        #[arg(value_name = "TEXT", default_value = "")]
        text: String,
    },
    /// Take a checkpoint of the branch, to fork from. Prints its name, or its identifier
    Checkpoint {
        /// Its name, below the branch's identifier
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

fn metric(text: &str) -> std::result::Result<(String, f64), String> {
    let (name, number) = text.split_once('=').ok_or("write NAME=N")?;
    let number = number
        .parse()
        .map_err(|_| format!("'{number}' is no number"))?;
    Ok((name.to_owned(), number))
}

/// A connection to the engine, where this runs inside a branch that has a socket.
///
/// # Errors
/// `FP0452` when nothing answers there.
pub(crate) fn client() -> Result<Option<Client>> {
    let socket = std::env::var_os("FORKPOINT_SOCK").map(PathBuf::from);
    socket.map(|path| Client::connect(&path)).transpose()
}

/// Says it, and waits until it is taken.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let mut client = client()?.ok_or_else(|| {
        codes::USAGE
            .error("this is not inside a branch: FORKPOINT_SOCK is not set")
            .hint("run it in a branch: forkpoint exec BRANCH -- forkpoint attempt …")
    })?;
    let answer = client.call(&request(&args.verb))?;
    if app.json() {
        let mut document = answer;
        document["schema"] = json!("forkpoint.attempt/1");
        output::print_json(&document)?;
    } else if let Some(text) = shown(&args.verb, &answer) {
        output::print(&text)?;
    }
    Ok(exit::DONE)
}

fn request(verb: &Verb) -> Value {
    match verb {
        Verb::Info => json!({"op": "info"}),
        Verb::Score { score, metrics } => {
            let metrics: std::collections::BTreeMap<_, _> = metrics.iter().cloned().collect();
            json!({"op": "score", "score": score, "metrics": metrics})
        }
        Verb::Cost { cost } => json!({"op": "cost", "cost": cost}),
        Verb::Progress { text, fraction } => {
            json!({"op": "progress", "text": text, "fraction": fraction})
        }
        Verb::Step { text } => json!({"op": "step", "text": text}),
        Verb::Checkpoint { name } => json!({"op": "checkpoint", "name": name}),
    }
}

/// What a person is shown of the answer.
fn shown(verb: &Verb, answer: &Value) -> Option<String> {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match verb {
        Verb::Info => {
            let fields = answer.as_object()?.iter().filter(|(_, v)| !v.is_null());
            Some(fields.map(|(k, v)| format!("{k} {}\n", plain(v))).collect())
        }
        Verb::Step { .. } => Some(format!("{}\n", plain(&answer["step"]))),
        Verb::Checkpoint { .. } => {
            let named = Some(&answer["name"]).filter(|name| !name.is_null());
            Some(format!(
                "{}\n",
                plain(named.unwrap_or(&answer["checkpoint"]))
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read() {
        assert_eq!(metric("time=1.5"), Ok(("time".into(), 1.5)));
        assert!(metric("time").is_err() && metric("time=x").is_err());
    }

    #[test]
    fn a_person_is_shown_what_there_is_to_show() {
        let info = json!({"branch": "b1", "attempt": 3, "name": null});
        assert_eq!(
            shown(&Verb::Info, &info).as_deref(),
            Some("attempt 3\nbranch b1\n")
        );
        let checkpoint = Verb::Checkpoint { name: None };
        let answer = json!({"checkpoint": "c1", "name": null});
        assert_eq!(shown(&checkpoint, &answer).as_deref(), Some("c1\n"));
        assert_eq!(shown(&Verb::Cost { cost: 1.0 }, &json!({})), None);
    }
}
