//! The doctor's tries, on this machine.

mod common;

use common::Place;
use forkpoint_sandbox::{CheckState, doctor};

#[test]
fn the_doctor_tries_everything_and_leaves_nothing() {
    let place = Place::new();
    let before = std::fs::read_dir(&place.store).expect("list").count();
    let checks = doctor(&place.store, &place.base);
    for check in &checks {
        eprintln!("{check:?}");
        assert!(!check.detail.is_empty(), "{check:?}");
        // Where sandboxes start, nothing they need is missing.
        assert_ne!(check.state, CheckState::Missing, "{check:?}");
    }
    let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
    for name in [
        "kernel",
        "namespaces",
        "ids",
        "cgroups",
        "overlay in the store",
        "a whole sandbox",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    assert_eq!(
        std::fs::read_dir(&place.store).expect("list").count(),
        before
    );
}
