//! Views made ahead: whoever takes one sees what a view made now would show, and its branch is like any.

mod common;

use common::{Place, is_root, skip};
use forkpoint_engine::{
    AbortOptions, Branch, CommitOptions, CommitOutcome, ForkOptions, GcOptions, View,
};
use rustix::fs::{Mode, OFlags, openat};
use std::collections::HashSet;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

fn fork(place: &Place) -> Branch {
    let options = ForkOptions {
        durable: false,
        ..ForkOptions::default()
    };
    place
        .world()
        .fork(&options)
        .unwrap()
        .pop()
        .unwrap()
        .unwrap()
}

fn drop_branch(branch: &Branch) {
    branch.abort(&AbortOptions::default()).unwrap();
}

fn entries(dir: PathBuf) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .map(|list| list.map(|e| e.unwrap().path()).collect())
        .unwrap_or_default()
}

/// An inode, and when it was made: numbers are used again.
type Id = (u64, SystemTime);

fn id(meta: &Metadata) -> Id {
    (meta.ino(), meta.created().unwrap())
}

/// The uppers of spares that are mounted.
fn spares(place: &Place) -> HashSet<Id> {
    let dirs = entries(place.dir().join("store/spare"));
    let all = dirs.into_iter().flat_map(entries);
    let mounted = all.filter(|work| work.join("work/incompat/volatile").exists());
    mounted
        .filter_map(|work| fs::metadata(work.with_extension("")).ok())
        .map(|upper| id(&upper))
        .collect()
}

/// Looks into branches until a spare lies ready.
fn ready(place: &Place) -> HashSet<Id> {
    let branch = fork(place);
    drop(branch.view().unwrap());
    drop_branch(&branch);
    let start = Instant::now();
    loop {
        let found = spares(place);
        if !found.is_empty() || start.elapsed() > Duration::from_secs(1) {
            return found;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Lets `between` happen while a spare lies ready; then a view, which was the spare if `taken`.
fn look(place: &Place, taken: bool, between: impl Fn()) -> (Branch, View) {
    for _ in 0..50 {
        let spares = ready(place);
        if spares.is_empty() {
            continue;
        }
        between();
        let branch = fork(place);
        let view = branch.view().unwrap();
        let upper = branch.record().unwrap().stacks[0][0].to_string();
        let upper = place.dir().join("store/layers").join(upper);
        if spares.contains(&id(&fs::metadata(upper).unwrap())) == taken {
            return (branch, view);
        }
        assert!(taken, "a spare was taken that no longer fits");
        drop(view);
        drop_branch(&branch);
    }
    panic!("no spare was ever taken");
}

fn read(view: &View, name: &str) -> Option<String> {
    let fd = openat(view.dir(), name, OFlags::RDONLY, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(fd).read_to_string(&mut text).unwrap();
    Some(text)
}

#[test]
fn a_view_made_ahead_shows_the_base_as_it_is_when_it_is_taken() {
    if !is_root() {
        return skip("only root's views are made ahead");
    }
    let place = Place::new();
    place.write("sub/edited", "old");
    place.write("sub/gone", "old");
    let count = std::cell::Cell::new(0);
    let (branch, view) = look(&place, true, || {
        count.set(count.get() + 1);
        place.write("sub/edited", &format!("new {}", count.get()));
        place.write(&format!("sub/added-{}", count.get()), "new");
        fs::remove_file(place.file("sub/gone")).ok();
    });
    let last = count.get();
    assert_eq!(read(&view, "sub/edited").unwrap(), format!("new {last}"));
    assert_eq!(read(&view, &format!("sub/added-{last}")).unwrap(), "new");
    assert_eq!(read(&view, "sub/gone"), None);

    // It is a branch like any: what it changed, and nothing else, is committed.
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let fd = openat(view.dir(), "sub/mine", flags, Mode::from(0o644)).unwrap();
    File::from(fd).write_all(b"mine").unwrap();
    drop(view);
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(matches!(report.outcome, CommitOutcome::Committed));
    assert_eq!(report.changed.items, 1);
    assert_eq!(place.read("sub/mine"), "mine");
}

#[test]
fn a_spare_of_another_root_is_not_taken() {
    if !is_root() {
        return skip("only root's views are made ahead");
    }
    let place = Place::new();
    place.write("file", "old");
    let mode = std::cell::Cell::new(0o700);
    let (branch, view) = look(&place, false, || {
        mode.set(mode.get() ^ 0o055);
        fs::set_permissions(place.base(), Permissions::from_mode(mode.get())).unwrap();
    });
    let root = rustix::fs::fstat(view.dir()).unwrap();
    assert_eq!(root.st_mode & 0o777, mode.get());
    drop(view);
    drop_branch(&branch);
    let (_, view) = look(&place, false, || {
        place.write(&format!("n-{:?}", Instant::now()), "")
    });
    assert_eq!(read(&view, "file").unwrap(), "old");
}

#[test]
fn spares_go_with_their_engine_and_are_swept_after_a_crash() {
    if !is_root() {
        return skip("only root's views are made ahead");
    }
    let place = Place::new();
    let other = place.again();
    while ready(&place).is_empty() {}
    // Another process's spares are none of a collection's business.
    other.gc(&GcOptions::default()).unwrap();
    assert!(!spares(&place).is_empty() || !ready(&place).is_empty());
    let left = place.dir().join("store/spare/00000000deadbeef");
    fs::create_dir_all(left.join("1")).unwrap();
    other.gc(&GcOptions::default()).unwrap();
    assert!(!left.exists(), "what a dead process left is swept");
    let dir = place.close();
    assert_eq!(
        entries(dir.path().join("store/spare")),
        Vec::<PathBuf>::new()
    );
}
