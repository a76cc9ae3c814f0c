//! Beam, halving and refine against a random driver, with their bounds as invariants.

use super::{Action, Beam, Direction, Event, Halving, Nested, Policy, Refine, Strategy};
use proptest::prelude::{Just, ProptestConfig, TestCaseError, any, prop, prop_oneof, proptest};
use proptest::strategy::Strategy as Strategy_;
use proptest::{prop_assert, prop_assert_eq};

/// What becomes of an attempt.
#[derive(Debug, Clone, Copy)]
struct Fate {
    fails: bool,
    candidate: bool,
    passes: bool,
    score: Option<f64>,
    commits: bool,
}

fn fate() -> impl Strategy_<Value = Fate> {
    let score = prop_oneof![
        1 => Just(None),
        1 => Just(Some(f64::NAN)),
        6 => (0u8..6).prop_map(|s| Some(f64::from(s))),
    ];
    let chance = prop::bool::weighted;
    (chance(0.1), chance(0.9), chance(0.3), score, chance(0.7)).prop_map(
        |(fails, candidate, passes, score, commits)| Fate {
            fails,
            candidate,
            passes,
            score,
            commits,
        },
    )
}

/// What was seen of one attempt.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    parent: Option<u32>,
    depth: u32,
    passed: bool,
    /// Scored, with the score: it can be forked and committed.
    scored: Option<Option<f64>>,
}

#[derive(Debug, Default)]
struct Seen {
    nodes: Vec<Node>,
    commits: Vec<u32>,
    winner: Option<u32>,
}

impl Seen {
    /// The attempts of a round.
    fn round(&self, depth: u32) -> Vec<u32> {
        let all = self.nodes.iter().zip(0u32..);
        all.filter(|(n, _)| n.depth == depth)
            .map(|(_, i)| i)
            .collect()
    }

    fn children(&self, parent: u32) -> usize {
        let of = |n: &&Node| n.parent == Some(parent);
        self.nodes.iter().filter(of).count()
    }

    fn deepest(&self) -> u32 {
        self.nodes.iter().map(|n| n.depth).max().unwrap_or(0)
    }

    fn score(&self, i: u32) -> Option<f64> {
        let score = self.nodes[i as usize].scored.flatten();
        score.filter(|s| !s.is_nan())
    }
}

struct Driver<'a> {
    fates: &'a [Fate],
    jobs: u32,
    order: &'a [u8],
    end: Option<(usize, Event)>,
}

/// Which attempt an action keeps busy.
fn busy(action: Action) -> Option<u32> {
    match action {
        Action::Start(i) | Action::Verify(i) | Action::Score(i) => Some(i),
        Action::Fork { attempt, .. } => Some(attempt),
        _ => None,
    }
}

