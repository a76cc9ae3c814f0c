//! What the engine keeps of a branch beyond the store's columns, as JSON in the record.

use crate::codes;
use forkpoint_fs::conflict::Baseline;
use forkpoint_model::{LayerId, Result};
use forkpoint_store::BranchRecord;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a branch that is a copy was copied from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copied {
    /// The source's tree, per disk. It has others once something was committed into it.
    pub(crate) from: Vec<LayerId>,
    /// When the copy was finished: what either changed since has a time that is not before this.
    pub(crate) at_ns: i64,
}

/// The detail of a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Detail {
    /// The upper is a whole copy of the base, since overlayfs cannot serve.
    pub(crate) copy: bool,
    /// Of which branch's trees it is a copy, where it was forked from a branch.
    pub(crate) copied: Option<Copied>,
    /// The last layer of each stack is a snapshot that serves as the base.
    pub(crate) snapshot: bool,
    /// How many of each disk's layers, from the bottom (not counting a snapshot), are the
    /// preparation's.
    pub(crate) prepared: Vec<usize>,
    /// What git's index listed at the fork, per disk, so that a refresh of it is no conflict.
    pub(crate) baselines: Vec<Option<Baseline>>,
    /// Devices its commands are shown.
    pub(crate) devices: Vec<PathBuf>,
    /// Names of variables that commands are given, whose values are nowhere.
    pub(crate) secrets: Vec<String>,
    /// Those devices that its processes were last started with.
    pub(crate) shown_devices: Vec<PathBuf>,
    /// It was forked from a frozen origin: it ends when that is rolled back, since it can become part
    /// of nothing else.
    pub(crate) of_origin: bool,
    /// The git branch it was decided to become.
    pub(crate) git: Option<crate::git::GitRef>,
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
