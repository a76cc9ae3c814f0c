//! `forkpoint gc`.

use forkpoint_engine::GcOptions;
use forkpoint_explore::units::{Size, Time, human_bytes};
use forkpoint_model::Result;
use serde_json::json;

use crate::app::{App, Masks};
use crate::{exit, output};

/// Free what is kept of branches that have ended, and layers nothing needs
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only say what would be freed
    #[arg(long)]
    dry_run: bool,
    /// Free what was kept longer than this. Default: what the configuration says, else 7d
    #[arg(long, value_name = "T", conflicts_with = "all")]
    max_age: Option<Time>,
    /// Free the oldest until the rest fits. Default: what the configuration says, else 5G
    #[arg(long, value_name = "SIZE", conflicts_with = "all")]
    max_size: Option<Size>,
    /// Free everything that is kept of ended branches
    #[arg(long)]
    all: bool,
}

/// Collects.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let config = app.config()?;
    let (age, size) = (args.max_age.or(config.age), args.max_size.or(config.size));
    let report = engine.gc(&GcOptions {
        dry_run: args.dry_run,
        max_age_s: if args.all {
            Some(0)
        } else {
            age.map(|t| t.0.as_secs())
        },
        max_bytes: if args.all { Some(0) } else { size.map(|s| s.0) },
        at_most: None,
    })?;
    if app.json() {
        let mut document = serde_json::to_value(&report)
            .map_err(|e| crate::codes::INTERNAL.io("cannot write JSON", e))?;
        document["schema"] = json!("forkpoint.gc/1");
        document["dry_run"] = json!(args.dry_run);
        output::print_json(&document)?;
        return Ok(exit::DONE);
    }
    for item in &report.items {
        app.say(item);
    }
    let verb = if args.dry_run { "would free" } else { "freed" };
    let mut text = format!(
        "{verb} {}: {} branches, {} layers\n",
        human_bytes(report.bytes),
        report.branches,
        report.layers
    );
    for (kind, freed) in &report.kinds {
        let bytes = human_bytes(freed.bytes);
        text += &format!("  {kind:<9} {:>6}  {bytes}\n", freed.count);
    }
    output::print(&text)?;
    Ok(exit::DONE)
}
