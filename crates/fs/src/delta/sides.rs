//! Two trees to be compared, each as a stack of layers shows it.

use super::change::DiffOptions;
use crate::{MountOptions, codes, view};
use forkpoint_model::Result;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Two stacks. A stack of one layer is a plain tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sides {
    /// What would be changed: topmost first, the base last.
    #[serde(with = "crate::bytes::list")]
    pub old: Vec<PathBuf>,
    /// What it would become.
    #[serde(with = "crate::bytes::list")]
    pub new: Vec<PathBuf>,
    /// How the layers are marked.
    pub options: DiffOptions,
}

impl Sides {
    /// How many layers at the bottom the two have in common.
    pub(crate) fn shared(&self) -> usize {
        let pairs = self.old.iter().rev().zip(self.new.iter().rev());
        pairs.take_while(|(a, b)| a == b).count()
    }

    /// Mounts both, read-only: the old one first.
    pub(crate) fn views(&self) -> Result<(OwnedFd, OwnedFd)> {
        if self.old.is_empty() || self.new.is_empty() {
            return Err(codes::BAD_STACK.error("a comparison with a stack of no layers"));
        }
        let how = MountOptions {
            volatile: false,
            userxattr: self.options.userxattr,
        };
        Ok((
            view::mount_readonly(&self.old, &how)?,
            view::mount_readonly(&self.new, &how)?,
        ))
    }
}
