//! Staging: everything the delta brings, prepared completely beside the base and made durable,
//! with a journal of what to do with it. Nothing of the base is touched.

mod checks;

use super::api::{StageRequest, Staged};
use super::ident::{Attrs, FileId, Ident};
use super::io::Io;
use super::journal::{Dir, Journal, Op};
use super::plan::{self, Action, Root};
use super::prepare::{self, Notes, Ownership, failed};
use super::{build, subtree, walk};
use crate::codes;
use crate::conflict;
use crate::delta::{Change, ChangeKind};
use crate::{MountOptions, view};
use forkpoint_model::{Error, Result};
use forkpoint_sys::openat;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Stages a delta. When it returns, what is needed to apply it is durable; when it fails, the stage
/// is removed and the base is as it was.
///
/// # Errors
/// `FP0252` disk full, `FP0254` the base changed since the fork, `FP0255` an owner cannot be kept,
/// `FP0259` a directory cannot be changed, `FP0251` anything else that failed.
pub fn stage(request: &StageRequest) -> Result<Staged> {
    stage_with(Io::default(), request)
}

/// As [`stage`], with every change made through `io`.
pub fn stage_with(io: Io<'_>, request: &StageRequest) -> Result<Staged> {
    run(io, request).map_err(|error| {
        if io.dead() {
            return error;
        }
        match io.remove_tree(&request.stage) {
            Ok(()) => error,
            Err(left) => {
                let stage = request.stage.display();
                error.hint(format!(
                    "remove {stage}, which could not be removed: {left}"
                ))
            }
        }
    })
}

fn run(io: Io<'_>, request: &StageRequest) -> Result<Staged> {
    let mut stager = Stager::open(request)?;
    let roots = plan::roots(&request.changes);
    for root in &roots {
        stager.plan(root)?;
    }
    stager.check_writable()?;
    stager.check_space()?;
    let mut builder = build::Builder::new(
        io,
        stager.view.as_fd(),
        stager.stage.as_fd(),
        request,
        Ownership::new(request.owners).map_err(|e| failed(&request.stage, &e))?,
    );
    for planned in stager.ops.iter().filter(|p| p.builds) {
        builder.root(&planned.stage_name, planned.root.all.clone())?;
    }
    let bytes = builder.finish()?;
    let mut notes = builder.notes;
    notes.list.append(&mut stager.notes.list);
    notes.list.truncate(prepare::MAX_NOTES);
    notes.total += stager.notes.total;
    stager.changed_since()?;
    let journal = stager.journal()?;
    let digest = journal.digest()?;
    Ok(Staged {
        journal,
        digest,
        bytes,
        notes: notes.list,
        notes_total: notes.total,
    })
}

/// An operation whose new side is not known yet.
struct Planned {
    root: Root,
    dir: u32,
    name: OsString,
    stage_name: OsString,
    builds: bool,
    old: Option<Ident>,
    attrs: Option<Op>,
}

struct Stager<'r> {
    request: &'r StageRequest,
    base: OwnedFd,
    view: view::Glance,
    stage: OwnedFd,
    stage_dev: (u32, u32),
    dirs: Vec<Dir>,
    index: HashMap<PathBuf, u32>,
    ops: Vec<Planned>,
    owner: Ownership,
    notes: Notes,
}

impl<'r> Stager<'r> {
    fn open(request: &'r StageRequest) -> Result<Self> {
        let open = |path: &Path| openat::directory(path).map_err(|e| failed(path, &e));
        let stage = open(&request.stage)?;
        if !walk::names(stage.as_fd())
            .map_err(|e| failed(&request.stage, &e))?
            .is_empty()
        {
            return Err(codes::STAGE
                .error(format!("{} is not empty", request.stage.display()))
                .hint("discard what an earlier commit staged there"));
        }
        let options = MountOptions {
            userxattr: request.userxattr,
            volatile: false,
        };
        let stage_dev = openat::stat_fd(stage.as_fd())
            .map_err(|e| failed(&request.stage, &e))?
            .dev;
        Ok(Self {
            base: openat::directory_path(&request.base).map_err(|e| failed(&request.base, &e))?,
            view: view::glance(&request.layers, &options)?,
            stage,
            stage_dev,
            request,
            dirs: Vec::new(),
            index: HashMap::new(),
            ops: Vec::new(),
            owner: Ownership::new(request.owners).map_err(|e| failed(&request.stage, &e))?,
            notes: Notes::default(),
        })
    }

