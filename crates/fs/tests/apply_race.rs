//! Edits made in the very moment between redo's look and its rename, and what only root can do.

mod common;

use common::apply::{exact, request, shown, stage, stamp};
use common::{Layers, everywhere};
use forkpoint_fs::apply::io::{Call, Hook, Io};
use forkpoint_fs::apply::{self, Redo};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::chown;
use std::path::Path;

/// Edits once, before the first call of a kind on a name.
struct Race<'r> {
    call: Call,
    name: &'r str,
    edit: &'r dyn Fn(),
    done: Cell<bool>,
}

impl Hook for Race<'_> {
    fn before(&self, call: Call, _: BorrowedFd<'_>, name: &OsStr) -> std::io::Result<()> {
        if call == self.call && (name == self.name || self.name.is_empty()) && !self.done.get() {
            self.done.set(true);
            (self.edit)();
        }
        Ok(())
    }
}

fn race(userxattr: bool, redo: bool, call: Call, name: &str, path: &str, edit: impl Fn(&Path)) {
    let mut layers = Layers::new(userxattr);
    fs::write(layers.base().join("f"), "old").expect("write");
    fs::create_dir(layers.base().join("gone")).expect("mkdir");
    fs::write(layers.base().join("gone/x"), "old").expect("write");
    layers.level(|view| {
        fs::write(view.join("f"), "branch").expect("write");
        fs::remove_dir_all(view.join("gone")).expect("remove");
    });
    let staged = stage(&layers, 1, stamp(&layers));
    let base = layers.base();
    let edit = || edit(base);
    let hook = Race {
        call,
        name,
        edit: &edit,
        done: Cell::new(false),
    };
    let outcome = if redo {
        apply::redo_with(Io::hooked(&hook), base, &staged.journal)
    } else {
        assert_eq!(
            apply::redo(base, &staged.journal).expect("redo"),
            Redo::Done
        );
        apply::undo_with(Io::hooked(&hook), base, &staged.journal)
    };
    assert!(hook.done.get(), "there was no moment to edit in");
    let Redo::Blocked(items) = outcome.expect("no error") else {
        panic!("{path}: an edit was overwritten");
    };
    assert!(
        items.iter().any(|item| item.path == Path::new(path)),
        "{items:?}"
    );
    assert_eq!(
        fs::read(base.join(path)).expect("read"),
        b"the user's",
        "{path}"
    );
}

#[test]
fn law_10_an_edit_between_the_look_and_the_rename_stays_where_it_was_made() {
    let name = "law_10_an_edit_between_the_look_and_the_rename_stays_where_it_was_made";
    everywhere(name, |userxattr| {
        let write = |base: &Path| fs::write(base.join("f"), "the user's").expect("write");
        let replace = |base: &Path| {
            fs::write(base.join("f.tmp"), "the user's").expect("write");
            fs::rename(base.join("f.tmp"), base.join("f")).expect("rename");
        };
        race(userxattr, true, Call::Exchange, "f", "f", write);
        race(userxattr, true, Call::Exchange, "f", "f", replace);
        race(userxattr, false, Call::Exchange, "f", "f", write);
        race(userxattr, false, Call::Exchange, "f", "f", replace);
    });
}

#[test]
fn an_edit_below_a_directory_in_the_moment_of_its_removal_brings_it_back() {
    let name = "an_edit_below_a_directory_in_the_moment_of_its_removal_brings_it_back";
    everywhere(name, |userxattr| {
        let mut layers = Layers::new(userxattr);
        fs::create_dir_all(layers.base().join("gone/deep")).expect("mkdir");
        fs::write(layers.base().join("gone/deep/x"), "old").expect("write");
        layers.level(|view| fs::remove_dir_all(view.join("gone")).expect("remove"));
        let staged = stage(&layers, 1, stamp(&layers));
        let file = layers.base().join("gone/deep/x");
        let edit = || fs::write(&file, "the user's").expect("write");
        let hook = Race {
            call: Call::Move,
            name: "",
            edit: &edit,
            done: Cell::new(false),
        };
        let outcome = apply::redo_with(Io::hooked(&hook), layers.base(), &staged.journal);
        assert!(matches!(outcome, Ok(Redo::Blocked(_))), "{outcome:?}");
        assert_eq!(fs::read(&file).expect("read"), b"the user's");
    });
}

