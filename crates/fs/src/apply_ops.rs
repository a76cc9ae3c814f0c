//! The operations of conflict detection, protection and apply as requests, for [`crate::ops`].

use crate::apply::{self, Journal, Redo, StageRequest, Staged};
use crate::conflict::{self, Baseline, Budget, CheckOptions, Drift, PathConflict};
use crate::delta::ChangeSet;
use crate::protect::{self, ProtectOptions};
use crate::stamp::Stamp;
use crate::{MountOptions, Stack, bytes, view};
use forkpoint_model::{CommitId, Result};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What to do with a base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApplyRequest {
    /// [`conflict::check`].
    Check {
        /// The delta.
        changes: ChangeSet,
        /// The base.
        #[serde(with = "bytes")]
        base: PathBuf,
        /// When the branch was forked.
        stamp: Stamp,
        /// How.
        options: CheckOptions,
    },
    /// [`conflict::drift`].
    Drift {
        /// The base.
        #[serde(with = "bytes")]
        base: PathBuf,
        /// When the branch was forked.
        stamp: Stamp,
        /// The delta.
        ignore: ChangeSet,
        /// What is known of files that get rewritten without a change.
        baseline: Option<Baseline>,
        /// How far.
        budget: Budget,
    },
    /// [`protect::restore`], through a view mounted for it.
    Protect {
        /// The branch's layers, with its upper.
        stack: StackBytes,
        /// For a branch that is a whole copy: its tree, which needs no view.
        copied: bool,
        /// How many layers, from the upper, the protection looks at.
        top: usize,
        /// What is protected.
        globs: Vec<String>,
        /// How.
        options: ProtectOptions,
        /// The view's `fsync` does nothing.
        volatile: bool,
    },
    /// [`apply::stage_dir`] and [`apply::stage`]; a stage that fails is removed.
    Stage {
        /// What; its `stage` is the preferred place.
        request: Box<StageRequest>,
        /// The commit.
        txn: CommitId,
    },
    /// [`apply::redo`].
    Redo {
        /// The base.
        #[serde(with = "bytes")]
        base: PathBuf,
        /// The journal.
        journal: Journal,
    },
    /// [`apply::undo`]; only looked at if `dry`.
    Undo {
        /// The base.
        #[serde(with = "bytes")]
        base: PathBuf,
        /// The journal.
        journal: Journal,
        /// Change nothing, say what would block.
        dry: bool,
    },
    /// [`apply::restore_before`], through a view mounted for it.
    Before {
        /// The layers of a branch of the base, with its upper.
        stack: StackBytes,
        /// For a branch that is a whole copy: its tree, which needs no view.
        copied: bool,
        /// The layers hold `user.overlay.*` marks.
        userxattr: bool,
        /// Of the commit.
        journal: Journal,
    },
    /// Removes a commit's stage, wherever [`apply::stage_dir`] put it.
    DiscardStage {
        /// The base.
        #[serde(with = "bytes")]
        base: PathBuf,
        /// The preferred place.
        #[serde(with = "bytes")]
        preferred: PathBuf,
        /// The commit.
        txn: CommitId,
    },
}

/// A stack whose paths are bytes on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackBytes {
    #[serde(with = "bytes::list")]
    lowers: Vec<PathBuf>,
    #[serde(with = "bytes")]
    upper: PathBuf,
    #[serde(with = "bytes")]
    work: PathBuf,
}

impl From<Stack> for StackBytes {
    fn from(stack: Stack) -> Self {
        Self {
            lowers: stack.lowers,
            upper: stack.upper,
            work: stack.work,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApplyResponse {
    /// Of `Before` and `DiscardStage`.
    Done,
    /// Of `Check`.
    Conflicts(Vec<PathConflict>),
    /// Of `Drift`.
    Drift(Drift),
    /// Of `Protect`.
    Restored(#[serde(with = "bytes::list")] Vec<PathBuf>),
    /// Of `Stage`.
    Staged(Box<Staged>),
    /// Of `Redo` and `Undo`.
    Redo(Redo),
}

/// Performs a request.
pub fn execute(request: ApplyRequest) -> Result<ApplyResponse> {
    Ok(match request {
        ApplyRequest::Check {
            changes,
            base,
            stamp,
            options,
        } => ApplyResponse::Conflicts(conflict::check(&changes, &base, stamp, &options)?),
        ApplyRequest::Drift {
            base,
            stamp,
            ignore,
            baseline,
            budget,
        } => ApplyResponse::Drift(conflict::drift(
            &base,
            stamp,
            &ignore,
            baseline.as_ref(),
            budget,
        )?),
        ApplyRequest::Protect {
            stack,
            copied,
            top,
            globs,
            options,
            volatile,
        } => ApplyResponse::Restored(protected(stack, copied, top, &globs, &options, volatile)?),
        ApplyRequest::Stage { request, txn } => {
            ApplyResponse::Staged(Box::new(staged(*request, txn)?))
        }
        ApplyRequest::Redo { base, journal } => ApplyResponse::Redo(apply::redo(&base, &journal)?),
        ApplyRequest::Undo {
            base,
            journal,
            dry: false,
        } => ApplyResponse::Redo(apply::undo(&base, &journal)?),
        ApplyRequest::Undo {
            base,
            journal,
            dry: true,
        } => ApplyResponse::Redo(apply::check_undo(&base, &journal)?),
        ApplyRequest::Before {
            stack,
            copied,
            userxattr,
            journal,
        } => {
            let how = MountOptions {
                volatile: true,
                userxattr,
            };
            let view = opened(stack, copied, &how)?;
            apply::restore_before(view.as_fd(), &journal)?;
            ApplyResponse::Done
        }
        ApplyRequest::DiscardStage {
            base,
            preferred,
            txn,
        } => {
            for place in apply::stage_places(&base, &preferred, txn) {
                remove(&place)?;
            }
            ApplyResponse::Done
        }
    })
}

/// A branch's tree, to be written to.
fn opened(stack: StackBytes, copied: bool, how: &MountOptions) -> Result<OwnedFd> {
    if copied {
        return forkpoint_sys::openat::directory(&stack.upper)
            .map_err(|e| crate::codes::READ.io(stack.upper.display(), e));
    }
    let stack = Stack {
        lowers: stack.lowers,
        upper: stack.upper,
        work: stack.work,
    };
    view::mount(&stack, how)
}

fn protected(
    stack: StackBytes,
    copied: bool,
    top: usize,
    globs: &[String],
    options: &ProtectOptions,
    volatile: bool,
) -> Result<Vec<PathBuf>> {
    let mut layers = vec![stack.upper.clone()];
    // A copy stands for all layers of its branch; what it was copied from is the next one.
    let below = if copied { 1 } else { stack.lowers.len() };
    layers.extend(stack.lowers.iter().take(below).cloned());
    let how = MountOptions {
        volatile,
        userxattr: options.userxattr,
    };
    let view = opened(stack, copied, &how)?;
    protect::restore(view.as_fd(), &layers, top, globs, options)
}

fn staged(mut request: StageRequest, txn: CommitId) -> Result<Staged> {
    request.stage = apply::stage_dir(&request.base, &request.stage, txn)?;
    match apply::stage(&request) {
        Ok(staged) => Ok(staged),
        Err(error) => {
            // The cause is what the caller needs; what cannot be removed now, recovery removes.
            remove(&request.stage).ok();
            Err(error)
        }
    }
}

fn remove(place: &Path) -> Result<()> {
    match std::fs::symlink_metadata(place) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => apply::discard(place),
    }
}
