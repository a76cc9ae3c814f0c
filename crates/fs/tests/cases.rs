//! The diff of each kind of change by itself, through views at several levels.

mod common;

use common::{Layers, everywhere};
use forkpoint_fs::delta::{self, ChangeKind, ChangeSet, FileType};
use forkpoint_fs::{ops, tree};
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn diff(layers: &Layers, top: usize) -> ChangeSet {
    delta::diff(&layers.layers, top, &layers.diff_options()).expect("diff")
}

/// Paths and kinds of a change set.
fn list(set: &ChangeSet) -> Vec<(String, ChangeKind)> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    set.changes
        .iter()
        .map(|change| (text(&change.path), change.kind))
        .collect()
}

fn expect(set: &ChangeSet, wanted: &[(&str, ChangeKind)]) {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(path, kind)| ((*path).to_owned(), *kind))
        .collect();
    assert_eq!(list(set), wanted, "{set:#?}");
}

use ChangeKind::{Added, Metadata, Modified, Removed, TypeChanged};

#[test]
fn a_removed_file_made_again_is_a_modified_one() {
    everywhere("a_removed_file_made_again_is_a_modified_one", |userxattr| {
        let mut layers = Layers::new(userxattr);
        fs::write(layers.base().join("f"), "old").expect("write");
        layers.level(|view| {
            fs::remove_file(view.join("f")).expect("remove");
            fs::write(view.join("f"), "new!").expect("write");
        });
        let set = diff(&layers, 1);
        expect(&set, &[("f", Modified)]);
        assert_eq!(set.changes[0].had_lower, Some(false));
        assert_eq!((set.bytes, set.changes[0].size), (4, 4));
    });
}

#[test]
fn what_is_only_touched_is_metadata_and_what_is_equal_is_nothing() {
    everywhere(
        "what_is_only_touched_is_metadata_and_what_is_equal_is_nothing",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            for name in ["chmod", "equal", "owner", "touch", "xattr"] {
                fs::write(layers.base().join(name), "content").expect("write");
            }
            layers.level(|view| {
                let mode = fs::Permissions::from_mode(0o4711);
                fs::set_permissions(view.join("chmod"), mode).expect("chmod");
                let file = fs::OpenOptions::new().append(true).open(view.join("equal"));
                drop(file.expect("open for writing copies it up"));
                let file = fs::File::open(view.join("touch")).expect("open");
                let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 1);
                file.set_times(fs::FileTimes::new().set_modified(time))
                    .expect("touch");
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(view.join("xattr"), "user.k", b"v", flags).expect("setxattr");
            });
            let set = diff(&layers, 1);
            expect(
                &set,
                &[
                    ("chmod", Metadata),
                    ("touch", Metadata),
                    ("xattr", Metadata),
                ],
            );
            let differs: Vec<_> = set.changes.iter().map(|change| change.differs).collect();
            assert!(differs[0].mode && !differs[0].mtime && !differs[0].content);
            assert!(differs[1].mtime && differs[2].xattrs);
            assert_eq!(set.skipped_noops, 1);
            assert_eq!(set.bytes, 0);
            assert!(
                set.changes
                    .iter()
                    .all(|change| change.had_lower == Some(true))
            );
        },
    );
}

