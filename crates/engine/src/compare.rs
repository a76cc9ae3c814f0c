//! What two branches differ in, and a difference as a patch.

use crate::branch::{Branch, name};
use crate::codes;
use crate::detail::Detail;
use crate::engine::Engine;
use crate::files::mismatch;
use crate::layers::DiskLayers;
use forkpoint_fs::delta::{ChangeSet, Sides};
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_fs::patch::PatchReport;
use forkpoint_fs::stream::{self, StreamRequest, StreamResponse};
use forkpoint_model::Result;
use std::os::fd::BorrowedFd;

/// What is compared with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against<'a> {
    /// With its base: everything it changes.
    Base,
    /// With what its preparation left: what it changed itself.
    Preparation,
    /// With another branch: what would have to change in that one to make this one.
    Branch(&'a Branch),
}

impl PartialEq for Branch {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Branch {}

impl std::fmt::Debug for Branch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Branch({})", self.id)
    }
}

/// Two states of a directory that can be compared, and written as a patch.
#[derive(Debug, Clone)]
pub struct Comparison {
    engine: Engine,
    sides: Sides,
    /// What differs.
    pub changes: ChangeSet,
}

impl Branch {
    /// Compares its first disk. Between two branches of one base the cost is that of what they do not
    /// share, never that of the base; between branches of different bases it is that of both trees.
    ///
    /// # Errors
    /// `FP0405` where what it wrote is gone; when its layers cannot be read.
    pub fn compare(&self, against: Against<'_>) -> Result<Comparison> {
        let new = self.first_disk()?;
        let mut sides = Sides {
            old: Vec::new(),
            new: new.compared(),
            options: self.engine.diff_options(),
        };
        let changes = match against {
            Against::Branch(other) => {
                sides.old = other.first_disk()?.compared();
                self.engine.diff_between(&sides)?
            }
            Against::Base => {
                sides.old = vec![new.bottom.clone()];
                self.engine.diff(&new, None)?
            }
            Against::Preparation => {
                let record = self.record()?;
                let prepared = Detail::of(&record)?.prepared;
                let below = prepared.first().copied().unwrap_or(0);
                let all = new.all();
                let left = &all[all.len() - 1 - below..];
                sides.old = match new.copy {
                    // The topmost is a whole copy: nothing is seen through it.
                    true => left[..1].to_vec(),
                    false => left.to_vec(),
                };
                self.engine.diff_parts(&new, below)?.0
            }
        };
        Ok(Comparison {
            engine: self.engine.clone(),
            sides,
            changes,
        })
    }

    /// The layers of its first disk, if they are still there.
    pub(crate) fn first_disk(&self) -> Result<DiskLayers> {
        let record = self.record()?;
        if record.ended_ns.is_some() && !record.retained {
            return Err(codes::STATE
                .error(format!(
                    "{} is {}, and what it wrote is not kept",
                    name(&record),
                    record.state
                ))
                .hint("forkpoint list -a shows which branches are kept"));
        }
        let mut disks = self.disks(&record)?;
        match disks.is_empty() {
            true => Err(codes::INTERNAL.error(format!("{} has no disk", record.id))),
            false => Ok(disks.swap_remove(0)),
        }
    }
}

impl Comparison {
    /// Writes it as a patch that `git apply` accepts, and says what git cannot carry.
    ///
    /// # Errors
    /// `FP0206` where it would be longer than git reads; when a file cannot be read.
    pub fn patch(&self, to: BorrowedFd<'_>) -> Result<PatchReport> {
        let request = StreamRequest::Patch {
            sides: self.sides.clone(),
            changes: self.changes.clone(),
        };
        match self.engine.stream(request, to)? {
            StreamResponse::Patched(report) => Ok(report),
            _ => Err(mismatch("a patch")),
        }
    }
}

impl Engine {
    fn diff_between(&self, sides: &Sides) -> Result<ChangeSet> {
        match self.fs(FsRequest::DiffBetween(sides.clone()))? {
            FsResponse::Changes(changes) => Ok(changes),
            _ => Err(mismatch("a diff")),
        }
    }

    /// Has something written to `to` by whoever can read the caller's deltas.
    pub(crate) fn stream(
        &self,
        request: StreamRequest,
        to: BorrowedFd<'_>,
    ) -> Result<StreamResponse> {
        if self.rootless() {
            return self.worker()?.stream(request, to);
        }
        let to = to
            .try_clone_to_owned()
            .map_err(|e| codes::IO.io("cannot write there", e))?;
        stream::execute(request, to)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.store_dir().display())
    }
}
