//! The store's error codes.

use forkpoint_model::{Code, Kind};

/// The store's directory or database cannot be opened or created.
pub const CANNOT_OPEN: Code = Code::new("FP0101", Kind::Io, "the store cannot be opened");
/// The store was written by a newer Forkpoint.
pub const NEWER: Code = Code::new(
    "FP0102",
    Kind::Unavailable,
    "the store is of a newer version",
);
/// The store's directory belongs to someone else, or others can enter it.
pub const NOT_PRIVATE: Code = Code::new("FP0103", Kind::Unavailable, "the store is not private");
/// The database is damaged or is something else.
pub const DAMAGED: Code = Code::new("FP0104", Kind::Data, "the store is damaged");
/// The file system of the store is full.
pub const FULL: Code = Code::new("FP0105", Kind::Io, "no space left for the store");
/// Another process held the store's lock for too long.
pub const BUSY: Code = Code::new("FP0106", Kind::Io, "the store is busy");
/// Reading or writing the database failed otherwise.
pub const FAILED: Code = Code::new("FP0107", Kind::Io, "the store cannot be read or written");
/// There is no such branch, world, commit or the like.
pub const NOT_FOUND: Code = Code::new("FP0108", Kind::Invalid, "no such object");
/// Several objects fit what was given.
pub const AMBIGUOUS: Code = Code::new("FP0109", Kind::Invalid, "ambiguous name");
/// A name, an identifier or a base is taken.
pub const TAKEN: Code = Code::new("FP0110", Kind::Conflict, "already taken");
/// The commit is not in a state that permits this.
pub const COMMIT_STATE: Code = Code::new(
    "FP0111",
    Kind::Conflict,
    "not possible in this state of the commit",
);
/// The branch's epoch is over: it was sealed, or never had an effect path.
pub const FENCED: Code = Code::new("FP0112", Kind::Closed, "the branch is fenced");
/// A commit of the same world is between its reservation and its end.
pub const WORLD_BUSY: Code = Code::new("FP0113", Kind::Conflict, "the world is being committed to");
/// A key, value, topic or payload is out of bounds.
pub const BOUNDS: Code = Code::new("FP0114", Kind::Invalid, "out of bounds");
/// What a branch holds of shared state has reached its bound.
pub const OVERLAY_FULL: Code = Code::new("FP0115", Kind::Invalid, "the branch holds too much");

/// Every code of this crate.
pub const ALL: &[Code] = &[
    CANNOT_OPEN,
    NEWER,
    NOT_PRIVATE,
    DAMAGED,
    FULL,
    BUSY,
    FAILED,
    NOT_FOUND,
    AMBIGUOUS,
    TAKEN,
    COMMIT_STATE,
    FENCED,
    WORLD_BUSY,
    BOUNDS,
    OVERLAY_FULL,
];