#[test]
fn a_renamed_directory_keeps_its_untouched_files() {
    everywhere(
        "a_renamed_directory_keeps_its_untouched_files",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            let base = layers.base().to_owned();
            fs::create_dir_all(base.join("d/sub")).expect("mkdir");
            fs::write(base.join("d/sub/untouched"), "1").expect("write");
            fs::write(base.join("d/modified"), "2").expect("write");
            layers.level(|view| {
                fs::write(view.join("d/modified"), "22").expect("write");
                let renamed = fs::rename(view.join("d"), view.join("e"));
                if userxattr {
                    assert_eq!(renamed.expect_err("rootless").raw_os_error(), Some(18));
                    fs::create_dir_all(view.join("e/sub")).expect("mkdir");
                    fs::rename(view.join("d/modified"), view.join("e/modified")).expect("rename");
                    fs::copy(view.join("d/sub/untouched"), view.join("e/sub/untouched"))
                        .expect("copy");
                    fs::remove_dir_all(view.join("d")).expect("remove");
                } else {
                    renamed.expect("rename");
                }
            });
            let wanted = [
                ("d", Removed),
                ("e", Added),
                ("e/modified", Added),
                ("e/sub", Added),
                ("e/sub/untouched", Added),
            ];
            expect(&diff(&layers, 1), &wanted);
            assert!(diff(&layers, 1).changes[0].subtree);
            layers.level(|view| fs::write(view.join("e/sub/more"), "3").expect("write"));
            expect(&diff(&layers, 1), &[("e/sub/more", Added)]);
            let mut wanted = wanted.to_vec();
            wanted.insert(4, ("e/sub/more", Added));
            expect(&diff(&layers, 2), &wanted);
        },
    );
}

#[test]
fn replaced_types_are_told_with_what_they_were() {
    everywhere("replaced_types_are_told_with_what_they_were", |userxattr| {
        let mut layers = Layers::new(userxattr);
        let base = layers.base().to_owned();
        fs::create_dir_all(base.join("dir/below")).expect("mkdir");
        fs::write(base.join("file"), "x").expect("write");
        symlink("file", base.join("link")).expect("symlink");
        layers.level(|view| {
            fs::remove_dir_all(view.join("dir")).expect("remove");
            symlink("elsewhere", view.join("dir")).expect("symlink");
            fs::remove_file(view.join("file")).expect("remove");
            fs::create_dir(view.join("file")).expect("mkdir");
            fs::write(view.join("file/in"), "y").expect("write");
            fs::remove_file(view.join("link")).expect("remove");
            symlink("changed", view.join("link")).expect("symlink");
        });
        let set = diff(&layers, 1);
        let wanted = [
            ("dir", TypeChanged),
            ("file", TypeChanged),
            ("file/in", Added),
            ("link", Modified),
        ];
        expect(&set, &wanted);
        assert_eq!(set.changes[0].old_type, Some(FileType::Dir));
        assert!(set.changes[0].subtree && !set.changes[1].subtree);
    });
}

#[test]
fn a_directory_removed_and_made_again_lists_what_went() {
    everywhere(
        "a_directory_removed_and_made_again_lists_what_went",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            let base = layers.base().to_owned();
            fs::create_dir_all(base.join("d/kept")).expect("mkdir");
            fs::write(base.join("d/gone"), "1").expect("write");
            fs::write(base.join("d/same"), "2").expect("write");
            fs::write(base.join("d/kept/gone"), "3").expect("write");
            // Over two levels: a plain directory over a whiteout of the layer below hides, too.
            layers.level(|view| fs::remove_dir_all(view.join("d")).expect("remove"));
            expect(&diff(&layers, 1), &[("d", Removed)]);
            layers.level(|view| {
                fs::create_dir_all(view.join("d/kept")).expect("mkdir");
                fs::write(view.join("d/same"), "2").expect("write");
            });
            let set = diff(&layers, 2);
            expect(
                &set,
                &[
                    ("d/gone", Removed),
                    ("d/kept/gone", Removed),
                    ("d/same", Metadata),
                ],
            );
            // What is not there below is no change, whatever the layers say.
            layers.level(|view| {
                fs::write(view.join("x"), "x").expect("write");
                fs::write(view.join("d/gone"), "1").expect("write");
            });
            layers.level(|view| fs::remove_file(view.join("x")).expect("remove"));
            let set = diff(&layers, 2);
            expect(&set, &[("d/gone", Added)]);
            assert_eq!(set.skipped_noops, 1, "a whiteout of nothing");
        },
    );
}

