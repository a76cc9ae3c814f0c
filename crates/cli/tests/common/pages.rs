//! Pages of the documentation, typed as they stand there, in copies of the examples.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

use super::{Done, Lab};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The top of the source tree.
pub fn root() -> PathBuf {
    std::env::var_os("FORKPOINT_TEST_SOURCE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        PathBuf::from,
    )
}

/// Whether these programs are there; says which is not.
pub fn has(needs: &[&str]) -> bool {
    needs.iter().all(|program| {
        let found = Command::new("sh")
            .args(["-c", "command -v \"$0\"", program])
            .stdout(Stdio::null())
            .status();
        let found = found.unwrap().success();
        if !found {
            eprintln!("SKIP: the example needs `{program}`");
        }
        found
    })
}

/// A base that is a copy of the example of this name.
pub fn copy_of(example: &str) -> Lab {
    let lab = Lab::new(&[]);
    let copied = Command::new("cp")
        .arg("-R")
        .arg(root().join("examples").join(example).join("."))
        .arg(lab.base())
        .status();
    assert!(copied.unwrap().success());
    lab
}

/// The shell blocks below the heading `section` of a page.
pub fn blocks(page: &str, section: &str) -> Vec<String> {
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
pub fn type_in(lab: &Lab, block: &str) -> Done {
    let bin = lab.path("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        let command = lab.command(&[]);
        std::os::unix::fs::symlink(command.get_program(), bin.join("forkpoint")).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-e", "-c", block])
        .current_dir(lab.base())
        // What a page needs inside, where the temporary directory is the branch's own, lies in the base.
        .env(
            "PATH",
            format!("{}:{}/bin:{path}", bin.display(), lab.base().display()),
        )
        .env("FORKPOINT_HOME", lab.store())
        .output()
        .unwrap();
    Done::of(&[block], output)
}

/// Types the one shell block below "Run it" of the page that lies in the base.
pub fn run_it(lab: &Lab) -> Done {
    let page = std::fs::read_to_string(lab.base().join("README.md")).unwrap();
    let blocks = blocks(&page, "Run it");
    let [run] = blocks.as_slice() else {
        panic!("one block is expected: {blocks:#?}");
    };
    type_in(lab, run)
}
