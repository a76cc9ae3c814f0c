//! The diff of a delta, at a cost that follows the delta.
//!
//! Candidates are the names that occur in the top layers. Each is looked at in two views: V, the
//! whole stack, and B, what is below the top layers; what is equal in both is no change. So what a
//! branch sees is decided by the kernel's own merging, not by a second implementation of it.
//!
//! Names alone are not enough where a top layer hides what is below it (an opaque directory, or a
//! directory over a whiteout) or takes it from elsewhere (a redirected directory). From there on
//! _everything_ that V and B hold at that path is compared.

use super::change::{ChangeSet, DiffOptions, FileType};
use super::compare::{Comparer, Look};
use super::sides::Sides;
use crate::tree::Cursor;
use crate::{MountOptions, codes, view};
use forkpoint_model::Result;
use forkpoint_sys::{openat, xattr};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest path a diff carries, in bytes: the kernel's own `PATH_MAX`. Nobody can name what is
/// deeper, and every path below repeats the ones above it, so that a tree without a bound could keep
/// a diff busy for as long as it liked.
const PATH_MAX: usize = 4096;

/// Diffs the top `top` layers of `layers` (topmost first, the last being the base) against the
/// rest. Nobody may write to any layer meanwhile. The cost follows what the top layers hold, plus
/// what they hide or rename; never the size of the base.
///
/// Fails on the first thing it cannot read: a diff that left something out would lose it.
pub fn diff(layers: &[PathBuf], top: usize, options: &DiffOptions) -> Result<ChangeSet> {
    if top == 0 || top >= layers.len() {
        return Err(codes::BAD_STACK.error(format!(
            "a diff of the top {top} of {} layers",
            layers.len()
        )));
    }
    let how = MountOptions {
        volatile: false,
        userxattr: options.userxattr,
    };
    let whole = view::glance(layers, &how)?;
    let below = view::glance(&layers[top..], &how)?;
    let parts = parts(&layers[..top])?;
    Walk::new(whole.as_fd(), below.as_fd(), parts, options)?.run()
}

/// Diffs the tree `tree` against `base` by walking both: where there is no overlay, and the branch
/// is a copy. The cost is that of the whole base.
pub fn diff_trees(tree: &Path, base: &Path) -> Result<ChangeSet> {
    let open = |path: &Path| {
        openat::directory_path(path)
            .map_err(|e| codes::READ.io(format_args!("cannot open {}", path.display()), e))
    };
    let (tree, base) = (open(tree)?, open(base)?);
    Walk::new(
        tree.as_fd(),
        base.as_fd(),
        Vec::new(),
        &DiffOptions::default(),
    )?
    .run()
}

/// Diffs the view of one stack against that of another; see [`super::Sides`]. The cost follows what
/// the layers hold that the two do not share, where they share the base; else it is that of both
/// trees.
pub fn between(sides: &Sides) -> Result<ChangeSet> {
    let shared = sides.shared();
    let (old, new) = sides.views()?;
    let mut own = sides.new[..sides.new.len() - shared].to_vec();
    own.extend_from_slice(&sides.old[..sides.old.len() - shared]);
    if own.is_empty() {
        return Ok(ChangeSet::default());
    }
    // Without a common base every name is a candidate, which is what no parts at all mean.
    let parts = if shared == 0 {
        Vec::new()
    } else {
        parts(&own)?
    };
    let mut walk = Walk::new(new.as_fd(), old.as_fd(), parts, &sides.options)?;
    walk.origins = false;
    walk.run()
}

fn parts(layers: &[PathBuf]) -> Result<Vec<Part>> {
    let mut parts = Vec::with_capacity(layers.len());
    for layer in layers {
        let at = |e: io::Error| codes::READ.io(format_args!("cannot read {}", layer.display()), e);
        let fd = openat::directory_path(layer).map_err(at)?;
        parts.push(Part::new(Cursor::new(fd.as_fd()).map_err(at)?));
    }
    Ok(parts)
}

