//! The view as lines: no wider and no higher than the terminal. Pure, so that every size can be tested.

use forkpoint_explore::logs::printable;
use forkpoint_explore::units::human_bytes;
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthChar;

use super::state::{Phase, Row, State};
use crate::style::Style;

/// A piece of a line and how it is coloured, so that a cut never falls into a colour's code.
type Paint = fn(Style, &str) -> String;

/// A line that is being put together, up to a width.
struct Line {
    text: String,
    room: usize,
    style: Style,
}

impl Line {
    fn new(columns: usize, style: Style) -> Self {
        Self {
            text: String::new(),
            // The last column stays free: some terminals wrap as soon as it is written.
            room: columns.saturating_sub(1),
            style,
        }
    }

    /// Adds what fits of `text`, and blanks up to `width` columns.
    fn add(&mut self, text: &str, width: usize, paint: Option<Paint>) {
        let (cut, used) = fit(text, width.min(self.room));
        self.text.push_str(&match paint {
            Some(paint) if !cut.is_empty() => paint(self.style, &cut),
            _ => cut,
        });
        let blanks = width.min(self.room) - used;
        self.text.extend(std::iter::repeat_n(' ', blanks));
        self.room -= used + blanks;
    }

    fn rest(&mut self, text: &str, paint: Option<Paint>) {
        let (cut, used) = fit(text, self.room);
        self.text.push_str(&match paint {
            Some(paint) if !cut.is_empty() => paint(self.style, &cut),
            _ => cut,
        });
        self.room -= used;
    }

    fn end(self) -> String {
        self.text.trim_end().to_owned()
    }
}

/// What of `text` fits into `columns`, and how many it takes. What is cut ends in `…`.
pub(super) fn fit(text: &str, columns: usize) -> (String, usize) {
    let width = |c: char| c.width().unwrap_or(0);
    let whole: usize = text.chars().map(width).sum();
    if whole <= columns {
        return (text.to_owned(), whole);
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in text.chars() {
        if used + width(c) + 1 > columns {
            break;
        }
        used += width(c);
        out.push(c);
    }
    if columns > 0 {
        out.push('…');
        used += 1;
    }
    (out, used)
}

/// `0:07`, `12:34`, `1:02:03`: of one form, so that a column of it does not dance.
pub(super) fn clock(time: Duration) -> String {
    let s = time.as_secs();
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        h => format!("{h}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// The lines of the view for a terminal of `columns` and `rows`.
pub(super) fn lines(
    state: &State,
    now: Instant,
    columns: usize,
    rows: usize,
    style: Style,
) -> Vec<String> {
    let Some(begun) = state.begun else {
        return Vec::new();
    };
    let mut head = Line::new(columns, style);
    let time = clock(now.saturating_duration_since(begun));
    head.rest(&time, Some(Style::bold));
    head.rest(&format!("  {}", count(state)), None);
    head.rest(&format!("  {}", state.title), Some(Style::dim));
    let mut all = vec![head.end()];
    if !state.doing.is_empty() {
        let mut line = Line::new(columns, style);
        line.rest(&printable(&state.doing), Some(Style::dim));
        all.push(line.end());
    }
    // One row stays free for the cursor below the view.
    let room = rows.saturating_sub(all.len() + 1);
    let (shown, hidden) = choose(&state.rows, room);
    for index in shown {
        all.push(row(index, &state.rows[index], now, columns, style));
    }
    if !hidden.is_empty() && room > 0 {
        let mut line = Line::new(columns, style);
        line.rest(&format!("     … {}", summary(&hidden)), Some(Style::dim));
        all.push(line.end());
    }
    all.truncate(rows.saturating_sub(1));
    all
}

fn count(state: &State) -> String {
    let of = |phases: &[Phase]| {
        state
            .rows
            .iter()
            .filter(|r| phases.contains(&r.phase))
            .count()
    };
    let done = of(&[Phase::Passed, Phase::Out, Phase::Won, Phase::Committing]);
    let passed = of(&[Phase::Passed, Phase::Won, Phase::Committing]);
    format!("{done} of {} done, {passed} passed", state.rows.len())
}

/// Which rows are shown where not all fit, in their order, and the phases of the others.
fn choose(rows: &[Row], room: usize) -> (Vec<usize>, Vec<Phase>) {
    if rows.len() <= room {
        return ((0..rows.len()).collect(), Vec::new());
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    // Stable: among equals the first; the last that ended among those that are done.
    order.sort_by_key(|&i| std::cmp::Reverse((rows[i].phase.weight(), rows[i].score.is_some())));
    let mut shown: Vec<usize> = order[..room.saturating_sub(1).min(order.len())].to_vec();
    let hidden = order[shown.len()..]
        .iter()
        .map(|&i| rows[i].phase)
        .collect();
    shown.sort_unstable();
    (shown, hidden)
}

fn summary(phases: &[Phase]) -> String {
    let all = [
        Phase::Won,
        Phase::Committing,
        Phase::Running,
        Phase::Judging,
        Phase::Passed,
        Phase::Out,
        Phase::Waiting,
    ];
    let parts: Vec<String> = all
        .iter()
        .map(|p| (phases.iter().filter(|q| *q == p).count(), p.word()))
        .filter(|(n, _)| *n > 0)
        .map(|(n, word)| format!("{n} {word}"))
        .collect();
    format!("{} more: {}", phases.len(), parts.join(", "))
}

fn row(index: usize, row: &Row, now: Instant, columns: usize, style: Style) -> String {
    let mut line = Line::new(columns, style);
    let took = row
        .took
        .or(row.begun.map(|b| now.saturating_duration_since(b)));
    let paint: Option<Paint> = match row.phase {
        Phase::Waiting => Some(Style::dim),
        Phase::Out => Some(Style::red),
        Phase::Passed | Phase::Won => Some(Style::green),
        Phase::Running | Phase::Judging | Phase::Committing => None,
    };
    line.add(&format!("{index:>4}"), 5, Some(Style::dim));
    line.add(row.phase.word(), if columns < 40 { 9 } else { 11 }, paint);
    let time = took.map(clock).unwrap_or_default();
    line.add(&format!("{time:>7}"), 8, None);
    if columns >= 72 {
        let cpu = row
            .cpu
            .map(|c| format!("{:.1}s", c.as_secs_f64()))
            .unwrap_or_default();
        line.add(&format!("{cpu:>8}"), 9, Some(Style::dim));
        let memory = row.memory.map(human_bytes).unwrap_or_default();
        line.add(&format!("{memory:>8}"), 9, Some(Style::dim));
    }
    if columns >= 50 {
        let score = row.score.map(short).unwrap_or_default();
        line.add(&format!("{score:>9}"), 11, Some(Style::bold));
    }
    line.rest(&printable(&row.last), None);
    line.end()
}

/// A score in nine columns.
fn short(score: f64) -> String {
    let text = score.to_string();
    match text.len() {
        0..=9 => text,
        _ => format!("{score:.3e}"),
    }
}
