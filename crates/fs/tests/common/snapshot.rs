//! Everything a tree holds, read by the simplest code there is: the reference the diff is held to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: char,
    pub mode: u32,
    pub owner: (u32, u32),
    pub content: Vec<u8>,
    pub xattrs: Vec<(OsString, Vec<u8>)>,
    pub mtime: (i64, i64),
    /// The names that are the same file, when there are several in this tree.
    pub links: Vec<PathBuf>,
}

pub type Tree = BTreeMap<PathBuf, Node>;

pub fn take(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut inodes: BTreeMap<(u64, u64), Vec<PathBuf>> = BTreeMap::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        let full = if path.as_os_str().is_empty() {
            root.join(".")
        } else {
            root.join(&path)
        };
        let meta = std::fs::symlink_metadata(&full).expect("stat");
        let kind = meta.file_type();
        let (kind, content) = if kind.is_dir() {
            for entry in std::fs::read_dir(&full).expect("read dir") {
                pending.push(path.join(entry.expect("entry").file_name()));
            }
            ('d', Vec::new())
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&full).expect("read link");
            ('l', target.into_os_string().into_encoded_bytes())
        } else if kind.is_file() {
            ('f', std::fs::read(&full).expect("read"))
        } else if kind.is_fifo() {
            ('p', Vec::new())
        } else if kind.is_socket() {
            ('s', Vec::new())
        } else {
            ('c', meta.rdev().to_le_bytes().to_vec())
        };
        if kind != 'd' {
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

fn xattrs(path: &Path) -> Vec<(OsString, Vec<u8>)> {
    let mut buffer = vec![0u8; 65536];
    let len = rustix::fs::llistxattr(path, &mut buffer).unwrap_or(0);
    let mut found = Vec::new();
    for key in buffer[..len].split(|&b| b == 0) {
        let key = String::from_utf8_lossy(key).into_owned();
        if !key.starts_with("user.") {
            continue;
        }
        let mut value = vec![0u8; 4096];
        let len = rustix::fs::lgetxattr(path, &*key, &mut value).expect("getxattr");
        found.push((OsString::from(key), value[..len].to_vec()));
    }
    found.sort();
    found
}

/// The tree without what differs between two runs of the same operations: times, and which names
/// are links (the kernel's overlay breaks links of a lower layer on the first write).
pub fn comparable(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for node in tree.values_mut() {
        node.mtime = (0, 0);
        node.links.clear();
    }
    tree
}
