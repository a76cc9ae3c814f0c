//! Opening: privacy, versions, damage, a full disk, and the fixture of version 1.

mod common;

use common::{Fixture, branch};
use forkpoint_model::BranchId;
use forkpoint_store::{Store, codes};
use rusqlite::Connection;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
};

fn code(dir: &Path) -> String {
    Store::open(dir).unwrap_err().code
}

#[test]
fn a_new_store_is_its_owners_alone() {
    let f = Fixture::new();
    let mode = fs::metadata(f.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(f.store.dir(), f.path().canonicalize().unwrap());
    fs::set_permissions(f.path(), fs::Permissions::from_mode(0o750)).unwrap();
    let error = Store::open(&f.path()).unwrap_err();
    assert_eq!(error.code, codes::NOT_PRIVATE.text);
    assert!(error.hint.contains("chmod 700"), "{error:?}");
}

#[test]
fn law_03_a_store_of_someone_else_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: giving a directory away needs root");
        return;
    }
    let f = Fixture::new();
    chown(f.path(), Some(1000), Some(1000)).unwrap();
    assert_eq!(code(&f.path()), codes::NOT_PRIVATE.text);
}

#[test]
fn a_newer_version_is_refused_and_left_alone() {
    let f = Fixture::new();
    let path = f.path().join("forkpoint.db");
    Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", 999)
        .unwrap();
    let error = Store::open(&f.path()).unwrap_err();
    assert_eq!(error.code, codes::NEWER.text);
    assert!(error.message.contains("999"), "{error}");
    let version: i32 = Connection::open(&path)
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 999);
}

#[test]
fn one_that_another_version_brought_on_while_it_was_open_is_written_no_more() {
    let f = Fixture::new();
    f.store.insert_branch(&branch(1)).unwrap();
    let other = Connection::open(f.path().join("forkpoint.db")).unwrap();
    let set = |version: i32| {
        other
            .pragma_update(None, "user_version", version)
            .expect("a version");
    };
    let version: i32 = other
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    set(version + 1);
    let error = f.store.insert_branch(&branch(2)).unwrap_err();
    assert_eq!(error.code, codes::NEWER.text, "{error}");
    assert!(error.hint.contains("newer Forkpoint"), "{error:?}");
    let batch = f.store.batch(forkpoint_store::Durability::Full, |store| {
        store.insert_branch(&branch(3))
    });
    assert_eq!(batch.unwrap_err().code, codes::NEWER.text);
    // Nothing was written, no lock is left held, and the other version can go on.
    let count: i64 = other
        .query_row("SELECT count(*) FROM branches", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1);
    assert_eq!(f.store.branches(None, true).unwrap().len(), 1);
    set(version);
    f.store.insert_branch(&branch(2)).unwrap();
}

