//! Every operation of this crate as one request that can be sent to another process: an ordinary
//! user's deltas hold files that the user may not touch, so a worker inside the user's own id
//! mapping performs them. Root performs them in its own process.

use crate::compact::MergeReport;
use crate::delta::{self, ChangeSet, DiffOptions};
use crate::stamp::Stamp;
use crate::tree::{self, CopyOptions, CopyReport, Usage};
use crate::{bytes, codes, compact, probe, stamp, view};
use forkpoint_model::Result;
use forkpoint_sys::openat;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsRequest {
    /// [`delta::diff`].
    Diff {
        /// Topmost first, the base last.
        #[serde(with = "bytes::list")]
        layers: Vec<PathBuf>,
        /// How many of them are the delta.
        top: usize,
        /// How the layers are marked.
        options: DiffOptions,
    },
    /// [`delta::diff_trees`].
    DiffTrees {
        /// The branch's copy.
        #[serde(with = "bytes")]
        tree: PathBuf,
        /// What it was copied from.
        #[serde(with = "bytes")]
        base: PathBuf,
    },
    /// [`delta::between`].
    DiffBetween(delta::Sides),
    /// [`tree::usage`].
    Usage {
        /// The tree.
        #[serde(with = "bytes")]
        dir: PathBuf,
    },
    /// [`tree::copy`].
    Copy {
        /// The tree.
        #[serde(with = "bytes")]
        src: PathBuf,
        /// Where to; must not exist.
        #[serde(with = "bytes")]
        dst: PathBuf,
        /// How.
        options: CopyOptions,
    },
    /// [`tree::remove`].
    Remove {
        /// What.
        #[serde(with = "bytes")]
        path: PathBuf,
    },
    /// [`compact::merge`].
    Compact {
        /// The layers to merge, topmost first.
        #[serde(with = "bytes::list")]
        layers: Vec<PathBuf>,
        /// What is under them, topmost first, the base last.
        #[serde(with = "bytes::list")]
        below: Vec<PathBuf>,
        /// The layer to make.
        #[serde(with = "bytes")]
        out: PathBuf,
        /// How the layers are marked.
        options: DiffOptions,
    },
    /// [`view::prepare_pair`].
    PreparePair {
        /// The upper directory to make.
        #[serde(with = "bytes")]
        upper: PathBuf,
        /// The work directory to make.
        #[serde(with = "bytes")]
        work: PathBuf,
        /// What the view's root is to look like.
        #[serde(with = "bytes")]
        base: PathBuf,
    },
    /// [`stamp::take_for`].
    Stamp {
        /// A directory of the caller's to touch.
        #[serde(with = "bytes")]
        probe_dir: PathBuf,
        /// What later changes are looked for in.
        #[serde(with = "bytes")]
        base: PathBuf,
    },
    /// Makes a directory.
    MakeDir {
        /// Where.
        #[serde(with = "bytes")]
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Renames; the target must not exist.
    Rename {
        /// From.
        #[serde(with = "bytes")]
        from: PathBuf,
        /// To, on the same file system.
        #[serde(with = "bytes")]
        to: PathBuf,
    },
    /// Writes the whole file system that holds `path` back to its device.
    Sync {
        /// Any directory of it.
        #[serde(with = "bytes")]
        path: PathBuf,
    },
    /// Reads the beginning of a file as a stack shows it.
    ReadFile {
        /// Topmost first, the base last.
        #[serde(with = "bytes::list")]
        layers: Vec<PathBuf>,
        /// How the layers are marked.
        options: DiffOptions,
        /// The file, relative to the disk.
        #[serde(with = "bytes")]
        path: PathBuf,
        /// At most so many bytes.
        max_len: u64,
    },
    /// [`crate::written::written`].
    Written {
        /// The upper directory.
        #[serde(with = "bytes")]
        upper: PathBuf,
        /// How many paths to list.
        limit: usize,
    },
    /// [`crate::blobs::names`].
    BlobNames(crate::blobs::Paths),
    /// [`crate::export::export`].
    Export {
        /// What.
        wanted: crate::archive::Wanted,
        /// Where to; must not exist.
        #[serde(with = "bytes")]
        dst: PathBuf,
    },
    /// Conflicts, protection and apply.
    Apply(crate::apply_ops::ApplyRequest),
    /// [`probe::support`].
    Probe {
        /// The store's directory.
        #[serde(with = "bytes")]
        store: PathBuf,
        /// The base.
        #[serde(with = "bytes")]
        base: PathBuf,
        /// Try as in a user namespace.
        rootless: bool,
    },
}

/// What came of it, by request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsResponse {
    /// Of what has no result but success.
    Done,
    /// Of `Diff`, `DiffTrees` and `DiffBetween`.
    Changes(ChangeSet),
    /// Of `Usage`.
    Usage(Usage),
    /// Of `BlobNames`.
    Blobs(Vec<Option<crate::blobs::Blob>>),
    /// Of `Copy` and `Export`.
    Copied(CopyReport),
    /// Of `Compact`.
    Merged(MergeReport),
    /// Of `Stamp`.
    Stamp(Stamp),
    /// Of `ReadFile`: `None` where there is no such file, or it is not a regular one.
    File(Option<FileContent>),
    /// Of `Written`.
    Written(crate::written::Written),
    /// Of `Apply`.
    Apply(crate::apply_ops::ApplyResponse),
    /// Of `Probe`.
    Support(probe::Support),
}

