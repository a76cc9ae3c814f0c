//! The engine's error codes; each has a page in `docs/errors/`.

use forkpoint_model::{Code, Kind};

/// The base cannot be the bottom of a branch.
pub const BASE: Code = Code::new("FP0401", Kind::Invalid, "the base cannot be used");
/// Mounts lie below the base.
pub const MOUNTS_BELOW: Code = Code::new("FP0402", Kind::Invalid, "mounts lie below the base");
/// Git data lies where it cannot be taken in.
pub const GIT_DATA: Code = Code::new(
    "FP0403",
    Kind::Invalid,
    "the base's git data cannot be taken in",
);
/// Forking at the reasoning layer a branch that has an effect path.
pub const UNSAFE_FORK_POINT: Code = Code::new("FP0404", Kind::Invalid, "unsafe fork point");
/// The branch is in a state that does not allow the verb.
pub const STATE: Code = Code::new(
    "FP0405",
    Kind::Invalid,
    "the branch's state does not allow this",
);
/// Another process is working on the branch.
pub const BUSY: Code = Code::new("FP0406", Kind::Conflict, "the branch is busy");
/// The base is being committed to by somebody else.
pub const BASE_BUSY: Code = Code::new("FP0407", Kind::Conflict, "the base is being committed to");
/// Independent branches of the same base are running.
pub const OTHERS_RUN: Code = Code::new(
    "FP0408",
    Kind::Conflict,
    "other branches of this base are running",
);
/// The branch is stale.
pub const STALE: Code = Code::new("FP0409", Kind::Conflict, "the branch is stale");
/// Nothing to undo, or it was overtaken.
pub const UNDO: Code = Code::new("FP0410", Kind::Conflict, "this commit cannot be undone");
/// The command could not be started in the branch.
pub const COMMAND: Code = Code::new("FP0411", Kind::Invalid, "the command could not be started");
/// The verb was cancelled.
pub const CANCELLED: Code = Code::new("FP0412", Kind::Closed, "cancelled");
/// The preparation failed.
pub const PREPARE: Code = Code::new("FP0413", Kind::Invalid, "the preparation failed");
/// A file operation of the engine itself failed.
pub const IO: Code = Code::new("FP0420", Kind::Io, "an operation in the store failed");
/// Two crates disagree: a fault of Forkpoint.
pub const INTERNAL: Code = Code::new("FP0499", Kind::Internal, "internal error");

/// Every code of this crate.
pub const ALL: &[Code] = &[
    BASE,
    MOUNTS_BELOW,
    GIT_DATA,
    UNSAFE_FORK_POINT,
    STATE,
    BUSY,
    BASE_BUSY,
    OTHERS_RUN,
    STALE,
    UNDO,
    COMMAND,
    CANCELLED,
    PREPARE,
    IO,
    INTERNAL,
];
