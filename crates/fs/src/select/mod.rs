//! Which changes are committed: without those excluded by name, and without those that would make
//! the host run something later.

use crate::codes;
use crate::delta::{Change, ChangeKind, ChangeSet, FileType, Grants};
use forkpoint_model::Result;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What to leave out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rules {
    /// Globs of paths that are not committed. `*` stops at `/`, `**` does not; a glob that matches
    /// a directory takes everything below it along.
    pub exclude: Vec<String>,
    /// Commit even what would make the host run something (git hooks and configuration), or would
    /// grant something there ([`Grants`]).
    pub allow_host_exec: bool,
    /// Globs of paths that an attempt may not change; see [`crate::protect`].
    pub protect: Vec<String>,
    /// The disk itself is a git directory (of a linked worktree, or of an absorbed submodule).
    pub is_git_dir: bool,
}

/// A change set, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Selected {
    /// What is committed.
    pub commit: ChangeSet,
    /// What the rules exclude.
    #[serde(with = "crate::bytes::list")]
    pub excluded: Vec<PathBuf>,
    /// What is withheld because it would make the host run something.
    #[serde(with = "crate::bytes::list")]
    pub withheld: Vec<PathBuf>,
}

/// Compiles globs over paths' bytes.
///
/// # Errors
/// `FP0256` names the glob that is none.
pub(crate) fn globs(list: &[String]) -> Result<GlobSet> {
    let bad = |glob: &str, e: globset::Error| {
        codes::BAD_GLOB.io(format_args!("{glob:?} is not a glob"), e.kind())
    };
    let mut set = GlobSetBuilder::new();
    for glob in list {
        let pattern = glob.trim_start_matches("./").trim_end_matches('/');
        let compiled = GlobBuilder::new(pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|e| bad(glob, e))?;
        set.add(compiled);
    }
    set.build().map_err(|e| bad("the list", e))
}

/// Why a text is no glob; none where it is one.
pub fn glob_fault(text: &str) -> Option<String> {
    // The error's words are its cause: the code says only that it is none.
    let fault = |glob: &str| {
        GlobBuilder::new(glob)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .err()
    };
    fault(text.trim_start_matches("./").trim_end_matches('/')).map(|e| e.kind().to_string())
}

/// Whether a glob matches the path or a directory above it.
pub(crate) fn matches(set: &GlobSet, path: &Path) -> bool {
    path.ancestors()
        .filter(|p| !p.as_os_str().is_empty())
        .any(|p| set.is_match(p))
}

/// Takes a delta apart by the rules. A directory's own time is committed unless everything that
/// changed directly in it was left out.
pub fn partition(changes: ChangeSet, rules: &Rules) -> Result<Selected> {
    let exclude = globs(&rules.exclude)?;
    let mut selected = Selected::default();
    let bare = bare_repositories(&changes);
    let mut left_out: HashMap<PathBuf, bool> = HashMap::new();
    // New directories that are withheld: nothing can be put below them.
    let mut closed: HashSet<PathBuf> = HashSet::new();
    let parent = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
    for mut change in changes.changes {
        let excluded = matches(&exclude, &change.path);
        let why = match change.grants {
            _ if rules.allow_host_exec => None,
            _ if withholds(&change, rules.is_git_dir, &bare) => {
                Some("it would make the host run something")
            }
            Some(Grants::SetId) => Some("it would run with its owner's rights"),
            Some(Grants::Capability) => Some("it would run with capabilities"),
            Some(Grants::OverlayMark) => Some("it would change what later branches see here"),
            None if change.path.ancestors().any(|dir| closed.contains(dir)) => {
                Some("its directory is withheld")
            }
            None => None,
        };
        let keep = left_out.entry(parent(&change.path)).or_insert(false);
        if excluded {
            selected.excluded.push(change.path);
        } else if let Some(why) = why {
            if change.file_type == FileType::Dir && change.old_type != Some(FileType::Dir) {
                closed.insert(change.path.clone());
            }
            change.withheld = Some(why.into());
            selected.withheld.push(change.path);
        } else {
            *keep = true;
            selected.commit.bytes += change.size;
            selected.commit.changes.push(change);
        }
    }
    selected.commit.dir_times = changes.dir_times;
    selected
        .commit
        .dir_times
        .retain(|(path, _)| left_out.get(path).copied().unwrap_or(true));
    selected.commit.skipped_noops = changes.skipped_noops;
    Ok(selected)
}

/// Directories that the delta makes look like git directories without being called `.git`: git
/// takes one up when started in it, with its configuration.
fn bare_repositories(changes: &ChangeSet) -> HashSet<PathBuf> {
    let mut seen: HashMap<&Path, u8> = HashMap::new();
    for change in changes
        .changes
        .iter()
        .filter(|c| c.kind != ChangeKind::Removed)
    {
        let (Some(dir), Some(name)) = (change.path.parent(), change.path.file_name()) else {
            continue;
        };
        let bit = match name.as_bytes().to_ascii_lowercase().as_slice() {
            b"head" => 1,
            b"objects" => 2,
            b"refs" => 4,
            _ => continue,
        };
        *seen.entry(dir).or_default() |= bit;
    }
    seen.into_iter()
        .filter(|(_, bits)| *bits == 7)
        .map(|(dir, _)| dir.to_owned())
        .collect()
}

/// Whether a change would make the host run something when it next uses git. Names are compared
/// without regard to case, since some file systems do so too.
fn withholds(change: &Change, is_git_dir: bool, bare: &HashSet<PathBuf>) -> bool {
    let lower = change.path.as_os_str().as_bytes().to_ascii_lowercase();
    let parts: Vec<&[u8]> = lower.split(|&b| b == b'/').collect();
    if is_git_dir && runs(&parts) {
        return true;
    }
    for (at, part) in parts.iter().enumerate() {
        if *part != b".git" {
            continue;
        }
        let rest = &parts[at + 1..];
        if rest.is_empty() {
            // A file or a symbolic link named `.git` points git to any directory it likes.
            let points = !matches!(change.file_type, FileType::Dir);
            return points && change.kind != ChangeKind::Removed;
        }
        if runs(rest) {
            return true;
        }
    }
    change.path.ancestors().skip(1).any(|dir| {
        let depth = dir.components().count();
        bare.contains(dir) && runs(&parts[depth..])
    })
}

/// Whether a path within a git directory decides what git runs: hooks, configuration (aliases,
/// filters, monitors, pagers), attributes that name filters, and pointers to other git directories.
fn runs(parts: &[&[u8]]) -> bool {
    match parts {
        [b"hooks" | b"config" | b"config.worktree" | b"commondir", ..] => true,
        [b"info", b"attributes", ..] => true,
        // A submodule's or worktree's name may itself hold slashes.
        [b"modules" | b"worktrees", rest @ ..] => (1..rest.len()).any(|at| runs(&rest[at..])),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