#[test]
fn names_are_read_without_making_or_waiting_for_anything() {
    let dir = tempfile::tempdir().unwrap();
    let cwd = Path::new("/work");
    let none = forkpoint_store::names(&dir.path().join("none"), cwd, 10).unwrap();
    assert_eq!(none, forkpoint_store::Names::default());
    assert!(!dir.path().join("none").exists());
    let f = Fixture::new();
    let named = forkpoint_store::BranchRecord {
        name: Some("fix".into()),
        ..branch(2)
    };
    f.store.insert_branch(&branch(1)).unwrap();
    f.store.insert_branch(&named).unwrap();
    let found = forkpoint_store::names(&f.path(), cwd, 10).unwrap();
    let expected = [("fix", "open"), ("b00000001", "open")];
    let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(found.branches, expected);
    let first = forkpoint_store::names(&f.path(), cwd, 1).unwrap();
    assert_eq!(first.branches, expected[..1]);
    // While somebody writes.
    let other = Connection::open(f.path().join("forkpoint.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(forkpoint_store::names(&f.path(), cwd, 10).unwrap(), found);
}

#[test]
fn what_is_not_a_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let make = |content: &[u8]| {
        if store.exists() {
            fs::remove_dir_all(&store).unwrap();
        }
        fs::create_dir(&store).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(store.join("forkpoint.db"), content).unwrap();
    };
    make(&[b'x'; 8192]);
    assert_eq!(code(&store), codes::DAMAGED.text);
    make(b"");
    Store::open(&store).unwrap();
    make(b"");
    Connection::open(store.join("forkpoint.db"))
        .unwrap()
        .execute("CREATE TABLE t (a)", [])
        .unwrap();
    assert_eq!(code(&store), codes::DAMAGED.text);
}

#[test]
fn a_damaged_page_is_reported_as_damage() {
    let f = Fixture::new();
    for n in 0..2000 {
        f.store.insert_branch(&branch(n)).unwrap();
    }
    let path = f.path();
    let Fixture { dir, store } = f;
    drop(store);
    let db = path.join("forkpoint.db");
    let mut bytes = fs::read(&db).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xa5);
    fs::write(&db, bytes).unwrap();
    // Whichever page is met first: that of the schema when it is opened, or of a row later.
    let looked_at = |store: Store| store.branches(None, true).and_then(|_| store.check());
    let error = Store::open(&path).and_then(looked_at).unwrap_err();
    assert_eq!(error.code, codes::DAMAGED.text, "{error}");
    drop(dir);
}

#[test]
fn a_bad_value_names_its_column() {
    let f = Fixture::new();
    f.store.insert_branch(&branch(1)).unwrap();
    let db = Connection::open(f.path().join("forkpoint.db")).unwrap();
    db.execute("UPDATE branches SET state = 'dreaming'", [])
        .unwrap();
    let error = f.store.branch(BranchId::from_bits(1)).unwrap_err();
    assert_eq!(error.code, codes::DAMAGED.text);
    assert!(error.message.contains("state"), "{error}");
}

/// Mounts a small tmpfs for the length of a test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIP: mounting a small disk needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let options = ["-t", "tmpfs", "-o", "size=1m,mode=700", "small"];
        let mounted = Command::new("mount").args(options).arg(dir.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("SKIP: a tmpfs cannot be mounted here");
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn law_10_a_full_disk_surfaces_and_loses_nothing() {
    let Some(disk) = SmallDisk::new() else { return };
    let store = Store::open(&disk.0.path().join("store")).unwrap();
    store.insert_world(&common::world(1)).unwrap();
    let mut kept = 0;
    let error = loop {
        match store.insert_branch(&branch(kept)) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 100_000, "the disk never fills");
    };
    assert_eq!(error.code, codes::FULL.text, "{error}");
    assert!(error.hint.contains("free"), "{error:?}");
    assert_eq!(store.branches(None, true).unwrap().len() as u64, kept);
    // With room again it goes on, and nothing was half written.
    let grown = Command::new("mount")
        .args(["-o", "remount,size=16m"])
        .arg(disk.0.path())
        .status()
        .unwrap();
    assert!(grown.success());
    store.insert_branch(&branch(kept)).unwrap();
    store.check().unwrap();
}

/// A store that version 1 of this program wrote, as SQL. It is never regenerated.
#[test]
fn a_store_of_version_1_opens() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fs::create_dir(&store).unwrap();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
    let db = Connection::open(store.join("forkpoint.db")).unwrap();
    db.execute_batch(include_str!("fixtures/v1.sql")).unwrap();
    drop(db);
    let store = Store::open(&store).unwrap();
    let all = store.branches(None, true).unwrap();
    let text: Vec<_> = all
        .iter()
        .map(|b| format!("{} {} {}", b.id, b.state, b.stale))
        .collect();
    assert_eq!(text, ["b00000001 committed false", "b00000002 sealed true"]);
    assert_eq!(all[1].stacks, [[forkpoint_model::LayerId::from_bits(1)]]);
    assert_eq!(store.commits(all[0].world).unwrap().len(), 1);
    store.check().unwrap();
}
