//! Everything a tree holds, read by the simplest code there is: what a commit is held to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    kind: char,
    mode: u32,
    owner: (u32, u32),
    /// Digest and length of a file, the target of a link, the number of a device.
    content: String,
    xattrs: Vec<(OsString, Vec<u8>)>,
    mtime: (i64, i64),
    /// The names that are the same file, when there are several in this tree.
    links: Vec<PathBuf>,
    /// Whether the file begins with half a megabyte of hole or more. A hole between data is not
    /// looked at: the kernel copies up in pieces of a megabyte and fills holes within one.
    hole: bool,
}

pub(crate) type Tree = BTreeMap<PathBuf, Node>;

/// Reads a tree, its root included.
pub(crate) fn take(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut inodes: BTreeMap<(u64, u64), Vec<PathBuf>> = BTreeMap::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        let full = match path.as_os_str().is_empty() {
            true => root.join("."),
            false => root.join(&path),
        };
        let meta = std::fs::symlink_metadata(&full).expect("stat");
        let (kind, content) = content(&full, &meta);
        if kind == 'd' {
            for entry in std::fs::read_dir(&full).expect("read dir") {
                pending.push(path.join(entry.expect("entry").file_name()));
            }
        } else {
            inodes
                .entry((meta.dev(), meta.ino()))
                .or_default()
                .push(path.clone());
        }
        let node = Node {
            kind,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            content,
            xattrs: xattrs(&full),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            links: Vec::new(),
            hole: kind == 'f' && meta.size() > 1 << 19 && first_data(&full) >= 1 << 19,
        };
        tree.insert(path, node);
    }
    for mut names in inodes.into_values().filter(|names| names.len() > 1) {
        names.sort();
        for name in &names {
            tree.get_mut(name).expect("known").links.clone_from(&names);
        }
    }
    tree
}

fn content(full: &Path, meta: &std::fs::Metadata) -> (char, String) {
    let kind = meta.file_type();
    if kind.is_dir() {
        ('d', String::new())
    } else if kind.is_symlink() {
        let target = std::fs::read_link(full).expect("read link");
        ('l', format!("{target:?}"))
    } else if kind.is_file() {
        let bytes = std::fs::read(full).expect("read");
        let hash = blake3::hash(&bytes).to_hex();
        ('f', format!("{} {}", bytes.len(), &hash[..16]))
    } else if kind.is_fifo() {
        ('p', String::new())
    } else if kind.is_socket() {
        ('s', String::new())
    } else {
        ('c', meta.rdev().to_string())
    }
}

fn first_data(full: &Path) -> u64 {
    let file = std::fs::File::open(full).expect("open");
    match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)) {
        Ok(at) => at,
        // All of it is a hole.
        Err(rustix::io::Errno::NXIO) => u64::MAX,
        Err(e) => panic!("{}: {e}", full.display()),
    }
}

fn xattrs(path: &Path) -> Vec<(OsString, Vec<u8>)> {
    let mut buffer = vec![0u8; 65536];
    let len = rustix::fs::llistxattr(path, &mut buffer).unwrap_or(0);
    let mut found = Vec::new();
    for key in buffer[..len].split(|&b| b == 0).filter(|k| !k.is_empty()) {
        let key = String::from_utf8_lossy(key).into_owned();
        let mut value = vec![0u8; 4096];
        let len = rustix::fs::lgetxattr(path, &*key, &mut value).expect("getxattr");
        found.push((OsString::from(key), value[..len].to_vec()));
    }
    found.sort();
    found
}

/// One line for each path at which two trees differ; empty when they are equal.
pub(crate) fn differences(is: &Tree, should: &Tree) -> Vec<String> {
    let mut paths: Vec<_> = is.keys().chain(should.keys()).collect();
    paths.sort();
    paths.dedup();
    paths
        .into_iter()
        .filter(|path| is.get(*path) != should.get(*path))
        .map(|path| {
            format!(
                "{path:?}:\n  is     {:?}\n  should {:?}",
                is.get(path),
                should.get(path)
            )
        })
        .collect()
}

/// Fails with what differs.
#[track_caller]
pub(crate) fn same(is: &Tree, should: &Tree, what: &str) {
    let found = differences(is, should);
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}
