//! How the layers of one piece of the system root are stacked: the host's directory, what the
//! preparation left over it, and the branch's own upper.
//!
//! The kernel sets limits that meet here. An overlay refuses lower layers of which one contains the
//! other, and the store often lies below the host's directory, so the preparation's layer is mounted
//! over the host's first and that mount is the only lower layer. Overlays cannot be stacked deeper
//! than two, so where the host's directory is an overlay itself the layers lie side by side; it does
//! not contain the store then, or it could not hold an upper either. Where neither can be, the host's
//! directory is shown as it is, and said to lack what the preparation did there.

use super::failed;
use super::layers::Layers;
use super::memory::Memory;
use crate::mounts::entry_name;
use crate::spec::SandboxSpec;
use forkpoint_fs::{MountOptions, view};
use forkpoint_model::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The work directory of the mount that puts the preparation's layer over the host's.
pub(super) const PREPARED_WORK: &str = "prepared-work";

/// Closed to others by convention, and where root's commands begin.
const HOME_OF_ROOT: &str = "/root";

/// What stacking needs of the construction.
pub(super) struct Stacking<'b, 'a> {
    pub(super) layers: &'b mut Layers<'a>,
    pub(super) memory: &'b mut Memory,
    pub(super) warnings: &'b mut Vec<String>,
}

/// One piece to be stacked.
struct Piece<'p> {
    path: &'p Path,
    /// Where the branch's own upper and work directory lie.
    own: PathBuf,
    /// The host's directory, under what covers it.
    host: Vec<OwnedFd>,
    /// The preparation's layers of it, topmost first.
    prepared: Vec<PathBuf>,
    options: MountOptions,
}

impl Stacking<'_, '_> {
    /// An overlay over the host's directory `path`, with the preparation's layers between, and
    /// `cover` just above the host's.
    pub(super) fn overlay(
        &mut self,
        spec: &SandboxSpec,
        path: &Path,
        cover: Option<OwnedFd>,
    ) -> Result<OwnedFd> {
        let name = entry_name(path);
        let mut host = Vec::from_iter(cover);
        host.push(self.layers.lower(path)?);
        let prepared = spec.root_layers.iter().map(|l| l.join(&name).join("upper"));
        let piece = Piece {
            path,
            own: spec.root_upper.join(&name),
            host,
            prepared: prepared.filter(|dir| dir.is_dir()).collect(),
            options: MountOptions {
                volatile: true,
                userxattr: spec.identity.rootless(),
            },
        };
        self.stacked(spec, &piece)
            .map_err(|e| e.context(format_args!("the view of {}", path.display())))
    }

    fn stacked(&mut self, spec: &SandboxSpec, piece: &Piece<'_>) -> Result<OwnedFd> {
        let host: Vec<BorrowedFd<'_>> = piece.host.iter().map(AsFd::as_fd).collect();
        if piece.prepared.is_empty() {
            return self.over(spec, piece, &host);
        }
        let first = match self.one_on_the_other(piece) {
            Ok(below) => match self.over(spec, piece, &[below.as_fd()]) {
                Ok(mounted) => return Ok(mounted),
                Err(e) => e,
            },
            Err(e) => e,
        };
        if let Ok(prepared) = self.prepared(piece) {
            let mut lowers: Vec<BorrowedFd<'_>> = prepared.iter().map(AsFd::as_fd).collect();
            lowers.extend(&host);
            if let Ok(mounted) = self.over(spec, piece, &lowers) {
                return Ok(mounted);
            }
        }
        let mounted = self.over(spec, piece, &host).map_err(|_| first.clone())?;
        if piece.prepared.iter().any(|dir| holds_anything(dir)) {
            self.warnings.push(format!(
                "what the preparation wrote below {} is not there: the kernel cannot lay it over that \
                 file system ({})",
                piece.path.display(),
                first.message
            ));
        }
        Ok(mounted)
    }

