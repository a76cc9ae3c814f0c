//! The stable error codes of init and of sandboxes, FP03xx. Each has a page in `docs/errors/`.

use forkpoint_model::{Code, Kind};

/// This machine does not let a sandbox be made.
pub const NO_NAMESPACES: Code =
    Code::new("FP0301", Kind::Unavailable, "namespaces are not permitted");
/// Init could not build the branch's view.
pub const SETUP: Code = Code::new("FP0302", Kind::Io, "the sandbox could not be set up");
/// The sandbox has ended.
pub const GONE: Code = Code::new("FP0303", Kind::Closed, "the sandbox has ended");
/// The specification makes no sense.
pub const BAD_SPEC: Code = Code::new("FP0304", Kind::Invalid, "the sandbox cannot be as asked");
/// Init or the worker said something that is not part of the protocol.
pub const PROTOCOL: Code = Code::new("FP0305", Kind::Internal, "init and its starter disagree");
/// A system call failed on the starter's side.
pub const HOST_IO: Code = Code::new("FP0306", Kind::Io, "the sandbox's starter failed");
/// A sandbox did not die, or did not stop, in time.
pub const UNDEAD: Code = Code::new("FP0307", Kind::Incomplete, "the sandbox is not dead");

/// All of them.
pub const ALL: &[Code] = &[
    NO_NAMESPACES,
    SETUP,
    GONE,
    BAD_SPEC,
    PROTOCOL,
    HOST_IO,
    UNDEAD,
];
