//! Sizes of live branches in `tree`, and which checkpoints are listed.

use super::common::Lab;

#[test]
fn live_branches_have_their_sizes_and_steps_are_no_checkpoints() {
    let lab = Lab::new(&[("a", "1")]);
    lab.run(&["fork", ".", "--name", "empty"]).expect(0);
    lab.run(&["fork", ".", "--name", "full"]).expect(0);
    let write = |branch: &str, size: &str| {
        let line = format!("head -c {size} /dev/urandom > {branch}.bin");
        lab.run(&["exec", branch, "--step", "--", "sh", "-c", &line])
            .expect(0);
    };
    write("full", "1000000");
    lab.run(&["fork", "full", "--name", "child"]).expect(0);
    write("child", "3000000");
    let (tree, _) = lab.json(&["tree"]);
    let branches = tree["worlds"][0]["branches"].as_array().unwrap();
    let of = |name: &str| {
        let all = branches.iter().find(|b| b["name"] == name);
        all.unwrap_or_else(|| panic!("{name}: {tree:#}"))
    };
    let bytes = |b: &serde_json::Value| b["bytes"].as_u64().unwrap();
    assert_eq!(bytes(of("empty")), 0);
    // What it wrote before it was forked is its own, not its child's.
    let full = bytes(of("full"));
    assert!((1_000_000..1_200_000).contains(&full), "{full}");
    let child = bytes(&of("full")["branches"][0]);
    assert!((3_000_000..3_200_000).contains(&child), "{child}");
    let text = lab.run(&["tree"]).expect(0).stdout;
    assert!(
        text.contains("2.9 MiB") && !text.contains("step:"),
        "{text}"
    );
    // Steps are for rewind; they are listed when asked for.
    assert_eq!(lab.run(&["checkpoint", "list"]).expect(0).stdout, "");
    let all = lab.run(&["checkpoint", "list", "--all"]).expect(0).stdout;
    assert_eq!(all.matches("step:").count(), 2, "{all}");
}
