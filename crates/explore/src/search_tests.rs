//! The strategies that fork attempts off others, comparisons and budgets, against a scripted backend.

use forkpoint_model::strategy::Comparison;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use crate::backend::Told;
use crate::backend::{CommitOutcome, Ended, Usage};
use crate::budget::BudgetSpec;
use crate::cost::Cost;
use crate::fake::{Fake, Script};
use crate::observer::{Observer, Progress};
use crate::report::{AttemptState as S, Outcome, Reason as R};
use crate::spec::*;
use crate::{Cancel, Report, Silent, run};

fn shell(line: &str) -> CommandLine {
    CommandLine::Shell(line.into())
}

fn spec(n: u32, strategy: StrategyName) -> ExploreSpec {
    let kind = r#"{"attempts": [{"command": "try"}], "verify": {"command": "check"}}"#;
    ExploreSpec {
        count: Some(n),
        jobs: Some(4),
        strategy: Some(strategy),
        ..serde_json::from_str(kind).unwrap()
    }
}

fn scored(n: u32, strategy: StrategyName) -> ExploreSpec {
    let score = r#"{"command": "measure"}"#;
    ExploreSpec {
        score: Some(serde_json::from_str(score).unwrap()),
        ..spec(n, strategy)
    }
}

fn explore(fake: &Fake, spec: &ExploreSpec) -> Report {
    let none = |_: &OsStr| None::<OsString>;
    run(fake, spec, &none, &mut Silent, &Cancel::new().unwrap()).unwrap()
}

fn script(score: &'static str, passes: bool) -> Script {
    Script {
        scores: vec![score],
        verdicts: vec![Ended::Code(if passes { 0 } else { 1 })],
        ..Script::default()
    }
}

fn parents(report: &Report) -> Vec<Option<u32>> {
    report.attempts.iter().map(|a| a.parent).collect()
}

fn reasons(report: &Report) -> Vec<R> {
    report.attempts.iter().map(|a| a.reason).collect()
}

#[test]
fn refine_forks_the_best_with_what_was_said_of_it_and_rolls_every_other_back() {
    let fake = Fake::new(vec![
        script("1", false),
        script("2", false),
        script("2", false),
        script("3", true),
    ]);
    let report = explore(&fake, &scored(2, StrategyName::Refine));
    assert_eq!(parents(&report), [None, None, Some(1), Some(1)]);
    assert_eq!(report.winner, Some(3));
    assert_eq!(report.attempts[3].depth, 1);
    let states: Vec<S> = report.attempts.iter().map(|a| a.state).collect();
    assert_eq!(
        states,
        [S::RolledBack, S::RolledBack, S::RolledBack, S::Committed]
    );
    let told = "leave feedback attempt 1|passed no|score 2|exit 1||";
    assert!(fake.journal.all().contains(&format!("{told} 2")));
    let vars = fake.vars.lock().unwrap();
    assert_eq!(vars[&0]["FORKPOINT_DEPTH"], "0");
    assert!(!vars[&0].contains_key("FORKPOINT_PARENT"));
    assert_eq!(vars[&3]["FORKPOINT_PARENT"], "1");
    assert_eq!(vars[&3]["FORKPOINT_FEEDBACK"], "/inside/feedback");
}

#[test]
fn refine_without_a_verifier_goes_on_from_what_failed() {
    let failing = Script {
        ended: Ended::Code(3),
        ..Script::default()
    };
    let fake = Fake::new(vec![failing, Script::default()]);
    let mut spec = spec(1, StrategyName::Refine);
    spec.verify = None;
    let report = explore(&fake, &spec);
    assert_eq!(report.winner, Some(1));
    assert_eq!(reasons(&report), [R::Exit, R::Passed]);
}

#[test]
fn a_beam_keeps_its_width_and_its_bound() {
    let scripts = (0..20).map(|i| {
        let scores = ["4", "9", "1", "7", "5", "8", "2", "6", "3", "10"];
        script(scores[i % scores.len()], true)
    });
    let fake = Fake::new(scripts.collect());
    let mut spec = scored(4, StrategyName::Beam);
    spec.search = SearchSpec {
        width: Some(2),
        branching: Some(2),
        depth: Some(2),
        max_attempts: Some(11),
        ..SearchSpec::default()
    };
    let report = explore(&fake, &spec);
    assert_eq!(
        report.attempts.len(),
        11,
        "three of the last round were left out by the bound"
    );
    assert_eq!(
        &parents(&report)[4..8],
        [Some(1), Some(1), Some(3), Some(3)],
        "the best two of the first round"
    );
    assert_eq!(
        (report.winner, report.outcome),
        (Some(9), Outcome::Committed)
    );
    assert_eq!(report.attempts[9].depth, 2);
}

#[test]
fn a_refused_commit_of_a_deep_winner_goes_to_the_next_best() {
    let mut deep = script("9", true);
    deep.commit = CommitOutcome::Lost("a sibling was first".into());
    let fake = Fake::new(vec![script("2", true), script("1", true), deep]);
    let mut spec = scored(2, StrategyName::Halving);
    spec.timeout = Some("1s".parse().unwrap());
    let report = explore(&fake, &spec);
    assert_eq!(parents(&report), [None, None, Some(0)]);
    assert_eq!(reasons(&report), [R::Passed, R::Outscored, R::Lost]);
}

#[test]
fn in_halving_a_turn_that_ran_out_counts() {
    let turn = |score| Script {
        ended: Ended::TimeLimit,
        ..script(score, true)
    };
    let fake = Fake::new(vec![turn("1"), turn("2"), script("3", true)]);
    let mut spec = scored(2, StrategyName::Halving);
    spec.timeout = Some("1s".parse().unwrap());
    let report = explore(&fake, &spec);
    assert_eq!((parents(&report)[2], report.winner), (Some(1), Some(2)));
}

