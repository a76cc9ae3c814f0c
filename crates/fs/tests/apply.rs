//! Apply equals what the branch's view shows, and undo equals what was before, in every attribute.

mod common;

use common::apply::{Exact, exact, request, shown, stage, stamp};
use common::ops::{self, Random};
use common::{Layers, everywhere};
use forkpoint_fs::apply::{self, Journal, Redo};
use forkpoint_fs::tree;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn done(redo: Redo) {
    assert_eq!(redo, Redo::Done);
}

fn differences(now: &common::snapshot::Tree, wanted: &common::snapshot::Tree) -> String {
    let mut text = String::new();
    for path in now.keys().chain(wanted.keys()) {
        if now.get(path) != wanted.get(path) {
            text += &format!(
                "{path:?}\n  is     {:?}\n  wanted {:?}\n",
                now.get(path),
                wanted.get(path)
            );
        }
    }
    text
}

/// Stages, redoes, compares with the view; undoes, compares with the original.
fn round_trip(layers: &Layers, top: usize, context: &dyn std::fmt::Debug) {
    let before = exact(layers.base());
    let wanted = shown(layers);
    let staged = apply::stage(&request(layers, top, stamp(layers))).expect("stage");
    assert_eq!(exact(layers.base()), before, "staging touched the base");
    let bytes = staged.journal.to_bytes().expect("bytes");
    let journal = Journal::from_bytes(&bytes).expect("journal");
    assert_eq!(journal, staged.journal);
    assert_eq!(journal.digest().expect("digest"), staged.digest);
    done(apply::redo(layers.base(), &journal).expect("redo"));
    let after = exact(layers.base());
    let wrong = differences(&after.tree, &wanted);
    assert!(wrong.is_empty(), "{context:?}\n{wrong}");
    done(apply::redo(layers.base(), &journal).expect("redo again"));
    assert_eq!(
        exact(layers.base()),
        after,
        "a second redo changed something"
    );
    done(apply::undo(layers.base(), &journal).expect("undo"));
    let back = exact(layers.base());
    let wrong = differences(&back.tree, &before.tree);
    assert!(wrong.is_empty(), "undo: {context:?}\n{wrong}");
    assert_eq!(back, before, "undo: inodes or links");
    done(apply::undo(layers.base(), &journal).expect("undo again"));
    assert_eq!(
        exact(layers.base()),
        before,
        "a second undo changed something"
    );
    apply::discard(Path::new(OsStr::from_bytes(&journal.stage))).expect("discard");
}

fn random_round(seed: u64, userxattr: bool) {
    let mut random = Random::new(seed);
    let mut layers = Layers::new(userxattr);
    let base = layers.base().to_owned();
    for _ in 0..60 {
        let op = ops::draw(&mut random);
        // Links within a base are the kernel's own exception: a write through the view breaks them.
        if !matches!(op, ops::Op::Link(..)) {
            drop(ops::perform(&base, &op));
        }
    }
    let levels = 1 + random.below(2) as usize;
    let mut log = Vec::new();
    for _ in 0..levels {
        let count = 1 + random.below(40) as usize;
        layers.level(|view| {
            for _ in 0..count {
                let op = ops::draw(&mut random);
                if ops::perform(view, &op).is_ok() {
                    log.push(op);
                }
            }
        });
    }
    round_trip(&layers, levels, &(seed, &log));
}

#[test]
fn law_08_an_applied_delta_is_the_view_and_undo_is_the_original() {
    everywhere(
        "law_08_an_applied_delta_is_the_view_and_undo_is_the_original",
        |userxattr| {
            let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
            let first = number("FORKPOINT_TEST_SEED").unwrap_or(0);
            for seed in first..first + number("FORKPOINT_TEST_ROUNDS").unwrap_or(60) {
                random_round(seed, userxattr);
            }
        },
    );
}

