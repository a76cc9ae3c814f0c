//! One public error for every crate: a stable code, a small kind, one line of what and why, and one
//! line of what to do. Each crate lists its codes in a `codes` module; each code has a page in
//! `docs/errors/`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What class of failure this is; decides the exit status and, later, the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The caller asked for something that makes no sense. Exit status 2.
    Invalid,
    /// Conflict, drift or stale. Exit status 3.
    Conflict,
    /// A rollback or an apply left something to resolve. Exit status 4.
    Incomplete,
    /// This machine cannot do what was asked. Exit status 5.
    Unavailable,
    /// Stored data is damaged or of a version this program does not know. Exit status 125.
    Data,
    /// The input or output failed: disk full, permission, a broken device. Exit status 125.
    Io,
    /// What was asked of is closed, killed or fenced. Exit status 3.
    Closed,
    /// A fault of Forkpoint itself. Exit status 125.
    Internal,
}

/// A stable error code, such as `FP0201`. Ranges: 00xx usage, 01xx store, 02xx files, 03xx sandbox,
/// 04xx engine, 05xx explore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code {
    /// The code's text, `FP` and four digits.
    pub text: &'static str,
    /// The kind of every error with this code.
    pub kind: Kind,
    /// A short title, used by the error's page.
    pub title: &'static str,
}

impl Code {
    /// Declares a code.
    pub const fn new(text: &'static str, kind: Kind, title: &'static str) -> Self {
        Self { text, kind, title }
    }

    /// An error of this code: `message` says what and why in one line.
    pub fn error(self, message: impl Into<String>) -> Error {
        Error {
            code: self.text.into(),
            kind: self.kind,
            message: message.into(),
            hint: String::new(),
        }
    }

    /// An error of this code for a failed system call: the message, a colon, the cause.
    pub fn io(self, message: impl fmt::Display, cause: impl fmt::Display) -> Error {
        self.error(format!("{message}: {cause}"))
    }
}

/// The error every public function returns. It can be sent between processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The stable code.
    pub code: String,
    /// The kind.
    pub kind: Kind,
    /// One line: what failed and why.
    pub message: String,
    /// One line: what to do about it. Empty where nothing is known.
    pub hint: String,
}

impl Error {
    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Says in what circumstance it failed, before the message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

/// The result every public function returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
