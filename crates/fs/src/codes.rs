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
/// A layer holds something an overlay never writes.
pub const BAD_LAYER: Code = Code::new("FP0205", Kind::Data, "a layer is damaged");
/// A file changed while it was copied or compared.
pub const CHANGED_MEANWHILE: Code =
    Code::new("FP0206", Kind::Conflict, "a file changed while it was read");

/// Every code of this crate.
pub const ALL: &[Code] = &[
    MOUNT,
    MOUNTED_READ_ONLY,
    BAD_STACK,
    READ,
    WRITE,
    BAD_LAYER,
    CHANGED_MEANWHILE,
];
