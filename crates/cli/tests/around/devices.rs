//! `--device`: a device of the host under its own name, and on record as what nothing captures.

use super::common::Lab;
use std::path::Path;

/// A device that this user may open outside.
fn device() -> Option<&'static str> {
    let candidates = [
        "/dev/kvm",
        "/dev/hwrng",
        "/dev/fuse",
        "/dev/net/tun",
        "/dev/kmsg",
    ];
    let found = candidates
        .into_iter()
        .find(|path| std::fs::File::open(path).is_ok());
    if found.is_none() {
        eprintln!("SKIP: there is no device that this user may open");
    }
    found
}

#[test]
fn a_device_is_there_by_name_alone_and_makes_the_branch_end_abandoned() {
    let Some(device) = device() else { return };
    let lab = Lab::new(&[("a", "1")]);
    lab.run(&["fork", ".", "--name", "b"]).expect(0);
    let opens = format!("test -c {device} && exec 3< {device}");
    lab.run(&["exec", "b", "--", "sh", "-c", &opens]).expect(1);
    lab.run(&["exec", "b", "--device", device, "--", "sh", "-c", &opens])
        .expect(0);
    let (shown, _) = lab.json(&["show", "b"]);
    assert_eq!(
        shown["uncaptured"],
        serde_json::json!([format!("device {device}")])
    );
    // Only for that one command.
    lab.run(&["stop", "b"]).expect(0);
    lab.run(&["exec", "b", "--", "sh", "-c", &opens]).expect(1);
    let (ended, _) = lab.json(&["abort", "b"]);
    assert_eq!(ended["branches"][0]["state"], "abandoned");
}

#[test]
fn a_fork_keeps_its_devices_for_every_command_and_its_own_forks_do_not() {
    let Some(device) = device() else { return };
    let lab = Lab::new(&[("a", "1")]);
    let made = lab.run(&["fork", ".", "--name", "b", "--device", device]);
    assert!(made.expect(0).stderr.contains("not captured"));
    let there = format!("test -c {device}");
    lab.run(&["exec", "b", "--", "sh", "-c", &there]).expect(0);
    // What is mounted in a branch is settled when it starts.
    let sleeper = ["exec", "b", "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 &"];
    lab.run(&["stop", "b"]).expect(0);
    lab.run(&["fork", "b", "--name", "c"]).expect(0);
    lab.run(&["exec", "c", "--", "sh", "-c", &there]).expect(1);
    let mut other = sleeper;
    other[1] = "c";
    lab.run(&other).expect(0);
    let late = lab.run(&["exec", "c", "--device", device, "--", "true"]);
    let late = late.expect(125).stderr;
    assert!(
        late.contains("FP0405") && late.contains("forkpoint stop c"),
        "{late}"
    );
    lab.run(&["stop", "c"]).expect(0);
}

#[test]
fn what_is_no_device_is_refused_and_what_is_there_anyway_is_no_effect() {
    let lab = Lab::new(&[("a", "1")]);
    for path in ["/etc/passwd", "/dev", "/nonexistent", "./a"] {
        let error = lab.run(&["fork", ".", "--device", path]).expect(2).stderr;
        assert!(error.contains("FP0414"), "{error}");
        let error = lab
            .run(&["explore", "--device", path, "--", "true"])
            .expect(2);
        assert!(error.stderr.contains("FP0414"), "{error:?}");
    }
    lab.run(&["fork", ".", "--name", "b", "--device", "/dev/null"])
        .expect(0);
    lab.run(&["exec", "b", "--device", "/dev/urandom", "--", "true"])
        .expect(0);
    let (ended, _) = lab.json(&["abort", "b"]);
    assert_eq!(ended["branches"][0]["state"], "rolled_back");
    let (list, _) = lab.json(&["list"]);
    assert_eq!(list["branches"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_branch_without_effect_paths_gets_no_device_and_no_network() {
    let Some(device) = device() else { return };
    let lab = Lab::new(&[("a", "1")]);
    let refused = lab.run(&["fork", ".", "--layer", "reasoning", "--device", device]);
    assert!(refused.expect(2).stderr.contains("no effect path"));
    lab.run(&["fork", ".", "--name", "r", "--layer", "reasoning"])
        .expect(0);
    for more in [["--device", device], ["--network", "host"]] {
        let refused = lab.run(&["exec", "r", more[0], more[1], "--", "true"]);
        assert!(
            refused.expect(125).stderr.contains("no effect path"),
            "{more:?}"
        );
    }
    let (ended, _) = lab.json(&["abort", "r"]);
    assert_eq!(ended["branches"][0]["state"], "discarded");
}

#[test]
fn an_exploration_with_a_device_says_so_before_and_after() {
    let Some(device) = device() else { return };
    let lab = Lab::new(&[("a", "1")]);
    std::fs::write(
        lab.base().join("s.toml"),
        format!(
            "run = \"test -c {device} && echo 2 > a\"\n\
             verify = \"test -c {device}\"\ncount = 2\ndevices = [\"{device}\"]\n"
        ),
    )
    .unwrap();
    let told = lab.run(&["explain", "s.toml"]).expect(0).stdout;
    assert!(
        told.contains(&format!("attempts, verifier and score use {device}")),
        "{told}"
    );
    assert!(told.contains("a loser ends abandoned"), "{told}");
    let (report, done) = lab.json(&["explore", "s.toml"]);
    done.expect(0);
    let note = format!("the attempts use {device}: ");
    let notes = report["notes"].as_array().unwrap();
    let said = |n: &serde_json::Value| n.as_str().is_some_and(|n| n.starts_with(&note));
    assert!(notes.iter().any(said), "{notes:?}");
    let mut states: Vec<_> = (0..2)
        .map(|i| report["attempts"][i]["state"].as_str().unwrap_or_default())
        .collect();
    states.sort_unstable();
    assert_eq!(states, ["abandoned", "committed"], "{report:#}");
    assert!(Path::new(device).exists());
}