/// The hard cases by name.
fn hard_base(base: &Path) {
    fs::create_dir_all(base.join("dir/sub")).expect("mkdir");
    fs::create_dir(base.join("gone")).expect("mkdir");
    fs::write(base.join("gone/x"), "x").expect("write");
    fs::write(base.join("dir/sub/f"), "f").expect("write");
    fs::write(base.join("becomes-dir"), "f").expect("write");
    fs::create_dir(base.join("becomes-file")).expect("mkdir");
    fs::write(base.join("becomes-file/y"), "y").expect("write");
    symlink("dir", base.join("link")).expect("symlink");
    fs::write(base.join("chmod-only"), vec![7; 1 << 20]).expect("write");
    fs::write(base.join("xattr-only"), "x").expect("write");
    fs::write(base.join("linked-a"), "same").expect("write");
    fs::hard_link(base.join("linked-a"), base.join("linked-b")).expect("link");
    fs::write(base.join("empty"), "").expect("write");
    fs::write(base.join("plain"), "plain").expect("write");
}

fn hard_changes(view: &Path) {
    let long = "n".repeat(255);
    for name in [
        OsStr::new("-rf"),
        OsStr::new("new\nline"),
        OsStr::from_bytes(b"\xff\xfe"),
        OsStr::new(".wh.gone"),
        OsStr::new(&long),
        OsStr::new(" "),
    ] {
        fs::write(view.join(name), name.as_bytes()).expect("write");
        fs::create_dir_all(view.join("tree").join(name)).expect("mkdir");
        fs::write(view.join("tree").join(name).join(name), "in").expect("write");
    }
    fs::remove_dir_all(view.join("gone")).expect("remove");
    fs::remove_file(view.join("becomes-dir")).expect("remove");
    fs::create_dir(view.join("becomes-dir")).expect("mkdir");
    fs::write(view.join("becomes-dir/in"), "in").expect("write");
    fs::remove_dir_all(view.join("becomes-file")).expect("remove");
    fs::write(view.join("becomes-file"), "file").expect("write");
    fs::remove_file(view.join("link")).expect("remove");
    symlink("/etc/passwd", view.join("link")).expect("symlink");
    let mode = |path: &str, mode| {
        fs::set_permissions(view.join(path), fs::Permissions::from_mode(mode)).expect("chmod");
    };
    mode("chmod-only", 0o4751);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(view.join("xattr-only"), "user.k", b"value", flags).expect("setxattr");
    rustix::fs::setxattr(view.join("dir"), "user.on-dir", b"d", flags).expect("setxattr");
    fs::write(view.join("group-1"), "group").expect("write");
    fs::hard_link(view.join("group-1"), view.join("tree/group-2")).expect("link");
    fs::hard_link(view.join("group-1"), view.join("group-3")).expect("link");
    fs::write(view.join("linked-a"), "other").expect("write");
    fs::write(view.join("plain"), "other").expect("write");
    let sparse = fs::File::create(view.join("sparse")).expect("create");
    sparse.set_len(64 << 20).expect("truncate");
    std::os::unix::fs::FileExt::write_at(&sparse, b"middle", 32 << 20).expect("write");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        view.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("mkfifo");
    fs::write(view.join("suid"), "s").expect("write");
    mode("suid", 0o6755);
    fs::write(view.join("locked"), "l").expect("write");
    mode("locked", 0);
    fs::create_dir(view.join("closed")).expect("mkdir");
    fs::write(view.join("closed/in"), "c").expect("write");
    mode("closed", 0);
    mode("dir", 0o1777);
    fs::write(view.join("empty-too"), "").expect("write");
    fs::create_dir(view.join("empty-dir")).expect("mkdir");
    let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::open(view.join("empty-dir"))
        .expect("open")
        .set_times(old)
        .expect("times");
}

