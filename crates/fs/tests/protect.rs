//! Protected paths are exactly what the base has, whatever an attempt did to them.

mod common;

use common::snapshot::{self, Tree};
use common::{Layers, everywhere, root_of};
use forkpoint_fs::apply::Owners;
use forkpoint_fs::protect::{self, ProtectOptions};
use forkpoint_fs::view;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn base(base: &Path) {
    fs::create_dir_all(base.join("tests/deep/er")).expect("mkdir");
    fs::create_dir_all(base.join("src")).expect("mkdir");
    for file in [
        "tests/a.py",
        "tests/deep/b.py",
        "tests/deep/er/c",
        "src/main",
        "run-tests.sh",
    ] {
        fs::write(base.join(file), file).expect("write");
    }
    symlink("a.py", base.join("tests/link")).expect("symlink");
    fs::set_permissions(base.join("run-tests.sh"), fs::Permissions::from_mode(0o755))
        .expect("chmod");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(base.join("tests/a.py"), "user.k", b"v", flags).expect("setxattr");
}

/// Restores after `attack`; returns what the base has, what the view then has, and what was named.
fn restored(userxattr: bool, globs: &[&str], attack: &dyn Fn(&Path)) -> (Tree, Tree, Vec<PathBuf>) {
    let mut layers = Layers::new(userxattr);
    base(layers.base());
    let original = snapshot::take(layers.base());
    layers.level(attack);
    let stack = layers.next_stack();
    let rw = view::mount(&stack, &layers.options()).expect("mount");
    let globs: Vec<String> = globs.iter().map(|g| (*g).to_owned()).collect();
    let owners = if userxattr {
        Owners::MapToCaller
    } else {
        Owners::Keep
    };
    let options = ProtectOptions {
        shift: None,
        userxattr,
        copied: false,
        owners,
    };
    let named = protect::restore(rw.as_fd(), &layers.layers, 1, &globs, &options).expect("restore");
    let now = snapshot::take(&root_of(&rw));
    drop(rw);
    assert_eq!(
        snapshot::take(layers.base()),
        original,
        "the base was touched"
    );
    (original, now, named)
}

fn below(tree: &Tree, top: &str) -> Tree {
    tree.iter()
        .filter(|(p, _)| p.starts_with(top))
        .map(|(p, n)| (p.clone(), n.clone()))
        .collect()
}

#[test]
fn law_06_whatever_an_attempt_does_to_protected_paths_is_undone() {
    everywhere(
        "law_06_whatever_an_attempt_does_to_protected_paths_is_undone",
        |userxattr| {
            type Attack<'a> = &'a dyn Fn(&Path);
            let evil = |view: &Path| {
                fs::create_dir_all(view.join("evil/deep")).expect("mkdir");
                fs::write(view.join("evil/a.py"), "pass").expect("write");
            };
            let attacks: [(&str, Attack<'_>); 9] = [
                ("edit", &|v| {
                    fs::write(v.join("tests/a.py"), "pass").expect("write")
                }),
                ("remove all", &|v| {
                    fs::remove_dir_all(v.join("tests")).expect("remove")
                }),
                ("add", &|v| {
                    fs::create_dir_all(v.join("tests/new/deep")).expect("mkdir");
                    fs::write(v.join("tests/new/deep/conftest.py"), "pass").expect("write");
                    fs::write(v.join("tests/conftest.py"), "pass").expect("write");
                }),
                ("chmod and touch", &|v| {
                    let mode = fs::Permissions::from_mode(0o777);
                    fs::set_permissions(v.join("tests/deep/b.py"), mode).expect("chmod");
                    let file = fs::File::open(v.join("tests/a.py")).expect("open");
                    file.set_modified(std::time::UNIX_EPOCH).expect("times");
                    rustix::fs::removexattr(v.join("tests/a.py"), "user.k").expect("removexattr");
                }),
                ("a link for the directory", &|v| {
                    evil(v);
                    fs::remove_dir_all(v.join("tests")).expect("remove");
                    symlink("evil", v.join("tests")).expect("symlink");
                }),
                ("a link for a directory below, to outside", &|v| {
                    fs::remove_dir_all(v.join("tests/deep")).expect("remove");
                    symlink("/etc", v.join("tests/deep")).expect("symlink");
                }),
                ("a file for the directory", &|v| {
                    fs::remove_dir_all(v.join("tests")).expect("remove");
                    fs::write(v.join("tests"), "file").expect("write");
                }),
                ("a directory for a file", &|v| {
                    fs::remove_file(v.join("tests/a.py")).expect("remove");
                    fs::create_dir(v.join("tests/a.py")).expect("mkdir");
                    fs::write(v.join("tests/a.py/x"), "x").expect("write");
                }),
                ("renamed away", &|v| {
                    fs::rename(v.join("tests/a.py"), v.join("src/a.py")).expect("rename");
                    fs::rename(v.join("tests/link"), v.join("tests/other")).expect("rename");
                }),
            ];
            for (what, attack) in attacks {
                let (original, now, named) =
                    restored(userxattr, &["tests", "run-tests.sh"], &|view| {
                        attack(view);
                        fs::write(view.join("src/main"), "attempt").expect("write");
                    });
                assert!(!named.is_empty(), "{what}");
                assert_eq!(below(&now, "tests"), below(&original, "tests"), "{what}");
                assert_eq!(
                    now[Path::new("src/main")].content,
                    b"attempt",
                    "{what}: too much undone"
                );
                assert!(
                    named.iter().all(|p| p.starts_with("tests")),
                    "{what}: {named:?}"
                );
            }
        },
    );
}

#[test]
fn globs_within_a_replaced_directory_still_protect() {
    everywhere(
        "globs_within_a_replaced_directory_still_protect",
        |userxattr| {
            let (original, now, named) = restored(userxattr, &["tests/**/*.py"], &|view| {
                fs::remove_dir_all(view.join("tests")).expect("remove");
                symlink("src", view.join("tests")).expect("symlink");
            });
            for path in ["tests/a.py", "tests/deep/b.py"] {
                assert_eq!(
                    now.get(Path::new(path)),
                    original.get(Path::new(path)),
                    "{named:?}"
                );
            }
            assert_eq!(now.get(Path::new("tests/deep/er/c")), None, "not asked for");
        },
    );
}

#[test]
fn a_link_where_a_glob_needs_a_directory_is_removed() {
    everywhere(
        "a_link_where_a_glob_needs_a_directory_is_removed",
        |userxattr| {
            let (_, now, named) = restored(userxattr, &["spec/unit/**"], &|view| {
                symlink("src", view.join("spec")).expect("symlink");
            });
            assert_eq!(named, [PathBuf::from("spec")]);
            assert!(!now.contains_key(Path::new("spec")));
        },
    );
}
