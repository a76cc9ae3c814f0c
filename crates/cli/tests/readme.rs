//! The README's five minutes, typed as they stand there, in a copy of the example.
#![forbid(unsafe_code)]

mod common;

use common::{Done, Lab};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the source tree.
fn root() -> PathBuf {
    std::env::var_os("FORKPOINT_TEST_SOURCE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        PathBuf::from,
    )
}

/// The shell blocks below the heading `section` of a page.
fn blocks(page: &str, section: &str) -> Vec<String> {
    let (_, rest) = page
        .split_once(&format!("\n## {section}\n"))
        .unwrap_or_else(|| panic!("no section {section}"));
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let after_fence = section.split("```sh\n").skip(1);
    after_fence
        .map(|b| b.split("```").next().unwrap_or(b).to_owned())
        .collect()
}

/// Types a block into a shell that stops at the first failure, with the command on its path.
fn type_in(lab: &Lab, block: &str) -> Done {
    let command = lab.command(&[]);
    let bin = lab.path("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(command.get_program(), bin.join("forkpoint")).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-e", "-c", block])
        .current_dir(lab.base())
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("FORKPOINT_HOME", lab.store())
        .output()
        .unwrap();
    Done::of(&[block], output)
}

fn in_a_copy_of_the_example() -> Lab {
    let lab = Lab::new(&[]);
    let status = Command::new("cp")
        .arg("-R")
        .arg(root().join("examples/fix-the-bug/."))
        .arg(lab.base())
        .status()
        .unwrap();
    assert!(status.success());
    lab
}

#[test]
fn the_five_minutes_of_the_readme_work_as_they_stand_there() {
    let page = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = blocks(&page, "Five minutes");
    let [compete, parameters, by_hand] = blocks.as_slice() else {
        panic!("the tour has other parts than this test knows: {blocks:#?}");
    };
    let lab = in_a_copy_of_the_example();
    let before = lab.read("src/text.c");

    let done = type_in(&lab, compete).expect(0);
    assert!(done.stdout.contains("attempt 1 is committed"), "{done:#?}");
    let fixed = lab.read("src/text.c");
    assert_ne!(before, fixed, "the winner is in the directory");

    type_in(&lab, parameters).expect(0);
    assert_eq!(lab.read("src/text.c"), fixed, "only what was built differs");

    let done = type_in(&lab, by_hand).expect(0);
    assert!(done.stdout.contains("A notes.txt"), "{done:#?}");
    assert_eq!(lab.read("notes.txt"), None, "the last line takes it back");
    assert!(lab.base().join("build/tally").exists());
}

#[test]
fn the_example_s_own_page_works_as_it_stands_there() {
    let page = std::fs::read_to_string(root().join("examples/fix-the-bug/README.md")).unwrap();
    let blocks = blocks(&page, "Run it");
    let [run] = blocks.as_slice() else {
        panic!("one block is expected: {blocks:#?}");
    };
    let lab = in_a_copy_of_the_example();
    let done = type_in(&lab, run).expect(0);
    assert!(done.stdout.contains("attempt 1 is committed"), "{done:#?}");
    let undone = type_in(&lab, "forkpoint undo").expect(0);
    assert!(undone.stdout.contains("paths are back"), "{undone:#?}");
}
