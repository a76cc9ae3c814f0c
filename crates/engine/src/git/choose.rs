//! Which of a branch's changes go into a git commit, and whether HEAD agrees with what the branch was
//! forked from.

use super::plumbing::{Repo, TreeEntry};
use super::{GitOptions, GitReport, conflict};
use crate::branch::Branch;
use crate::codes;
use crate::drive::Driver;
use crate::files::{Scratch, make_dir, mismatch};
use crate::options::{CommitOutcome, Side};
use forkpoint_fs::blobs::{self, Blob, Paths};
use forkpoint_fs::delta::{Change, ChangeKind, FileType};
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_fs::patch::hex;
use forkpoint_model::{Conflict, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An ignore file is read up to this size.
const IGNORE_FILE: u64 = 1 << 20;

/// The mode of a submodule in a tree.
const SUBMODULE: u32 = 0o160_000;

/// What goes in, relative to the disk.
pub(super) struct Choice {
    /// Files and links to write.
    pub(super) put: Vec<PathBuf>,
    /// Tracked paths to remove.
    pub(super) removed: Vec<PathBuf>,
}

type Head = BTreeMap<PathBuf, TreeEntry>;

impl Branch {
    /// Chooses; or says why nothing can be committed.
    pub(super) fn choose(
        &self,
        repo: &Repo,
        parent: &str,
        driver: &Driver<'_>,
        options: &GitOptions,
        made: &mut GitReport,
    ) -> Result<std::result::Result<Choice, CommitOutcome>> {
        let mut changes: &[Change] = &[];
        for (index, disk) in driver.disks.iter().enumerate() {
            let Some(selection) = &disk.selected else {
                continue;
            };
            if index == 0 {
                changes = &selection.commit.changes;
            } else if !selection.commit.is_empty() {
                let note = "what it changed in git's own directory is not part of the git branch";
                made.report.notes.push(note.into());
            }
        }
        let (mut put, removed) = sort(changes, repo, made)?;
        let touched: Vec<PathBuf> = put.keys().chain(&removed).cloned().collect();
        let head = self.head(repo, parent, &touched)?;
        let conflicts = self.disagreements(repo, &head)?;
        if !conflicts.is_empty() {
            return Ok(Err(CommitOutcome::Conflict(conflicts)));
        }
        // A file git does not know is taken up by what is new in it, not by a time.
        put.retain(|path, kind| *kind != ChangeKind::Metadata || head.contains_key(path));
        if !options.include_ignored {
            let unknown = put.keys().filter(|path| !head.contains_key(*path));
            let ignored = self.ignored(repo, &unknown.cloned().collect::<Vec<_>>())?;
            put.retain(|path, _| !ignored.contains(path));
            made.ignored = ignored.into_iter().collect();
        }
        for (path, kind) in &put {
            if *kind != ChangeKind::Added && !head.contains_key(path) {
                let note = format!(
                    "{} is not in HEAD: all of it is in the commit",
                    path.display()
                );
                made.report.notes.push(note);
            }
        }
        let tracked = |path: &PathBuf| head.keys().any(|known| known.starts_with(path));
        let choice = Choice {
            removed: removed.into_iter().filter(tracked).collect(),
            put: put.into_keys().collect(),
        };
        self.elsewhere(repo, made)?;
        made.report.changed.items = (choice.put.len() + choice.removed.len()) as u64;
        if choice.put.is_empty() && choice.removed.is_empty() && !options.commit.allow_empty {
            return Ok(Err(CommitOutcome::Empty));
        }
        Ok(Ok(choice))
    }

    /// What HEAD has at these paths and below, relative to the disk. Submodules are refused.
    fn head(&self, repo: &Repo, parent: &str, touched: &[PathBuf]) -> Result<Head> {
        let inside = |path: &PathBuf| repo.prefix.join(path);
        let paths: Vec<PathBuf> = touched.iter().map(inside).collect();
        let above: BTreeSet<PathBuf> = paths
            .iter()
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|path| !path.as_os_str().is_empty())
            .map(Path::to_owned)
            .collect();
        let above = repo.entries(parent, &above.into_iter().collect::<Vec<_>>(), false)?;
        let found = repo.entries(parent, &paths, true)?;
        if let Some(module) = above.iter().chain(&found).find(|e| e.mode == SUBMODULE) {
            return Err(codes::GIT
                .error(format!("{} is a submodule", module.path.display()))
                .hint("fork the submodule's own directory, or leave it out with --exclude"));
        }
        let own = |entry: TreeEntry| {
            let path = entry.path.strip_prefix(&repo.prefix).ok()?.to_owned();
            Some((path, entry))
        };
        // A file where the disk has a directory is found under its own name.
        let files = above.into_iter().filter(|e| e.mode != 0o040_000);
        Ok(found.into_iter().chain(files).filter_map(own).collect())
    }

    /// Where HEAD is not what the branch was forked from, among the paths it changes.
    fn disagreements(&self, repo: &Repo, head: &Head) -> Result<Vec<Conflict>> {
        let paths: Vec<PathBuf> = head.keys().cloned().collect();
        let disk = self.first_disk()?;
        let base = self.blobs(vec![disk.bottom], paths.clone())?;
        let with_modes =
            repo.text(&["config", "--type=bool", "--default=true", "core.fileMode"])?;
        let with_modes = with_modes == "true";
        let mut conflicts = Vec::new();
        for (path, base) in paths.iter().zip(base) {
            let entry = &head[path];
            let same = base.is_some_and(|blob| {
                let runs = |mode: u32| mode & 0o111 != 0 && with_modes;
                let link = |mode: u32| mode & 0o170_000;
                hex(&blob.name) == entry.name
                    && link(blob.mode) == link(entry.mode)
                    && runs(blob.mode) == runs(entry.mode)
            });
            if !same {
                let why = "the base has it otherwise than HEAD: it is not committed, or a filter or \
                           a conversion of line ends changes it";
                let item = path.as_os_str().as_bytes().escape_ascii().to_string();
                conflicts.push(conflict(&item, why));
            }
        }
        Ok(conflicts)
    }

    fn blobs(&self, layers: Vec<PathBuf>, paths: Vec<PathBuf>) -> Result<Vec<Option<Blob>>> {
        let request = FsRequest::BlobNames(Paths {
            layers,
            options: self.engine.diff_options(),
            paths,
        });
        match self.engine.fs(request)? {
            FsResponse::Blobs(blobs) => Ok(blobs),
            _ => Err(mismatch("naming blobs")),
        }
    }

    /// Which of these paths the ignore rules leave out, as the branch has the rules.
    fn ignored(&self, repo: &Repo, paths: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
        if paths.is_empty() {
            return Ok(BTreeSet::new());
        }
        let scratch = Scratch::new(&self.engine, "ignore")?;
        let tree = scratch.path().join("tree");
        make_dir(&tree)?;
        let write = |at: &Path, text: &[u8]| -> Result<()> {
            let to = tree.join(at);
            make_dir(to.parent().unwrap_or(&tree))?;
            std::fs::write(&to, text)
                .map_err(|e| codes::IO.io(format!("cannot write {}", to.display()), e))
        };
        // Above the disk the rules are the host's own.
        for above in repo.prefix.ancestors().skip(1) {
            let at = above.join(".gitignore");
            let from = repo.top.join(&at);
            let plain = std::fs::symlink_metadata(&from).is_ok_and(|m| m.is_file());
            if plain {
                let text = std::fs::read(&from)
                    .map_err(|e| codes::GIT.io(format!("cannot read {}", from.display()), e))?;
                write(&at, &text)?;
            }
        }
        let above = paths.iter().flat_map(|path| path.ancestors().skip(1));
        let files: BTreeSet<PathBuf> = above.map(|dir| dir.join(".gitignore")).collect();
        let files: Vec<PathBuf> = files.into_iter().collect();
        let found = self.blobs(self.first_disk()?.compared(), files.clone())?;
        for (file, _) in files.iter().zip(found).filter(|(_, blob)| blob.is_some()) {
            // A symbolic link is none: git follows none either.
            if let Some(text) = self.read_file(file, Side::Branch, IGNORE_FILE)? {
                write(&repo.prefix.join(file), &text)?;
            }
        }
        let inside: Vec<PathBuf> = paths.iter().map(|path| repo.prefix.join(path)).collect();
        let ignored = repo.ignored(&tree, &inside)?;
        let own = |path: PathBuf| path.strip_prefix(&repo.prefix).ok().map(Path::to_owned);
        Ok(ignored.into_iter().filter_map(own).collect())
    }

    /// Notes what else of the base is not in HEAD: the branch was judged with it, the commit is
    /// without. By git's own record of times alone, so that no filter runs.
    fn elsewhere(&self, repo: &Repo, made: &mut GitReport) -> Result<()> {
        let dirty = repo.run(&["diff-files", "-z", "--name-only", "--ignore-submodules=all"])?;
        let staged = repo.run(&["diff-index", "-z", "--name-only", "--cached", "HEAD"])?;
        let names: BTreeSet<&[u8]> = dirty
            .split(|&b| b == 0)
            .chain(staged.split(|&b| b == 0))
            .filter(|name| !name.is_empty())
            .collect();
        if let Some(first) = names.first() {
            made.report.notes.push(format!(
                "{} paths of the work tree may hold uncommitted changes that the commit is without ({}…)",
                names.len(),
                first.escape_ascii()
            ));
        }
        Ok(())
    }
}

