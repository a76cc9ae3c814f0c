//! The laws that are end to end, by name.

mod common;

use common::Lab;
use std::collections::BTreeSet;

#[test]
fn law_06_the_gate_is_on_the_overlay() {
    let lab = Lab::new(&[("tests/t", "grep -q good src\n"), ("src", "bad\n")]);
    let hidden = lab.path("hidden");
    std::fs::write(&hidden, "secret\n").unwrap();
    let mount = format!("{}:/run/hidden-test", hidden.display());
    // The attempt edits its own tests, plants a program in the system, and leaves a process behind.
    let attempt = "echo true > tests/t; echo x > tests/added; echo good > src; \
        echo planted > /tmp/planted; (echo x > /usr/planted || true) 2>/dev/null; \
        test ! -e /run/hidden-test || exit 9; setsid sleep 300 &";
    let verify = "sh tests/t && test ! -e tests/added && test ! -e /tmp/planted && \
        test ! -e /usr/planted && grep -q secret /run/hidden-test && \
        ! ps ax 2>/dev/null | grep -q '[s]leep 300' && echo verifier > from-verifier";
    let (report, done) = lab.json(&[
        "explore",
        "--attempt",
        attempt,
        "--protect",
        "tests/**",
        "--verify",
        verify,
        "--verify-mount",
        &mount,
    ]);
    done.expect(0);
    assert_eq!(report["attempts"][0]["exit_code"], 0);
    assert_eq!(lab.read("src").as_deref(), Some("good\n"));
    assert_eq!(lab.read("tests/t").as_deref(), Some("grep -q good src\n"));
    assert_eq!(
        (lab.read("tests/added"), lab.read("from-verifier")),
        (None, None)
    );
    let restored = report["attempts"][0]["restored"].as_array().unwrap().len();
    assert_eq!(restored, 2, "{report:#}");
}

#[test]
fn law_07_of_racing_commits_of_siblings_exactly_one_wins() {
    const ROUNDS: usize = 30;
    const RACERS: usize = 8;
    let lab = Lab::new(&[("a", "0\n")]);
    for round in 0..ROUNDS {
        let name = format!("r{round}");
        lab.run(&["fork", ".", "--name", &name, "-n", &RACERS.to_string()])
            .expect(0);
        let racers: Vec<String> = (1..=RACERS).map(|i| format!("{name}-{i}")).collect();
        for racer in &racers {
            let line = format!("echo {racer} > a");
            lab.run(&["exec", racer, "--", "sh", "-c", &line]).expect(0);
        }
        let children: Vec<_> = racers.iter().map(|r| lab.spawn(&["commit", r])).collect();
        let codes: Vec<_> = children
            .into_iter()
            .map(|c| c.wait_with_output().unwrap())
            .map(|o| {
                (
                    o.status.code(),
                    String::from_utf8_lossy(&o.stderr).into_owned(),
                )
            })
            .collect();
        let winners: Vec<usize> = (0..RACERS).filter(|&i| codes[i].0 == Some(0)).collect();
        assert_eq!(winners.len(), 1, "round {round}: {codes:#?}");
        let expected = format!("{}\n", racers[winners[0]]);
        assert_eq!(lab.read("a"), Some(expected), "round {round}");
        assert!(
            codes.iter().all(|(code, _)| matches!(code, Some(0 | 3))),
            "{codes:#?}"
        );
    }
    let (list, _) = lab.json(&["list", "--all"]);
    let states: BTreeSet<&str> = list["branches"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|b| b["state"].as_str())
        .collect();
    assert_eq!(states, BTreeSet::from(["committed", "rolled_back"]));
}

#[test]
fn law_10_a_failure_loses_nothing_and_is_said() {
    let lab = Lab::new(&[("a", "1\n")]);
    lab.run(&["fork", ".", "--name", "work"]).expect(0);
    lab.run(&["exec", "work", "--", "sh", "-c", "echo 2 > a; echo new > b"])
        .expect(0);
    // The base is edited where the branch changed it: refused, both sides whole.
    std::fs::write(lab.base().join("a"), "edited\n").unwrap();
    let done = lab.run(&["commit", "work"]).expect(3);
    assert!(done.stderr.contains("a:"), "{done:?}");
    assert_eq!(
        (lab.read("a").as_deref(), lab.read("b")),
        (Some("edited\n"), None)
    );
    let patch = lab.run(&["diff", "work", "--patch"]).expect(0).stdout;
    assert!(
        patch.contains("+2\n") && patch.contains("+new\n"),
        "{patch}"
    );
    // A report that cannot be written is an error, not a success.
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = lab
        .command(&["diff", "work"])
        .stdout(full)
        .output()
        .unwrap()
        .status;
    assert_eq!(status.code(), Some(125));
}

#[test]
fn law_12_what_cannot_be_captured_is_said_before_the_attempt_starts() {
    let lab = Lab::new(&[]);
    let (report, done) = lab.json(&["explore", "--network", "host", "--", "sh", "-c", "exit 1"]);
    done.expect(1);
    let note = report["notes"]
        .as_array()
        .unwrap()
        .iter()
        .any(|n| n.as_str().is_some_and(|n| n.contains("network")));
    assert!(note, "{report:#}");
    assert_eq!(report["attempts"][0]["state"], "abandoned");
    let done = lab
        .run(&["explore", "--network", "host", "--", "sh", "-c", "exit 1"])
        .expect(1);
    let place = |what: &str| {
        done.stderr
            .find(what)
            .unwrap_or_else(|| panic!("{what}: {done:?}"))
    };
    assert!(place("not captured") < place("[0] started"));
}
