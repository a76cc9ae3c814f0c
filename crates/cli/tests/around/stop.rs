//! `stop EXPLORATION`.

use super::common::{Lab, wait_until};
use std::time::Duration;

#[test]
fn the_attempts_of_an_exploration_are_stopped_and_its_supervisor_goes_on() {
    let lab = Lab::new(&[("a", "1")]);
    // The first attempt waits until it is killed; the one that waited for it then has its turn.
    let run =
        "test $FORKPOINT_ATTEMPT = 1 && echo 2 > a || { touch $FORKPOINT_OUT/on; sleep 100; }";
    let mut supervisor = lab.spawn(&[
        "explore", "-n", "2", "-j", "1", "--json", "--keep", "none", "--", "sh", "-c", run,
    ]);
    let mut running = || {
        let (list, _) = lab.json(&["list"]);
        let all = list["branches"].as_array().cloned().unwrap_or_default();
        all.iter().any(|b| b["activity"] == "running")
    };
    wait_until(Duration::from_secs(20), &mut running).expect("an attempt");
    let stopped = lab.run(&["stop", "last"]).expect(0);
    assert!(stopped.stdout.contains("is stopped"), "{stopped:?}");
    assert!(stopped.stderr.contains("still supervised"), "{stopped:?}");
    let ended = wait_until(Duration::from_secs(30), || {
        supervisor.try_wait().unwrap().is_some()
    });
    ended.expect("the supervisor goes on to its end");
    let output = supervisor.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["winner"], 1, "{report:#}");
    assert_eq!(report["attempts"][0]["state"], "rolled_back", "{report:#}");
    assert_eq!(lab.read("a").as_deref(), Some("2\n"));
    // Over: there is nothing to stop, and nothing to say of a supervisor.
    let again = lab.run(&["stop", "last"]).expect(0);
    assert_eq!((again.stdout.as_str(), again.stderr.as_str()), ("", ""));
    let error = lab.run(&["stop", "nothing"]).expect(2).stderr;
    assert!(error.contains("nothing"), "{error}");
}
