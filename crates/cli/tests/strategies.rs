//! The strategies that search, with the real binary, on the input of examples/strategies, by the very
//! commands of its README; and budgets.

mod common;

use common::Lab;
use serde_json::Value;
use std::path::Path;

const README: &str = include_str!("../../../examples/strategies/README.md");

/// A laboratory whose base is a part of the example.
fn lab(part: &str) -> Lab {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/strategies");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(from.join(part)).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        files.push((name, std::fs::read_to_string(entry.path()).unwrap()));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (&**n, &**t)).collect();
    Lab::new(&files)
}

/// Runs the README's command for a strategy, with `--json`.
fn explore(lab: &Lab, strategy: &str) -> Value {
    let start = README
        .find(&format!("forkpoint explore --strategy {strategy} "))
        .unwrap();
    let end = start + README[start..].find("```").unwrap();
    let line = README[start..end].replacen("forkpoint explore", "\"$0\" explore --json", 1);
    let binary = lab.command(&[]).get_program().to_owned();
    let output = std::process::Command::new("/bin/sh")
        .args(["-c", &line])
        .arg(binary)
        .current_dir(lab.base())
        .env("FORKPOINT_HOME", lab.store())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Explores with these flags; it must end with this status.
#[track_caller]
fn flags(lab: &Lab, status: i32, flags: &[&str]) -> Value {
    let (report, done) = lab.json(&[&["explore"], flags].concat());
    done.expect(status);
    report
}

fn length(lab: &Lab) -> f64 {
    let output = std::process::Command::new("sh")
        .arg("length.sh")
        .current_dir(lab.base())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap()
}

/// Exactly one attempt is committed; every other, of whatever depth, is rolled back (law 7).
fn one_winner(report: &Value) -> &Value {
    let attempts = report["attempts"].as_array().unwrap();
    let committed = attempts.iter().filter(|a| a["state"] == "committed");
    assert_eq!(committed.count(), 1, "{report:#}");
    let over = |a: &&Value| a["state"] == "committed" || a["state"] == "rolled_back";
    assert!(attempts.iter().all(|a| over(&a)), "{report:#}");
    &attempts[report["winner"].as_u64().unwrap() as usize]
}

#[test]
fn beam_shortens_the_trip_and_commits_the_whole_chain() {
    let lab = lab("tour");
    let before = length(&lab);
    let report = explore(&lab, "beam");
    let attempts = report["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 4 + 3 * 4);
    let winner = one_winner(&report);
    // What is in the base is what the winner's score was measured on, nothing less.
    assert!((length(&lab) - winner["score"].as_f64().unwrap()).abs() < 1e-6);
    assert!(length(&lab) < before);
    let best = attempts.iter().filter_map(|a| a["score"].as_f64());
    assert_eq!(winner["score"].as_f64(), best.min_by(f64::total_cmp));
    lab.run(&["undo"]).expect(0);
    assert!((length(&lab) - before).abs() < 1e-6);
}

#[test]
fn halving_gives_the_survivors_more_time_and_lets_them_go_on() {
    let lab = lab("tour");
    let before = length(&lab);
    let report = explore(&lab, "halving");
    let attempts = report["attempts"].as_array().unwrap();
    let depths: Vec<_> = attempts
        .iter()
        .map(|a| a["depth"].as_u64().unwrap())
        .collect();
    assert_eq!(depths, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3]);
    let last = attempts[14]["wall_s"].as_f64().unwrap();
    assert!(last >= 3.9, "the last had four seconds: {last}");
    for attempt in &attempts[8..] {
        let parent = &attempts[attempt["parent"].as_u64().unwrap() as usize];
        assert!(
            attempt["score"].as_f64() <= parent["score"].as_f64(),
            "it goes on from there"
        );
    }
    one_winner(&report);
    assert!(length(&lab) < before);
    assert_eq!(lab.read(".tour.new"), None);
}

#[test]
fn a_tournament_finds_the_shortest() {
    let lab = lab("tour");
    let report = explore(&lab, "tournament");
    let met = report["comparisons"].as_array().unwrap();
    assert_eq!(met.len(), 3);
    assert!(met.iter().all(|c| c["verdict"] != "error"), "{met:#?}");
    one_winner(&report);
    let committed = length(&lab);
    for start in ["Lisbon", "Oslo", "Athens", "Vienna"] {
        let status = std::process::Command::new("sh")
            .arg("nearest.sh")
            .env("FORKPOINT_PARAM_START", start)
            .current_dir(lab.base())
            .status();
        assert!(status.unwrap().success());
        assert!(committed <= length(&lab) + 1e-6, "{start} is shorter");
    }
}

#[test]
fn refine_mends_one_fault_after_the_other_and_commits_all_of_them() {
    let lab = lab("repair");
    let report = explore(&lab, "refine");
    let winner = one_winner(&report);
    assert_eq!(winner["depth"], 4, "{report:#}");
    let text = lab.read("server.conf").unwrap();
    assert_eq!(
        text,
        "listen 8080\nworkers 4\nroot /relative/www\nlog debug\n# tidy\n"
    );
    let told = Path::new(winner["out"].as_str().unwrap()).join("feedback");
    let told = std::fs::read_to_string(told).unwrap();
    assert!(
        told.contains("score 1\n") && told.ends_with("log: debugg is no level\n"),
        "{told}"
    );
    lab.run(&["undo"]).expect(0);
    assert!(lab.read("server.conf").unwrap().starts_with("listen 80800"));
}

#[test]
fn a_plateau_ends_a_refinement_and_nothing_is_committed() {
    let lab = Lab::new(&[("a", "0\n")]);
    let attempt = "echo $FORKPOINT_DEPTH > a";
    let report = flags(
        &lab,
        1,
        &[
            "--strategy",
            "refine",
            "--rounds",
            "9",
            "--patience",
            "2",
            "--attempt",
            attempt,
            "--verify",
            "false",
            "--score",
            "echo 1",
        ],
    );
    assert_eq!(report["attempts"].as_array().unwrap().len(), 3);
    assert_eq!(lab.read("a").as_deref(), Some("0\n"));
}

#[test]
fn the_two_sides_of_a_comparison_are_apart_and_what_it_writes_is_gone() {
    let lab = Lab::new(&[("a", "old\n")]);
    let compare = "cat $FORKPOINT_LEFT/a $FORKPOINT_RIGHT/a a; echo x > $FORKPOINT_RIGHT/b; exit 1";
    let report = flags(
        &lab,
        0,
        &[
            "--strategy",
            "tournament",
            "--param",
            "k=1,2",
            "--compare",
            compare,
            "--attempt",
            "echo $FORKPOINT_PARAM_K > a",
        ],
    );
    let met = &report["comparisons"][0];
    assert_eq!(
        (&met["verdict"], &met["exit_code"]),
        (&"right".into(), &1.into())
    );
    let log = std::fs::read_to_string(met["log"].as_str().unwrap()).unwrap();
    let side = |name: &str| met[name].as_u64().unwrap() + 1;
    assert_eq!(log, format!("{}\n{}\nold\n", side("left"), side("right")));
    assert_eq!(lab.read("a"), Some(format!("{}\n", side("right"))));
    assert_eq!(lab.read("b"), None);
}

#[test]
fn reported_costs_stop_what_would_exceed_the_budget() {
    let lab = Lab::new(&[("a", "0\n")]);
    let spend = "echo '{\"cost\":0.4}' >> \"$FORKPOINT_COST_FILE\"; echo 1 > a; exit 1";
    let report = flags(
        &lab,
        1,
        &[
            "-n",
            "6",
            "--jobs",
            "1",
            "--budget-cost",
            "1",
            "--attempt",
            spend,
        ],
    );
    let reasons: Vec<_> = (0..6)
        .map(|i| report["attempts"][i]["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        ["exit", "exit", "exit", "budget", "budget", "budget"]
    );
    assert!((report["cost"].as_f64().unwrap() - 1.2).abs() < 1e-9);
}

#[test]
fn processor_time_and_disk_are_budgets_of_the_whole_tree() {
    let lab = Lab::new(&[("a", "0\n")]);
    let report = flags(
        &lab,
        1,
        &[
            "-n",
            "2",
            "--jobs",
            "2",
            "--budget-cpu",
            "500ms",
            "--attempt",
            "echo 1 > a; while :; do :; done",
        ],
    );
    for i in 0..2 {
        assert_eq!(report["attempts"][i]["reason"], "budget", "{report:#}");
    }
    let report = flags(
        &lab,
        1,
        &[
            "-n",
            "3",
            "--jobs",
            "1",
            "--budget-disk",
            "3M",
            "--attempt",
            "head -c 2000000 /dev/zero > big; sleep 1; exit 1",
        ],
    );
    assert_eq!(report["attempts"][2]["reason"], "budget", "{report:#}");
}