    /// The index of a directory of the base, recorded with its identity and its times.
    fn dir(&mut self, path: &Path) -> Result<(u32, OwnedFd)> {
        let fd = walk::dir(self.base.as_fd(), path)
            .map_err(|e| changed(path, format!("the directory cannot be opened: {e}")))?;
        if let Some(known) = self.index.get(path) {
            return Ok((*known, fd));
        }
        let fail = |e: std::io::Error| failed(path, &e);
        let meta = openat::stat_fd(fd.as_fd()).map_err(fail)?;
        if meta.dev != self.stage_dev {
            return Err(codes::CANNOT_APPLY
                .error(format!(
                    "{} lies on a file system of its own",
                    path.display()
                ))
                .hint("take it in as a disk of its own, or exclude it"));
        }
        let in_view = conflict::look(self.view.as_fd(), path).map_err(fail)?;
        let new_mtime = in_view.map_or(meta.mtime, |(_, _, meta)| meta.mtime).into();
        let index = u32::try_from(self.dirs.len())
            .map_err(|_| codes::STAGE.error("a delta touches more than 4 billion directories"))?;
        self.dirs.push(Dir {
            path: path.as_os_str().as_bytes().to_vec(),
            id: FileId::at(fd.as_fd(), OsStr::new("")).map_err(fail)?,
            old_mtime: meta.mtime.into(),
            new_mtime,
        });
        self.index.insert(path.to_owned(), index);
        Ok((index, fd))
    }

    /// Records what the base has where the root's change goes.
    fn plan(&mut self, root: &Root) -> Result<()> {
        let change = &self.request.changes.changes[root.at];
        if root.action == Action::Skip {
            self.notes.add(&change.path, "a socket is not carried over");
            return Ok(());
        }
        if change.path.as_os_str().is_empty() || root.action == Action::Attrs && is_dir(change) {
            return self.plan_dir_attrs(root, change);
        }
        let (parent, name) = match (change.path.parent(), change.path.file_name()) {
            (Some(parent), Some(name)) => (parent, name.to_owned()),
            _ => return Err(codes::STAGE.error("a change has no name")),
        };
        let (dir, fd) = self.dir(parent)?;
        let fail = |e: std::io::Error| failed(&change.path, &e);
        let mut old = Ident::at(fd.as_fd(), &name).map_err(fail)?;
        match (&mut old, root.action) {
            (None, Action::Add) => {}
            (Some(_), Action::Add) => {
                return Err(changed(&change.path, "added since"));
            }
            (None, _) => return Err(changed(&change.path, "removed since")),
            (Some(old), _) if old.is_dir() => {
                old.below = Some(subtree::digest(fd.as_fd(), &name).map_err(fail)?);
            }
            (Some(_), _) => {}
        }
        let mut attrs = None;
        if root.action == Action::Attrs {
            let alone = old.as_ref().is_some_and(|old| old.nlink == 1);
            if alone {
                let op = self.file_attrs(dir, fd.as_fd(), &name, old.as_ref(), &change.path)?;
                attrs = Some(op);
            }
        }
        let builds = attrs.is_none() && root.action != Action::Remove;
        self.push(root, dir, name, old, attrs, builds);
        Ok(())
    }

    fn push(
        &mut self,
        root: &Root,
        dir: u32,
        name: OsString,
        old: Option<Ident>,
        attrs: Option<Op>,
        builds: bool,
    ) {
        let stage_name = OsString::from(self.ops.len().to_string());
        let root = root.clone();
        self.ops.push(Planned {
            root,
            dir,
            name,
            stage_name,
            builds,
            old,
            attrs,
        });
    }

    fn plan_dir_attrs(&mut self, root: &Root, change: &Change) -> Result<()> {
        let path = &change.path;
        let fail = |e: std::io::Error| failed(path, &e);
        let (dir, fd) = self.dir(path)?;
        let old = Attrs::at(fd.as_fd(), OsStr::new("")).map_err(fail)?;
        let new = self.wanted_attrs(path, &old)?;
        let id = self.dirs[dir as usize].id.clone();
        let op = Op::Attrs {
            dir,
            name: Vec::new(),
            id,
            old,
            new,
            mtime: None,
            size: 0,
        };
        self.push(root, dir, OsString::new(), None, Some(op), false);
        Ok(())
    }

    fn file_attrs(
        &mut self,
        dir: u32,
        fd: BorrowedFd<'_>,
        name: &OsStr,
        ident: Option<&Ident>,
        path: &Path,
    ) -> Result<Op> {
        let fail = |e: std::io::Error| failed(path, &e);
        let old = Attrs::at(fd, name).map_err(fail)?;
        let new = self.wanted_attrs(path, &old)?;
        let Some(ident) = ident else {
            return Err(changed(path, "removed since"));
        };
        let (_, _, meta) = conflict::look(self.view.as_fd(), path)
            .map_err(fail)?
            .ok_or_else(|| changed(path, "gone from the branch's view"))?;
        Ok(Op::Attrs {
            dir,
            name: name.as_bytes().to_vec(),
            id: ident.id.clone(),
            old,
            new,
            mtime: Some((ident.mtime, meta.mtime.into())),
            size: ident.size,
        })
    }

