//! One file per verb.

pub(crate) mod abort;
pub(crate) mod commit;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod explore;
pub(crate) mod fork;
pub(crate) mod gc;
pub(crate) mod history;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod rebase;
pub(crate) mod show;
pub(crate) mod tree;
pub(crate) mod undo;
pub(crate) mod verify;
