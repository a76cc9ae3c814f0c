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
/// A device that is asked for is none, or is nothing to show to a branch.
pub const DEVICE: Code = Code::new("FP0414", Kind::Invalid, "not a device for a branch");
/// The branch is held as the frozen origin of its children.
pub const HELD: Code = Code::new(
    "FP0415",
    Kind::Conflict,
    "the branch is held as the origin of its children",
);
/// A file operation of the engine itself failed.
pub const IO: Code = Code::new("FP0420", Kind::Io, "an operation in the store failed");
/// The repository, or what is in it, rules out a commit as a git branch.
pub const GIT: Code = Code::new("FP0430", Kind::Invalid, "no git branch can be made");
/// The git branch is there already, or checked out.
pub const GIT_EXISTS: Code = Code::new("FP0431", Kind::Conflict, "the git branch is taken");
/// The git command failed.
pub const GIT_FAILED: Code = Code::new("FP0432", Kind::Io, "git failed");
/// Nothing can be exported to that place.
pub const EXPORT: Code = Code::new("FP0433", Kind::Invalid, "the export cannot be made there");
/// An effect could not be performed, or its row says otherwise.
pub const EFFECT: Code = Code::new("FP0440", Kind::Invalid, "the effect cannot be performed");
/// What was asked for through a branch's socket makes no sense.
pub const SOCKET_REQUEST: Code = Code::new(
    "FP0450",
    Kind::Invalid,
    "the branch's socket was asked for nonsense",
);
/// Too much was asked for at once through a branch's socket.
pub const SOCKET_FULL: Code = Code::new(
    "FP0451",
    Kind::Conflict,
    "too much at once on the branch's socket",
);
/// A branch's socket cannot be reached, or ended in the middle.
pub const SOCKET: Code = Code::new(
    "FP0452",
    Kind::Unavailable,
    "the branch's socket does not answer",
);
/// A judge asked for a change through its socket.
pub const READS_ONLY: Code = Code::new("FP0453", Kind::Invalid, "a verifier changes nothing");
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
    DEVICE,
    HELD,
    IO,
    GIT,
    GIT_EXISTS,
    GIT_FAILED,
    EXPORT,
    EFFECT,
    SOCKET_REQUEST,
    SOCKET_FULL,
    SOCKET,
    READS_ONLY,
    INTERNAL,
];