/// One of the top layers: where the walk is in it, and how many directories up it stopped
/// following because it has no such directory.
struct Part {
    cursor: Cursor,
    absent: usize,
}

impl Part {
    fn new(cursor: Cursor) -> Self {
        Self { cursor, absent: 0 }
    }
}

/// What one of the top layers holds at a name.
enum Held {
    Nothing,
    /// A directory that merges with what is below it.
    Merged,
    /// A whiteout, anything but a directory, or a directory that hides or redirects.
    Other,
}

struct Frame {
    /// The names still to be looked at, last first.
    pending: Vec<OsString>,
    /// Compare everything, not only the names in the top layers.
    full: bool,
    /// B has this directory, too, and its cursor is in it.
    in_base: bool,
}

struct Walk {
    whole: Cursor,
    base: Cursor,
    parts: Vec<Part>,
    open: Vec<Frame>,
    path: PathBuf,
    comparer: Comparer,
    prefix: &'static str,
    /// Whether the parts are one stack's, so that they can say what was copied up.
    origins: bool,
}

impl Walk {
    fn new(
        whole: BorrowedFd<'_>,
        base: BorrowedFd<'_>,
        parts: Vec<Part>,
        options: &DiffOptions,
    ) -> Result<Self> {
        let at = |e: io::Error| codes::READ.io("cannot read a view", e);
        Ok(Self {
            whole: Cursor::new(whole).map_err(at)?,
            base: Cursor::new(base).map_err(at)?,
            parts,
            open: Vec::new(),
            path: PathBuf::new(),
            comparer: Comparer::default(),
            prefix: if options.userxattr {
                "user.overlay."
            } else {
                "trusted.overlay."
            },
            origins: true,
        })
    }

