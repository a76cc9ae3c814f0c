//! Whole trees: copy, remove, measure. Every walk is by descriptors, follows no symbolic link, and
//! needs neither stack nor descriptors in proportion to the depth.

mod beneath;
mod copy;
mod cursor;
mod file;
mod remove;
mod usage;

pub use copy::{CopyOptions, CopyReport, copy};
pub use remove::remove;
pub use usage::{Usage, usage};

pub(crate) use beneath::Beneath;
pub(crate) use copy::{copy_entry, copy_some, open_deep};
pub(crate) use cursor::{Cursor, names, proc_link};
pub(crate) use file::{copy_attributes, open_regular, set_times};
