//! A view, or what changed in it, as a new directory. Blocks are shared with the layers where the file
//! system can.

use crate::archive::{DELETED, Wanted};
use crate::codes;
use crate::tree::{Beneath, CopyOptions, CopyReport, copy_some};
use forkpoint_model::Result;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Copies what is wanted to `dst`, which must not exist, and syncs it.
pub fn export(wanted: &Wanted, dst: &Path) -> Result<CopyReport> {
    let view = wanted.view()?;
    let options = CopyOptions {
        raw: false,
        sync: false,
        shift: None,
    };
    let name = Path::new("the branch");
    let report = copy_some(
        view.as_fd(),
        name,
        dst,
        &options,
        wanted.only(),
        beneath(wanted)?,
    )?;
    let failed = |e| codes::WRITE.io(format_args!("cannot write below {}", dst.display()), e);
    if let Some(text) = wanted.deletions() {
        let mut list = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(dst.join(DELETED))
            .map_err(failed)?;
        list.write_all(&text).map_err(failed)?;
    }
    let to = forkpoint_sys::openat::directory(dst).map_err(failed)?;
    forkpoint_sys::openat::syncfs(to.as_fd()).map_err(failed)?;
    Ok(report)
}

/// The layers under the view; `None` where one alone is the view.
fn beneath(wanted: &Wanted) -> Result<Option<Beneath>> {
    if wanted.layers.len() < 2 {
        return Ok(None);
    }
    let open = |layer: &PathBuf| {
        forkpoint_sys::openat::directory(layer)
            .map_err(|e| codes::READ.io(format_args!("cannot open {}", layer.display()), e))
    };
    let roots = wanted.layers.iter().map(open).collect::<Result<_>>()?;
    Ok(Some(Beneath::new(roots, wanted.options.userxattr)))
}