/// Takes a delta apart: what to write, and how it came; what to remove.
#[allow(clippy::type_complexity)]
fn sort(
    changes: &[Change],
    repo: &Repo,
    made: &mut GitReport,
) -> Result<(BTreeMap<PathBuf, ChangeKind>, Vec<PathBuf>)> {
    let (mut put, mut removed) = (BTreeMap::new(), Vec::new());
    for change in changes {
        let path = &change.path;
        if blobs::is_gits_own(path) {
            let nested = repo.prefix.join(path).components().count() > 1
                && !repo.prefix.join(path).starts_with(".git");
            if nested && change.kind != ChangeKind::Removed {
                return Err(codes::GIT
                    .error(format!(
                        "{} belongs to a repository of its own",
                        path.display()
                    ))
                    .hint("leave it out with --exclude: submodules are not made by this"));
            }
            made.uncarried.push(path.clone());
            continue;
        }
        let was_there = change.kind != ChangeKind::Added;
        let retyped = change.kind == ChangeKind::TypeChanged;
        if change.kind == ChangeKind::Removed || retyped {
            removed.push(path.clone());
        }
        if change.kind == ChangeKind::Removed {
            continue;
        }
        match change.file_type {
            FileType::File | FileType::Symlink => {
                let only_git = change.differs.mode || !was_there || retyped;
                if change.kind != ChangeKind::Metadata || only_git {
                    put.insert(path.clone(), change.kind);
                }
            }
            FileType::Dir => {}
            _ => made.uncarried.push(path.clone()),
        }
    }
    Ok((put, removed))
}