    fn run(mut self) -> Result<ChangeSet> {
        match self.walk() {
            Ok(()) => Ok(self.comparer.finish()),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NAMETOOLONG) => {
                let path = self.path.as_os_str().as_bytes();
                let start = String::from_utf8_lossy(&path[..path.len().min(100)]).into_owned();
                Err(codes::PATH_TOO_LONG
                    .error(format!("a path of more than {PATH_MAX} bytes: {start}…"))
                    .hint("remove that directory in the branch, or abort the branch"))
            }
            Err(e) => {
                let path = if self.path.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    &self.path
                };
                Err(codes::READ.io(format_args!("cannot compare {}", path.display()), e))
            }
        }
    }

    fn walk(&mut self) -> io::Result<()> {
        let own = OsStr::new("");
        let whole = Look::at(self.whole.fd(), own)?;
        let base = Look::at(self.base.fd(), own)?;
        self.comparer
            .compare(&self.path, whole.as_ref(), base.as_ref(), None)?;
        let full = self.parts.is_empty();
        self.open_frame(full, true)?;
        while let Some(frame) = self.open.last_mut() {
            let (full, in_base) = (frame.full, frame.in_base);
            if let Some(name) = frame.pending.pop() {
                self.path.push(&name);
                if self.path.as_os_str().len() > PATH_MAX {
                    return Err(Errno::NAMETOOLONG.into());
                }
                if !self.name(&name, full, in_base)? {
                    self.path.pop();
                }
            } else {
                self.open.pop();
                if !self.open.is_empty() {
                    self.leave(in_base)?;
                }
            }
        }
        Ok(())
    }

    /// Compares one name; true when the walk is in that directory now.
    fn name(&mut self, name: &OsStr, full: bool, in_base: bool) -> io::Result<bool> {
        let whole = Look::at(self.whole.fd(), name)?;
        let base = if in_base {
            Look::at(self.base.fd(), name)?
        } else {
            None
        };
        let (mut full, mut had_lower) = (full, None);
        if !full {
            let held = self.held(name)?;
            full = held.iter().any(|held| matches!(held, Held::Other));
            had_lower = match &whole {
                Some(whole) if self.origins && whole.kind != FileType::Dir => {
                    self.origin(name, &held)?
                }
                _ => None,
            };
        }
        self.comparer
            .compare(&self.path, whole.as_ref(), base.as_ref(), had_lower)?;
        let is_dir =
            |look: &Option<Look<'_>>| look.as_ref().is_some_and(|look| look.kind == FileType::Dir);
        if !is_dir(&whole) {
            return Ok(false);
        }
        let in_base = is_dir(&base);
        drop((whole, base));
        self.whole.enter(name)?;
        if in_base {
            self.base.enter(name)?;
        }
        // Whatever is not in B at all, is listed as V has it.
        self.enter_parts(name, full || !in_base)?;
        self.open_frame(full || !in_base, in_base)?;
        Ok(true)
    }

    fn open_frame(&mut self, full: bool, in_base: bool) -> io::Result<()> {
        let mut names = BTreeSet::new();
        let mut add = |cursor: &Cursor| -> io::Result<()> {
            names.extend(cursor.names()?.into_iter().map(|entry| entry.name));
            Ok(())
        };
        if full {
            add(&self.whole)?;
            if in_base {
                add(&self.base)?;
            }
        } else {
            for part in self.parts.iter().filter(|part| part.absent == 0) {
                add(&part.cursor)?;
            }
        }
        self.open.push(Frame {
            pending: names.into_iter().rev().collect(),
            full,
            in_base,
        });
        Ok(())
    }

    fn leave(&mut self, in_base: bool) -> io::Result<()> {
        self.whole.leave()?;
        if in_base {
            self.base.leave()?;
        }
        for part in &mut self.parts {
            if part.absent > 0 {
                part.absent -= 1;
            } else {
                part.cursor.leave()?;
            }
        }
        self.path.pop();
        Ok(())
    }

    /// Follows the walk into `name` in every top layer that has such a directory.
    fn enter_parts(&mut self, name: &OsStr, full: bool) -> io::Result<()> {
        for part in &mut self.parts {
            let there = !full
                && part.absent == 0
                && openat::stat_opt(part.cursor.fd(), name)?.is_some_and(|meta| meta.is_dir());
            if there {
                part.cursor.enter(name)?;
            } else {
                part.absent += 1;
            }
        }
        Ok(())
    }

    /// What each top layer holds at `name`, as the kernel's merging would take it.
    fn held(&self, name: &OsStr) -> io::Result<Vec<Held>> {
        self.parts
            .iter()
            .map(|part| self.held_by(part, name))
            .collect()
    }

    fn held_by(&self, part: &Part, name: &OsStr) -> io::Result<Held> {
        if part.absent > 0 {
            return Ok(Held::Nothing);
        }
        let dir = part.cursor.fd();
        let Some(meta) = openat::stat_opt(dir, name)? else {
            return Ok(Held::Nothing);
        };
        if !meta.is_dir() {
            return Ok(Held::Other);
        }
        let mark =
            |mark: &str| xattr::get(dir, name, OsStr::new(&format!("{}{mark}", self.prefix)));
        // Opaque "x" only says that there may be whiteouts of the attribute form inside.
        let opaque = mark("opaque")?.is_some_and(|value| value != b"x");
        if opaque || mark("redirect")?.is_some() {
            return Ok(Held::Other);
        }
        Ok(Held::Merged)
    }

    /// Whether the topmost layer that holds `name` says that it was copied up.
    fn origin(&self, name: &OsStr, held: &[Held]) -> io::Result<Option<bool>> {
        let top = held.iter().position(|held| !matches!(held, Held::Nothing));
        let Some(part) = top.and_then(|top| self.parts.get(top)) else {
            return Ok(None);
        };
        let key = format!("{}origin", self.prefix);
        Ok(Some(
            xattr::get(part.cursor.fd(), name, OsStr::new(&key))?.is_some(),
        ))
    }
}
