//! `forkpoint fork`.

use forkpoint_engine::{Engine, ForkOptions, Layer, Network};
use forkpoint_explore::spec::NetworkSpec;
use forkpoint_model::{Error, Kind, Result};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::app::{App, Masks};
use crate::{codes, exit, output};

/// Make branches of a directory, a branch or a checkpoint
///
/// Nothing is copied: a fork costs the same for any size. The branches of one command are siblings:
/// when one is committed the others are rolled back. Branches of separate commands are independent.
///
/// SOURCE is a directory when it begins with / or . ; otherwise a branch, an attempt (last/2) or a
/// checkpoint of that name is looked for first.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// A directory, branch or checkpoint
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// A name; with -n they are NAME-1, NAME-2…
    #[arg(long)]
    name: Option<String>,
    /// How many
    #[arg(short = 'n', value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// effect, or reasoning for a branch that is to have no effect path at all
    #[arg(long, value_name = "LAYER", default_value = "effect", value_parser = layer)]
    layer: Layer,
    /// loopback, or host: nothing captures what is sent to the host's network. Default: loopback, or
    /// what the configuration says
    #[arg(long, value_name = "NETWORK", value_parser = crate::flags::network)]
    network: Option<NetworkSpec>,
    /// Show this device of the host, such as /dev/kvm, to every command. Nothing captures what is done
    /// with it (may be repeated)
    #[arg(long = "device", value_name = "PATH")]
    devices: Vec<PathBuf>,
    /// A variable of the caller that commands in it are given although it is a secret: at each exec and
    /// shell as it is set then. Only the name is kept (may be repeated)
    #[arg(long = "secret", value_name = "NAME", value_parser = secret)]
    secrets: Vec<String>,
    /// Fork from a copy of the directory
    #[arg(long)]
    snapshot: bool,
}

fn secret(text: &str) -> std::result::Result<String, String> {
    match text.is_empty() || text.contains(['=', '\0']) {
        true => Err("the name of a variable, without its value".into()),
        false => Ok(text.to_owned()),
    }
}

fn layer(text: &str) -> std::result::Result<Layer, String> {
    match text {
        "effect" => Ok(Layer::Effect),
        "reasoning" => Ok(Layer::Reasoning),
        _ => Err("effect or reasoning".into()),
    }
}

/// Forks.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    if let Some(name) = &args.name {
        check_name(name)?;
    }
    let engine = app.engine(&Masks::default())?;
    let network = args.network.or(app.config()?.network).unwrap_or_default();
    let options = ForkOptions {
        name: args.name.clone(),
        count: args.count,
        durable: true,
        layer: args.layer,
        network: match network {
            NetworkSpec::Loopback => Network::Loopback,
            NetworkSpec::Host => Network::Host,
        },
        devices: args.devices.iter().map(|p| app.cwd.join(p)).collect(),
        secrets: args.secrets.clone(),
        ..ForkOptions::default()
    };
    let forked = fork(app, &engine, args, &options)?;
    let mut rows = Vec::new();
    let mut first_error: Option<Error> = None;
    let mut text = String::new();
    for result in forked {
        match result {
            Ok(branch) => {
                let label = branch.label()?;
                text.push_str(&format!("{label}\n"));
                rows.push(json!({"branch": branch.id(), "name": branch.record()?.name}));
            }
            Err(error) => {
                output::say(&output::error_lines(
                    &error,
                    crate::style::Style::of_stderr(),
                ));
                rows.push(json!({"error": error}));
                first_error.get_or_insert(error);
            }
        }
    }
    if app.json() {
        output::print_json(&json!({"schema": "forkpoint.fork/1", "branches": rows}))?;
    } else {
        output::print(&text)?;
        if network == NetworkSpec::Host {
            app.say("note: what they send to the host's network is not captured and cannot be rolled back");
        }
        if !args.devices.is_empty() {
            app.say("note: what they do with a device is not captured and cannot be rolled back");
        }
    }
    Ok(first_error.map_or(exit::DONE, |e| exit::of_error(e.kind)))
}

type Forked = Vec<Result<forkpoint_engine::Branch>>;

fn fork(app: &App, engine: &Engine, args: &Args, options: &ForkOptions) -> Result<Forked> {
    let dir = app.cwd.join(&args.source);
    // A branch's name is text; what is not can only be a directory.
    let name = args.source.to_str();
    let is_path = name.is_none_or(|name| name.starts_with(['/', '.']));
    let source = name.unwrap_or_default();
    if is_path {
        return fork_dir(app, engine, args, &dir, options);
    }
    let branch = match app.branch(engine, source) {
        Ok(branch) => Some(branch),
        Err(error) if error.kind == Kind::Invalid && dir.is_dir() => None,
        Err(error) => match engine.checkpoint(source) {
            Ok(checkpoint) => return checkpoint.fork(options),
            Err(_) => return Err(error),
        },
    };
    match branch {
        Some(_) if dir.is_dir() => Err(codes::AMBIGUOUS
            .error(format!("'{source}' is a branch and a directory"))
            .hint(format!("write ./{source} for the directory"))),
        Some(branch) => branch.fork(options),
        None => fork_dir(app, engine, args, &dir, options),
    }
}

fn fork_dir(
    app: &App,
    engine: &Engine,
    args: &Args,
    dir: &Path,
    options: &ForkOptions,
) -> Result<Forked> {
    let world = app.world(engine, Some(dir), args.snapshot)?;
    for note in world.notes() {
        app.say(&format!("note: {note}"));
    }
    world.fork(options)
}

/// A name that can be typed and that nothing else can mean.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty()
        || name.len() > 100
        || !name.chars().all(fits)
        || name.starts_with(['-', '.'])
    {
        return Err(codes::USAGE
            .error(format!("'{name}' cannot be a branch's name"))
            .hint("use letters, digits, '.', '_' and '-', not beginning with '-' or '.'"));
    }
    if name == "last" || name.parse::<forkpoint_model::BranchId>().is_ok() {
        return Err(codes::USAGE.error(format!("'{name}' means something else already")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_else_are_refused() {
        for good in ["fix", "fix-1", "a.b_c"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let id = forkpoint_model::BranchId::from_bits(5).to_string();
        for bad in ["", "-x", ".x", "a/b", "last", "a b", "ä", id.as_str()] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
