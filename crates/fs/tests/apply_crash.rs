//! Commit dies, or fails, at every call that changes a file system: the base is exactly old or,
//! after recovery, exactly new, and undo brings back exactly the old.

mod common;

use common::apply::{exact, request, shown, stamp};
use common::fault::{Event, Fault, Layer};
use common::{Layers, everywhere};
use forkpoint_fs::apply::io::{Call, Io};
use forkpoint_fs::apply::{self, Journal, Redo};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

const NO_SPACE: i32 = 28;
const IO_ERROR: i32 = 5;
const QUOTA: i32 = 122;

fn base(base: &Path) {
    for dir in ["d/e", "gone/deep", "was-dir"] {
        fs::create_dir_all(base.join(dir)).expect("mkdir");
    }
    for file in ["a", "gone/deep/x", "was-dir/y", "r", "chmod", "d/e/f"] {
        fs::write(base.join(file), file).expect("write");
    }
}

fn changes(view: &Path) {
    fs::write(view.join("a"), "new a").expect("write");
    fs::write(view.join("d/e/f"), "new f").expect("write");
    fs::write(view.join("d/added"), "added").expect("write");
    fs::create_dir_all(view.join("tree/deep")).expect("mkdir");
    fs::write(view.join("tree/deep/leaf"), vec![1; 5000]).expect("write");
    fs::hard_link(view.join("tree/deep/leaf"), view.join("tree/twin")).expect("link");
    symlink("deep", view.join("tree/link")).expect("symlink");
    fs::remove_file(view.join("r")).expect("remove");
    fs::remove_dir_all(view.join("gone")).expect("remove");
    fs::remove_dir_all(view.join("was-dir")).expect("remove");
    fs::write(view.join("was-dir"), "file").expect("write");
    let mode = |path, mode| {
        fs::set_permissions(view.join(path), fs::Permissions::from_mode(mode)).expect("chmod");
    };
    mode("chmod", 0o600);
    mode("d/e", 0o500);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(view.join("d"), "user.k", b"v", flags).expect("setxattr");
}

fn layers(userxattr: bool) -> Layers {
    let mut layers = Layers::new(userxattr);
    base(layers.base());
    fs::write(layers.dir.path().join("outside"), "outside").expect("write");
    layers.level(changes);
    layers
}

fn staged(layers: &Layers) -> Journal {
    apply::stage(&request(layers, 1, stamp(layers)))
        .expect("stage")
        .journal
}

#[test]
fn law_10_a_crash_or_a_failure_at_any_call_of_staging_leaves_the_base_alone() {
    let name = "law_10_a_crash_or_a_failure_at_any_call_of_staging_leaves_the_base_alone";
    everywhere(name, |userxattr| {
        let layers = layers(userxattr);
        let before = exact(layers.base());
        let faults = [
            Fault::Crash,
            Fault::Errno(NO_SPACE),
            Fault::Errno(QUOTA),
            Fault::Errno(IO_ERROR),
        ];
        for fault in faults {
            for at in 0.. {
                let layer = Layer::new(fault, at);
                let request = request(&layers, 1, stamp(&layers));
                let outcome = apply::stage_with(Io::hooked(&layer), &request);
                assert_eq!(exact(layers.base()), before, "{fault:?} at {at}");
                if !layer.hit() {
                    outcome.expect("nothing failed");
                    apply::discard(&request.stage).expect("discard");
                    assert!(at > 40, "only {at} calls were made");
                    break;
                }
                let error = outcome.expect_err("a failed call was taken for a success");
                match fault {
                    Fault::Errno(NO_SPACE | QUOTA) => {
                        assert_eq!(error.code, "FP0252", "{at}: {error}")
                    }
                    Fault::Errno(_) => assert_eq!(error.code, "FP0251", "{at}: {error}"),
                    _ => {}
                }
                if fault != Fault::Crash {
                    assert!(
                        !request.stage.exists(),
                        "the stage was left after {fault:?} at {at}"
                    );
                }
                apply::discard(&request.stage).expect("discard");
            }
        }
    });
}

