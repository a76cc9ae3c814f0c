//! An exploration as one page of HTML: no script, nothing from elsewhere, readable on a phone, in the dark
//! and on paper. Every text in it that an attempt could have chosen is hostile: [`esc`] is the only way
//! onto the page, and the page forbids itself scripts besides.

mod charts;
mod diff;

use std::fmt::Write;
use std::time::Duration;

use crate::logs::printable;
use crate::report::{AttemptReport, Outcome, Report};
use crate::units::{human_bytes, human_time};

/// The most bytes of one log that are shown: its end.
pub const LOG_BYTES: usize = 64 << 10;
/// The most bytes of one patch that are shown.
pub const PATCH_BYTES: usize = 192 << 10;
/// The most attempts whose logs and changes are shown, the winner first.
pub const MOST_DETAILS: usize = 200;

/// What the page shows of an attempt beside its row of the report.
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// The end of its output.
    pub log: String,
    /// The end of its verifier's output.
    pub verifier: String,
    /// The patch of what it changed; unified, as git writes it.
    pub patch: String,
    /// The patch is longer than what is here.
    pub cut: bool,
    /// Why there is no patch although something was changed.
    pub missing: Option<String>,
}

/// `text` for the page: nothing in it can be markup, end an attribute, or turn the direction of writing.
pub fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}');
            }
            c => out.push(c),
        }
    }
    out
}

/// A log: terminals' colours dropped, then escaped.
fn esc_log(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|l| {
            esc(&printable(
                l.rsplit('\r').find(|p| !p.is_empty()).unwrap_or(""),
            ))
        })
        .collect();
    lines.join("\n")
}

fn seconds(s: f64) -> String {
    human_time(Duration::from_secs_f64(s.clamp(0.0, 1e9)))
}

/// What an attempt is called on the page.
fn label(a: &AttemptReport) -> String {
    match &a.name {
        Some(name) => format!("{} {}", a.index, esc(name)),
        None => {
            let params: Vec<String> = a.params.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let text = format!("{} {}", a.index, params.join(" "));
            esc(text.trim())
        }
    }
}

/// The page. `material` gives what else is known of an attempt; it is asked for those that are shown.
pub fn page(report: &Report, material: &mut dyn FnMut(&AttemptReport) -> Material) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n",
    );
    push(
        &mut out,
        format_args!(
            "<title>Exploration {}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
            report.exploration,
            include_str!("style.css")
        ),
    );
    head(&mut out, report);
    charts::all(&mut out, report);
    details(&mut out, report, material);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// Writes to a string, which cannot fail.
fn push(out: &mut String, args: std::fmt::Arguments<'_>) {
    out.write_fmt(args).unwrap_or(());
}

fn headline(report: &Report) -> (String, &'static str) {
    let winner = report.winner.and_then(|i| report.attempts.get(i as usize));
    let name = winner.map(label).unwrap_or_default();
    match report.outcome {
        Outcome::Committed => (format!("Attempt {name} is committed"), "good"),
        Outcome::Chosen => (format!("Attempt {name} is chosen, not committed"), "good"),
        Outcome::NonePassed => ("No attempt passed".into(), "bad"),
        Outcome::Refused => (
            "Nothing is committed: the base changed meanwhile".into(),
            "bad",
        ),
        Outcome::Timeout => ("The total time was over".into(), "bad"),
        Outcome::Interrupted => ("Interrupted".into(), "bad"),
        _ => ("Nothing is committed".into(), "bad"),
    }
}

fn head(out: &mut String, report: &Report) {
    let (text, class) = headline(report);
    push(
        out,
        format_args!(
            "<h1 class=\"{class}\">{text}</h1>\n<p class=\"soft\">{} in <code>{}</code></p>\n",
            esc(&report.strategy),
            esc(&report.base.lossy())
        ),
    );
    let passed = report.attempts.iter().filter(|a| a.passed).count();
    let lost = || {
        report
            .attempts
            .iter()
            .filter(|a| report.winner != Some(a.index))
    };
    let cpu: f64 = lost().map(|a| a.cpu_s).sum();
    let memory: f64 = lost().map(|a| a.peak_memory_bytes as f64 * a.wall_s).sum();
    out.push_str("<div class=\"tiles\">");
    let mut tile = |value: String, what: &str| {
        push(
            out,
            format_args!("<div class=\"tile\"><b>{value}</b><span>{what}</span></div>"),
        );
    };
    tile(
        format!("{passed} of {}", report.attempts.len()),
        "attempts passed",
    );
    tile(seconds(report.wall_s), "from beginning to end");
    tile(seconds(cpu), "processor time of the losers");
    tile(
        format!("{}\u{b7}s", human_bytes(memory.min(1e18) as u64)),
        "memory time of the losers, at most",
    );
    if let Some(score) = report
        .winner
        .and_then(|i| report.attempts.get(i as usize)?.score)
    {
        let base = report.baseline.as_ref().and_then(|b| b.score);
        let base = base.map(|b| format!(", the base {b}")).unwrap_or_default();
        tile(score.to_string(), &format!("the winner's score{base}"));
    }
    out.push_str("</div>\n");
    for note in report.notes.iter().take(20) {
        push(
            out,
            format_args!("<p class=\"soft\">Note: {}</p>\n", esc(&printable(note))),
        );
    }
}

