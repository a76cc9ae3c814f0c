//! The command inside a branch, and plain programs there: both speak through the branch's socket.
#![forbid(unsafe_code)]

mod common;

use common::{Lab, wait_until};
use std::time::Duration;

/// The command itself, as a branch sees it.
fn binary() -> String {
    let own = env!("CARGO_BIN_EXE_forkpoint").to_owned();
    std::env::var("FORKPOINT_TEST_BIN").unwrap_or(own)
}

/// A copy of the command in the base: the place it was built in may be hidden inside.
fn with_command(files: &[(&str, &str)]) -> Lab {
    let lab = Lab::new(files);
    std::fs::copy(binary(), lab.base().join("fp")).unwrap();
    lab
}

#[test]
fn an_attempt_reports_and_its_costs_count_against_the_budget() {
    let lab = with_command(&[]);
    let script = "./fp attempt score 7 --metric time=3 && ./fp attempt progress half --fraction 0.5 && \
        ./fp attempt cost 0.4 && ./fp attempt cost 0.4 && sleep 1.2 && echo x > made && ./fp attempt cost 0.4";
    let events = lab.path("events");
    let (report, _) = lab.json(&[
        "explore",
        "--budget-cost",
        "0.9",
        "--events",
        events.to_str().unwrap(),
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let attempt = &report["attempts"][0];
    assert_eq!(attempt["claimed_score"], 7.0, "{report:#}");
    assert_eq!(attempt["score"], serde_json::Value::Null);
    let cost = attempt["cost"].as_f64().unwrap();
    assert!((cost - 1.2).abs() < 1e-9, "{report:#}");
    let told = std::fs::read_to_string(&events).unwrap();
    let progress: Vec<serde_json::Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &serde_json::Value| event["event"] == "progress")
        .collect();
    assert_eq!(progress.len(), 1, "{told}");
    assert_eq!(progress[0]["text"], "half");
    assert_eq!(progress[0]["fraction"], 0.5);
}

#[test]
fn an_attempt_over_its_budget_by_what_it_reports_is_stopped() {
    let lab = with_command(&[]);
    let script = "./fp attempt score 7; i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; \
        ./fp attempt cost 1.5; sleep 60";
    let (report, _) = lab.json(&[
        "explore",
        "--budget-cost",
        "1",
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let attempt = &report["attempts"][0];
    assert_eq!(attempt["reason"], "budget", "{report:#}");
    // What it used and said until then is told, and how it was ended is not its exit status.
    assert_eq!(attempt["claimed_score"], 7.0, "{report:#}");
    assert_eq!(attempt["cost"], 1.5, "{report:#}");
    assert!(attempt["wall_s"].as_f64().unwrap() > 0.0, "{report:#}");
    assert!(attempt["cpu_s"].as_f64().unwrap() > 0.0, "{report:#}");
    assert_eq!(attempt["exit_code"], serde_json::Value::Null);
}

#[test]
fn info_steps_and_checkpoints_from_inside() {
    let lab = with_command(&[("file", "one\n")]);
    lab.run(&["fork", ".", "--name", "b"]).expect(0);
    let inside = |script: &str| {
        lab.run(&["exec", "b", "--", "sh", "-c", script])
            .expect(0)
            .stdout
    };
    let info: serde_json::Value =
        serde_json::from_str(&inside("./fp attempt info --json")).unwrap();
    assert_eq!(info["schema"], "forkpoint.attempt/1");
    assert_eq!(info["name"], "b");
    assert!(
        inside("./fp attempt info")
            .contains(&format!("branch {}\n", info["branch"].as_str().unwrap()))
    );
    let said = inside(
        "./fp attempt step before; echo two > file; ./fp attempt checkpoint mine; echo three > file",
    );
    let name = format!("{}.mine", info["branch"].as_str().unwrap());
    assert_eq!(said, format!("1\n{name}\n"));
    lab.run(&["fork", &name, "--name", "c"]).expect(0);
    let text = lab.run(&["exec", "c", "--", "cat", "file"]).expect(0);
    assert_eq!(text.stdout, "two\n");
    lab.run(&["rewind", "b", "1"]).expect(0);
    assert_eq!(inside("cat file"), "one\n");
}

#[test]
fn outside_a_branch_it_says_where_it_works() {
    let lab = Lab::new(&[]);
    let mut command = lab.command(&["attempt", "info"]);
    command.env_remove("FORKPOINT_SOCK");
    let done = common::Done::of(&["attempt"], command.output().unwrap()).expect(2);
    assert!(
        done.stderr.contains("FP0001") && done.stderr.contains("forkpoint exec"),
        "{done:?}"
    );
    command.env("FORKPOINT_SOCK", "/nonexistent/sock");
    let done = common::Done::of(&["attempt"], command.output().unwrap()).expect(5);
    assert!(done.stderr.contains("FP0452"), "{done:?}");
}

#[test]
fn what_an_exec_leaves_behind_is_still_answered() {
    let lab = with_command(&[]);
    lab.run(&["fork", ".", "--name", "b"]).expect(0);
    let script = "(while ! test -e \"$FORKPOINT_OUT/go\"; do sleep 0.02; done; \
        ./fp attempt info > \"$FORKPOINT_OUT/said\" 2>&1; sleep 60) >/dev/null 2>&1 &\necho $FORKPOINT_BRANCH";
    let done = lab.run(&["exec", "b", "--", "sh", "-c", script]).expect(0);
    let branch = done.stdout.trim();
    let out = lab.store().join("branches").join(branch).join("out");
    std::fs::write(out.join("go"), "").unwrap();
    let said = || std::fs::read_to_string(out.join("said")).unwrap_or_default();
    wait_until(Duration::from_secs(20), || said().ends_with('\n'));
    assert!(said().contains(&format!("branch {branch}\n")), "{}", said());
    lab.run(&["abort", "b"]).expect(0);
}

#[test]
fn plain_programs_speak_to_it() {
    let lab = Lab::new(&[]);
    lab.run(&["fork", ".", "--name", "b"]).expect(0);
    let python = "import json, os, socket\n\
        s = socket.socket(socket.AF_UNIX); s.connect(os.environ['FORKPOINT_SOCK'])\n\
        s.sendall(b'{\"op\":\"cost\",\"cost\":0.12}\\n'); print(json.loads(s.makefile().readline()))";
    let done = lab.run(&["exec", "b", "--", "python3", "-c", python]);
    if done.code() == Some(127) {
        eprintln!("SKIP: no python3");
    } else {
        assert_eq!(done.expect(0).stdout, "{'ok': {}}\n");
    }
    let shell = "command -v nc >/dev/null || exit 77; \
        printf '{\"op\":\"info\"}\\n' | timeout 5 nc -NU \"$FORKPOINT_SOCK\" 2>/dev/null || exit 78";
    let done = lab.run(&["exec", "b", "--", "sh", "-c", shell]);
    match done.code() {
        Some(77 | 78) => eprintln!("SKIP: no nc that speaks to such sockets"),
        _ => assert!(done.expect(0).stdout.contains("\"ok\":"), "no answer"),
    }
}

#[test]
fn the_bus_inside_is_the_branch_s_own() {
    let lab = with_command(&[]);
    lab.run(&["fork", ".", "--name", "a"]).expect(0);
    lab.run(&["fork", ".", "--name", "b"]).expect(0);
    let inside = |branch: &str, script: &str| {
        lab.run(&["exec", branch, "--", "sh", "-c", script])
            .expect(0)
            .stdout
    };
    inside(
        "a",
        "./fp bus publish news one; printf '\\377' | ./fp bus publish news -",
    );
    let read = "./fp bus read news --json";
    let seen: serde_json::Value = serde_json::from_str(&inside("a", read)).unwrap();
    assert_eq!(seen["events"][0]["payload"], "one", "{seen:#}");
    assert_eq!(seen["events"][1]["payload_hex"], "ff");
    let seen: serde_json::Value = serde_json::from_str(&inside("b", read)).unwrap();
    assert_eq!(seen["events"].as_array().map(Vec::len), Some(0));
    let done = lab
        .run(&["exec", "a", "--", "./fp", "bus", "read", "--follow"])
        .expect(2);
    assert!(done.stderr.contains("FP0001"), "{done:?}");
    lab.run(&["commit", "a", "--allow-empty"]).expect(0);
    let (seen, _) = lab.json(&["bus", "read", "news"]);
    assert_eq!(seen["events"].as_array().map(Vec::len), Some(2), "{seen:#}");
}

#[test]
fn a_verifier_reads_the_keys_and_events_it_judges_and_changes_none() {
    let lab = with_command(&[]);
    lab.run(&["fork", ".", "--name", "b1"]).expect(0);
    let work = "echo x > made && ./fp kv put plan 2 && ./fp bus publish done yes";
    lab.run(&["exec", "b1", "--", "sh", "-c", work]).expect(0);
    let gate = "test \"$(./fp kv get plan)\" = 2 && test \"$(./fp kv list)\" = plan && \
        ./fp bus read done | grep -q yes && \
        ! ./fp kv put plan 3 2>err && grep -q FP0453 err && ! ./fp kv delete plan 2>err && grep -q FP0453 err && \
        ! ./fp bus publish done no 2>err && grep -q FP0453 err && \
        ! ./fp attempt score 9 2>err && grep -q FORKPOINT_SCORE_FILE err";
    lab.run(&["verify", "b1", "--", "sh", "-c", gate]).expect(0);
    lab.run(&["commit", "b1"]).expect(0);
    assert_eq!(lab.run(&["kv", "get", "plan"]).expect(0).stdout, "2");
    assert_eq!(
        lab.run(&["bus", "read"]).expect(0).stdout.lines().count(),
        1
    );
}

#[test]
fn the_gate_of_an_exploration_can_be_on_keys() {
    let lab = with_command(&[]);
    let attempt = "echo $FORKPOINT_ATTEMPT > made && ./fp kv put mine $FORKPOINT_ATTEMPT";
    let (report, status) = lab.json(&[
        "explore",
        "-n",
        "3",
        "--verify",
        "test \"$(./fp kv get mine)\" = 1",
        "--",
        "sh",
        "-c",
        attempt,
    ]);
    assert_eq!(status.code(), Some(0), "{report:#}");
    assert_eq!(report["winner"], 1);
    assert_eq!(report["baseline"]["passed"], false);
    assert_eq!(lab.run(&["kv", "get", "mine"]).expect(0).stdout, "1");
}
