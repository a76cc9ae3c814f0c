//! How it stands with a branch, in words and in JSON.

use forkpoint_engine::{Engine, Outlook, Preview};
use forkpoint_explore::logs::printable;
use forkpoint_model::Result;
use serde_json::{Value, json};
use std::path::PathBuf;

use crate::records;

/// So many paths of a list are shown to a person.
const SHOWN: usize = 5;

/// The lines for a person.
pub(crate) fn text(engine: &Engine, told: &Outlook) -> Result<String> {
    let record = &told.record;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("{name:<12} {}\n", printable(&value)));
    };
    let name = record
        .name
        .clone()
        .unwrap_or_else(|| records::attempt_name(record));
    line(
        "branch",
        format!("{} {name}", record.id).trim_end().to_owned(),
    );
    line("state", records::state_now(engine, record)?);
    line("from", records::source_words(&record.parent));
    line("commits into", told.into.clone());
    if let Some(reason) = &record.reason {
        line("reason", reason.clone());
    }
    for way in told.effect_paths.iter().filter(|way| way.captured) {
        line("effects by", format!("{}: {}", way.path, way.why));
    }
    if told.effect_paths.is_empty() {
        line(
            "effects by",
            "nothing: all it can do is say something".into(),
        );
    }
    for way in &told.opened {
        line(
            "uncaptured",
            format!("{way}: it ends abandoned, not rolled back"),
        );
    }
    for way in told
        .would_open
        .iter()
        .filter(|way| !told.opened.contains(way))
    {
        line(
            "would open",
            format!("{way}, at the next command: nothing captures it"),
        );
    }
    if let Some(preview) = &told.preview {
        let changed = &preview.changed;
        line(
            "would write",
            records::changed(changed.items, changed.bytes),
        );
        lists(preview, &mut line);
    }
    for obstacle in &told.obstacles {
        line("in the way", obstacle.why.clone());
        if !obstacle.mend.is_empty() {
            line("", format!("mend: {}", obstacle.mend));
        }
    }
    for (index, (command, what)) in told.next.iter().enumerate() {
        let head = if index == 0 { "next" } else { "" };
        line(head, format!("{command}  # {what}"));
    }
    Ok(text)
}

fn lists(preview: &Preview, line: &mut impl FnMut(&str, String)) {
    let mut list = |name: &str, paths: &[PathBuf], total: usize| {
        for path in paths.iter().take(SHOWN) {
            line(name, records::shown_path(path));
        }
        if total > paths.len().min(SHOWN) {
            line(name, format!("and {} more", total - paths.len().min(SHOWN)));
        }
    };
    let total = usize::try_from(preview.changed.items).unwrap_or(usize::MAX);
    list("", &preview.paths, total);
    list("excluded", &preview.excluded, preview.excluded.len());
    list("withheld", &preview.withheld, preview.withheld.len());
    list("drifted", &preview.drift, preview.drift.len());
    for conflict in preview.conflicts.iter().take(SHOWN) {
        line("conflict", format!("{}: {}", conflict.item, conflict.why));
    }
    if let Some(why) = &preview.drift_unknown {
        line("drift", format!("unknown: {why}"));
    }
}

/// The same as a document (docs/json.md).
pub(crate) fn json(engine: &Engine, told: &Outlook) -> Result<Value> {
    let paths = |all: &[PathBuf]| {
        all.iter()
            .map(|p| records::path_json(p))
            .collect::<Vec<_>>()
    };
    let preview = told.preview.as_ref().map(|preview| {
        json!({
            "changed": {"files": preview.changed.items, "bytes": preview.changed.bytes},
            "paths": paths(&preview.paths),
            "excluded": paths(&preview.excluded),
            "withheld": paths(&preview.withheld),
            "conflicts": preview.conflicts,
            "drift": paths(&preview.drift),
            "drift_unknown": preview.drift_unknown,
        })
    });
    let obstacle = |o: &forkpoint_engine::Obstacle| json!({"why": o.why, "mend": o.mend});
    let next = |(command, what): &(String, String)| json!({"command": command, "what": what});
    Ok(json!({
        "schema": "forkpoint.outlook/1",
        "branch": records::branch_json(engine, &told.record)?,
        "into": told.into,
        "effect_paths": told.effect_paths.iter().map(|way| json!({
            "path": way.path, "why": way.why, "captured": way.captured,
        })).collect::<Vec<_>>(),
        "opened": told.opened,
        "would_open": told.would_open,
        "commit": preview,
        "obstacles": told.obstacles.iter().map(obstacle).collect::<Vec<_>>(),
        "next": told.next.iter().map(next).collect::<Vec<_>>(),
    }))
}