fn details(
    out: &mut String,
    report: &Report,
    material: &mut dyn FnMut(&AttemptReport) -> Material,
) {
    out.push_str("<h2>Attempts</h2>\n");
    let mut order: Vec<&AttemptReport> = report.attempts.iter().collect();
    order.sort_by_key(|a| report.winner != Some(a.index));
    for a in order.iter().take(MOST_DETAILS) {
        attempt(out, a, report.winner == Some(a.index), &material(a));
    }
    if order.len() > MOST_DETAILS {
        push(
            out,
            format_args!(
                "<p class=\"soft\">{} more attempts are not shown here.</p>\n",
                order.len() - MOST_DETAILS
            ),
        );
    }
}

fn attempt(out: &mut String, a: &AttemptReport, won: bool, material: &Material) {
    let class = match (won, a.passed) {
        (true, _) => "good",
        (false, true) => "soft",
        (false, false) => "bad",
    };
    let open = if won { " open" } else { "" };
    let reason = a.reason.as_str().replace('_', " ");
    let score = a
        .score
        .map(|s| format!("<span>score {s}</span>"))
        .unwrap_or_default();
    push(
        out,
        format_args!(
            "<details{open}><summary><b>{}</b><span class=\"{class}\">{reason}</span>{score}<span class=\"soft\">{}</span>\
         <span class=\"soft\">{} paths, {}</span></summary>\n<div class=\"body\">\n<dl>",
            label(a),
            seconds(a.wall_s),
            a.changed.files,
            human_bytes(a.changed.bytes)
        ),
    );
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            push(
                out,
                format_args!("<dt>{name}</dt><dd>{}</dd>", esc(&printable(value))),
            );
        }
    };
    line(
        "command",
        &a.command.lines().take(20).collect::<Vec<_>>().join("; "),
    );
    let params: Vec<String> = a.params.iter().map(|(k, v)| format!("{k}={v}")).collect();
    line("parameters", &params.join(", "));
    line(
        "exit status",
        &a.exit_code.map(|c| c.to_string()).unwrap_or_default(),
    );
    line("why", a.detail.as_deref().unwrap_or_default());
    line("processor time", &seconds(a.cpu_s));
    line("peak memory", &human_bytes(a.peak_memory_bytes));
    let metrics: Vec<String> = a
        .metrics
        .iter()
        .take(50)
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    line("metrics", &metrics.join(", "));
    line("not captured", &a.uncaptured.join("; "));
    out.push_str("</dl>\n");
    log(out, "Output", &material.log);
    log(out, "Verifier", &material.verifier);
    if !material.patch.is_empty() {
        let open = if won { " open" } else { "" };
        push(
            out,
            format_args!(
                "<details{open}><summary>Changes: before and after</summary><div class=\"body\">\n"
            ),
        );
        diff::table(out, &material.patch);
        if material.cut {
            out.push_str("<p class=\"soft\">The rest is not shown here: forkpoint diff --patch prints all of it.</p>\n");
        }
        out.push_str("</div></details>\n");
    }
    if let Some(why) = &material.missing {
        push(
            out,
            format_args!(
                "<p class=\"soft\">What it changed is not shown: {}</p>\n",
                esc(&printable(why))
            ),
        );
    }
    out.push_str("</div></details>\n");
}

fn log(out: &mut String, name: &str, text: &str) {
    if !text.trim().is_empty() {
        push(
            out,
            format_args!(
                "<details><summary>{name}</summary><div class=\"body\"><pre>{}</pre></div></details>\n",
                esc_log(text)
            ),
        );
    }
}

#[cfg(test)]
mod tests;
