//! This crate's error codes: FP05xx. Each has a page in `docs/errors/`.

use forkpoint_model::{Code, Kind};

/// The specification contradicts itself or asks for nothing.
pub const SPEC: Code = Code::new(
    "FP0501",
    Kind::Invalid,
    "the exploration's specification makes no sense",
);
/// No exploration or attempt has this name.
pub const UNKNOWN: Code = Code::new("FP0502", Kind::Invalid, "no such exploration or attempt");
/// A log or a score file could not be read or written.
pub const LOG: Code = Code::new("FP0503", Kind::Io, "a log cannot be written");
/// The score command gave no number that can be ranked.
pub const SCORE: Code = Code::new("FP0504", Kind::Invalid, "no usable score");
/// A fault of Forkpoint itself.
pub const INTERNAL: Code = Code::new("FP0599", Kind::Internal, "internal error of an exploration");

/// Every code of this crate.
pub const ALL: &[Code] = &[SPEC, UNKNOWN, LOG, SCORE, INTERNAL];