#[test]
fn every_hard_case_survives_apply_and_undo() {
    everywhere("every_hard_case_survives_apply_and_undo", |userxattr| {
        let mut layers = Layers::new(userxattr);
        hard_base(layers.base());
        layers.level(hard_changes);
        let before = exact(layers.base());
        let staged = stage(&layers, 1, stamp(&layers));
        if !userxattr {
            assert_eq!(staged.notes, [], "all of it can be carried over by root");
        }
        done(apply::redo(layers.base(), &staged.journal).expect("redo"));
        let sparse = fs::metadata(layers.base().join("sparse")).expect("stat");
        assert_eq!(sparse.len(), 64 << 20);
        assert!(sparse.blocks() * 512 < 1 << 20, "the hole was filled");
        let inode = |name: &str| fs::metadata(layers.base().join(name)).expect("stat").ino();
        assert_eq!(inode("group-1"), inode("tree/group-2"));
        assert_eq!(inode("group-1"), inode("group-3"));
        assert_eq!(
            fs::read(layers.base().join("linked-b")).expect("read"),
            b"same"
        );
        let old = before.inodes[Path::new("chmod-only")].0;
        assert_eq!(
            inode("chmod-only"),
            old,
            "a change of mode alone copies nothing"
        );
        done(apply::undo(layers.base(), &staged.journal).expect("undo"));
        assert_eq!(exact(layers.base()), before);
        tree::remove(&layers.dir.path().join("stage")).expect("remove");
        round_trip(&layers, 1, &"hard cases");
    });
}

#[test]
fn an_edit_since_the_fork_is_refused_before_anything_is_touched() {
    everywhere(
        "an_edit_since_the_fork_is_refused_before_anything_is_touched",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            hard_base(layers.base());
            let at = stamp(&layers);
            layers.level(hard_changes);
            fs::write(layers.base().join("linked-a"), "the user's").expect("write");
            let before = exact(layers.base());
            let request = request(&layers, 1, at);
            let error = apply::stage(&request).expect_err("conflict");
            assert_eq!(error.code, "FP0254", "{error}");
            assert!(error.message.contains("linked-a"), "{error}");
            assert!(!request.stage.exists(), "the stage was left");
            assert_eq!(exact(layers.base()), before);
        },
    );
}

/// Stages, lets `edit` change the base, and expects a redo to be blocked at `path` without having
/// changed anything.
fn blocked_by(edit: impl Fn(&Path), path: &str, userxattr: bool) -> (Layers, Journal, String) {
    let mut layers = Layers::new(userxattr);
    hard_base(layers.base());
    layers.level(hard_changes);
    let staged = stage(&layers, 1, stamp(&layers));
    edit(layers.base());
    let edited = exact(layers.base());
    let Redo::Blocked(items) = apply::redo(layers.base(), &staged.journal).expect("redo") else {
        panic!("{path}: not blocked");
    };
    assert_eq!(
        exact(layers.base()),
        edited,
        "{path}: changed although blocked"
    );
    let item = items.iter().find(|item| item.path == Path::new(path));
    let why = item
        .unwrap_or_else(|| panic!("{path} is not among {items:?}"))
        .why
        .clone();
    (layers, staged.journal, why)
}

