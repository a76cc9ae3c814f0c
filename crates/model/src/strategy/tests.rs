//! Both strategies against a random driver, and by hand.

use super::{Action, BestOfN, Direction, Event, FirstWins, Strategy};
use proptest::prelude::{Just, ProptestConfig, TestCaseError, any, prop, prop_oneof, proptest};
use proptest::strategy::Strategy as Strategy_;
use proptest::{prop_assert, prop_assert_eq};
use std::collections::BTreeMap;

/// What the random driver decides about an attempt.
#[derive(Debug, Clone, Copy)]
struct Fate {
    fails_to_start: bool,
    candidate: bool,
    passes: bool,
    score: Option<f64>,
    bytes: u64,
    commits: bool,
}

fn fate() -> impl Strategy_<Value = Fate> {
    let score = prop_oneof![
        Just(None),
        Just(Some(f64::NAN)),
        (0u8..4).prop_map(|s| Some(f64::from(s))),
    ];
    (
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.8),
        any::<bool>(),
        score,
        0u64..3,
        any::<bool>(),
    )
        .prop_map(
            |(fails_to_start, candidate, passes, score, bytes, commits)| Fate {
                fails_to_start,
                candidate,
                passes,
                score,
                bytes,
                commits,
            },
        )
}

/// What was seen of a run.
#[derive(Debug, Default)]
struct Seen {
    log: Vec<Action>,
    winner: Option<u32>,
    passed: BTreeMap<u32, bool>,
    scored: BTreeMap<u32, (Option<f64>, u64, usize)>,
    finished: Vec<u32>,
    committed_order: Vec<u32>,
}

/// Runs a strategy against fates; `order` picks which pending answer comes next, and `end` when a
/// deadline or interruption comes. Checks the invariants at every step.
fn run(
    strategy: &mut dyn Strategy,
    fates: &[Fate],
    jobs: u32,
    order: &[u8],
    end: Option<(usize, Event)>,
    exclusive: bool,
) -> Result<Seen, TestCaseError> {
    let mut seen = Seen::default();
    // Pending answers: what was asked, and whether it was told to stop.
    let mut pending: Vec<(Action, bool)> = Vec::new();
    let mut todo = strategy.on(Event::Begin {
        attempts: fates.len() as u32,
        jobs,
    });
    let mut over = false;
    for step in 0..10_000 {
        for action in std::mem::take(&mut todo) {
            prop_assert!(!over, "nothing comes after Finish: {:?}", action);
            seen.log.push(action);
            match action {
                Action::Stop(i) => {
                    let mut hit = false;
                    for (asked, stop) in &mut pending {
                        if busy(*asked) == Some(i) {
                            prop_assert!(!*stop, "told to stop twice");
                            *stop = true;
                            hit = true;
                        }
                    }
                    prop_assert!(hit, "only what runs is stopped");
                }
                Action::Finish { winner } => {
                    over = true;
                    seen.winner = winner;
                }
                Action::Commit(i) => {
                    prop_assert_eq!(seen.passed.get(&i), Some(&true), "commits what passed only");
                    pending.push((action, false));
                    seen.committed_order.push(i);
                }
                Action::Score(i) => {
                    prop_assert_eq!(seen.passed.get(&i), Some(&true), "scores what passed only");
                    if exclusive {
                        let others = pending.iter().filter(|(a, _)| busy(*a).is_some()).count();
                        prop_assert_eq!(others, 0, "scores alone");
                    }
                    pending.push((action, false));
                }
                Action::Verify(i) => {
                    prop_assert!(seen.finished.contains(&i), "verifies what finished only");
                    pending.push((action, false));
                }
                Action::Start(_) => pending.push((action, false)),
                other => prop_assert!(false, "{:?} is not for it", other),
            }
            let busy_now = pending.iter().filter(|(a, _)| busy(*a).is_some()).count();
            prop_assert!(busy_now <= jobs.max(1) as usize, "never more than the jobs");
            let commits = pending
                .iter()
                .filter(|(a, _)| matches!(a, Action::Commit(_)))
                .count();
            prop_assert!(commits <= 1, "never two commits at once");
        }
        if over {
            let committed = pending.iter().any(|(a, _)| matches!(a, Action::Commit(_)));
            prop_assert!(!committed, "waits for its commit");
            prop_assert!(
                pending.iter().all(|(_, stop)| *stop),
                "leaves nothing running"
            );
            prop_assert!(strategy.on(Event::Interrupted).is_empty());
            return Ok(seen);
        }
        if let Some((at, event)) = end
            && at == step
        {
            todo = strategy.on(event);
            continue;
        }
        prop_assert!(!pending.is_empty(), "it does not hang");
        let pick = usize::from(order.get(step % order.len().max(1)).copied().unwrap_or(0));
        let (asked, stop) = pending.remove(pick % pending.len());
        todo = strategy.on(answer(asked, stop && pick % 3 != 0, fates, &mut seen));
    }
    Err(TestCaseError::fail("it does not end"))
}

