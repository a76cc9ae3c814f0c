//! `forkpoint explain`.

use forkpoint_engine::CommitOptions;
use forkpoint_explore::explain::{Machine, explain};
use forkpoint_explore::logs::printable;
use forkpoint_explore::text::OsText;
use forkpoint_explore::{spec_file, units};
use forkpoint_model::Result;
use std::path::Path;

use crate::app::{App, Masks};
use crate::flags::SpecFlags;
use crate::{codes, exit, outlook, output};

/// Say what an exploration would do, or how it stands with a branch, without doing anything
///
/// Takes what `explore` takes: a file, flags, or both. Says which attempts would be made with which
/// parameters and limits, which effects nothing would capture, what is masked, which laws hold, and what
/// it could cost at most.
///
/// With the name of a branch or an attempt in place of the file: what it is, which effects nothing
/// captured, what a commit would write and leave out (by --exclude, --allow-host-exec and the like), what
/// stands in its way, and what can be done next.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: SpecFlags,
    /// Print the JSON Schema of a specification file instead
    #[arg(long)]
    schema: bool,
}

/// Explains.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    if args.schema {
        output::print_json(&spec_file::schema())?;
        return Ok(exit::DONE);
    }
    if let Some(name) = &args.flags.spec
        && !app.cwd.join(name).is_file()
        && !name.as_os_str().as_encoded_bytes().ends_with(b".toml")
    {
        let name = name.to_string_lossy().into_owned();
        return outlook(app, &name, &args.flags);
    }
    let spec = args.flags.read(app)?;
    let told = explain(&spec, machine(app, &spec)?)?;
    if app.json() {
        output::print_json(&told)?;
    } else {
        let lines = told.lines();
        let text: String = lines.iter().map(|l| printable(l) + "\n").collect();
        output::print(&text)?;
    }
    Ok(exit::DONE)
}

/// What this machine would mask and drop. Only what is there is named.
fn machine(app: &App, spec: &forkpoint_explore::ExploreSpec) -> Result<Machine> {
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/nonexistent".into());
    let store = app.store()?;
    let mut masked: Vec<OsText> = forkpoint_engine::default_masks(Path::new(&home), &store)
        .into_iter()
        .filter(|path| path.symlink_metadata().is_ok())
        .map(OsText::from)
        .collect();
    masked.extend(spec.hide.iter().cloned());
    let store = OsText::from(store);
    masked.retain(|m| *m == store || !spec.expose.contains(m));
    let mut dropped: Vec<String> = std::env::vars_os()
        .filter(|(name, _)| forkpoint_engine::is_secret_env(name))
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| !spec.secrets.contains(name) && spec.env.iter().all(|v| v.name != *name))
        .collect();
    dropped.sort();
    Ok(Machine {
        masked,
        dropped_env: dropped,
        processors: units::processors(),
    })
}

/// Tells how it stands with a branch.
fn outlook(app: &App, name: &str, flags: &SpecFlags) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let branch = app.branch(&engine, name).map_err(|e| {
        let hint = "give a specification file, or a branch: `forkpoint list` shows them";
        codes::NOTHING
            .error(format!(
                "there is no file {}, and {}",
                printable(name),
                e.message
            ))
            .hint(hint)
    })?;
    let told = branch.outlook(&CommitOptions {
        exclude: flags.exclude.clone(),
        include_prepared: !flags.exclude_prepared,
        allow_host_exec: flags.allow_host_exec,
        allow_empty: flags.allow_empty,
        strict: flags.strict,
        ..CommitOptions::default()
    })?;
    match app.json() {
        true => output::print_json(&outlook::json(&engine, &told)?)?,
        false => output::print(&outlook::text(&engine, &told)?)?,
    }
    Ok(exit::DONE)
}
