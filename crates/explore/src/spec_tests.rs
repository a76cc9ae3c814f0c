//! Tests of the specification: what it expands to, and what it refuses.

use super::*;
use crate::params;

fn shell(line: &str) -> AttemptSpec {
    AttemptSpec::new(CommandLine::Shell(line.into()))
}

fn spec(attempts: &[&str], params: &[&str], count: Option<u32>) -> ExploreSpec {
    ExploreSpec {
        attempts: attempts.iter().map(|a| shell(a)).collect(),
        params: params.iter().map(|p| params::parse(p).unwrap()).collect(),
        count,
        ..ExploreSpec::default()
    }
}

fn texts(spec: &ExploreSpec) -> Vec<String> {
    let trials = spec.expand().unwrap();
    let params = |t: &Trial| {
        t.params
            .iter()
            .map(|(k, v)| format!(" {k}={v}"))
            .collect::<String>()
    };
    trials
        .iter()
        .map(|t| t.command.display() + &params(t))
        .collect()
}

#[test]
fn each_attempt_is_combined_with_each_combination() {
    assert_eq!(texts(&spec(&["x"], &[], None)), ["x"]);
    assert_eq!(texts(&spec(&["x"], &[], Some(3))), ["x", "x", "x"]);
    assert_eq!(
        texts(&spec(&["x", "y"], &["k=1,2"], None)),
        ["x k=1", "x k=2", "y k=1", "y k=2"]
    );
    assert_eq!(
        texts(&spec(&["x", "y"], &[], Some(4))),
        ["x", "y", "x", "y"]
    );
}

#[test]
fn a_count_that_is_no_multiple_is_refused() {
    for (attempts, params, count) in [
        (&["x", "y"][..], &[][..], 3),
        (&["x"], &["k=1,2"], 1),
        (&["x"], &[], 0),
        (&["x"], &[], 10_001),
    ] {
        let error = spec(attempts, params, Some(count)).expand().unwrap_err();
        assert_eq!(error.code, "FP0501", "{count}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let ok = || spec(&["x"], &[], None);
    let score = |exclusive| ScoreSpec {
        command: CommandLine::Shell("s".into()),
        repeat: 1,
        exclusive,
        direction: Direction::Maximize,
        timeout: None,
    };
    let verify = |repeat| VerifySpec {
        exclusive: false,
        command: CommandLine::Shell("v".into()),
        repeat,
        mounts: Vec::new(),
        timeout: None,
    };
    let variable = |name: &str| EnvVar {
        name: name.into(),
        value: None,
    };
    let bad = [
        ExploreSpec::default(),
        spec(&[" "], &[], None),
        ExploreSpec {
            jobs: Some(0),
            ..ok()
        },
        ExploreSpec {
            verify: Some(verify(0)),
            ..ok()
        },
        ExploreSpec {
            score: Some(score(false)),
            strategy: Some(StrategyName::FirstWins),
            ..ok()
        },
        ExploreSpec {
            env: vec![variable("A=B")],
            ..ok()
        },
        ExploreSpec {
            env: vec![variable("FORKPOINT_SEED")],
            ..ok()
        },
        ExploreSpec {
            attempts: vec![AttemptSpec {
                params: [("K".into(), Values::One("1".into()))].into(),
                ..shell("x")
            }],
            params: vec![params::parse("k=2").unwrap()],
            ..ok()
        },
        ExploreSpec {
            verify: Some(VerifySpec {
                exclusive: false,
                mounts: vec![MountSpec {
                    source: "rel".into(),
                    dest: "/x".into(),
                }],
                ..verify(1)
            }),
            ..ok()
        },
    ];
    for (i, spec) in bad.iter().enumerate() {
        assert_eq!(
            spec.expand().map_err(|e| e.code),
            Err("FP0501".into()),
            "case {i}"
        );
    }
    assert!(ok().expand().is_ok());
}

#[test]
fn a_score_means_best_of_n_unless_said_otherwise() {
    let mut spec = spec(&["x"], &[], None);
    assert_eq!(spec.strategy(), StrategyName::FirstWins);
    spec.score = Some(ScoreSpec {
        command: CommandLine::Shell("s".into()),
        repeat: 1,
        exclusive: true,
        direction: Direction::Minimize,
        timeout: None,
    });
    assert_eq!(spec.strategy(), StrategyName::BestOfN);
}

#[test]
fn a_spec_survives_json_and_refuses_what_it_does_not_know() {
    let mut spec = spec(&["x"], &["k=a,b"], Some(4));
    spec.timeout = Some("90s".parse().unwrap());
    spec.limits.memory = Some("1G".parse().unwrap());
    spec.attempts[0].command = CommandLine::Argv(vec!["a".into(), "b c".into()]);
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(
        serde_json::from_str::<ExploreSpec>(&json).unwrap(),
        spec,
        "{json}"
    );
    assert!(serde_json::from_str::<ExploreSpec>(r#"{"atempts": []}"#).is_err());
}
