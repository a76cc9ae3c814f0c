//! The error codes of the pure state machines. They sit at the end of the usage range, since each
//! says that what was asked does not fit the branch's state.

use crate::{Code, Kind};

/// The branch has ended; nothing but looking at it is possible.
pub const BRANCH_ENDED: Code = Code::new("FP0080", Kind::Closed, "the branch has ended");
/// The branch is in a state from which this cannot be done.
pub const WRONG_STATE: Code = Code::new("FP0081", Kind::Conflict, "not possible in this state");
/// Another commit moved the head since this branch was forked.
pub const STALE: Code = Code::new("FP0082", Kind::Conflict, "the branch is stale");
/// A reasoning-layer fork was asked of something that has an effect path.
pub const UNSAFE_FORK_POINT: Code = Code::new("FP0083", Kind::Invalid, "unsafe fork point");
/// The verifier failed on this branch and nobody said to commit it nevertheless.
pub const FAILED_VERIFY: Code =
    Code::new("FP0084", Kind::Conflict, "the branch failed its verifier");
/// A commit was interrupted before its decision; recovery aborted it.
pub const INTERRUPTED: Code = Code::new("FP0085", Kind::Closed, "the commit was interrupted");
/// An event that no correct driver sends; a fault of Forkpoint.
pub const IMPOSSIBLE: Code = Code::new("FP0089", Kind::Internal, "impossible event");

/// Every code of this crate.
pub const ALL: &[Code] = &[
    BRANCH_ENDED,
    WRONG_STATE,
    STALE,
    UNSAFE_FORK_POINT,
    FAILED_VERIFY,
    INTERRUPTED,
    IMPOSSIBLE,
];