#[test]
fn hard_links_are_grouped() {
    everywhere("hard_links_are_grouped", |userxattr| {
        let mut layers = Layers::new(userxattr);
        fs::write(layers.base().join("a"), "x").expect("write");
        layers.level(|view| {
            fs::hard_link(view.join("a"), view.join("b")).expect("link");
            fs::write(view.join("c"), "y").expect("write");
            fs::hard_link(view.join("c"), view.join("d")).expect("link");
            fs::write(view.join("single"), "z").expect("write");
        });
        let set = diff(&layers, 1);
        let wanted = [
            ("a", Metadata),
            ("b", Added),
            ("c", Added),
            ("d", Added),
            ("single", Added),
        ];
        expect(&set, &wanted);
        assert!(set.changes[0].differs.links);
        let groups: Vec<_> = set.changes.iter().map(|change| change.link_group).collect();
        assert_eq!(groups, [Some(0), Some(0), Some(1), Some(1), None]);
        assert_eq!(set.bytes, 3, "a file of two names is written once");
        // One of the names changes what both show.
        layers.level(|view| fs::write(view.join("single"), "more").expect("write"));
        expect(&diff(&layers, 1), &[("single", Modified)]);
    });
}

/// The kernel's own exception: without an index, a write through one name of a file of a lower
/// layer is not seen through the other.
#[test]
fn links_of_a_lower_layer_break_on_a_write() {
    everywhere("links_of_a_lower_layer_break_on_a_write", |userxattr| {
        let mut layers = Layers::new(userxattr);
        fs::write(layers.base().join("a"), "x").expect("write");
        fs::hard_link(layers.base().join("a"), layers.base().join("b")).expect("link");
        layers.level(|view| {
            fs::write(view.join("a"), "y").expect("write");
            assert_eq!(fs::read(view.join("b")).expect("read"), b"x");
        });
        let set = diff(&layers, 1);
        expect(&set, &[("a", Modified)]);
        assert_eq!(set.changes[0].link_group, None);
        assert_eq!(set.changes[0].had_lower, None, "the kernel does not say");
    });
}

#[test]
fn sparse_and_unlinked_files() {
    everywhere("sparse_and_unlinked_files", |userxattr| {
        let mut layers = Layers::new(userxattr);
        let base = layers.base().to_owned();
        let file = fs::File::create(base.join("sparse")).expect("create");
        file.set_len(10 << 30).expect("truncate");
        fs::write(base.join("open"), "still").expect("write");
        layers.level(|view| {
            let mut file = fs::OpenOptions::new().write(true).open(view.join("sparse"));
            let file = file.as_mut().expect("open");
            file.seek(std::io::SeekFrom::Start(5 << 30)).expect("seek");
            file.write_all(b"one block").expect("write");
            let mut open = fs::OpenOptions::new()
                .append(true)
                .read(true)
                .open(view.join("open"));
            let open = open.as_mut().expect("open");
            fs::remove_file(view.join("open")).expect("remove");
            open.write_all(b" here").expect("write");
            let mut text = String::new();
            open.rewind().expect("rewind");
            open.read_to_string(&mut text).expect("read");
            assert_eq!(text, "still here");
        });
        let started = forkpoint_sys::clock::monotonic_ns();
        expect(
            &diff(&layers, 1),
            &[("open", Removed), ("sparse", Modified)],
        );
        let took = forkpoint_sys::clock::monotonic_ns() - started;
        assert!(took < 2_000_000_000, "holes are read: {took} ns");
    });
}

