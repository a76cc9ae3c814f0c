//! A frozen origin: a branch whose processes stand still while children forked from it try something,
//! so that one of them can be committed into it under its living processes.
//!
//! What is held is held by init for this process's connection, and known to others by two locks that
//! end with this process: that nothing is started in the branch, and that the layer which the children
//! stand on is not collected. The branch's own lock is free meanwhile, so that it can be stopped, sealed
//! or aborted from outside.

use crate::branch::{Branch, identity, name};
use crate::codes;
use crate::detail::Detail;
use crate::engine::Engine;
use crate::lock::{self, Lock};
use crate::options::{AbortOptions, CommitOptions, CommitReport, ForkOptions};
use crate::world::{Template, insert_if};
use forkpoint_model::state::{BranchState, ForkLayer};
use forkpoint_model::{Epoch, Error, LayerId, Result, Source};
use forkpoint_sandbox::{Sandbox, is_alive};
use forkpoint_store::{BranchRecord, SharedRecord, Store};

/// A branch that is held as it is, with everything in it standing still, as the origin of children.
/// When this is dropped, or this process dies, everything in it goes on.
pub struct Origin {
    branch: Branch,
    /// As it was when it was held.
    record: BranchRecord,
    /// What its children stand on, per disk.
    stacks: Vec<Vec<LayerId>>,
    shared: SharedRecord,
    /// What holds its processes, where any run.
    sandbox: Option<Sandbox>,
    _kept: Vec<Lock>,
    _held: Lock,
}

impl Branch {
    /// Freezes everything in it and holds it so, as the origin of children; a branch in which nothing
    /// runs is held all the same. Until that ends, nothing can be started in it.
    ///
    /// # Errors
    /// `FP0405` when it is not open, at the reasoning layer, or a whole copy; `FP0406` when another
    /// process works on it, `FP0415` when it is held already.
    pub fn hold_origin(&self) -> Result<Origin> {
        let _lock = self.lock()?;
        self.hold()
    }

    /// The same, asked for from inside the branch in `epoch`.
    ///
    /// # Errors
    /// As [`Branch::hold_origin`], and `FP0112` when that epoch is over.
    pub fn hold_origin_in(&self, epoch: Epoch) -> Result<Origin> {
        let _own = self.lock_itself()?;
        self.engine.store().access(self.id, epoch)?;
        self.hold()
    }

    fn hold(&self) -> Result<Origin> {
        let engine = &self.engine;
        let _making = engine.making_layers()?;
        let record = self.record()?;
        may_be_origin(&record)?;
        let held = lock::byte(&engine.paths().origins(), self.id.bits(), || held(&record))?;
        let sandbox = match engine.is_running(&record)? {
            true => self.attach(&record)?,
            false => None,
        };
        let (stacks, shared) = match &sandbox {
            Some(sandbox) => {
                sandbox.hold()?;
                let stacks = self.compacted(&record, self.clone_uppers(&record)?)?;
                (stacks, engine.store().seal_overlay(self.id)?)
            }
            None => self.share_uppers(&record)?,
        };
        // Whatever of it the branch itself does not refer to is one of these.
        let tops = stacks.iter().filter_map(|stack| stack.first());
        let kept = tops
            .map(|id| {
                let busy = || codes::INTERNAL.error("a new layer is kept by somebody else");
                lock::byte(&engine.paths().kept(), id.bits(), busy)
            })
            .collect::<Result<_>>()?;
        Ok(Origin {
            branch: self.clone(),
            record: self.record()?,
            stacks,
            shared,
            sandbox,
            _kept: kept,
            _held: held,
        })
    }

    /// Refuses to start anything while it is held as an origin. Under the branch's lock.
    pub(crate) fn not_held(&self, record: &BranchRecord) -> Result<()> {
        let origins = self.engine.paths().origins();
        lock::byte(&origins, self.id.bits(), || held(record)).map(drop)
    }

