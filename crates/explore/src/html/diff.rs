//! A unified patch side by side: what was on the left, what is on the right. On a narrow screen the two
//! sides stand below each other.

use super::{esc, push};

/// Writes the tables of a patch, one for each file.
pub(super) fn table(out: &mut String, patch: &str) {
    let mut writer = Writer {
        out,
        open: false,
        removed: Vec::new(),
        added: Vec::new(),
    };
    let mut in_hunk = false;
    for line in patch.lines() {
        if let Some(name) = line.strip_prefix("diff --git ") {
            in_hunk = false;
            writer.file(name);
        } else if line.starts_with("@@") {
            in_hunk = true;
            writer.hunk(line);
        } else if !in_hunk {
            // Headers of git: only what a person wants to know of them.
            let told = [
                "new file",
                "deleted file",
                "old mode",
                "new mode",
                "GIT binary",
                "Binary files",
            ];
            if told.iter().any(|t| line.starts_with(t)) {
                writer.note(line);
            }
        } else {
            match line.as_bytes().first() {
                Some(b'-') => writer.removed.push(&line[1..]),
                Some(b'+') => writer.added.push(&line[1..]),
                Some(b'\\') => {}
                _ => writer.same(line.get(1..).unwrap_or_default()),
            }
        }
    }
    writer.close();
}

struct Writer<'o, 'p> {
    out: &'o mut String,
    open: bool,
    removed: Vec<&'p str>,
    added: Vec<&'p str>,
}

impl Writer<'_, '_> {
    /// Writes the run of changed lines that has ended.
    fn flush(&mut self) {
        for i in 0..self.removed.len().max(self.added.len()) {
            let cell = |text: Option<&&str>, class: &str| match text {
                Some(text) => format!("<td class=\"{class}\">{}</td>", esc(text)),
                None => "<td class=\"e\"></td>".into(),
            };
            let (old, new) = (cell(self.removed.get(i), "d"), cell(self.added.get(i), "a"));
            push(self.out, format_args!("<tr>{old}{new}</tr>\n"));
        }
        self.removed.clear();
        self.added.clear();
    }

    fn close(&mut self) {
        self.flush();
        if std::mem::take(&mut self.open) {
            self.out.push_str("</table>\n");
        }
    }

    fn file(&mut self, name: &str) {
        self.close();
        // `a/x b/x`: one of the two says it, where they are the same.
        let half = name.len() / 2;
        let short = match (name.get(..half), name.get(half + 1..)) {
            (Some(a), Some(b)) if a.get(2..) == b.get(2..) => a.get(2..).unwrap_or(name),
            _ => name,
        };
        push(
            self.out,
            format_args!("<p class=\"file mono\">{}</p>\n", esc(short)),
        );
    }

    fn note(&mut self, text: &str) {
        push(
            self.out,
            format_args!("<p class=\"soft\">{}</p>\n", esc(text)),
        );
    }

    fn rows(&mut self) {
        self.flush();
        if !std::mem::replace(&mut self.open, true) {
            self.out.push_str("<table class=\"diff\">\n");
        }
    }

    fn hunk(&mut self, line: &str) {
        self.rows();
        push(
            self.out,
            format_args!(
                "<tr><td class=\"h\" colspan=\"2\">{}</td></tr>\n",
                esc(line)
            ),
        );
    }

    fn same(&mut self, line: &str) {
        self.flush();
        let text = esc(line);
        push(
            self.out,
            format_args!("<tr><td>{text}</td><td class=\"same2\">{text}</td></tr>\n"),
        );
    }
}