#[test]
fn a_tournament_is_played_and_written_down() {
    let mut spec = spec(3, StrategyName::Tournament);
    spec.search.compare = Some(CompareSpec {
        command: shell("better"),
        timeout: None,
    });
    let fake = Fake::new(vec![Script::default(); 3]);
    let report = explore(&fake, &spec);
    assert_eq!(report.comparisons.len(), 2);
    let last = &report.comparisons[1];
    assert_eq!(last.verdict, Comparison::Left);
    assert_eq!(report.winner, Some(last.left));
}

#[test]
fn a_comparison_that_fails_is_made_twice_and_ends_the_same_way_each_time() {
    let mut spec = spec(2, StrategyName::Tournament);
    spec.search.compare = Some(CompareSpec {
        command: shell("better"),
        timeout: None,
    });
    let mut fake = Fake::new(vec![Script::default(); 2]);
    fake.comparison = (Ended::Signal(11), "left\n");
    let report = explore(&fake, &spec);
    let errors = report.comparisons.iter();
    assert!(
        errors
            .clone()
            .all(|c| c.verdict == Comparison::Error && c.detail.is_some())
    );
    assert_eq!((report.comparisons.len(), report.committed), (2, true));
}

fn spends(cost: u64, usage: Usage, takes: Option<Duration>) -> Script {
    Script {
        cost: Cost(cost),
        usage,
        takes,
        ..script("1", false)
    }
}

#[test]
fn a_cost_that_is_used_up_starts_nothing_more_and_stops_what_runs() {
    let quick = Some(Duration::ZERO);
    let fake = Fake::new(vec![
        spends(700_000, Usage::default(), quick),
        spends(500_000, Usage::default(), None),
        spends(0, Usage::default(), quick),
    ]);
    let mut spec = spec(3, StrategyName::FirstWins);
    spec.jobs = Some(2);
    spec.budget = BudgetSpec {
        cost: Some("1".parse().unwrap()),
        ..BudgetSpec::default()
    };
    let report = explore(&fake, &spec);
    assert_eq!(
        report.attempts[1].reason,
        R::Budget,
        "it would run for ever"
    );
    assert!(report.cost >= 1.2, "{}", report.cost);
    assert_eq!(report.outcome, Outcome::NonePassed);
    let why = report.attempts[1].detail.clone().unwrap();
    assert!(why.contains("budget"), "{why}");
}

#[test]
fn memory_at_once_stops_the_youngest() {
    let much = Usage {
        memory_bytes: 80,
        ..Usage::default()
    };
    let some_time = Some(Duration::from_millis(600));
    let older = Script {
        usage: much,
        takes: some_time,
        ..script("1", true)
    };
    let fake = Fake::new(vec![older, spends(0, much, None)]);
    let mut spec = spec(2, StrategyName::FirstWins);
    spec.budget.memory = Some("100".parse().unwrap());
    let report = explore(&fake, &spec);
    assert_eq!(reasons(&report), [R::Passed, R::Budget]);
}

/// Remembers what attempts say of how far they are.
#[derive(Default)]
struct Heard(Vec<(u32, String, Option<f64>)>);

impl Observer for Heard {
    fn on(&mut self, progress: &Progress<'_>) {
        if let Progress::Told {
            index,
            text,
            fraction,
        } = progress
        {
            self.0.push((*index, (*text).to_owned(), *fraction));
        }
    }
}

#[test]
fn what_an_attempt_says_of_itself_is_told_once_and_ranks_nothing() {
    let says = |claim: f64, score: &'static str| Script {
        takes: Some(Duration::from_millis(900)),
        claimed_score: Some(claim),
        told: Some(Told {
            text: "half\u{1b}[2J done".into(),
            fraction: Some(0.5),
        }),
        scores: vec![score],
        ..Script::default()
    };
    let fake = Fake::new(vec![says(99.0, "1"), says(0.0, "2")]);
    let mut heard = Heard::default();
    let none = |_: &OsStr| None::<OsString>;
    let spec = scored(2, StrategyName::BestOfN);
    let report = run(&fake, &spec, &none, &mut heard, &Cancel::new().unwrap()).unwrap();
    assert_eq!(report.winner, Some(1), "a claim ranks nothing");
    assert_eq!(report.attempts[0].claimed_score, Some(99.0));
    assert_eq!(report.attempts[0].score, Some(1.0));
    heard.0.sort_by_key(|(index, ..)| *index);
    let half = |index| (index, "half done".to_owned(), Some(0.5));
    assert_eq!(heard.0, [half(0), half(1)]);
}

#[derive(Default)]
struct Asks(bool, Vec<(u32, u64)>);

impl Observer for Asks {
    fn on(&mut self, progress: &Progress<'_>) {
        if let Progress::Usage {
            index,
            memory_bytes,
            ..
        } = progress
        {
            self.1.push((*index, *memory_bytes));
        }
    }

    fn wants_usage(&self) -> bool {
        self.0
    }
}

#[test]
fn what_a_running_attempt_uses_is_told_to_whom_asks() {
    for asks in [false, true] {
        let uses = Usage {
            memory_bytes: 80,
            ..Usage::default()
        };
        let fake = Fake::new(vec![spends(0, uses, Some(Duration::from_millis(700)))]);
        let mut seen = Asks(asks, Vec::new());
        let none = |_: &OsStr| None::<OsString>;
        let spec = spec(1, StrategyName::FirstWins);
        run(&fake, &spec, &none, &mut seen, &Cancel::new().unwrap()).unwrap();
        let wanted: &[(u32, u64)] = if asks { &[(0, 80)] } else { &[] };
        assert_eq!(seen.1, wanted);
    }
}