    /// Ends what was forked from it while it was held: nothing else can come of that. What another
    /// process works on is killed, and left to it.
    pub(crate) fn end_children(&self) -> Result<()> {
        let children = self.engine.store().children(self.id)?;
        for child in children {
            if !child.state.is_live() || !Detail::of(&child)?.of_origin {
                continue;
            }
            let branch = Branch::new(self.engine.clone(), child.id);
            let options = AbortOptions {
                reason: "parent_aborted".into(),
                retain: child.exploration.is_some(),
            };
            match branch.abort(&options) {
                Ok(_) => {}
                Err(e) if e.code == codes::BUSY.text => branch.kill()?,
                Err(_) if !branch.state()?.is_live() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Origin {
    /// The branch that is held.
    pub fn branch(&self) -> &Branch {
        &self.branch
    }

    /// Forks children off what is held. One result for each; an outer error means that none was made.
    ///
    /// # Errors
    /// `FP0405` when the held branch is not what it was any more, `FP0083` for a fork at the reasoning
    /// layer of a branch that has an effect path.
    pub fn fork(&self, options: &ForkOptions) -> Result<Vec<Result<Branch>>> {
        if options.over.is_some() || options.beside {
            return Err(
                codes::INTERNAL.error("an origin's forks are its children, on nothing else")
            );
        }
        self.check()?;
        self.branch.check_fork_layer(&self.record, options.layer)?;
        let template = Template {
            world: self.record.world,
            parent: Source::Branch(self.branch.id),
            generation: self.record.generation,
            stacks: self.stacks.clone(),
            root_layers: self.record.root_layers.clone(),
            shared: self.shared.clone(),
            stamp_ns: self.record.stamp_ns,
            detail: Detail {
                git: None,
                of_origin: true,
                ..Detail::of(&self.record)?
            },
        };
        insert_if(self.engine(), options, &template, |store| {
            self.as_it_was(store).map(drop)
        })
    }

    /// Whether the held branch is still what it was: its processes live, and nobody sealed, committed
    /// or aborted it. Where this is false, nothing can be committed into it through this any more.
    pub fn alive(&self) -> bool {
        self.check().is_ok()
    }

    /// Commits a child of this origin into the held branch; what is running there sees it at once when
    /// it goes on. What does not lead to a commit but is no failure of Forkpoint is in the report's
    /// outcome, as with [`Branch::commit`].
    ///
    /// # Errors
    /// As [`Branch::commit`]; `FP0405` when `child` is none of this origin's, or the held branch is not
    /// what it was any more. Nothing was committed then.
    pub fn commit(self, child: &Branch, options: &CommitOptions) -> Result<CommitReport> {
        self.check()?;
        if child.record()?.parent != Source::Branch(self.branch.id) {
            return Err(codes::STATE.error(format!(
                "{} was not forked from {}",
                child.label()?,
                name(&self.record)
            )));
        }
        child.commit(options)
    }

    fn engine(&self) -> &Engine {
        &self.branch.engine
    }

    fn check(&self) -> Result<()> {
        let now = self.as_it_was(&self.engine().store())?;
        let Some(process) = &now.process else {
            return Ok(());
        };
        match self.sandbox.is_none() || is_alive(&identity(process))? {
            true => Ok(()),
            false => Err(changed(&now, "what ran in it was ended")),
        }
    }

    /// Its record, which is what it was when it was held.
    fn as_it_was(&self, store: &Store) -> Result<BranchRecord> {
        let now = store.branch(self.branch.id)?;
        if (now.state, now.epoch) != (self.record.state, self.record.epoch) {
            return Err(changed(&now, "somebody worked on it"));
        }
        if self.sandbox.is_some() && now.process != self.record.process {
            return Err(changed(&now, "what ran in it was ended"));
        }
        Ok(now)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(sandbox) = &self.sandbox {
            // Where it cannot be told, it hears that the connection ends.
            sandbox.thaw().ok();
        }
    }
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Origin");
        shown
            .field("branch", &self.branch.id)
            .field("stacks", &self.stacks);
        shown.finish_non_exhaustive()
    }
}

fn may_be_origin(record: &BranchRecord) -> Result<()> {
    let refused = |why: String, hint: &str| Err(codes::STATE.error(why).hint(hint));
    if !matches!(
        record.state,
        BranchState::Open | BranchState::Sealed | BranchState::Verified { .. }
    ) {
        let why = format!(
            "{} is {}: it can be held for nobody",
            name(record),
            record.state
        );
        return refused(why, "only a live branch is the origin of children");
    }
    if record.layer == ForkLayer::Reasoning {
        let why = format!(
            "{} is at the reasoning layer: nothing is committed into it",
            name(record)
        );
        return refused(why, "fork it at the effect layer");
    }
    if Detail::of(record)?.copy {
        let why = format!(
            "{} is a whole copy: nothing can be committed under what runs in it",
            name(record)
        );
        return refused(
            why,
            "use a store on a file system that can hold overlays: forkpoint doctor",
        );
    }
    Ok(())
}

fn held(record: &BranchRecord) -> Error {
    codes::HELD
        .error(format!(
            "{} is held as the origin of its children",
            name(record)
        ))
        .hint("wait for them to be done, or end it: forkpoint stop BRANCH")
}

fn changed(record: &BranchRecord, why: &str) -> Error {
    codes::STATE
        .error(format!(
            "{} is not what it was when it was held: {why}",
            name(record)
        ))
        .hint("hold it again, and fork new children")
}
