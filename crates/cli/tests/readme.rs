//! The README's five minutes, typed as they stand there, in a copy of the example.
#![forbid(unsafe_code)]

mod common;

use common::pages::{blocks, copy_of, root, run_it, type_in};

#[test]
fn the_five_minutes_of_the_readme_work_as_they_stand_there() {
    let page = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = blocks(&page, "Five minutes");
    let [compete, parameters, by_hand] = blocks.as_slice() else {
        panic!("the tour has other parts than this test knows: {blocks:#?}");
    };
    let lab = copy_of("fix-the-bug");
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
    let lab = copy_of("fix-the-bug");
    let done = run_it(&lab).expect(0);
    assert!(done.stdout.contains("attempt 1 is committed"), "{done:#?}");
    let undone = type_in(&lab, "forkpoint undo").expect(0);
    assert!(undone.stdout.contains("paths are back"), "{undone:#?}");
}
