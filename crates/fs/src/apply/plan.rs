//! From a list of changes to the entries that are replaced, added or removed as a whole.

use crate::delta::{Change, ChangeKind, ChangeSet, FileType};
use std::ops::Range;

/// What is done about one entry and all that lies below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A staged entry takes the place of the base's.
    Exchange,
    /// A staged entry goes where nothing is.
    Add,
    /// The base's entry goes.
    Remove,
    /// Attributes change in place.
    Attrs,
    /// Nothing: a socket means nothing outside the process that made it.
    Skip,
}

/// One entry of the base, with the changes below it that it takes along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    /// Index of its change.
    pub(crate) at: usize,
    /// The changes at and below it.
    pub(crate) all: Range<usize>,
    /// What is done.
    pub(crate) action: Action,
}

/// The roots of a change set. None lies below another, except below one that only changes
/// attributes.
pub(crate) fn roots(set: &ChangeSet) -> Vec<Root> {
    let mut roots = Vec::new();
    let mut at = 0;
    while let Some(change) = set.changes.get(at) {
        let action = action(change);
        let whole = matches!(action, Action::Exchange | Action::Add | Action::Remove);
        let mut end = at + 1;
        if whole && !change.path.as_os_str().is_empty() {
            let below = |c: &Change| c.path.starts_with(&change.path);
            while set.changes.get(end).is_some_and(below) {
                end += 1;
            }
        }
        roots.push(Root {
            at,
            all: at..end,
            action,
        });
        at = end;
    }
    roots
}

fn action(change: &Change) -> Action {
    let socket = change.file_type == FileType::Socket;
    match change.kind {
        ChangeKind::Removed => Action::Remove,
        ChangeKind::Added if socket => Action::Skip,
        ChangeKind::Added => Action::Add,
        _ if socket => Action::Remove,
        ChangeKind::TypeChanged => Action::Exchange,
        ChangeKind::Modified => Action::Exchange,
        ChangeKind::Metadata if change.file_type == FileType::Dir => Action::Attrs,
        // In place, so that a large file costs nothing; but a link of another file, or one that
        // becomes a link, is a file of its own afterwards. The base's links are seen later.
        ChangeKind::Metadata
            if change.differs.links
                || change.link_group.is_some()
                || change.file_type == FileType::Symlink =>
        {
            Action::Exchange
        }
        ChangeKind::Metadata => Action::Attrs,
    }
}