impl Driver<'_> {
    fn fate(&self, attempt: u32) -> Fate {
        self.fates[attempt as usize % self.fates.len()]
    }

    fn run(&self, strategy: &mut dyn Strategy, first: u32) -> Result<Seen, TestCaseError> {
        let mut seen = Seen {
            nodes: vec![Node::default(); first as usize],
            ..Seen::default()
        };
        let mut pending: Vec<Action> = Vec::new();
        let mut todo = strategy.on(Event::Begin {
            attempts: first,
            jobs: self.jobs,
        });
        for step in 0..100_000 {
            for action in std::mem::take(&mut todo) {
                match action {
                    Action::Finish { winner } => {
                        seen.winner = winner;
                        prop_assert!(strategy.on(Event::Interrupted).is_empty());
                        return Ok(seen);
                    }
                    Action::Stop(i) => {
                        prop_assert!(pending.iter().any(|&a| busy(a) == Some(i)));
                        continue;
                    }
                    other => self.note(other, &mut seen)?,
                }
                pending.push(action);
                let running = pending.iter().filter(|a| busy(**a).is_some()).count();
                prop_assert!(
                    running <= self.jobs.max(1) as usize,
                    "never more than the jobs"
                );
            }
            if let Some((at, event)) = self.end
                && at == step
            {
                todo = strategy.on(event);
                continue;
            }
            prop_assert!(!pending.is_empty(), "it does not hang");
            let pick = usize::from(self.order[step % self.order.len()]) % pending.len();
            todo = strategy.on(self.answer(pending.remove(pick), &mut seen));
        }
        Err(TestCaseError::fail("it does not end"))
    }

    fn note(&self, action: Action, seen: &mut Seen) -> Result<(), TestCaseError> {
        match action {
            Action::Fork {
                attempt,
                parent,
                trial,
            } => {
                prop_assert_eq!(attempt as usize, seen.nodes.len(), "numbered without gaps");
                let node = seen.nodes[parent as usize];
                prop_assert!(node.scored.is_some(), "forks what is sealed and scored");
                prop_assert!(trial < seen.round(0).len() as u32);
                seen.nodes.push(Node {
                    parent: Some(parent),
                    depth: node.depth + 1,
                    ..Node::default()
                });
            }
            Action::Commit(i) => {
                prop_assert!(seen.nodes[i as usize].passed, "commits what passed only");
                seen.commits.push(i);
            }
            Action::Compare { .. } => prop_assert!(false, "compares nothing"),
            _ => {}
        }
        Ok(())
    }

    fn answer(&self, asked: Action, seen: &mut Seen) -> Event {
        match asked {
            Action::Start(attempt) | Action::Fork { attempt, .. } => {
                let fate = self.fate(attempt);
                match fate.fails {
                    true => Event::Failed { attempt },
                    false => Event::Finished {
                        attempt,
                        candidate: fate.candidate,
                    },
                }
            }
            Action::Verify(attempt) => {
                let passed = self.fate(attempt).passes;
                seen.nodes[attempt as usize].passed = passed;
                Event::Verified { attempt, passed }
            }
            Action::Score(attempt) => {
                let score = self.fate(attempt).score;
                seen.nodes[attempt as usize].scored = Some(score);
                Event::Scored {
                    attempt,
                    score,
                    changed_bytes: 1,
                }
            }
            Action::Commit(attempt) => Event::CommitResult {
                attempt,
                committed: self.fate(attempt).commits,
            },
            other => unreachable!("{other:?} is not answered"),
        }
    }
}

fn end() -> impl Strategy_<Value = Option<(usize, Event)>> {
    let which = prop_oneof![Just(Event::Deadline), Just(Event::Interrupted)];
    prop::option::weighted(0.2, (0usize..40, which))
}

