//! Puts lines onto a terminal in place of those put there before. Each frame is one write, and lines are
//! overwritten rather than cleared, so that nothing flickers.

use std::io::Write;
use unicode_width::UnicodeWidthChar;

use crate::style::Style;

/// What stands on the terminal, and what is to stand above it.
pub(super) struct Painter {
    pub(super) style: Style,
    /// The widths of the lines drawn last.
    drawn: Vec<usize>,
    last: Vec<String>,
    above: String,
    columns: usize,
    /// The terminal has gone.
    gone: bool,
    #[cfg(test)]
    pub(super) written: Vec<u8>,
}

impl Painter {
    pub(super) fn new(style: Style) -> Self {
        Self {
            style,
            drawn: Vec::new(),
            last: Vec::new(),
            above: String::new(),
            columns: 0,
            gone: false,
            #[cfg(test)]
            written: Vec::new(),
        }
    }

    /// Has `line` written above the view with the next frame.
    pub(super) fn above(&mut self, line: &str) {
        self.above.push_str(line);
        self.above.push('\n');
    }

    /// Draws `lines`, each shorter than `columns`.
    pub(super) fn draw(&mut self, lines: &[String], columns: usize) {
        if self.last == lines && self.columns == columns && self.above.is_empty() {
            return;
        }
        let mut out = String::from("\u{1b}[?2026h");
        out.push_str(&self.up(columns));
        for line in self.above.lines() {
            out.push_str(&format!("{line}\u{1b}[K\r\n"));
        }
        for line in lines {
            out.push_str(&format!("{line}\u{1b}[K\r\n"));
        }
        out.push_str("\u{1b}[J\u{1b}[?2026l");
        self.above.clear();
        self.drawn = lines.iter().map(|l| width(l)).collect();
        self.last = lines.to_vec();
        self.columns = columns;
        self.write(out.as_bytes());
    }

    /// Takes the view away, and leaves what was written above it.
    pub(super) fn clear(&mut self) {
        let mut out = self.up(self.columns);
        out.push_str("\u{1b}[J");
        for line in self.above.lines() {
            out.push_str(&format!("{line}\r\n"));
        }
        self.above.clear();
        self.drawn.clear();
        self.last.clear();
        self.write(out.as_bytes());
    }

    /// To the first line of the view. A terminal that has become narrower has broken its lines.
    fn up(&self, columns: usize) -> String {
        let broken = |w: &usize| match columns {
            0 => 1,
            columns => w.div_ceil(columns).max(1),
        };
        match self.drawn.iter().map(broken).sum::<usize>() {
            0 => "\r".into(),
            rows => format!("\r\u{1b}[{rows}A"),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        #[cfg(test)]
        self.written.extend_from_slice(bytes);
        #[cfg(not(test))]
        if !self.gone {
            let mut err = std::io::stderr().lock();
            // Nobody can be told that the terminal is gone; the exploration goes on without it.
            self.gone = err.write_all(bytes).and_then(|()| err.flush()).is_err();
        }
        #[cfg(test)]
        {
            self.gone = std::io::sink().write_all(bytes).is_err();
        }
    }
}

/// How many columns a line takes, without its colours.
fn width(line: &str) -> usize {
    let mut chars = line.chars();
    let mut width = 0;
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().take_while(|c| *c != 'm').count();
        } else {
            width += c.width().unwrap_or(0);
        }
    }
    width
}
