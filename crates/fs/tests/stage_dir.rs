//! Where a commit is staged: in the store if renames from there work, else beside or in the base.

mod common;

use common::apply::exact;
use common::everywhere;
use forkpoint_fs::apply;
use forkpoint_model::CommitId;
use std::fs;
use std::path::Path;

const TXN: CommitId = CommitId::from_bits(7);

#[test]
fn the_store_serves_on_the_same_file_system_and_the_neighbourhood_elsewhere() {
    let name = "the_store_serves_on_the_same_file_system_and_the_neighbourhood_elsewhere";
    everywhere(name, |_| {
        let dir = tempfile::tempdir().expect("tempdir");
        let base = dir.path().join("p/base");
        fs::create_dir_all(&base).expect("mkdir");
        fs::write(base.join("f"), "f").expect("write");
        let before = exact(&base);
        let preferred = dir.path().join("store/commits/c/stage");
        let found = apply::stage_dir(&base, &preferred, TXN).expect("a place");
        assert_eq!(found, preferred);
        fs::write(preferred.join("something"), "staged").expect("write");
        let found = apply::stage_dir(&base, &preferred, TXN).expect("a place");
        assert_eq!(
            found,
            dir.path().join("p").join(format!(".forkpoint-{TXN}"))
        );
        assert!(
            preferred.join("something").exists(),
            "another commit's stage was emptied"
        );
        assert_eq!(exact(&base), before, "the base was touched");
        fs::remove_dir(&found).expect("remove");

        let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("SKIP: no second file system");
            return;
        };
        let elsewhere = other.path().join("stage");
        let found = apply::stage_dir(&base, &elsewhere, TXN).expect("a place");
        assert_eq!(
            found,
            dir.path().join("p").join(format!(".forkpoint-{TXN}"))
        );
        assert!(!elsewhere.exists(), "what does not serve was left");
    });
}

#[test]
fn a_base_that_is_the_top_of_a_file_system_is_staged_in_itself() {
    everywhere(
        "a_base_that_is_the_top_of_a_file_system_is_staged_in_itself",
        |_| {
            let dir = tempfile::tempdir().expect("tempdir");
            let base = Path::new("/dev/shm");
            let found = match apply::stage_dir(base, &dir.path().join("stage"), TXN) {
                Ok(found) => found,
                Err(e) => {
                    eprintln!("SKIP: /dev/shm is not a file system of its own to write to: {e}");
                    return;
                }
            };
            fs::remove_dir(&found).expect("remove");
            assert_eq!(found, base.join(format!(".forkpoint-{TXN}")));
        },
    );
}