#[test]
fn root_keeps_owners_devices_capabilities_and_trusted_attributes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: owners, devices and trusted attributes need root");
        return;
    }
    let mut layers = Layers::new(false);
    for name in ["mine", "theirs"] {
        fs::write(layers.base().join(name), name).expect("write");
    }
    fs::create_dir(layers.base().join("dir")).expect("mkdir");
    layers.level(|view| {
        chown(view.join("mine"), Some(1234), Some(5678)).expect("chown");
        chown(view.join("dir"), Some(1234), Some(5678)).expect("chown");
        fs::write(view.join("theirs"), "new").expect("write");
        chown(view.join("theirs"), Some(4321), None).expect("chown");
        fs::create_dir(view.join("sub")).expect("mkdir");
        fs::write(view.join("sub/new"), "new").expect("write");
        chown(view.join("sub/new"), Some(7), Some(8)).expect("chown");
        chown(view.join("sub"), Some(9), Some(10)).expect("chown");
        let at = rustix::fs::makedev(1, 3);
        let (kind, mode) = (
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::RUSR,
        );
        rustix::fs::mknodat(rustix::fs::CWD, view.join("sub/null"), kind, mode, at).expect("mknod");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(view.join("sub/new"), "trusted.k", b"v", flags).expect("setxattr");
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let path = view.join("sub/new");
        rustix::fs::setxattr(path, "security.capability", &capability, flags).expect("setcap");
    });
    let before = exact(layers.base());
    let wanted = shown(&layers);
    let staged = apply::stage(&request(&layers, 1, stamp(&layers))).expect("stage");
    assert_eq!(staged.notes, []);
    assert_eq!(
        apply::redo(layers.base(), &staged.journal).expect("redo"),
        Redo::Done
    );
    assert_eq!(exact(layers.base()).tree, wanted);
    let mut value = [0u8; 64];
    for key in ["trusted.k", "security.capability"] {
        let got = rustix::fs::getxattr(layers.base().join("sub/new"), key, &mut value);
        assert!(got.is_ok_and(|len| len > 0), "{key} was lost");
    }
    assert_eq!(
        apply::undo(layers.base(), &staged.journal).expect("undo"),
        Redo::Done
    );
    assert_eq!(exact(layers.base()), before);
}

/// A process may be killed between a redo and the mark that it was done: then the redo is called once more, over whatever
/// its user did since, and says that it was done.
#[test]
fn law_10_a_redo_whose_mark_was_lost_is_done_and_leaves_later_edits_alone() {
    let name = "law_10_a_redo_whose_mark_was_lost_is_done_and_leaves_later_edits_alone";
    everywhere(name, |userxattr| {
        let mut layers = Layers::new(userxattr);
        let base = layers.base().to_owned();
        let files = ["replaced", "removed", "edited", "d/x", "gone"];
        fs::create_dir(base.join("d")).expect("mkdir");
        for file in files {
            fs::write(base.join(file), "old").expect("write");
        }
        layers.level(|view| {
            for file in &files[..4] {
                fs::write(view.join(file), "branch").expect("write");
            }
            fs::remove_file(view.join("gone")).expect("remove");
        });
        let staged = stage(&layers, 1, stamp(&layers));
        let redo = || apply::redo(&base, &staged.journal).expect("redo");
        // Before it was applied, the same edit stands in its way.
        fs::rename(base.join("replaced"), base.join("aside")).expect("rename");
        fs::write(base.join("replaced"), "the user's").expect("write");
        assert!(matches!(redo(), Redo::Blocked(_)));
        fs::rename(base.join("aside"), base.join("replaced")).expect("rename");

        // A rename sets the ctime, by which an edit is seen: staged again.
        apply::discard(&request(&layers, 1, stamp(&layers)).stage).expect("discard");
        let staged = stage(&layers, 1, stamp(&layers));
        let redo = || apply::redo(&base, &staged.journal).expect("redo");
        assert_eq!(redo(), Redo::Done);
        fs::write(base.join("new"), "the user's").expect("write");
        fs::rename(base.join("new"), base.join("replaced")).expect("rename");
        fs::remove_file(base.join("removed")).expect("remove");
        fs::write(base.join("edited"), "the user's").expect("write");
        fs::remove_dir_all(base.join("d")).expect("remove");
        fs::write(base.join("gone"), "the user's").expect("write");
        assert_eq!(redo(), Redo::Done);
        let text = |file: &str| fs::read_to_string(base.join(file)).ok();
        for file in ["replaced", "edited", "gone"] {
            assert_eq!(text(file).as_deref(), Some("the user's"), "{file}");
        }
        assert_eq!((text("removed"), base.join("d").exists()), (None, false));
    });
}
