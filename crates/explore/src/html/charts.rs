//! The pictures: bars as inline SVG between words. The words are HTML, so that they keep their size on a
//! phone while the bars take what width there is.

use super::{label, push, seconds};
use crate::report::{AttemptReport, Report};
use crate::units::human_bytes;

/// The most rows of a picture.
const MOST_ROWS: usize = 300;

/// A bar from one place to another, in thousandths of the width.
fn bar(from: f64, to: f64, class: &str) -> String {
    let from = (from.clamp(0.0, 1.0) * 1000.0).floor();
    // Even what took no time can be seen.
    let width = ((to.clamp(0.0, 1.0) * 1000.0) - from).max(2.0);
    format!("<rect class=\"{class}\" x=\"{from:.0}\" y=\"0\" width=\"{width:.0}\" height=\"16\"/>")
}

fn row(out: &mut String, label: &str, bars: &str, value: &str) {
    push(
        out,
        format_args!(
            "<div class=\"row\"><span title=\"{label}\">{label}</span><svg viewBox=\"0 0 1000 16\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\">{bars}</svg><span>{value}</span></div>\n"
        ),
    );
}

/// Every picture that there is something to show in.
pub(super) fn all(out: &mut String, report: &Report) {
    timeline(out, report);
    let class = |a: &AttemptReport| {
        if report.winner == Some(a.index) {
            "win"
        } else {
            "lose"
        }
    };
    scores(out, report, &class);
    let most = report
        .attempts
        .iter()
        .map(|a| a.changed.bytes)
        .max()
        .unwrap_or(0);
    if most > 0 {
        out.push_str("<h2>Sizes of the changes</h2>\n<div class=\"card\">\n");
        for a in report.attempts.iter().take(MOST_ROWS) {
            let bars = match a.changed.bytes {
                0 => String::new(),
                n => bar(0.0, n as f64 / most as f64, class(a)),
            };
            row(out, &label(a), &bars, &human_bytes(a.changed.bytes));
        }
        out.push_str("</div>\n");
    }
    costs(out, report, &class);
}

fn timeline(out: &mut String, report: &Report) {
    let end = report
        .timeline
        .iter()
        .map(|s| s.to_s)
        .fold(report.wall_s, f64::max);
    if report.timeline.is_empty() || end <= 0.0 {
        return;
    }
    out.push_str("<h2>Timeline</h2>\n<div class=\"card\">\n");
    let bars = |attempt: Option<u32>| -> (String, f64) {
        let spans = report.timeline.iter().filter(|s| s.attempt == attempt);
        spans.fold((String::new(), 0.0), |(mut text, sum), s| {
            let class = match s.phase.as_str() {
                "prepare" | "verify" | "score" | "commit" | "baseline" => s.phase.as_str(),
                _ => "run",
            };
            text.push_str(&bar(s.from_s / end, s.to_s / end, class));
            (text, sum + (s.to_s - s.from_s).max(0.0))
        })
    };
    let (common, time) = bars(None);
    if !common.is_empty() {
        row(out, "before", &common, &seconds(time));
    }
    for a in report.attempts.iter().take(MOST_ROWS) {
        let (text, time) = bars(Some(a.index));
        row(
            out,
            &label(a),
            &text,
            &if text.is_empty() {
                "not run".into()
            } else {
                seconds(time)
            },
        );
    }
    push(
        out,
        format_args!(
            "<div class=\"row axis\"><span></span><i><span>0</span><span>{}</span><span>{}</span></i><span></span></div>\n<ul class=\"key\">",
            seconds(end / 2.0),
            seconds(end)
        ),
    );
    for (class, word) in [
        ("prepare", "prepare"),
        ("baseline", "look at the base"),
        ("run", "run"),
        ("verify", "verify"),
        ("score", "score"),
        ("commit", "commit"),
    ] {
        if report.timeline.iter().any(|s| s.phase == class) {
            push(
                out,
                format_args!(
                    "<li><svg viewBox=\"0 0 1 1\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"1\" height=\"1\"/></svg>{word}</li>"
                ),
            );
        }
    }
    out.push_str("</ul>\n</div>\n");
}

fn scores(out: &mut String, report: &Report, class: &dyn Fn(&AttemptReport) -> &'static str) {
    let base = report
        .baseline
        .as_ref()
        .and_then(|b| b.score)
        .filter(|s| s.is_finite());
    let known = report
        .attempts
        .iter()
        .filter_map(|a| a.score)
        .filter(|s| s.is_finite());
    let all: Vec<f64> = known.chain(base).collect();
    if !report.attempts.iter().any(|a| a.score.is_some()) || all.is_empty() {
        return;
    }
    // Bars begin at zero: a bar that does not lies about how much better one is.
    let low = all.iter().copied().fold(0.0, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    let span = if high > low { high - low } else { 1.0 };
    let at = |score: f64| (score - low) / span;
    out.push_str("<h2>Scores</h2>\n<div class=\"card\">\n");
    let mark = base
        .map(|b| bar(at(b) - 0.002, at(b) + 0.002, "mark"))
        .unwrap_or_default();
    for a in report.attempts.iter().take(MOST_ROWS) {
        let (bars, value) = match a.score {
            Some(s) => (bar(at(s.min(0.0)), at(s.max(0.0)), class(a)), s.to_string()),
            None => (String::new(), "none".into()),
        };
        row(out, &label(a), &format!("{bars}{mark}"), &value);
    }
    if let Some(base) = base {
        push(
            out,
            format_args!(
                "<ul class=\"key\"><li><svg viewBox=\"0 0 1 1\" aria-hidden=\"true\"><rect class=\"mark\" width=\"1\" height=\"1\"/></svg>the base scores {base}</li></ul>\n"
            ),
        );
    }
    out.push_str("</div>\n");
}

fn costs(out: &mut String, report: &Report, class: &dyn Fn(&AttemptReport) -> &'static str) {
    let most = report.attempts.iter().map(|a| a.cpu_s).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    out.push_str("<h2>Processor time and peak memory</h2>\n<div class=\"card\">\n");
    for a in report.attempts.iter().take(MOST_ROWS) {
        let value = format!("{}, {}", seconds(a.cpu_s), human_bytes(a.peak_memory_bytes));
        row(out, &label(a), &bar(0.0, a.cpu_s / most, class(a)), &value);
    }
    out.push_str("</div>\n");
}
