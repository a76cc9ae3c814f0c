//! Colour, where there is a terminal that wants it. Everything reads as well without.

use std::io::IsTerminal;

/// Whether to colour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style(bool);

impl Style {
    /// No colour.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self(false);

    /// That of standard error.
    pub(crate) fn of_stderr() -> Self {
        Self(std::io::stderr().is_terminal() && wanted())
    }

    /// That of standard output.
    pub(crate) fn of_stdout() -> Self {
        Self(std::io::stdout().is_terminal() && wanted())
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Errors, losses.
    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// What won.
    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// What matters less.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Headings.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
}

/// <https://no-color.org>: set to anything but the empty string means no.
fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}