fn busy(action: Action) -> Option<u32> {
    match action {
        Action::Start(i) | Action::Verify(i) | Action::Score(i) => Some(i),
        _ => None,
    }
}

fn answer(asked: Action, stopped: bool, fates: &[Fate], seen: &mut Seen) -> Event {
    if let Some(attempt) = busy(asked)
        && stopped
    {
        return Event::Stopped { attempt };
    }
    match asked {
        Action::Start(attempt) => {
            let fate = fates[attempt as usize];
            if fate.fails_to_start {
                return Event::Failed { attempt };
            }
            seen.finished.push(attempt);
            Event::Finished {
                attempt,
                candidate: fate.candidate,
            }
        }
        Action::Verify(attempt) => {
            let passed = fates[attempt as usize].passes;
            seen.passed.insert(attempt, passed);
            Event::Verified { attempt, passed }
        }
        Action::Score(attempt) => {
            let Fate {
                score,
                bytes: changed_bytes,
                ..
            } = fates[attempt as usize];
            let order = seen
                .finished
                .iter()
                .position(|&i| i == attempt)
                .unwrap_or(usize::MAX);
            seen.scored.insert(attempt, (score, changed_bytes, order));
            Event::Scored {
                attempt,
                score,
                changed_bytes,
            }
        }
        Action::Commit(attempt) => {
            let committed = fates[attempt as usize].commits;
            Event::CommitResult { attempt, committed }
        }
        _ => unreachable!("not pending"),
    }
}