/// Redoes (or undoes) with the given fault at call `at`; says whether that call was reached.
fn with_fault(
    run: impl Fn(Io<'_>, &Path, &Journal) -> forkpoint_model::Result<Redo>,
    base: &Path,
    journal: &Journal,
    fault: Fault,
    at: usize,
) -> bool {
    let layer = Layer::new(fault, at);
    let outcome = run(Io::hooked(&layer), base, journal).expect("redo");
    if layer.hit() {
        assert!(
            matches!(outcome, Redo::Blocked(_)),
            "{fault:?} at {at} was taken for a success"
        );
    } else {
        assert_eq!(outcome, Redo::Done);
    }
    layer.hit()
}

fn check_done(outcome: forkpoint_model::Result<Redo>, context: &dyn std::fmt::Debug) {
    assert_eq!(outcome.expect("no error"), Redo::Done, "{context:?}");
}

/// One commit with two crashes in its redo, then an undo with two crashes. False when the first
/// crash lies beyond the end.
fn double_crash(first: usize, second: usize, userxattr: bool) -> (bool, bool) {
    let layers = layers(userxattr);
    let context = (first, second);
    let (old, new) = (exact(layers.base()), shown(&layers));
    let journal = staged(&layers);
    let one = with_fault(
        apply::redo_with,
        layers.base(),
        &journal,
        Fault::Crash,
        first,
    );
    let two = with_fault(
        apply::redo_with,
        layers.base(),
        &journal,
        Fault::Crash,
        second,
    );
    check_done(apply::redo(layers.base(), &journal), &context);
    assert_eq!(exact(layers.base()).tree, new, "{context:?}");
    with_fault(
        apply::undo_with,
        layers.base(),
        &journal,
        Fault::Crash,
        first,
    );
    with_fault(
        apply::undo_with,
        layers.base(),
        &journal,
        Fault::Crash,
        second,
    );
    check_done(apply::undo(layers.base(), &journal), &context);
    assert_eq!(exact(layers.base()), old, "{context:?}");
    assert_eq!(
        fs::read(layers.dir.path().join("outside")).expect("read"),
        b"outside"
    );
    (one, two)
}

#[test]
fn law_08_two_crashes_anywhere_in_redo_and_undo_end_in_the_same_state() {
    let name = "law_08_two_crashes_anywhere_in_redo_and_undo_end_in_the_same_state";
    everywhere(name, |userxattr| {
        let mut trials = 0;
        for first in 0.. {
            // Every third second point, shifted with the first, so that all are met.
            for second in (first % 3..).step_by(3) {
                let (one, two) = double_crash(first, second, userxattr);
                trials += 1;
                if !one {
                    assert!(trials > 60, "only {trials} schedules");
                    return;
                }
                if !two {
                    break;
                }
            }
        }
    });
}

#[test]
fn a_redo_that_died_anywhere_can_be_driven_back() {
    everywhere(
        "a_redo_that_died_anywhere_can_be_driven_back",
        |userxattr| {
            for at in 0.. {
                let layers = layers(userxattr);
                let old = exact(layers.base());
                let journal = staged(&layers);
                let hit = with_fault(apply::redo_with, layers.base(), &journal, Fault::Crash, at);
                check_done(apply::undo(layers.base(), &journal), &at);
                assert_eq!(exact(layers.base()), old, "{at}");
                if !hit {
                    return;
                }
            }
        },
    );
}

#[test]
fn a_call_of_redo_that_fails_blocks_with_its_reason_and_goes_on_later() {
    everywhere(
        "a_call_of_redo_that_fails_blocks_with_its_reason_and_goes_on_later",
        |userxattr| {
            for (errno, text) in [
                (NO_SPACE, "no space"),
                (13, "permission"),
                (30, "read-only"),
                (16, "busy"),
            ] {
                for at in 0.. {
                    let layers = layers(userxattr);
                    let new = shown(&layers);
                    let journal = staged(&layers);
                    let layer = Layer::new(Fault::Errno(errno), at);
                    let outcome = apply::redo_with(Io::hooked(&layer), layers.base(), &journal);
                    let hit = layer.hit();
                    match outcome.expect("redo") {
                        Redo::Blocked(items) => {
                            assert!(hit);
                            assert!(
                                items.iter().all(|item| item.why.contains(text)),
                                "{at}: {items:?}"
                            );
                        }
                        Redo::Done => assert!(!hit, "{errno} at {at} was taken for a success"),
                    }
                    check_done(apply::redo(layers.base(), &journal), &at);
                    assert_eq!(exact(layers.base()).tree, new, "{errno} at {at}");
                    if !hit {
                        break;
                    }
                }
            }
        },
    );
}

/// The calls that changed `inode`, and whether a sync of it came after the last of them.
fn synced_last(events: &[Event], inode: u64, changes: &[Call]) -> bool {
    let last = |calls: &[Call]| {
        events
            .iter()
            .rposition(|event| event.inode == inode && calls.contains(&event.call))
    };
    last(changes) < last(&[Call::Sync])
}

#[test]
fn everything_staged_and_every_directory_renamed_in_is_synced_after_its_last_change() {
    let name = "everything_staged_and_every_directory_renamed_in_is_synced_after_its_last_change";
    everywhere(name, |userxattr| {
        let layers = layers(userxattr);
        let request = request(&layers, 1, stamp(&layers));
        let stage_inode = fs::metadata(&request.stage).expect("stat").ino();
        let layer = Layer::new(Fault::None, usize::MAX);
        let staged = apply::stage_with(Io::hooked(&layer), &request).expect("stage");
        let events = layer.events.into_inner();
        let own = [
            Call::Write,
            Call::Resize,
            Call::Clone,
            Call::Owner,
            Call::Mode,
            Call::Xattr,
            Call::Times,
        ];
        let names = [
            Call::Create,
            Call::Mkdir,
            Call::Symlink,
            Call::Node,
            Call::Link,
        ];
        let mut pending = vec![request.stage.clone()];
        let mut looked = 0;
        while let Some(path) = pending.pop() {
            let meta = fs::symlink_metadata(&path).expect("stat");
            if meta.is_dir() {
                assert!(synced_last(&events, meta.ino(), &names), "{path:?}");
                for entry in fs::read_dir(&path).expect("read dir") {
                    pending.push(entry.expect("entry").path());
                }
            }
            if meta.is_dir() || meta.is_file() {
                assert!(synced_last(&events, meta.ino(), &own), "{path:?}");
                looked += 1;
            }
        }
        assert!(looked > 6);
        let layer = Layer::new(Fault::None, usize::MAX);
        check_done(
            apply::redo_with(Io::hooked(&layer), layers.base(), &staged.journal),
            &0,
        );
        let events = layer.events.into_inner();
        let moves = [
            Call::Exchange,
            Call::Move,
            Call::Times,
            Call::Mode,
            Call::Xattr,
        ];
        for dir in ["", "d", "d/e"] {
            let inode = fs::metadata(layers.base().join(dir)).expect("stat").ino();
            assert!(
                events
                    .iter()
                    .any(|e| e.inode == inode && moves.contains(&e.call)),
                "{dir}"
            );
            assert!(
                synced_last(&events, inode, &moves),
                "{dir} is not synced after its change"
            );
        }
        let last_move = events
            .iter()
            .rposition(|e| matches!(e.call, Call::Exchange | Call::Move));
        let stage_sync = events
            .iter()
            .rposition(|e| e.inode == stage_inode && e.call == Call::Sync);
        assert!(last_move < stage_sync, "the undo layer is not synced");
    });
}