    /// The attributes of `path` in the view, owners mapped.
    fn wanted_attrs(&mut self, path: &Path, old: &Attrs) -> Result<Attrs> {
        let fail = |e: std::io::Error| failed(path, &e);
        let (dir, name, _) = conflict::look(self.view.as_fd(), path)
            .map_err(fail)?
            .ok_or_else(|| changed(path, "gone from the branch's view"))?;
        let mut new = Attrs::at(dir.as_fd(), &name).map_err(fail)?;
        let (owner, mapped) = self.owner.map((new.uid, new.gid), (old.uid, old.gid));
        if mapped {
            let text = format!(
                "owner {}:{} stays {}:{}",
                new.uid, new.gid, owner.0, owner.1
            );
            self.notes.add(path, text);
        }
        (new.uid, new.gid) = owner;
        Ok(new)
    }

    /// The journal: attributes that open a directory up, then the entries, then attributes that
    /// close one.
    fn journal(mut self) -> Result<Journal> {
        for (path, _) in &self.request.changes.dir_times {
            if conflict::look(self.base.as_fd(), path)
                .map_err(|e| failed(path, &e))?
                .is_some_and(|(_, _, meta)| meta.is_dir())
            {
                self.dir(path)?;
            }
        }
        let (mut first, mut middle, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for planned in std::mem::take(&mut self.ops) {
            match planned.attrs {
                Some(op) => match &op {
                    Op::Attrs { name, new, .. } if name.is_empty() && !opens(new.mode) => {
                        last.push(op);
                    }
                    _ => first.push(op),
                },
                None => middle.push(self.op(planned)?),
            }
        }
        last.reverse();
        first.append(&mut middle);
        first.append(&mut last);
        let fail = |e: std::io::Error| failed(&self.request.stage, &e);
        Ok(Journal {
            base: FileId::at(self.base.as_fd(), OsStr::new("")).map_err(fail)?,
            stage: self.request.stage.as_os_str().as_bytes().to_vec(),
            stage_id: FileId::at(self.stage.as_fd(), OsStr::new("")).map_err(fail)?,
            dirs: self.dirs,
            ops: first,
        })
    }

    fn op(&self, planned: Planned) -> Result<Op> {
        let Planned {
            dir,
            name,
            stage_name,
            builds,
            old,
            ..
        } = planned;
        let (name, stage) = (name.into_vec(), stage_name.clone().into_vec());
        let lost = || codes::STAGE.error("what was staged is gone");
        if !builds {
            let old = old.ok_or_else(lost)?;
            return Ok(Op::Remove {
                dir,
                name,
                stage,
                old,
            });
        }
        let fail = |e: std::io::Error| failed(&self.request.stage, &e);
        let mut new = Ident::at(self.stage.as_fd(), &stage_name)
            .map_err(fail)?
            .ok_or_else(lost)?;
        if new.is_dir() {
            new.below = Some(subtree::digest(self.stage.as_fd(), &stage_name).map_err(fail)?);
        } else {
            let as_index = (name.as_slice(), self.stage.as_fd(), stage_name.as_os_str());
            new.below = index_entries(as_index).map_err(fail)?;
        }
        Ok(match old {
            Some(old) => Op::Exchange {
                dir,
                name,
                stage,
                old,
                new,
            },
            None => Op::Add {
                dir,
                name,
                stage,
                new,
            },
        })
    }
}

/// What git's index lists, where the file called `name` is one.
pub(super) fn index_entries(
    (name, dir, entry): (&[u8], BorrowedFd<'_>, &OsStr),
) -> std::io::Result<Option<[u8; 32]>> {
    if name != b"index" || !openat::stat(dir, entry)?.is_file() {
        return Ok(None);
    }
    let (fd, _) = crate::tree::open_regular(dir, entry)?;
    Ok(conflict::index_digest(fd.as_fd())?.map(|digest| digest.0))
}

fn is_dir(change: &Change) -> bool {
    change.file_type == crate::delta::FileType::Dir && change.kind == ChangeKind::Metadata
}

/// Whether a directory's owner can add and remove names in it.
fn opens(mode: u32) -> bool {
    mode & 0o300 == 0o300
}

fn changed(path: &Path, why: impl std::fmt::Display) -> Error {
    let path = crate::bytes::escape(path.as_os_str().as_encoded_bytes());
    codes::BASE_CHANGED
        .io(path, why)
        .hint("rebase the branch on the base as it now is, then verify and commit it again")
}