#[test]
fn hostile_names_and_special_files() {
    everywhere("hostile_names_and_special_files", |userxattr| {
        let mut layers = Layers::new(userxattr);
        let names: Vec<OsString> = vec![
            OsString::from_vec(vec![0xff, 0x80]),
            "@at".into(),
            ".wh.whiteout".into(),
            ".wh..wh..opq".into(),
            "-rf".into(),
            "new\nline".into(),
            "n".repeat(255).into(),
        ];
        layers.level(|view| {
            for name in &names {
                fs::create_dir(view.join(name)).expect("mkdir");
                fs::write(view.join(name).join(name), "x").expect("write");
            }
            let kind = rustix::fs::FileType::Fifo;
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mknodat(rustix::fs::CWD, view.join("fifo"), kind, mode, 0).expect("fifo");
            let socket = std::os::unix::net::UnixListener::bind(view.join("socket"));
            drop(socket.expect("socket"));
        });
        let set = diff(&layers, 1);
        let mut wanted: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        wanted.extend(names.iter().map(|name| Path::new(name).join(name)));
        wanted.extend([PathBuf::from("fifo"), PathBuf::from("socket")]);
        wanted.sort_by(|a, b| delta::order(a, b));
        let found: Vec<_> = set
            .changes
            .iter()
            .map(|change| change.path.clone())
            .collect();
        assert_eq!(found, wanted);
        assert!(set.changes.iter().all(|change| change.kind == Added));
        // And they survive the way through a worker.
        let request = ops::FsRequest::Diff {
            layers: layers.layers.clone(),
            top: 1,
            options: layers.diff_options(),
        };
        let bytes = postcard::to_stdvec(&request).expect("encode");
        let response = ops::execute(postcard::from_bytes(&bytes).expect("decode")).expect("diff");
        let bytes = postcard::to_stdvec(&response).expect("encode");
        let response: ops::FsResponse = postcard::from_bytes(&bytes).expect("decode");
        assert_eq!(response, ops::FsResponse::Changes(set));
    });
}

#[test]
fn deep_trees_need_no_stack_and_few_descriptors() {
    everywhere(
        "deep_trees_need_no_stack_and_few_descriptors",
        |userxattr| {
            use rustix::fs::{Mode, OFlags};
            let mut layers = Layers::new(userxattr);
            // Together just below the longest path a diff carries.
            let name = "n".repeat(7);
            let deep = |root: &Path, leaf: &str| {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let mut dir = rustix::fs::open(root, flags, Mode::empty()).expect("open");
                for _ in 0..500 {
                    match rustix::fs::mkdirat(&dir, &*name, Mode::RWXU) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                        Err(e) => panic!("{e}"),
                    }
                    dir = rustix::fs::openat(&dir, &*name, flags, Mode::empty()).expect("open");
                }
                rustix::fs::symlinkat("x", &dir, leaf).expect("symlink");
            };
            deep(layers.base(), "base");
            layers.level(|view| deep(view, "one"));
            layers.level(|view| deep(view, "two"));
            let set = diff(&layers, 2);
            assert_eq!(set.changes.len(), 2);
            assert_eq!(set.changes[1].path.components().count(), 501);
            let out = layers.dir.path().join("merged");
            forkpoint_fs::compact::merge(
                &layers.layers[..2],
                &layers.layers[2..],
                &out,
                &layers.diff_options(),
            )
            .expect("merge");
            let stack = [out, layers.base().to_owned()];
            let merged = delta::diff(&stack, 1, &layers.diff_options()).expect("diff");
            assert_eq!(list(&merged), list(&set));
        },
    );
}

#[test]
fn ten_levels_see_through_each_other() {
    everywhere("ten_levels_see_through_each_other", |userxattr| {
        let mut layers = Layers::new(userxattr);
        fs::create_dir(layers.base().join("d")).expect("mkdir");
        for level in 0..10 {
            layers.level(|view| {
                fs::write(view.join(format!("d/f{level}")), "x").expect("write");
                if level > 0 {
                    fs::remove_file(view.join(format!("d/f{}", level - 1))).expect("remove");
                }
            });
        }
        expect(&diff(&layers, 10), &[("d/f9", Added)]);
        expect(&diff(&layers, 1), &[("d/f8", Removed), ("d/f9", Added)]);
        expect(&diff(&layers, 4), &[("d/f5", Removed), ("d/f9", Added)]);
    });
}

