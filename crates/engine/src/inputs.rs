//! The declared inputs of a preparation: which files of the base they are, and their content.

use crate::codes;
use forkpoint_model::{Digest, Result};
use globset::{Glob, GlobSetBuilder};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A pattern that names more files than this is not a list of inputs.
const MOST_FILES: usize = 100_000;

/// The files that `patterns` name below `base`, sorted, each with a digest of its type and content.
/// A plain path that does not exist counts too: it may appear later.
pub(crate) fn digests(base: &Path, patterns: &[String]) -> Result<Vec<(PathBuf, Digest)>> {
    let mut files = Vec::new();
    let mut globs = GlobSetBuilder::new();
    let mut any_glob = false;
    for pattern in patterns {
        if pattern.contains(['*', '?', '[', '{']) {
            let glob = Glob::new(pattern)
                .map_err(|e| codes::PREPARE.error(format!("bad input pattern {pattern:?}: {e}")))?;
            globs.add(glob);
            any_glob = true;
        } else {
            files.push(PathBuf::from(pattern));
        }
    }
    if any_glob {
        let globs = globs
            .build()
            .map_err(|e| codes::PREPARE.error(format!("bad input patterns: {e}")))?;
        walk(base, &mut |relative| {
            if globs.is_match(relative) {
                files.push(relative.to_owned());
            }
            files.len() <= MOST_FILES
        })?;
        if files.len() > MOST_FILES {
            return Err(codes::PREPARE
                .error(format!(
                    "the input patterns name more than {MOST_FILES} files"
                ))
                .hint("name the files the preparation really depends on, such as lock files"));
        }
    }
    files.sort();
    files.dedup();
    files
        .into_iter()
        .map(|path| Ok((path.clone(), digest(&base.join(path))?)))
        .collect()
}

fn digest(path: &Path) -> Result<Digest> {
    let io = |e| codes::PREPARE.io(format!("cannot read the input {}", path.display()), e);
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Digest::of(b"absent")),
        Err(e) => return Err(io(e)),
    };
    let mut hasher = blake3::Hasher::new();
    if meta.is_symlink() {
        hasher
            .update(b"link")
            .update(fs::read_link(path).map_err(io)?.as_os_str().as_bytes());
    } else if meta.is_file() {
        hasher.update(b"file");
        hasher
            .update_reader(fs::File::open(path).map_err(io)?)
            .map_err(io)?;
    } else {
        hasher.update(b"other");
    }
    Ok(Digest(*hasher.finalize().as_bytes()))
}

/// Calls `each` with every file below `base`, not following links, until it says no.
fn walk(base: &Path, each: &mut dyn FnMut(&Path) -> bool) -> Result<()> {
    let mut stack = vec![PathBuf::new()];
    while let Some(relative) = stack.pop() {
        let dir = base.join(&relative);
        let io = |e| codes::PREPARE.io(format!("cannot list {}", dir.display()), e);
        for entry in fs::read_dir(&dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            let path = relative.join(entry.file_name());
            if entry.file_type().map_err(io)?.is_dir() {
                stack.push(path);
            } else if !each(&path) {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_known_by_content_and_presence() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("lock"), "1").unwrap();
        fs::write(dir.path().join("sub/a.toml"), "a").unwrap();
        let patterns = [
            "lock".to_owned(),
            "later".to_owned(),
            "**/*.toml".to_owned(),
        ];
        let first = digests(dir.path(), &patterns).unwrap();
        assert_eq!(first.len(), 3);
        assert_eq!(digests(dir.path(), &patterns).unwrap(), first);
        fs::write(dir.path().join("sub/a.toml"), "b").unwrap();
        assert_ne!(digests(dir.path(), &patterns).unwrap(), first);
        fs::write(dir.path().join("later"), "").unwrap();
        assert_ne!(digests(dir.path(), &patterns).unwrap()[0], first[0]);
        assert_eq!(
            digests(dir.path(), &["[".to_owned()]).unwrap_err().code,
            "FP0413"
        );
    }
}
