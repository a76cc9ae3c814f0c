//! `explain BRANCH`: what it is, what would be committed, what is in the way, what comes next.

use super::common::Lab;
use serde_json::{Value, json};

fn told(lab: &Lab, branch: &str) -> Value {
    let (told, done) = lab.json(&["explain", branch]);
    done.expect(0);
    assert_eq!(told["schema"], "forkpoint.outlook/1");
    told
}

fn next(told: &Value) -> Vec<String> {
    let all = told["next"].as_array().unwrap();
    all.iter()
        .map(|n| n["command"].as_str().unwrap().to_owned())
        .collect()
}

/// The first words of what is in the way.
fn in_the_way(told: &Value) -> Vec<String> {
    let all = told["obstacles"].as_array().unwrap();
    all.iter()
        .map(|o| o["why"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_branch_is_explained_through_its_life() {
    let lab = Lab::new(&[("a", "1"), ("b", "1")]);
    lab.run(&["fork", ".", "--name", "one"]).expect(0);
    lab.run(&["fork", ".", "--name", "two"]).expect(0);
    let fresh = told(&lab, "one");
    assert_eq!(fresh["commit"]["changed"]["files"], 0);
    assert!(
        in_the_way(&fresh)[0].contains("changes nothing"),
        "{fresh:#}"
    );
    assert!(
        next(&fresh)
            .iter()
            .any(|c| c.starts_with("forkpoint exec one"))
    );
    let work =
        "echo 2 > a; mkdir -p .git/hooks; echo x > .git/hooks/post-commit; echo k > skip.log";
    lab.run(&["exec", "one", "--", "sh", "-c", work]).expect(0);
    lab.run(&["exec", "two", "--", "sh", "-c", "echo 3 > a"])
        .expect(0);
    let (ready, done) = lab.json(&["explain", "one", "--exclude", "*.log"]);
    done.expect(0);
    assert_eq!(ready["commit"]["excluded"], json!(["skip.log"]));
    let withheld = ready["commit"]["withheld"].as_array().unwrap();
    assert!(
        withheld.contains(&json!(".git/hooks/post-commit")),
        "{ready:#}"
    );
    assert!(
        ready["commit"]["paths"]
            .as_array()
            .unwrap()
            .contains(&json!("a"))
    );
    assert_eq!(in_the_way(&ready), Vec::<String>::new());
    assert_eq!(next(&ready)[0], "forkpoint commit one");
    // Nothing was sealed or ended by looking.
    assert_eq!(ready["branch"]["state"], "open");
    let text = lab.run(&["explain", "one"]).expect(0).stdout;
    for part in ["would write", "withheld", "next", "forkpoint commit one"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    lab.run(&["commit", "one"]).expect(0);
    let stale = told(&lab, "two");
    let why = in_the_way(&stale);
    assert!(why[0].starts_with("it is stale: commit c"), "{why:?}");
    assert!(why[1].contains("changed underneath too"), "{why:?}");
    assert_eq!(next(&stale)[0], "forkpoint rebase two");
    assert_eq!(next(&told(&lab, "one"))[0], "forkpoint undo");
    lab.run(&["abort", "two", "--keep"]).expect(0);
    assert_eq!(next(&told(&lab, "two"))[0], "forkpoint diff two");
}

#[test]
fn what_keeps_a_branch_from_being_committed_is_told() {
    let lab = Lab::new(&[("a", "1")]);
    lab.run(&["fork", ".", "--name", "one", "--network", "host"])
        .expect(0);
    assert_eq!(told(&lab, "one")["would_open"], json!(["network host"]));
    assert_eq!(told(&lab, "one")["opened"], json!([]));
    lab.run(&["exec", "one", "--", "sh", "-c", "echo 2 > a"])
        .expect(0);
    assert_eq!(told(&lab, "one")["opened"], json!(["network host"]));
    lab.run(&["verify", "one", "--", "false"]).expect(1);
    let failed = told(&lab, "one");
    assert!(
        in_the_way(&failed)[0].contains("verifier failed"),
        "{failed:#}"
    );
    lab.run(&["verify", "one", "--", "true"]).expect(0);
    // Another branch of the directory that runs.
    lab.run(&["fork", ".", "--name", "busy"]).expect(0);
    let sleeper = "sleep 60 >/dev/null 2>&1 &";
    lab.run(&["exec", "busy", "--", "sh", "-c", sleeper])
        .expect(0);
    let blocked = told(&lab, "one");
    assert_eq!(in_the_way(&blocked), ["busy runs on the same directory"]);
    assert_eq!(blocked["obstacles"][0]["mend"], "forkpoint stop busy");
    assert!(next(&told(&lab, "busy")).contains(&"forkpoint stop busy".to_owned()));
    lab.run(&["stop", "busy"]).expect(0);
    // The directory moved on, elsewhere.
    std::fs::write(lab.base().join("other"), "x").unwrap();
    let drifted = told(&lab, "one");
    assert_eq!(drifted["commit"]["drift"], json!([".", "other"]));
    assert!(
        in_the_way(&drifted)[0].contains("voids the verification"),
        "{drifted:#}"
    );
    // A nested one goes into its parent.
    lab.run(&["fork", "busy", "--name", "inner"]).expect(0);
    assert_eq!(told(&lab, "inner")["into"], "busy");
}

#[test]
fn what_is_neither_a_file_nor_a_branch_is_refused() {
    let lab = Lab::new(&[("a", "1")]);
    let error = lab.run(&["explain", "nothing"]).expect(2).stderr;
    assert!(
        error.contains("FP0005") && error.contains("forkpoint list"),
        "{error}"
    );
    let error = lab.run(&["explain", "nothing.toml"]).expect(2).stderr;
    assert!(error.contains("FP0510"), "{error}");
    // An attempt by its number.
    lab.run(&[
        "explore",
        "--no-commit",
        "--keep",
        "all",
        "--",
        "sh",
        "-c",
        "echo 2 > a",
    ])
    .expect(0);
    let attempt = told(&lab, "last/0");
    assert_eq!(attempt["branch"]["attempt"], 0);
    assert!(
        next(&attempt)[0].starts_with("forkpoint commit x"),
        "{attempt:#}"
    );
}
