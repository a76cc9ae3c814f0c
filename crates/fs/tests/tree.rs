//! Whole trees: copies keep everything, removal removes everything.

mod common;

use common::{everywhere, ops, snapshot};
use forkpoint_fs::tree::{self, CopyOptions};
use std::ffi::OsString;
use std::fs;
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn copy(from: &Path, to: &Path) -> tree::CopyReport {
    tree::copy(from, to, &CopyOptions::default()).expect("copy")
}

#[test]
fn a_copy_is_the_same_tree() {
    everywhere("a_copy_is_the_same_tree", |_| {
        for seed in 0..20 {
            let dir = tempfile::tempdir().expect("tempdir");
            let (from, to) = (dir.path().join("from"), dir.path().join("to"));
            fs::create_dir(&from).expect("mkdir");
            let mut random = ops::Random::new(seed);
            for _ in 0..200 {
                drop(ops::perform(&from, &ops::draw(&mut random)));
            }
            let name = OsString::from_vec(vec![0xff, b'x']);
            fs::write(from.join(name), "bytes").expect("write");
            copy(&from, &to);
            assert_eq!(snapshot::take(&from), snapshot::take(&to), "seed {seed}");
        }
    });
}

#[test]
fn holes_stay_holes_and_sockets_are_counted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).expect("mkdir");
    let mut file = fs::File::create(from.join("sparse")).expect("create");
    file.seek(std::io::SeekFrom::Start(100 << 20))
        .expect("seek");
    file.write_all(b"end").expect("write");
    file.set_len(200 << 20).expect("truncate");
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).expect("bind");
    let report = copy(&from, &to);
    assert_eq!((report.files, report.sockets_skipped), (1, 1));
    let meta = fs::metadata(to.join("sparse")).expect("stat");
    assert_eq!(meta.len(), 200 << 20);
    assert!(meta.blocks() * 512 < 1 << 20, "the holes were filled");
    let content = fs::read(to.join("sparse")).expect("read");
    assert_eq!(&content[100 << 20..(100 << 20) + 4], b"end\0");
    assert!(!to.join("socket").exists());
}

#[test]
fn a_removal_follows_no_link_and_minds_no_mode() {
    everywhere("a_removal_follows_no_link_and_minds_no_mode", |_| {
        let dir = tempfile::tempdir().expect("tempdir");
        let (kept, gone) = (dir.path().join("kept"), dir.path().join("gone"));
        fs::create_dir(&kept).expect("mkdir");
        fs::write(kept.join("f"), "x").expect("write");
        fs::create_dir_all(gone.join("a/b")).expect("mkdir");
        fs::write(gone.join("a/b/f"), "x").expect("write");
        symlink(&kept, gone.join("a/link")).expect("symlink");
        for path in ["a/b", "a"] {
            let none = fs::Permissions::from_mode(0o0);
            fs::set_permissions(gone.join(path), none).expect("chmod");
        }
        tree::remove(&gone).expect("remove");
        tree::remove(&gone).expect("nothing there is no error");
        tree::remove(&gone.join("x/y")).expect("nothing above is no error");
        assert!(!gone.exists());
        assert!(kept.join("f").exists(), "a link was followed");
        symlink(&kept, dir.path().join("link")).expect("symlink");
        tree::remove(&dir.path().join("link")).expect("remove");
        assert!(kept.join("f").exists(), "a link was followed");
    });
}

/// Makes `depth` directories in each other, one descriptor at a time, with long names.
fn deep(root: &Path, depth: usize) {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut dir = rustix::fs::open(root, flags, Mode::empty()).expect("open");
    let name = "n".repeat(200);
    for _ in 0..depth {
        rustix::fs::mkdirat(&dir, &*name, Mode::RWXU).expect("mkdir");
        dir = rustix::fs::openat(&dir, &*name, flags, Mode::empty()).expect("open");
    }
    rustix::fs::symlinkat("target", &dir, "leaf").expect("symlink");
}

#[test]
fn five_hundred_levels_need_no_stack_and_few_descriptors() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).expect("mkdir");
    deep(&from, 500);
    let report = copy(&from, &to);
    assert_eq!((report.dirs, report.files), (500, 1));
    let usage = tree::usage(&to).expect("usage");
    assert_eq!((usage.dirs, usage.files), (500, 1));
    // Nobody can name what lies so deep, so a diff says no; all else works.
    let refused = forkpoint_fs::delta::diff_trees(&to, &from).expect_err("a path too long");
    assert_eq!(refused.code, "FP0205");
    tree::remove(&from).expect("remove");
    let set = forkpoint_fs::delta::diff_trees(&to, &dir.path().join("empty"));
    assert!(set.is_err(), "a missing base is an error");
    tree::remove(&to).expect("remove");
    assert_eq!(fs::read_dir(dir.path()).expect("read dir").count(), 0);
}

#[test]
fn usage_counts_a_file_of_two_names_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    fs::write(dir.path().join("a"), vec![1; 8192]).expect("write");
    fs::hard_link(dir.path().join("a"), dir.path().join("b")).expect("link");
    let usage = tree::usage(dir.path()).expect("usage");
    assert_eq!((usage.files, usage.dirs, usage.bytes), (1, 0, 8192));
}
