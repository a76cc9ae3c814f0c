//! The command's own error codes: FP00xx. Each has a page in `docs/errors/`.

use forkpoint_model::{Code, Kind};

/// A flag or an argument that the command does not know, or that contradicts another.
pub(crate) const USAGE: Code = Code::new("FP0001", Kind::Invalid, "wrong usage");
/// There is no place for the store.
pub(crate) const NO_HOME: Code = Code::new("FP0002", Kind::Invalid, "no place for the store");
/// Standard output, or a file to be shown, failed.
pub(crate) const OUTPUT: Code = Code::new("FP0003", Kind::Io, "the output cannot be written");
/// A name fits several things.
pub(crate) const AMBIGUOUS: Code = Code::new("FP0004", Kind::Invalid, "an ambiguous name");
/// There is nothing to show under that name.
pub(crate) const NOTHING: Code = Code::new("FP0005", Kind::Invalid, "nothing to show");
/// Signals cannot be watched.
pub(crate) const SIGNALS: Code = Code::new("FP0006", Kind::Internal, "signals cannot be watched");
/// A supervisor of its own session cannot be started.
pub(crate) const DETACH: Code = Code::new("FP0007", Kind::Io, "a supervisor cannot be started");
/// The command panicked or wrote nonsense: a fault of Forkpoint.
pub(crate) const INTERNAL: Code =
    Code::new("FP0009", Kind::Internal, "internal error of the command");

/// Every code of this crate.
#[cfg(test)]
pub(crate) const ALL: &[Code] = &[
    USAGE, NO_HOME, OUTPUT, AMBIGUOUS, NOTHING, SIGNALS, DETACH, INTERNAL,
];
