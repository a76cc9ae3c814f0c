//! Stores that cannot be used.

use super::{Mounted, forked, is_root, kept, refused, skip};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path, bits: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).unwrap();
}

/// Writes SQLite's user version, where this program keeps the store's.
fn set_version(store: &Path, version: u32) {
    let db = store.join("forkpoint.db");
    let mut bytes = std::fs::read(&db).unwrap();
    bytes[60..64].copy_from_slice(&version.to_be_bytes());
    std::fs::write(&db, bytes).unwrap();
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_left_alone() {
    let lab = forked();
    // All of it in the one file.
    for name in ["forkpoint.db-wal", "forkpoint.db-shm"] {
        let path = lab.store().join(name);
        if path.exists() && std::fs::metadata(&path).unwrap().len() > 0 {
            let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
            let done = std::process::Command::new("sqlite3")
                .arg(lab.store().join("forkpoint.db"))
                .arg(sql)
                .output();
            if !done.is_ok_and(|d| d.status.success()) {
                return skip("there is no sqlite3");
            }
        }
    }
    set_version(&lab.store(), 999);
    let before = std::fs::read(lab.store().join("forkpoint.db")).unwrap();
    for args in [
        &["list"][..],
        &["fork", "."],
        &["gc"],
        &["explore", "--", "true"],
    ] {
        refused(&lab.run(args), 5, "FP0102", "version");
    }
    assert_eq!(
        std::fs::read(lab.store().join("forkpoint.db")).unwrap(),
        before
    );
}

#[test]
fn a_store_that_is_not_the_callers_alone_is_refused() {
    let lab = forked();
    mode(&lab.store(), 0o755);
    refused(&lab.run(&["list"]), 5, "FP0103", "entered by others");
    mode(&lab.store(), 0o700);
    lab.run(&["list"]).expect(0);
    if !is_root() {
        return skip("the rest needs root");
    }
    std::os::unix::fs::chown(lab.store(), Some(1000), Some(1000)).unwrap();
    refused(&lab.run(&["list"]), 5, "FP0103", "belongs to user");
    std::os::unix::fs::chown(lab.store(), Some(0), Some(0)).unwrap();
}

#[test]
fn a_store_that_cannot_be_made_or_is_none_says_so() {
    let lab = kept();
    let file = lab.path("file");
    std::fs::write(&file, "x").unwrap();
    let mut command = lab.command(&["list"]);
    let done = command.env("FORKPOINT_HOME", &file).output().unwrap();
    let done = super::Done::of(&["list"], done);
    assert!(matches!(done.code(), Some(2 | 125)), "{done:#?}");
    refused(&done, done.code().unwrap(), "FP0101", "file");
    let mut command = lab.command(&["list"]);
    command
        .env_remove("FORKPOINT_HOME")
        .env_remove("HOME")
        .env_remove("XDG_DATA_HOME");
    let done = super::Done::of(&["list"], command.output().unwrap());
    refused(&done, 2, "FP0002", "");
    std::fs::create_dir_all(lab.store()).unwrap();
    mode(&lab.store(), 0o700);
    std::fs::write(
        lab.store().join("forkpoint.db"),
        "this is no database, and long enough".repeat(200),
    )
    .unwrap();
    refused(&lab.run(&["list"]), 125, "FP0104", "");
}

#[test]
fn a_full_file_system_can_be_cleared() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let lab = kept();
    std::fs::create_dir(lab.store()).unwrap();
    let _mounted = Mounted::new(
        &["-t", "tmpfs", "-o", "size=40m,mode=0700", "tmpfs"],
        &lab.store(),
    );
    lab.run(&["fork", ".", "--name", "one"]).expect(0);
    let done = lab.run(&["exec", "one", "--", "sh", "-c", "cat /dev/zero > full"]);
    assert_ne!(done.code(), Some(0), "{done:#?}");
    // To the last byte, by whatever still fits.
    let filler = lab.store().join("filler");
    for size in [1 << 20, 4096, 1] {
        use std::io::Write;
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(&filler)
            .unwrap();
        while file.write_all(&vec![7u8; size]).is_ok() {}
    }
    let fork = lab.run(&["fork", "."]);
    if fork.code() != Some(0) {
        assert!(fork.stderr.contains("hint: "), "{fork:#?}");
    }
    lab.run(&["abort", "one"]).expect(0);
    lab.run(&["gc", "--all"]).expect(0);
    lab.run(&["fork", ".", "--name", "two"]).expect(0);
    lab.run(&["exec", "two", "--", "sh", "-c", "echo ok > f"])
        .expect(0);
    assert!(
        lab.store().join("reserve").exists(),
        "the reserve was made again"
    );
}
