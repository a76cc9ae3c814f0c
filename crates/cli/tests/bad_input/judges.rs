//! Verifiers and scores that hang, write, cannot run, or say nothing that can be ranked.

use super::kept;
use crate::common::Lab;
use serde_json::Value;

fn attempt(lab: &Lab, args: &[&str]) -> (Value, i32) {
    let mut all = vec!["explore", "--no-commit"];
    all.extend_from_slice(args);
    let (report, done) = lab.json(&all);
    (report, done.code().unwrap())
}

#[test]
fn a_verifier_that_is_no_use_passes_nothing() {
    let lab = kept();
    let change = "echo x > new";
    for (verify, reason) in [
        ("sleep 300", "verifier_timeout"),
        ("/no/such/verifier", "verifier_error"),
        ("kill -SEGV $$", "failed_verify"),
    ] {
        let (report, status) = attempt(
            &lab,
            &[
                "--verify",
                verify,
                "--verify-timeout",
                "500ms",
                "--attempt",
                change,
            ],
        );
        assert_eq!(status, 1, "{verify}: {report:#}");
        let attempt = &report["attempts"][0];
        assert_eq!(attempt["reason"], reason, "{verify}: {attempt:#}");
        assert_eq!(attempt["passed"], false);
    }
}

#[test]
fn what_a_verifier_writes_is_thrown_away() {
    let lab = kept();
    let (report, status) = attempt(
        &lab,
        &[
            "--verify",
            "echo judged > a; rm -rf d",
            "--attempt",
            "echo x > new",
        ],
    );
    assert_eq!(status, 0, "{report:#}");
    let branch = report["attempts"][0]["branch"].as_str().unwrap();
    let diff = lab.run(&["diff", branch]).expect(0);
    assert_eq!(diff.stdout, "A new\n");
}

#[test]
fn a_score_that_cannot_be_ranked_wins_nothing() {
    let lab = kept();
    for score in [
        "echo NaN",
        "true",
        "echo nothing",
        "echo inf",
        "exit 3",
        "echo '{\"a\":1,\"b\":2}' >&3",
    ] {
        let (report, status) = attempt(
            &lab,
            &[
                "--score",
                score,
                "--verify",
                "true",
                "--attempt",
                "echo x > new",
            ],
        );
        assert_eq!(status, 1, "{score}: {report:#}");
        assert_eq!(report["attempts"][0]["score"], Value::Null, "{score}");
        assert_eq!(report["winner"], Value::Null, "{score}");
    }
    // The last number counts, and what the attempt itself prints does not.
    let (report, status) = attempt(
        &lab,
        &[
            "--score",
            "echo 1; echo 7",
            "--verify",
            "true",
            "--attempt",
            "echo x > new; echo 1000",
        ],
    );
    assert_eq!(status, 0, "{report:#}");
    assert_eq!(report["attempts"][0]["score"], 7.0);
}
