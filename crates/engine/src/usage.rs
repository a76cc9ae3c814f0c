//! What a branch takes now.

use crate::branch::Branch;
use crate::detail::Detail;
use crate::engine::Engine;
use forkpoint_model::{LayerId, Result, Source};
use forkpoint_sandbox::Usage;
use forkpoint_store::BranchRecord;

impl Branch {
    /// What runs in it takes now. With `disk` also what it has written, which costs a walk over that;
    /// of a stopped branch that is all there is.
    ///
    /// # Errors
    /// When the store cannot be read, or what runs does not answer.
    pub fn usage(&self, disk: bool) -> Result<Usage> {
        let record = self.record()?;
        let runs = self.ask(&record, |sandbox| match disk {
            true => sandbox.usage(),
            false => sandbox.load(),
        })?;
        match runs {
            Some(usage) => Ok(usage),
            None if disk => Ok(Usage {
                disk_bytes: self.engine.delta_usage(&record)?,
                ..Usage::default()
            }),
            None => Ok(Usage::default()),
        }
    }
}

impl Engine {
    /// Bytes that a branch's own changes take on the device: its layers above what it was forked from,
    /// also those that its own forks lie on by now. Where it is a whole copy, that.
    ///
    /// # Errors
    /// When they cannot be measured.
    pub fn own_bytes(&self, record: &BranchRecord) -> Result<u64> {
        let detail = Detail::of(record)?;
        let source = match record.parent {
            Source::Head(_) => None,
            Source::Branch(parent) => found(self.store().branch(parent))?.map(|b| b.stacks),
            Source::Checkpoint(id) => found(self.store().checkpoint(id))?.map(|c| c.stacks),
        };
        let mut bytes = 0;
        for (index, stack) in record.stacks.iter().enumerate() {
            let prepared = detail.prepared.get(index).copied().unwrap_or(0);
            let below = prepared + usize::from(detail.snapshot);
            let under: &[LayerId] = source
                .as_ref()
                .and_then(|stacks| stacks.get(index))
                .map_or(&[], Vec::as_slice);
            let own = &stack[..stack.len().saturating_sub(below)];
            for &layer in own.iter().filter(|layer| !under.contains(layer)) {
                let dir = self.paths().layer(layer);
                if dir.is_dir() {
                    bytes += self.usage(&dir)?;
                }
            }
        }
        Ok(bytes)
    }
}

/// What is there; a source that is gone had nothing that can be told apart.
fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.code == forkpoint_store::codes::NOT_FOUND.text => Ok(None),
        Err(e) => Err(e),
    }
}
