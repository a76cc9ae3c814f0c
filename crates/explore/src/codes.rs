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
/// A specification file cannot be read, or something in it is wrong.
pub const SPEC_FILE: Code = Code::new("FP0510", Kind::Invalid, "a specification file is wrong");
/// The configuration file cannot be read, or something in it is wrong.
pub const CONFIG_FILE: Code = Code::new("FP0511", Kind::Invalid, "the configuration file is wrong");
/// Its supervisor died before it could say what came of it.
pub const NO_RESULT: Code = Code::new("FP0505", Kind::Internal, "an exploration without a result");
/// A fault of Forkpoint itself.
pub const INTERNAL: Code = Code::new("FP0599", Kind::Internal, "internal error of an exploration");

/// Every code of this crate.
pub const ALL: &[Code] = &[
    SPEC,
    UNKNOWN,
    LOG,
    SCORE,
    NO_RESULT,
    SPEC_FILE,
    CONFIG_FILE,
    INTERNAL,
];