    fn prepared(&mut self, piece: &Piece<'_>) -> Result<Vec<OwnedFd>> {
        let dirs = piece.prepared.iter();
        dirs.map(|dir| self.layers.stored(dir)).collect()
    }

    /// The preparation's layers mounted over the host's, each over the one below. Nothing can write
    /// through these mounts: they are reached as lower layers only.
    fn one_on_the_other(&mut self, piece: &Piece<'_>) -> Result<OwnedFd> {
        let work = piece.own.join(PREPARED_WORK);
        let mut top: Option<OwnedFd> = None;
        for layer in piece.prepared.iter().rev() {
            let (upper, work) = self.layers.stored_pair(layer, &work)?;
            let lowers: Vec<BorrowedFd<'_>> = match &top {
                Some(below) => vec![below.as_fd()],
                None => piece.host.iter().map(AsFd::as_fd).collect(),
            };
            let pair = Some((upper.as_fd(), work.as_fd()));
            let mounted = view::mount_fds(&lowers, pair, &piece.options)
                .map_err(|e| e.context("the preparation's layer of the system root"))?;
            top = Some(mounted);
        }
        top.ok_or_else(|| failed("stack nothing", "there is no layer"))
    }

    /// The branch's upper over `lowers`: in the store, or in memory where the store cannot hold one.
    fn over(
        &mut self,
        spec: &SandboxSpec,
        piece: &Piece<'_>,
        lowers: &[BorrowedFd<'_>],
    ) -> Result<OwnedFd> {
        let first = match self.in_store(&piece.own, lowers, &piece.options) {
            Ok(mounted) => return Ok(mounted),
            Err(e) => e,
        };
        let targets = spec.disks.iter().map(|disk| disk.target.clone());
        let ways: Vec<PathBuf> = match self.layers.is_unmapped(piece.path) {
            true => targets.chain([PathBuf::from(HOME_OF_ROOT)]).collect(),
            false => Vec::new(),
        };
        self.in_memory(piece.path, lowers, &piece.options, &ways)
            .map_err(|_| first)
    }

    /// As for a piece, over layers that are none of the host's.
    pub(super) fn own_over(
        &mut self,
        own: &Path,
        path: &Path,
        lowers: &[BorrowedFd<'_>],
        options: &MountOptions,
    ) -> Result<OwnedFd> {
        let first = match self.in_store(own, lowers, options) {
            Ok(mounted) => return Ok(mounted),
            Err(e) => e,
        };
        self.in_memory(path, lowers, options, &[])
            .map_err(|_| first)
    }

    fn in_store(
        &mut self,
        own: &Path,
        lowers: &[BorrowedFd<'_>],
        options: &MountOptions,
    ) -> Result<OwnedFd> {
        let upper = self.layers.stored(&own.join("upper"))?;
        let work = self.layers.stored(&own.join("work"))?;
        view::mount_fds(lowers, Some((upper.as_fd(), work.as_fd())), options)
    }

    fn in_memory(
        &mut self,
        path: &Path,
        lowers: &[BorrowedFd<'_>],
        options: &MountOptions,
        ways: &[PathBuf],
    ) -> Result<OwnedFd> {
        let fault = |e: std::io::Error| failed("make an upper in memory", e);
        let first = !self.memory.used();
        let (upper, work) = self.memory.pair(path).map_err(fault)?;
        for way in ways {
            self.memory.way(upper.as_fd(), path, way).map_err(fault)?;
        }
        let mounted = view::mount_fds(lowers, Some((upper.as_fd(), work.as_fd())), options)?;
        if first {
            self.warnings.push(
                "the store cannot hold an overlay's upper directory: what is written outside the \
                 disks is kept in memory and is not listed"
                    .into(),
            );
        }
        Ok(mounted)
    }
}

/// Whether a layer holds anything; one that cannot be listed is taken to.
fn holds_anything(dir: &Path) -> bool {
    std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_some())
}
