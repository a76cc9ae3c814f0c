//! Error codes of this crate: FP02xx. Each has a page under `docs/errors/`.

use forkpoint_model::{Code, Kind};

/// A view could not be mounted.
pub const MOUNT: Code = Code::new("FP0200", Kind::Unavailable, "a view cannot be mounted");
/// The kernel mounted a view read-only although it was asked for a writable one.
pub const MOUNTED_READ_ONLY: Code =
    Code::new("FP0201", Kind::Unavailable, "a view came up read-only");
/// A stack has no layer, too many, or a path the mount interface cannot carry.
pub const BAD_STACK: Code = Code::new("FP0202", Kind::Invalid, "a stack of layers is not usable");
/// A directory or file could not be read.
pub const READ: Code = Code::new("FP0203", Kind::Io, "a file cannot be read");
/// A directory or file could not be written.
pub const WRITE: Code = Code::new("FP0204", Kind::Io, "a file cannot be written");
/// A branch holds a path that is longer than any path can be.
pub const PATH_TOO_LONG: Code = Code::new("FP0205", Kind::Invalid, "a path is too long");
/// A patch grew beyond what `git apply` reads.
pub const PATCH_TOO_LARGE: Code = Code::new("FP0206", Kind::Invalid, "a patch is too large");

/// A redo journal is damaged, or of another version.
pub const JOURNAL: Code = Code::new("FP0250", Kind::Data, "a redo journal is damaged");
/// A change could not be staged.
pub const STAGE: Code = Code::new("FP0251", Kind::Io, "a change cannot be staged");
/// The disk is full, or the quota used up.
pub const NO_SPACE: Code = Code::new("FP0252", Kind::Io, "no space to stage a change");
/// No directory serves as a stage.
pub const NO_STAGE: Code = Code::new("FP0253", Kind::Unavailable, "no place to stage a change");
/// The base changed since the fork, where the delta would change it.
pub const BASE_CHANGED: Code = Code::new("FP0254", Kind::Conflict, "the base changed since");
/// An owner cannot be kept.
pub const OWNER: Code = Code::new("FP0255", Kind::Unavailable, "an owner cannot be kept");
/// A glob cannot be read.
pub const BAD_GLOB: Code = Code::new("FP0256", Kind::Invalid, "a glob cannot be read");
/// A protected path could not be restored.
pub const PROTECT: Code = Code::new("FP0257", Kind::Io, "a protected path cannot be restored");
/// The stage of a decided commit is gone.
pub const STAGE_LOST: Code = Code::new("FP0258", Kind::Data, "a stage is gone");
/// The base has a directory that cannot be changed.
pub const CANNOT_APPLY: Code = Code::new(
    "FP0259",
    Kind::Unavailable,
    "the base cannot be changed there",
);

/// Every code of this crate.
pub const ALL: &[Code] = &[
    MOUNT,
    MOUNTED_READ_ONLY,
    BAD_STACK,
    READ,
    WRITE,
    PATH_TOO_LONG,
    PATCH_TOO_LARGE,
    JOURNAL,
    STAGE,
    NO_SPACE,
    NO_STAGE,
    BASE_CHANGED,
    OWNER,
    BAD_GLOB,
    PROTECT,
    STAGE_LOST,
    CANNOT_APPLY,
];