/// What holds for every search in rounds that nothing ended early.
fn check_common(seen: &Seen, driver: &Driver<'_>, most: u32) -> Result<(), TestCaseError> {
    prop_assert!(
        seen.nodes.len() <= most as usize,
        "never more than the bound"
    );
    if driver.end.is_some() {
        return Ok(());
    }
    // Commits go from the best score of all that passed, of whatever round, to the worst.
    let passed =
        |i: &u32| seen.nodes[*i as usize].passed && seen.nodes[*i as usize].scored.is_some();
    let all: Vec<u32> = (0..seen.nodes.len() as u32).filter(passed).collect();
    let value = |i: u32| seen.score(i).unwrap_or(f64::NEG_INFINITY);
    for pair in seen.commits.windows(2) {
        prop_assert!(value(pair[0]) >= value(pair[1]));
    }
    if let Some(&first) = seen.commits.first() {
        prop_assert!(all.iter().all(|&i| value(i) <= value(first)));
    }
    let could = all.iter().any(|&i| driver.fate(i).commits);
    prop_assert_eq!(seen.winner.is_some(), could);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn beam_keeps_its_bounds(
        fates in prop::collection::vec(fate(), 1..40),
        (first, width, branching, depth) in (0u32..7, 1u32..4, 1u32..4, 1u32..5),
        (jobs, most, exclusive) in (0u32..5, 7u32..40, any::<bool>()),
        order in prop::collection::vec(any::<u8>(), 1..30),
        end in end(),
    ) {
        let beam = Beam { width, branching, depth };
        let mut strategy = Nested::new(beam, Direction::Maximize, most).exclusive(exclusive);
        let driver = Driver { fates: &fates, jobs, order: &order, end };
        let seen = driver.run(&mut strategy, first)?;
        check_common(&seen, &driver, most)?;
        prop_assert!(seen.deepest() <= depth);
        for level in 0..=seen.deepest() {
            let forked: Vec<u32> = seen.round(level).into_iter()
                .filter(|&i| seen.children(i) > 0).collect();
            prop_assert!(forked.len() <= width as usize);
            for &parent in &forked {
                prop_assert!(seen.children(parent) <= branching as usize);
                // Nobody better of its round was passed over, unless the attempts ran out.
                let better = seen.round(level).into_iter().filter(|&i| {
                    seen.nodes[i as usize].scored.is_some() && seen.score(i) > seen.score(parent)
                });
                for other in better {
                    prop_assert!(forked.contains(&other), "{other} is better than {parent}");
                }
            }
        }
    }

    #[test]
    fn halving_keeps_its_bounds(
        fates in prop::collection::vec(fate(), 1..40),
        (first, eta, jobs) in (0u32..30, 2u32..5, 0u32..5),
        rounds in prop::option::of(1u32..4),
        order in prop::collection::vec(any::<u8>(), 1..30),
        end in end(),
    ) {
        let mut strategy = Nested::new(Halving { eta, rounds }, Direction::Maximize, 1000);
        let driver = Driver { fates: &fates, jobs, order: &order, end };
        let seen = driver.run(&mut strategy, first)?;
        // A geometric series: all rounds together are fewer than twice the first, and the last ones.
        check_common(&seen, &driver, 2 * first + 1)?;
        prop_assert!(rounds.is_none_or(|rounds| seen.deepest() <= rounds));
        for level in 1..=seen.deepest() {
            let (before, now) = (seen.round(level - 1).len(), seen.round(level).len());
            prop_assert!(now <= (before / eta as usize).max(1) && now < before);
        }
        for i in 0..seen.nodes.len() as u32 {
            prop_assert!(seen.children(i) <= 1, "goes on once");
        }
    }

    #[test]
    fn refine_keeps_its_bounds(
        fates in prop::collection::vec(fate(), 1..40),
        (first, branching, rounds, patience) in (0u32..5, 1u32..4, 1u32..7, 1u32..4),
        (jobs, most) in (0u32..5, 5u32..30),
        order in prop::collection::vec(any::<u8>(), 1..30),
        end in end(),
    ) {
        let refine = Refine::new(branching, rounds, patience);
        let mut strategy = Nested::new(refine, Direction::Maximize, most);
        let driver = Driver { fates: &fates, jobs, order: &order, end };
        let seen = driver.run(&mut strategy, first)?;
        check_common(&seen, &driver, most)?;
        prop_assert!(seen.deepest() <= rounds, "a chain is never longer than the rounds");
        prop_assert!(seen.nodes.len() as u32 <= first + rounds * branching);
        if let Some(passed) = seen.nodes.iter().position(|n| n.passed) {
            // Only the rest of the round in which it passed comes after it.
            prop_assert!(seen.nodes.len() - passed <= branching.max(first) as usize);
        }
    }
}

/// Plays a script: per attempt its score, and whether it passes.
fn play<P: Policy>(policy: P, first: u32, script: &[(f64, bool)]) -> Seen {
    let fates: Vec<Fate> = script
        .iter()
        .map(|&(score, passes)| Fate {
            fails: false,
            candidate: true,
            passes,
            score: Some(score),
            commits: true,
        })
        .collect();
    let driver = Driver {
        fates: &fates,
        jobs: 1,
        order: &[0],
        end: None,
    };
    driver
        .run(&mut Nested::new(policy, Direction::Maximize, 1000), first)
        .unwrap()
}

#[test]
fn refine_forks_the_best_and_ends_when_one_passes() {
    let script = [(1.0, false), (3.0, false), (2.0, false), (5.0, true)];
    let seen = play(Refine::new(1, 9, 3), 2, &script);
    let parents: Vec<_> = seen.nodes.iter().map(|n| n.parent).collect();
    // The second round brings nothing better, so the best is forked once more.
    assert_eq!(parents, [None, None, Some(1), Some(1)]);
    assert_eq!(seen.winner, Some(3));
}

#[test]
fn refine_ends_on_a_plateau() {
    let script = [(1.0, false), (1.0, false), (1.0, false), (9.0, true)];
    let seen = play(Refine::new(1, 9, 2), 1, &script);
    assert_eq!((seen.nodes.len(), seen.winner), (3, None));
}

#[test]
fn a_beam_commits_the_best_that_passed_at_any_depth() {
    let beam = Beam {
        width: 1,
        branching: 2,
        depth: 1,
    };
    let script = [(1.0, false), (4.0, true), (9.0, false), (3.0, true)];
    let seen = play(beam, 2, &script);
    assert_eq!(seen.nodes[2].parent, Some(1));
    assert_eq!(seen.winner, Some(1));
}
