//! Stamps: points in time that every later change of a file system is known to reach or exceed.

use serde::{Deserialize, Serialize};

/// A ctime, in nanoseconds since 1970, that every later change of the file system reaches or
/// exceeds. A path is changed underneath when its ctime is at or after the stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp(pub i64);