fn end() -> impl Strategy_<Value = Option<(usize, Event)>> {
    prop::option::weighted(
        0.3,
        (
            0usize..20,
            prop_oneof![Just(Event::Deadline), Just(Event::Interrupted)],
        ),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn first_wins_keeps_its_promises(
        fates in prop::collection::vec(fate(), 0..9),
        jobs in 0u32..5,
        order in prop::collection::vec(any::<u8>(), 1..30),
        end in end(),
    ) {
        let seen = run(&mut FirstWins::new(), &fates, jobs, &order, end, false)?;
        if let Some(winner) = seen.winner {
            prop_assert_eq!(seen.committed_order.last(), Some(&winner));
            prop_assert!(fates[winner as usize].commits);
        } else if end.is_none() {
            // Nobody that could have won was left out, but for those it stopped itself.
            let stopped = |i: u32| seen.log.contains(&Action::Stop(i));
            for (i, fate) in (0u32..).zip(&fates) {
                let could = !fate.fails_to_start && fate.candidate && fate.passes && fate.commits;
                prop_assert!(!could || stopped(i), "attempt {} could have won", i);
            }
        }
    }

    #[test]
    fn best_of_n_keeps_its_promises(
        fates in prop::collection::vec(fate(), 0..9),
        jobs in 0u32..5,
        order in prop::collection::vec(any::<u8>(), 1..30),
        end in end(),
        exclusive: bool,
        minimize: bool,
        best_at_deadline: bool,
    ) {
        let direction = if minimize { Direction::Minimize } else { Direction::Maximize };
        let mut strategy =
            BestOfN::new(direction).exclusive(exclusive).best_at_deadline(best_at_deadline);
        let seen = run(&mut strategy, &fates, jobs, &order, end, exclusive)?;
        // An oracle that knows all: sort those that were scored, and see who was tried.
        let mut ranked: Vec<_> = seen.scored.iter().collect();
        ranked.sort_by(|(_, a), (_, b)| {
            let key = |(score, bytes, order): &(Option<f64>, u64, usize)| {
                let score = score.filter(|s| !s.is_nan());
                let value = score.map_or(f64::INFINITY, |s| if minimize { s } else { -s });
                (value, *bytes, *order)
            };
            key(a).partial_cmp(&key(b)).unwrap()
        });
        let ranked: Vec<u32> = ranked.into_iter().map(|(i, _)| *i).collect();
        prop_assert!(ranked.starts_with(&seen.committed_order), "{ranked:?} {:?}", seen.committed_order);
        if end.is_none() {
            let passing = (0u32..).zip(&fates)
                .filter(|(_, f)| !f.fails_to_start && f.candidate && f.passes).count();
            prop_assert_eq!(seen.scored.len(), passing, "all that pass are scored");
            prop_assert_eq!(seen.winner, ranked.iter().copied().find(|&i| fates[i as usize].commits));
        }
    }
}

fn finished(attempt: u32) -> Event {
    Event::Finished {
        attempt,
        candidate: true,
    }
}

#[test]
fn first_wins_stops_the_rest_in_the_same_breath() {
    let mut s = FirstWins::new();
    let start: Vec<_> = (0..4).map(Action::Start).collect();
    assert_eq!(
        s.on(Event::Begin {
            attempts: 4,
            jobs: 8
        }),
        start
    );
    assert_eq!(s.on(finished(2)), [Action::Verify(2)]);
    assert_eq!(s.on(finished(1)), [Action::Verify(1)]);
    let stops = [
        Action::Stop(0),
        Action::Stop(1),
        Action::Stop(3),
        Action::Commit(2),
    ];
    assert_eq!(
        s.on(Event::Verified {
            attempt: 2,
            passed: true
        }),
        stops
    );
    let won = Event::CommitResult {
        attempt: 2,
        committed: true,
    };
    assert_eq!(s.on(won), [Action::Finish { winner: Some(2) }]);
}

#[test]
fn first_wins_goes_on_after_a_refused_commit() {
    let mut s = FirstWins::new();
    s.on(Event::Begin {
        attempts: 3,
        jobs: 2,
    });
    s.on(finished(0));
    s.on(finished(1));
    s.on(Event::Verified {
        attempt: 0,
        passed: true,
    });
    // The verifier of 1 was cut short; its branch is whole.
    assert_eq!(s.on(Event::Stopped { attempt: 1 }), []);
    let refused = Event::CommitResult {
        attempt: 0,
        committed: false,
    };
    assert_eq!(s.on(refused), [Action::Verify(1), Action::Start(2)]);
}

#[test]
fn nan_never_wins() {
    let mut s = BestOfN::new(Direction::Maximize);
    s.on(Event::Begin {
        attempts: 2,
        jobs: 2,
    });
    for attempt in 0..2 {
        s.on(finished(attempt));
        s.on(Event::Verified {
            attempt,
            passed: true,
        });
    }
    let nan = Event::Scored {
        attempt: 0,
        score: Some(f64::NAN),
        changed_bytes: 0,
    };
    assert_eq!(s.on(nan), []);
    let low = Event::Scored {
        attempt: 1,
        score: Some(f64::NEG_INFINITY),
        changed_bytes: 9,
    };
    assert_eq!(s.on(low), [Action::Commit(1)]);
}

#[test]
fn an_exploration_without_attempts_ends() {
    let begin = Event::Begin {
        attempts: 0,
        jobs: 1,
    };
    assert_eq!(
        FirstWins::new().on(begin),
        [Action::Finish { winner: None }]
    );
    assert_eq!(
        BestOfN::default().on(begin),
        [Action::Finish { winner: None }]
    );
}