/// The beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileContent {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The file's whole size.
    pub size: u64,
}

/// Performs a request.
pub fn execute(request: FsRequest) -> Result<FsResponse> {
    match request {
        FsRequest::Diff {
            layers,
            top,
            options,
        } => delta::diff(&layers, top, &options).map(FsResponse::Changes),
        FsRequest::DiffTrees { tree, base } => {
            delta::diff_trees(&tree, &base).map(FsResponse::Changes)
        }
        FsRequest::DiffBetween(sides) => delta::between(&sides).map(FsResponse::Changes),
        FsRequest::Usage { dir } => tree::usage(&dir).map(FsResponse::Usage),
        FsRequest::Copy { src, dst, options } => {
            tree::copy(&src, &dst, &options).map(FsResponse::Copied)
        }
        FsRequest::Remove { path } => tree::remove(&path).map(|()| FsResponse::Done),
        FsRequest::Compact {
            layers,
            below,
            out,
            options,
        } => compact::merge(&layers, &below, &out, &options).map(FsResponse::Merged),
        FsRequest::PreparePair { upper, work, base } => {
            view::prepare_pair(&upper, &work, &base).map(|()| FsResponse::Done)
        }
        FsRequest::Stamp { probe_dir, base } => {
            stamp::take_for(&probe_dir, &base).map(FsResponse::Stamp)
        }
        FsRequest::MakeDir { path, mode } => make_dir(&path, mode),
        FsRequest::Rename { from, to } => rename(&from, &to),
        FsRequest::Sync { path } => sync(&path),
        FsRequest::ReadFile {
            layers,
            options,
            path,
            max_len,
        } => read_file(&layers, options, &path, max_len).map(FsResponse::File),
        FsRequest::Written { upper, limit } => {
            crate::written::written(&upper, limit).map(FsResponse::Written)
        }
        FsRequest::BlobNames(paths) => crate::blobs::names(&paths).map(FsResponse::Blobs),
        FsRequest::Export { wanted, dst } => {
            crate::export::export(&wanted, &dst).map(FsResponse::Copied)
        }
        FsRequest::Apply(request) => crate::apply_ops::execute(request).map(FsResponse::Apply),
        FsRequest::Probe {
            store,
            base,
            rootless,
        } => probe::support(&store, &base, rootless).map(FsResponse::Support),
    }
}

fn make_dir(path: &Path, mode: u32) -> Result<FsResponse> {
    let at = |e| codes::WRITE.io(format_args!("cannot make {}", path.display()), e);
    let mode = rustix::fs::Mode::from_raw_mode(mode);
    rustix::fs::mkdir(path, mode).map_err(at)?;
    // The process's umask was taken off.
    rustix::fs::chmod(path, mode).map_err(at)?;
    Ok(FsResponse::Done)
}

fn rename(from: &Path, to: &Path) -> Result<FsResponse> {
    let cwd = rustix::fs::CWD;
    openat::rename_noreplace((cwd, from.as_os_str()), (cwd, to.as_os_str())).map_err(|e| {
        codes::WRITE.io(
            format_args!("cannot rename {} to {}", from.display(), to.display()),
            e,
        )
    })?;
    Ok(FsResponse::Done)
}

fn sync(path: &Path) -> Result<FsResponse> {
    let synced = openat::directory(path).and_then(|dir| openat::syncfs(dir.as_fd()));
    synced.map_err(|e| codes::WRITE.io(format_args!("cannot sync {}", path.display()), e))?;
    Ok(FsResponse::Done)
}

fn read_file(
    layers: &[PathBuf],
    options: DiffOptions,
    path: &Path,
    max_len: u64,
) -> Result<Option<FileContent>> {
    let how = crate::MountOptions {
        volatile: false,
        userxattr: options.userxattr,
    };
    let view = view::glance(layers, &how)?;
    let read = || -> io::Result<Option<FileContent>> {
        // Looked at before it is opened for reading: opening a device may do something.
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let fd = match openat::beneath(view.as_fd(), path, flags, rustix::fs::Mode::empty()) {
            Ok(fd) => fd,
            Err(e) if no_such_file(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let meta = openat::stat_fd(fd.as_fd())?;
        if !meta.is_file() {
            return Ok(None);
        }
        let fd = std::fs::File::open(tree::proc_link(fd.as_fd()))?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(fd, max_len), &mut bytes)?;
        Ok(Some(FileContent {
            bytes,
            size: meta.size,
        }))
    };
    read().map_err(|e| codes::READ.io(format_args!("cannot read {} in a view", path.display()), e))
}

/// Nothing there, or something on the way or at the end that is no file (a link, a socket).
fn no_such_file(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO)
    )
}
