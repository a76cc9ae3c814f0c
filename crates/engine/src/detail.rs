//! What the engine keeps of a branch beyond the store's columns, as JSON in the record.

use crate::codes;
use forkpoint_fs::conflict::Baseline;
use forkpoint_model::Result;
use forkpoint_store::BranchRecord;
use serde::{Deserialize, Serialize};

/// The detail of a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Detail {
    /// The upper is a whole copy of the base, since overlayfs cannot serve.
    pub(crate) copy: bool,
    /// The last layer of each stack is a snapshot that serves as the base.
    pub(crate) snapshot: bool,
    /// How many of each disk's layers, from the bottom (not counting a snapshot), are the
    /// preparation's.
    pub(crate) prepared: Vec<usize>,
    /// What git's index listed at the fork, per disk, so that a refresh of it is no conflict.
    pub(crate) baselines: Vec<Option<Baseline>>,
}

impl Detail {
    pub(crate) fn of(record: &BranchRecord) -> Result<Self> {
        match &record.detail {
            None => Ok(Self::default()),
            Some(text) => serde_json::from_str(text).map_err(|e| {
                codes::INTERNAL.io(format!("the record of {} is damaged", record.id), e)
            }),
        }
    }

    pub(crate) fn text(&self) -> Result<Option<String>> {
        if *self == Self::default() {
            return Ok(None);
        }
        serde_json::to_string(self)
            .map(Some)
            .map_err(|e| codes::INTERNAL.io("cannot write a branch's detail", e))
    }
}
