//! What the tests of apply share: staging the delta of some layers, and comparing bases exactly.

use super::snapshot::{self, Tree};
use super::{Layers, root_of};
use forkpoint_fs::apply::{self, Owners, StageRequest, Staged};
use forkpoint_fs::delta;
use forkpoint_fs::stamp::{self, Stamp};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Everything, and which inode each name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exact {
    pub tree: Tree,
    pub inodes: BTreeMap<PathBuf, (u64, u64)>,
}

pub fn exact(base: &Path) -> Exact {
    let tree = snapshot::take(base);
    let inodes = tree
        .keys()
        .map(|path| {
            let full = if path.as_os_str().is_empty() {
                base.to_owned()
            } else {
                base.join(path)
            };
            let meta = std::fs::symlink_metadata(full).expect("stat");
            (path.clone(), (meta.ino(), meta.nlink()))
        })
        .collect();
    Exact { tree, inodes }
}

/// What a view of the layers shows.
pub fn shown(layers: &Layers) -> Tree {
    snapshot::take(&root_of(&layers.view(0)))
}

pub fn stamp(layers: &Layers) -> Stamp {
    stamp::take(layers.dir.path()).expect("stamp")
}

/// A request to stage the topmost `top` layers; the stage is `stage` beside the layers.
pub fn request(layers: &Layers, top: usize, stamp: Stamp) -> StageRequest {
    let changes = delta::diff(&layers.layers, top, &layers.diff_options()).expect("diff");
    let stage = layers.dir.path().join("stage");
    if !stage.exists() {
        std::fs::create_dir(&stage).expect("mkdir");
    }
    StageRequest {
        layers: layers.layers.clone(),
        top,
        changes,
        base: layers.base().to_owned(),
        stage,
        stamp,
        userxattr: layers.userxattr,
        owners: if layers.userxattr {
            Owners::MapToCaller
        } else {
            Owners::Keep
        },
        baseline: None,
    }
}

pub fn stage(layers: &Layers, top: usize, stamp: Stamp) -> Staged {
    apply::stage(&request(layers, top, stamp)).expect("stage")
}
