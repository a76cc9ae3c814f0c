//! The configuration file, from the command's side.

use super::common::{Done, Lab};

fn with(lab: &Lab, text: &str, args: &[&str]) -> Done {
    let path = lab.path("config/forkpoint/config.toml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    let mut command = lab.command(args);
    command.env("XDG_CONFIG_HOME", lab.path("config"));
    Done::of(args, command.output().unwrap())
}

#[test]
fn defaults_are_taken_from_it_and_flags_are_stronger() {
    let lab = Lab::new(&[("a", "1"), ("secret.txt", "s")]);
    let hide = lab.base().join("secret.txt");
    let text = format!(
        "network = \"host\"\nhide = [\"{}\"]\njobs = 3\n",
        hide.display()
    );
    with(&lab, &text, &["fork", ".", "--name", "b"]).expect(0);
    let (shown, _) = lab.json(&["show", "b"]);
    assert_eq!(shown["network"], "host");
    with(
        &lab,
        &text,
        &["fork", ".", "--name", "c", "--network", "loopback"],
    )
    .expect(0);
    let (shown, _) = lab.json(&["show", "c"]);
    assert_eq!(shown["network"], "loopback");
    let hidden = with(&lab, &text, &["exec", "c", "--", "cat", "secret.txt"]);
    assert_eq!(hidden.expect(0).stdout, "");
    // An exploration by flags; one by a file means the same network to everybody.
    let told = with(&lab, &text, &["explain", "--", "true"])
        .expect(0)
        .stdout;
    assert!(told.contains("reach the host's network"), "{told}");
    std::fs::write(lab.base().join("s.toml"), "run = \"true\"\n").unwrap();
    let told = with(&lab, &text, &["explain", "s.toml"]).expect(0).stdout;
    assert!(!told.contains("reach the host's network"), "{told}");
}

#[test]
fn retention_bounds_are_those_it_sets() {
    let lab = Lab::new(&[("a", "1")]);
    let work = [
        "exec",
        "b",
        "--",
        "sh",
        "-c",
        "head -c 100000 /dev/zero > big",
    ];
    let again = |text: &str| {
        lab.run(&["fork", ".", "--name", "b"]).expect(0);
        lab.run(&work).expect(0);
        lab.run(&["abort", "b", "--keep"]).expect(0);
        with(&lab, text, &["gc"]).expect(0).stdout
    };
    assert!(again("").contains("0 branches"));
    let freed = again("[retention]\nsize = \"10K\"\n");
    assert!(freed.contains("2 branches"), "{freed}");
    let freed = again("[retention]\nage = \"1ms\"\n");
    assert!(freed.contains("1 branches"), "{freed}");
}

#[test]
fn a_mistake_in_it_is_told_by_its_line_and_the_doctor_goes_on() {
    let lab = Lab::new(&[("a", "1")]);
    let wrong = "jobs = 2\nnetwrok = \"host\"\n";
    let error = with(&lab, wrong, &["fork", "."]).expect(2).stderr;
    assert!(
        error.contains("FP0511") && error.contains("config.toml:2:1"),
        "{error}"
    );
    assert!(error.contains("did you mean 'network'?"), "{error}");
    assert!(!lab.store().exists());
    let doctor = with(&lab, wrong, &["doctor"]);
    assert_eq!(doctor.code(), Some(5), "{doctor:?}");
    assert!(doctor.stdout.contains("config.toml:2:1"), "{doctor:?}");
    let right = with(&lab, "[retention]\nage = \"3d\"\n", &["doctor"]).stdout;
    assert!(right.contains("config.toml sets:"), "{right}");
    assert!(right.contains("retention.age = 259200s"), "{right}");
    let none = lab.run(&["doctor"]).stdout;
    assert!(none.contains("configuration: "), "{none}");
    // A file that is named, and none at all.
    let mut command = lab.command(&["doctor", "--json"]);
    let output = command.env("FORKPOINT_CONFIG", "").output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["config"]["path"].is_null(), "{document:#}");
}
