//! A conformance suite of what POSIX says of files, run natively, inside a branch on what the base had, and inside a branch
//! on what was made there. A branch may fail only where the file system below it fails too, or where
//! docs/semantics.md declares the kernel's exception.

mod common;
mod posix_cases;

use common::{Place, is_root, run_with};
use forkpoint_engine::Stream;
use posix_cases::Case;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Where the suite is to run inside a branch, and whether it is to make what it works on.
const VARIABLE: &str = "FORKPOINT_POSIX_SUITE";

/// What overlayfs does otherwise with files of the base; each is declared in docs/semantics.md.
const DECLARED: &[&str] = &["links_of_one_file_share_what_is_written"];

/// The same for ordinary users alone: a directory of the base is not renamed in one step, and a file of it that is linked
/// keeps the number it was known by.
const DECLARED_ROOTLESS: &[&str] = &[
    "rename_moves_a_directory_with_what_is_in_it",
    "rename_replaces_an_empty_directory",
    "exchange_swaps_a_file_and_a_directory",
    "link_makes_a_second_name",
];

type Failures = BTreeMap<String, String>;

fn make(cases: &[Case], root: &Path) {
    for case in cases {
        let dir = root.join(case.name);
        std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        (case.setup)(&dir).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    }
}

fn check(cases: &[Case], root: &Path) -> Failures {
    let mut failures = Failures::new();
    for case in cases {
        if let Err(why) = (case.check)(&root.join(case.name)) {
            failures.insert(case.name.to_owned(), why);
        }
    }
    failures
}

#[test]
#[ignore = "executed by the other inside a branch"]
fn suite() {
    let Ok(what) = std::env::var(VARIABLE) else {
        return;
    };
    let (how, root) = what.split_once(':').expect("how and where");
    let (cases, root) = (posix_cases::all(), Path::new(root));
    if how == "fresh" {
        std::fs::create_dir(root).expect("a directory");
        make(&cases, root);
    }
    for (name, why) in check(&cases, root) {
        println!("FAILURE {name}: {}", why.replace('\n', " "));
    }
    println!("RAN {}", cases.len());
}

fn inside(branch: &forkpoint_engine::Branch, how: &str, root: &Path) -> Failures {
    let own = File::open("/proc/self/exe").expect("this program");
    let (code, text) = run_with(
        branch,
        "exec /proc/self/fd/0 --exact suite --ignored --nocapture --test-threads=1",
        Stream::Fd(own.into()),
        &[(VARIABLE, &format!("{how}:{}", root.display()))],
    );
    assert_eq!(code, 0, "{text}");
    let ran = format!("RAN {}", posix_cases::all().len());
    assert!(
        text.lines().any(|l| l.ends_with(&ran)),
        "not all ran: {text}"
    );
    text.lines()
        .filter_map(|line| line.split_once("FAILURE ")?.1.split_once(": "))
        .map(|(name, why)| (name.to_owned(), why.to_owned()))
        .collect()
}

#[test]
fn a_branch_fails_nowhere_but_where_the_host_does() {
    let cases = posix_cases::all();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let place = Place::new();
    let native = place.dir().join("native");
    std::fs::create_dir(&native).unwrap();
    make(&cases, &native);
    make(&cases, &place.base());
    let branch = place.fork();

    let of_host = check(&cases, &native);
    let of_base = inside(&branch, "old", &place.base());
    let of_fresh = inside(&branch, "fresh", &place.file("fresh"));
    eprintln!("{} cases; natively: {of_host:#?}", cases.len());

    let declared =
        |name: &str| DECLARED.contains(&name) || (!is_root() && DECLARED_ROOTLESS.contains(&name));
    let more = |failures: &Failures, declared: &dyn Fn(&str) -> bool| -> Failures {
        let new = failures
            .iter()
            .filter(|(name, _)| !of_host.contains_key(*name) && !declared(name));
        new.map(|(a, b)| (a.clone(), b.clone())).collect()
    };
    assert_eq!(more(&of_base, &declared), Failures::new(), "on the base's");
    assert_eq!(more(&of_fresh, &|_| false), Failures::new(), "on its own");
    // An exception that no longer is one must go from the documentation.
    let rootless = if is_root() {
        &[][..]
    } else {
        DECLARED_ROOTLESS
    };
    for name in DECLARED.iter().chain(rootless) {
        assert!(of_base.contains_key(*name), "{name} is no exception");
    }
}
