//! Which directories may be the bottom of a branch, and which others belong to them.
//!
//! A linked git worktree, or a checkout whose git directory was absorbed elsewhere, keeps its data
//! outside itself. That directory is taken in as a further disk of the world, so that a commit made
//! inside a branch lands in the branch. Alternates are only ever read by git and need nothing.

use crate::codes;
use forkpoint_model::Result;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The canonical directories of a world: the base, then what belongs to it.
pub(crate) fn disks(base: &Path, store: &Path) -> Result<Vec<PathBuf>> {
    let base = checked(base, store)?;
    let mut disks = vec![base];
    if let Some(git) = outside_git_dir(&disks[0])? {
        let git = checked(&git, store).map_err(|e| e.context("the base's git directory"))?;
        if disks[0].starts_with(&git) {
            return Err(codes::GIT_DATA
                .error(format!(
                    "{} lies inside its own git directory",
                    disks[0].display()
                ))
                .hint("work in a checkout that is not below a .git directory"));
        }
        disks.push(git);
    }
    Ok(disks)
}

/// Refuses what cannot be a base: a missing path, a file, `/`, the store's inside or its ancestor.
fn checked(base: &Path, store: &Path) -> Result<PathBuf> {
    let canonical = fs::canonicalize(base)
        .map_err(|e| codes::BASE.io(format!("cannot use {} as a base", base.display()), e))?;
    let refuse = |why: &str, hint: &str| {
        Err(codes::BASE
            .error(format!("{} {why}", canonical.display()))
            .hint(hint))
    };
    let meta = fs::metadata(&canonical)
        .map_err(|e| codes::BASE.io(format!("cannot look at {}", canonical.display()), e))?;
    if !meta.is_dir() {
        return refuse("is not a directory", "give a directory");
    }
    if let Err(e) = fs::read_dir(&canonical) {
        return Err(codes::BASE
            .io(format!("{} cannot be read", canonical.display()), e)
            .hint("give a directory that you may read, or mend its permissions (chmod u+rx)"));
    }
    if canonical == Path::new("/") {
        return refuse("is the whole system", "give the directory of one project");
    }
    if canonical.starts_with(store) {
        return refuse(
            "lies inside the store",
            "set FORKPOINT_HOME to a directory elsewhere",
        );
    }
    if store.starts_with(&canonical) {
        return refuse(
            "contains the store",
            "set FORKPOINT_HOME to a directory outside it on the same file system",
        );
    }
    for system in ["/proc", "/sys", "/dev", "/run"] {
        if canonical.starts_with(system) {
            return refuse(
                "is part of the running system",
                "give the directory of one project",
            );
        }
    }
    Ok(canonical)
}

/// The git directory of a checkout whose `.git` is a file, when it lies outside the checkout.
fn outside_git_dir(base: &Path) -> Result<Option<PathBuf>> {
    let pointer = base.join(".git");
    let meta = match fs::symlink_metadata(&pointer) {
        Ok(meta) => meta,
        Err(_) => return Ok(None),
    };
    let git_dir = if meta.is_symlink() {
        fs::canonicalize(&pointer)
            .map_err(|e| codes::GIT_DATA.io(format!("{} leads nowhere", pointer.display()), e))?
    } else if meta.is_file() {
        match pointed_to(&pointer, "gitdir: ")? {
            Some(path) => base.join(path),
            None => return Ok(None),
        }
    } else {
        return Ok(None);
    };
    // A linked worktree's own directory lies below the common one, which holds the objects and refs.
    let common_file = git_dir.join("commondir");
    let common = if common_file.exists() {
        match pointed_to(&common_file, "")? {
            Some(path) => git_dir.join(path),
            None => git_dir.clone(),
        }
    } else {
        git_dir.clone()
    };
    let canonical = fs::canonicalize(&common).map_err(|e| {
        codes::GIT_DATA
            .io(
                format!(
                    "the git directory {} of {} is missing",
                    common.display(),
                    base.display()
                ),
                e,
            )
            .hint("repair the checkout with `git worktree repair`, or remove its .git file")
    })?;
    Ok((!canonical.starts_with(base)).then_some(canonical))
}

/// The path a one-line git pointer file holds, after `prefix`.
fn pointed_to(file: &Path, prefix: &str) -> Result<Option<PathBuf>> {
    let meta = fs::metadata(file)
        .map_err(|e| codes::GIT_DATA.io(format!("cannot look at {}", file.display()), e))?;
    if meta.len() > 8192 {
        return Ok(None);
    }
    let text = fs::read(file)
        .map_err(|e| codes::GIT_DATA.io(format!("cannot read {}", file.display()), e))?;
    let Some(rest) = text.strip_prefix(prefix.as_bytes()) else {
        return Ok(None);
    };
    let end = rest
        .iter()
        .rposition(|b| !b.is_ascii_whitespace())
        .map_or(0, |i| i + 1);
    let path = Path::new(std::ffi::OsStr::from_bytes(&rest[..end]));
    Ok((end > 0).then(|| path.to_path_buf()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(dir.path()).unwrap();
        (dir, path)
    }

    #[test]
    fn bases_that_cannot_work_are_refused_by_name() {
        let (_keep, dir) = here();
        let store = dir.join("store");
        fs::create_dir_all(store.join("inside")).unwrap();
        fs::write(dir.join("file"), "x").unwrap();
        for bad in [
            &dir,
            &dir.join("file"),
            &dir.join("none"),
            &store.join("inside"),
            Path::new("/"),
        ] {
            let error = disks(bad, &store).unwrap_err();
            assert_eq!(error.code, "FP0401", "{error}");
            assert!(!error.message.is_empty());
        }
    }

    #[test]
    fn a_plain_directory_is_its_only_disk() {
        let (_keep, dir) = here();
        fs::create_dir_all(dir.join("base/.git")).unwrap();
        assert_eq!(
            disks(&dir.join("base"), &dir.join("store")).unwrap(),
            [dir.join("base")]
        );
    }

    #[test]
    fn a_linked_worktree_brings_its_common_git_directory() {
        let (_keep, dir) = here();
        fs::create_dir_all(dir.join("main/.git/worktrees/w")).unwrap();
        fs::write(dir.join("main/.git/worktrees/w/commondir"), "../..\n").unwrap();
        fs::create_dir_all(dir.join("w")).unwrap();
        let pointer = format!("gitdir: {}\n", dir.join("main/.git/worktrees/w").display());
        fs::write(dir.join("w/.git"), pointer).unwrap();
        let found = disks(&dir.join("w"), &dir.join("store")).unwrap();
        assert_eq!(found, [dir.join("w"), dir.join("main/.git")]);
    }

    #[test]
    fn a_worktree_whose_git_directory_is_gone_is_refused() {
        let (_keep, dir) = here();
        fs::create_dir_all(dir.join("w")).unwrap();
        fs::write(dir.join("w/.git"), "gitdir: /nowhere/at/all\n").unwrap();
        assert_eq!(
            disks(&dir.join("w"), &dir.join("store")).unwrap_err().code,
            "FP0403"
        );
    }
}
