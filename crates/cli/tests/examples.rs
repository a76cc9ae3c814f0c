//! Each example's own page, typed as it stands there, in a copy of the example: what it says is what happens.
#![forbid(unsafe_code)]

mod common;

use common::Lab;
use common::pages::{self, run_it};
use serde_json::Value;
use std::process::Command;

/// A base that is a copy of the example of this name; `None`, said aloud, where a program is missing that it needs.
fn copy_of(example: &str, needs: &[&str]) -> Option<Lab> {
    pages::has(needs).then(|| pages::copy_of(example))
}

/// Of every attempt: its parameters or command, and its reason.
fn outcomes(report: &Value) -> Vec<(String, String)> {
    let attempts = report["attempts"].as_array().unwrap();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    attempts
        .iter()
        .map(|a| {
            let params = a["params"].as_object().unwrap();
            let name = if params.is_empty() {
                text(&a["command"])
            } else {
                let values: Vec<_> = params.values().map(text).collect();
                values.join(" ")
            };
            (name, text(&a["reason"]))
        })
        .collect()
}

fn last(lab: &Lab) -> Value {
    let (report, done) = lab.json(&["show", "last"]);
    done.expect(0);
    report
}

#[test]
fn the_flags_that_are_fast_and_wrong_do_not_win() {
    let Some(lab) = copy_of("tune-the-flags", &["cc", "make", "awk"]) else {
        return;
    };
    let before = lab.read("Makefile");
    let done = run_it(&lab).expect(0);
    let report = last(&lab);
    assert_eq!(report["outcome"], "committed", "{done:#?}");
    let outcomes = outcomes(&report);
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
    for (params, reason) in &outcomes {
        // Without optimisation there is nothing that could go wrong.
        let wrong = params.contains("-ffast-math") && !params.contains("-O0");
        assert_eq!(reason == "failed_verify", wrong, "{params}: {reason}");
    }
    let winner = &report["attempts"][usize::try_from(report["winner"].as_u64().unwrap()).unwrap()];
    let scores = report["attempts"].as_array().unwrap().iter();
    let best = scores.filter_map(|a| a["score"].as_f64()).reduce(f64::min);
    assert_eq!(winner["score"].as_f64(), best, "the lowest is committed");
    let makefile = lab.read("Makefile").unwrap();
    let flags = format!("CFLAGS = {}\n", winner["params"]["level"].as_str().unwrap());
    assert!(makefile.contains(&flags), "{flags:?} in {makefile}");
    lab.run(&["undo"]).expect(0);
    assert_eq!(lab.read("Makefile"), before);
}

#[test]
fn the_first_import_that_adds_up_is_committed_and_the_slow_one_is_stopped() {
    let Some(lab) = copy_of("import-the-export", &["sqlite3", "awk", "iconv"]) else {
        return;
    };
    let done = run_it(&lab).expect(0);
    let report = last(&lab);
    let outcomes = outcomes(&report);
    let (winner, slow) = (&outcomes[3], &outcomes[4]);
    assert_eq!(winner.1, "passed", "{outcomes:?} {done:#?}");
    assert_eq!(slow.1, "sibling_committed", "{outcomes:?}");
    // The others may have been judged already, or not; none of them passed.
    for (name, reason) in &outcomes[..3] {
        assert!(
            ["failed_verify", "sibling_committed"].contains(&reason.as_str()),
            "{name}: {reason}"
        );
    }
    let checked = Command::new("sh")
        .arg("tests/check.sh")
        .current_dir(lab.base())
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    lab.run(&["undo"]).expect(0);
    assert!(!lab.base().join("orders.db").exists());
}

#[test]
fn the_newest_version_that_the_tests_pass_with_is_committed() {
    let Some(lab) = copy_of("upgrade-a-dependency", &["cargo", "awk"]) else {
        return;
    };
    let fetched = Command::new("sh")
        .args(["fetch.sh", "0.5.0"])
        .current_dir(lab.base())
        .output()
        .unwrap();
    if !fetched.status.success() {
        eprintln!(
            "SKIP: cargo cannot fetch here: {}",
            String::from_utf8_lossy(&fetched.stderr)
        );
        return;
    }
    std::fs::remove_file(lab.base().join("Cargo.lock")).unwrap();
    let done = run_it(&lab).expect(0);
    let report = last(&lab);
    let expected = [
        ("none 0.3.3", "outscored"),
        ("unicode 0.3.3", "failed_verify"),
        ("none 0.4.0", "failed_verify"),
        ("unicode 0.4.0", "outscored"),
        ("none 0.4.1", "failed_verify"),
        ("unicode 0.4.1", "passed"),
        ("none 0.5.0", "failed_verify"),
        ("unicode 0.5.0", "failed_verify"),
    ];
    let expected: Vec<_> = expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    assert_eq!(outcomes(&report), expected, "{done:#?}");
    let manifest = lab.read("Cargo.toml").unwrap();
    assert!(manifest.contains("=0.4.1"), "{manifest}");
    assert!(lab.base().join("Cargo.lock").exists());
    assert!(!lab.base().join("target").exists(), "it is excluded");
}

#[test]
fn the_incident_what_a_rejected_worker_wrote_is_seen_by_nobody() {
    let Some(lab) = copy_of("the-incident", &["cmp"]) else {
        return;
    };
    // The workers call it too, and where it was built may be hidden from them.
    let command = lab.command(&[]);
    let bin = lab.base().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::copy(command.get_program(), bin.join("forkpoint")).unwrap();
    let done = run_it(&lab).expect(0);
    assert!(done.stderr.contains("FP0083"), "the unsafe twin: {done:#?}");
    // What C made after B had written, been rejected and rolled back is what it makes in a clean store.
    let made = lab.read("after-the-incident.txt").unwrap();
    assert_eq!(
        made,
        "budget 100\nhotel none\nkeys 1\nevents 0\ntrains for 10\n"
    );
    assert_eq!(lab.read("from-a-clean-store.txt"), Some(made.clone()));
    assert_eq!(lab.read("trip.txt"), Some(made));
    let (rejected, _) = lab.json(&["show", "worker-2"]);
    assert_eq!(rejected["state"], "rolled_back", "{rejected:#}");
    let (journal, _) = lab.json(&["effect", "worker-2", "--list"]);
    let states = journal["effects"].as_array().unwrap().iter();
    let states: Vec<_> = states.map(|effect| &effect["state"]).collect();
    assert_eq!(states, ["never_sent"], "{journal:#}");
    let (keys, _) = lab.json(&["kv", "list"]);
    let names = keys["keys"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|key| &key["key"]).collect();
    assert_eq!(names, ["plan/budget", "plan/trains"], "{keys:#}");
    assert_eq!(keys["keys"][0]["value"], "100");
    let (bus, _) = lab.json(&["bus", "read"]);
    assert_eq!(bus["events"].as_array().map(Vec::len), Some(0), "{bus:#}");
    lab.run(&["audit"]).expect(0);
}