#[test]
fn marks_of_an_overlay_inside_are_content() {
    everywhere("marks_of_an_overlay_inside_are_content", |userxattr| {
        let mut layers = Layers::new(userxattr);
        fs::create_dir(layers.base().join("d")).expect("mkdir");
        let key = "user.overlay.opaque";
        layers.level(|view| {
            let flags = rustix::fs::XattrFlags::empty();
            match rustix::fs::setxattr(view.join("d"), key, b"y", flags) {
                Ok(()) => {}
                // Kernels before 6.7 do not escape them.
                Err(e) => eprintln!("SKIP: {e}"),
            }
        });
        let set = diff(&layers, 1);
        if set.is_empty() {
            return;
        }
        expect(&set, &[("d", Metadata)]);
        assert!(set.changes[0].differs.xattrs);
        // The mark was escaped: what the base has there is still seen.
        fs::write(layers.base().join("d/f"), "x").expect("write");
        let fd = layers.view(0);
        assert!(common::root_of(&fd).join("d/f").exists());
    });
}

#[test]
fn whiteouts_and_opaque_marks_of_the_attribute_form() {
    everywhere(
        "whiteouts_and_opaque_marks_of_the_attribute_form",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            fs::create_dir(layers.base().join("d")).expect("mkdir");
            for name in ["a", "b"] {
                fs::write(layers.base().join("d").join(name), "x").expect("write");
            }
            // As other tools write layers.
            let layer = layers.dir.path().join("written");
            fs::create_dir_all(layer.join("d")).expect("mkdir");
            fs::write(layer.join("d/a"), "").expect("write");
            let prefix = if userxattr {
                "user.overlay."
            } else {
                "trusted.overlay."
            };
            let set = |path: &Path, mark: &str, value: &[u8]| {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(path, format!("{prefix}{mark}"), value, flags).expect("mark");
            };
            set(&layer.join("d"), "opaque", b"x");
            set(&layer.join("d/a"), "whiteout", b"y");
            layers.layers.insert(0, layer);
            let fd = layers.view(0);
            if common::root_of(&fd).join("d/a").exists() {
                eprintln!("SKIP: this kernel has no whiteouts of the attribute form");
                return;
            }
            let found = diff(&layers, 1);
            let found = list(&found);
            assert_eq!(
                found.last(),
                Some(&("d/a".to_owned(), Removed)),
                "{found:?}"
            );
            let out = layers.dir.path().join("merged");
            let (top, below) = layers.layers.split_at(1);
            let options = layers.diff_options();
            forkpoint_fs::compact::merge(top, below, &out, &options).expect("merge");
            let stack = [out, layers.base().to_owned()];
            let merged = delta::diff(&stack, 1, &options).expect("diff");
            assert_eq!(list(&merged), found);
        },
    );
}

#[test]
fn the_beginning_of_a_file_is_read_through_a_stack() {
    everywhere(
        "the_beginning_of_a_file_is_read_through_a_stack",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            fs::create_dir(layers.base().join("d")).expect("mkdir");
            fs::write(layers.base().join("d/f"), "from the base").expect("write");
            symlink("/etc/passwd", layers.base().join("link")).expect("symlink");
            layers.level(|view| fs::write(view.join("d/g"), "x").expect("write"));
            let read = |path: &str| {
                let request = ops::FsRequest::ReadFile {
                    layers: layers.layers.clone(),
                    options: layers.diff_options(),
                    path: path.into(),
                    max_len: 4,
                };
                match ops::execute(request).expect("read") {
                    ops::FsResponse::File(file) => file.map(|file| (file.bytes, file.size)),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(read("d/f"), Some((b"from".to_vec(), 13)));
            assert_eq!(read("d/g"), Some((b"x".to_vec(), 1)));
            for nothing in ["link", "d", "missing/f", "link/f"] {
                assert_eq!(read(nothing), None, "{nothing}");
            }
        },
    );
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let dir = tempfile::tempdir().expect("tempdir");
    let missing = [dir.path().join("a"), dir.path().to_owned()];
    let error = delta::diff(&missing, 1, &Default::default()).expect_err("missing layer");
    assert_eq!(error.code, "FP0203");
    let error = delta::diff(&missing, 2, &Default::default()).expect_err("nothing below");
    assert_eq!(error.code, "FP0202");
    assert!(tree::usage(&dir.path().join("a")).is_err());
}
