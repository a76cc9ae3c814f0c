//! Plain tables: columns two spaces apart, as wide as their widest cell, no trailing blanks.

use crate::style::Style;

/// A table.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// With these headings; one that begins with `>` is of a column of numbers, set to the right.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|h| h.starts_with('>')).collect();
        let first = headings
            .iter()
            .map(|h| h.trim_start_matches('>').to_owned())
            .collect();
        Self {
            rows: vec![first],
            right,
        }
    }

    /// Adds a row. What comes from outside is made fit to be shown.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(
            cells
                .iter()
                .map(|c| forkpoint_explore::logs::printable(c))
                .collect(),
        );
    }

    /// How many rows it has.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The text, each line ended.
    pub(crate) fn render(&self, style: Style) -> String {
        let columns = self.right.len();
        let width = |c: usize| {
            self.rows
                .iter()
                .filter_map(|r| r.get(c))
                .map(|s| s.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (i, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c].saturating_sub(cell.chars().count()));
                if c > 0 {
                    line.push_str("  ");
                }
                if self.right[c] {
                    line.push_str(&pad);
                }
                line.push_str(cell);
                if !self.right[c] {
                    line.push_str(&pad);
                }
            }
            let line = line.trim_end();
            text.push_str(&if i == 0 {
                style.dim(line)
            } else {
                line.to_owned()
            });
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">SIZE", "WHY"]);
        table.row(vec!["a".into(), "10".into(), String::new()]);
        table.row(vec!["longer".into(), "7".into(), "b\u{7}".into()]);
        let text = table.render(Style::PLAIN);
        assert_eq!(
            text,
            "NAME    SIZE  WHY\na         10\nlonger     7  b\u{fffd}\n"
        );
    }
}