#[test]
fn an_edit_between_staging_and_redo_blocks_and_nothing_is_lost() {
    everywhere(
        "an_edit_between_staging_and_redo_blocks_and_nothing_is_lost",
        |userxattr| {
            type Edit<'e> = &'e dyn Fn(&Path);
            let cases: [(&str, Edit<'_>); 10] = [
                // Same size, and the old time put back: only the ctime tells.
                ("plain", &|b| {
                    let path = b.join("plain");
                    let time = fs::metadata(&path).expect("stat").modified().expect("time");
                    fs::write(&path, "PLAIN").expect("write");
                    let file = fs::File::options().write(true).open(&path).expect("open");
                    file.set_modified(time).expect("times");
                }),
                ("link", &|b| {
                    fs::remove_file(b.join("link")).expect("remove");
                    symlink("elsewhere", b.join("link")).expect("symlink");
                }),
                ("becomes-dir", &|b| {
                    fs::remove_file(b.join("becomes-dir")).expect("remove")
                }),
                ("sparse", &|b| {
                    fs::write(b.join("sparse"), "mine").expect("write")
                }),
                ("gone", &|b| {
                    fs::write(b.join("gone/new"), "mine").expect("write")
                }),
                ("gone", &|b| {
                    fs::write(b.join("gone/x"), "Y").expect("write")
                }),
                ("becomes-file", &|b| {
                    fs::write(b.join("becomes-file/y"), "mine").expect("write")
                }),
                ("dir", &|b| {
                    fs::set_permissions(b.join("dir"), fs::Permissions::from_mode(0o711))
                        .expect("chmod")
                }),
                ("chmod-only", &|b| {
                    fs::write(b.join("chmod-only"), "mine").expect("write")
                }),
                ("dir", &|b| {
                    fs::rename(b.join("dir"), b.join("moved")).expect("rename");
                    symlink("moved", b.join("dir")).expect("symlink");
                }),
            ];
            for (path, edit) in cases {
                let (_, _, why) = blocked_by(edit, path, userxattr);
                assert!(!why.is_empty());
            }
        },
    );
}

#[test]
fn a_blocked_redo_goes_on_or_goes_back() {
    everywhere("a_blocked_redo_goes_on_or_goes_back", |userxattr| {
        let (layers, journal, why) = blocked_by(
            |b| fs::write(b.join("sparse"), "mine").expect("write"),
            "sparse",
            userxattr,
        );
        assert_eq!(why, "something was added here since");
        fs::remove_file(layers.base().join("sparse")).expect("remove");
        let wanted = shown(&layers);
        done(apply::redo(layers.base(), &journal).expect("redo"));
        let wrong = differences(&exact(layers.base()).tree, &wanted);
        assert!(wrong.is_empty(), "{wrong}");
        done(apply::undo(layers.base(), &journal).expect("undo"));
    });
}

#[test]
fn undo_refuses_what_was_edited_since_and_touches_nothing() {
    everywhere(
        "undo_refuses_what_was_edited_since_and_touches_nothing",
        |userxattr| {
            type Edit<'e> = &'e dyn Fn(&Path);
            let cases: [(&str, Edit<'_>); 6] = [
                ("link", &|b| {
                    fs::remove_file(b.join("link")).expect("remove")
                }),
                ("becomes-file", &|b| {
                    fs::write(b.join("becomes-file"), "mine").expect("write")
                }),
                ("becomes-dir", &|b| {
                    fs::write(b.join("becomes-dir/new"), "mine").expect("write")
                }),
                ("tree", &|b| {
                    fs::write(b.join("tree/-rf/-rf"), "IN").expect("write")
                }),
                ("gone", &|b| fs::create_dir(b.join("gone")).expect("mkdir")),
                ("xattr-only", &|b| {
                    fs::write(b.join("xattr-only"), "mine").expect("write")
                }),
            ];
            for (path, edit) in cases {
                let mut layers = Layers::new(userxattr);
                hard_base(layers.base());
                layers.level(hard_changes);
                let staged = stage(&layers, 1, stamp(&layers));
                done(apply::redo(layers.base(), &staged.journal).expect("redo"));
                edit(layers.base());
                let edited: Exact = exact(layers.base());
                let Redo::Blocked(items) =
                    apply::undo(layers.base(), &staged.journal).expect("undo")
                else {
                    panic!("{path}: undone");
                };
                assert!(
                    items.iter().any(|item| item.path == Path::new(path)),
                    "{path}: {items:?}"
                );
                assert_eq!(
                    exact(layers.base()),
                    edited,
                    "{path}: changed although refused"
                );
            }
        },
    );
}

#[test]
fn a_symbolic_link_in_the_base_never_leads_out() {
    everywhere("a_symbolic_link_in_the_base_never_leads_out", |userxattr| {
        let mut layers = Layers::new(userxattr);
        hard_base(layers.base());
        let outside = layers.dir.path().join("outside");
        fs::create_dir(&outside).expect("mkdir");
        fs::create_dir(outside.join("sub")).expect("mkdir");
        fs::write(outside.join("sub/f"), "f").expect("write");
        layers.level(|view| fs::write(view.join("dir/sub/f"), "changed").expect("write"));
        let staged = stage(&layers, 1, stamp(&layers));
        let untouched = exact(&outside);
        fs::rename(layers.base().join("dir"), layers.dir.path().join("away")).expect("rename");
        symlink(&outside, layers.base().join("dir")).expect("symlink");
        let redo = apply::redo(layers.base(), &staged.journal).expect("redo");
        assert!(matches!(redo, Redo::Blocked(_)), "{redo:?}");
        assert_eq!(exact(&outside), untouched);
        // A directory of the same shape swapped in is not taken for the old one either.
        fs::remove_file(layers.base().join("dir")).expect("remove");
        fs::rename(&outside, layers.base().join("dir")).expect("rename");
        let redo = apply::redo(layers.base(), &staged.journal).expect("redo");
        assert!(matches!(redo, Redo::Blocked(_)), "{redo:?}");
        assert_eq!(
            fs::read(layers.base().join("dir/sub/f")).expect("read"),
            b"f"
        );
    });
}

#[test]
fn what_is_left_out_below_a_new_directory_is_not_staged() {
    use forkpoint_fs::select::{self, Rules};
    everywhere(
        "what_is_left_out_below_a_new_directory_is_not_staged",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            layers.level(|view| {
                for dir in [
                    "repo/.git/hooks",
                    "repo/.git/objects",
                    "repo/target/deep",
                    "repo/src",
                ] {
                    fs::create_dir_all(view.join(dir)).expect("mkdir");
                }
                for file in [
                    "repo/.git/hooks/pre-commit",
                    "repo/.git/config",
                    "repo/.git/HEAD",
                    "repo/target/deep/o",
                    "repo/src/x",
                ] {
                    fs::write(view.join(file), file).expect("write");
                }
            });
            let mut request = request(&layers, 1, stamp(&layers));
            let rules = Rules {
                exclude: vec!["**/target".into()],
                ..Rules::default()
            };
            let selected = select::partition(request.changes, &rules).expect("partition");
            assert_eq!(selected.withheld.len(), 3, "{:?}", selected.withheld);
            request.changes = selected.commit;
            let staged = apply::stage(&request).expect("stage");
            assert_eq!(
                staged.journal.ops.len(),
                1,
                "one rename for the whole subtree"
            );
            done(apply::redo(layers.base(), &staged.journal).expect("redo"));
            let names: Vec<String> = exact(layers.base())
                .tree
                .keys()
                .map(|p| p.display().to_string())
                .collect();
            assert_eq!(
                names,
                [
                    "",
                    "repo",
                    "repo/.git",
                    "repo/.git/HEAD",
                    "repo/.git/objects",
                    "repo/src",
                    "repo/src/x"
                ]
            );
        },
    );
}

#[test]
fn a_journal_that_was_damaged_is_refused() {
    everywhere("a_journal_that_was_damaged_is_refused", |userxattr| {
        let mut layers = Layers::new(userxattr);
        hard_base(layers.base());
        layers.level(hard_changes);
        let staged = stage(&layers, 1, stamp(&layers));
        let bytes = staged.journal.to_bytes().expect("bytes");
        for at in (0..bytes.len()).step_by(7) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert_eq!(
                Journal::from_bytes(&bad).expect_err("damaged").code,
                "FP0250"
            );
            assert_eq!(
                Journal::from_bytes(&bytes[..at]).expect_err("cut").code,
                "FP0250"
            );
        }
        let mut evil = staged.journal.clone();
        evil.dirs[0].path = b"../outside".to_vec();
        let bytes = evil.to_bytes().expect("bytes");
        assert_eq!(
            Journal::from_bytes(&bytes).expect_err("leads out").code,
            "FP0250"
        );
    });
}
