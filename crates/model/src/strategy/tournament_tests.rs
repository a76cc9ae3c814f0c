//! The tournament against a random driver: every bound, byes, ties and judges that fail.

use super::{Action, Comparison, Event, Strategy, Tournament};
use proptest::prelude::{ProptestConfig, TestCaseError, any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};
use std::collections::BTreeMap;

/// What was seen of a tournament.
#[derive(Debug, Default)]
struct Seen {
    met: Vec<(u32, u32)>,
    commits: Vec<u32>,
    winner: Option<u32>,
}

struct Driver<'a> {
    passes: &'a [bool],
    commits: &'a [bool],
    judge: &'a dyn Fn(u32, u32, usize) -> Comparison,
    jobs: u32,
    order: &'a [u8],
}

impl Driver<'_> {
    fn run(&self, seed: u64) -> Result<Seen, TestCaseError> {
        let mut strategy = Tournament::new(seed);
        let mut seen = Seen::default();
        let mut pending = Vec::new();
        let mut todo = strategy.on(Event::Begin {
            attempts: self.passes.len() as u32,
            jobs: self.jobs,
        });
        for step in 0..10_000 {
            for action in std::mem::take(&mut todo) {
                match action {
                    Action::Finish { winner } => {
                        prop_assert!(pending.is_empty());
                        seen.winner = winner;
                        return Ok(seen);
                    }
                    Action::Commit(i) => seen.commits.push(i),
                    Action::Compare { left, right } => {
                        prop_assert!(left != right);
                        seen.met.push((left, right));
                    }
                    _ => {}
                }
                pending.push(action);
            }
            prop_assert!(pending.len() <= self.jobs.max(1) as usize);
            prop_assert!(!pending.is_empty(), "it does not hang");
            let pick = usize::from(self.order[step % self.order.len()]) % pending.len();
            todo = strategy.on(self.answer(pending.remove(pick), &seen));
        }
        Err(TestCaseError::fail("it does not end"))
    }

    fn answer(&self, asked: Action, seen: &Seen) -> Event {
        match asked {
            Action::Start(attempt) => Event::Finished {
                attempt,
                candidate: true,
            },
            Action::Verify(attempt) => Event::Verified {
                attempt,
                passed: self.passes[attempt as usize],
            },
            Action::Score(attempt) => Event::Scored {
                attempt,
                score: None,
                changed_bytes: u64::from(attempt),
            },
            Action::Compare { left, right } => {
                let again = seen.met.iter().filter(|m| **m == (left, right)).count();
                Event::Compared {
                    left,
                    right,
                    verdict: (self.judge)(left, right, again),
                }
            }
            Action::Commit(attempt) => Event::CommitResult {
                attempt,
                committed: self.commits[attempt as usize],
            },
            other => unreachable!("{other:?}"),
        }
    }
}

/// Prefers the attempt with the higher number.
fn higher(left: u32, right: u32, _: usize) -> Comparison {
    match left > right {
        true => Comparison::Left,
        false => Comparison::Right,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_best_wins_in_n_minus_one_comparisons(
        passes in prop::collection::vec(any::<bool>(), 0..20),
        (jobs, seed) in (0u32..5, any::<u64>()),
        order in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let commits = vec![true; passes.len()];
        let driver = Driver { passes: &passes, commits: &commits, judge: &higher, jobs, order: &order };
        let seen = driver.run(seed)?;
        let entrants = passes.iter().filter(|p| **p).count();
        prop_assert_eq!(seen.met.len(), entrants.saturating_sub(1));
        let best = passes.iter().rposition(|p| *p).map(|i| i as u32);
        prop_assert_eq!(seen.winner, best);
        // Nobody meets anyone that did not pass, and nobody falls twice.
        let mut losses = BTreeMap::new();
        for (left, right) in &seen.met {
            prop_assert!(passes[*left as usize] && passes[*right as usize]);
            *losses.entry(left.min(right)).or_insert(0) += 1;
        }
        prop_assert!(losses.values().all(|&n| n == 1));
    }

    #[test]
    fn the_draw_depends_on_the_seed_alone(
        n in 2usize..12,
        seed: u64,
        order in prop::collection::vec(any::<u8>(), 1..20),
        other in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let all = vec![true; n];
        let pairs = |order: &[u8]| -> Result<Vec<(u32, u32)>, TestCaseError> {
            let driver = Driver { passes: &all, commits: &all, judge: &higher, jobs: 3, order };
            let mut met = driver.run(seed)?.met;
            met.sort_unstable();
            Ok(met)
        };
        prop_assert_eq!(pairs(&order)?, pairs(&other)?);
    }

    #[test]
    fn a_judge_that_fails_is_asked_twice_and_no_more(
        n in 2usize..12,
        (jobs, seed) in (0u32..5, any::<u64>()),
        order in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let all = vec![true; n];
        let fails = |_: u32, _: u32, _: usize| Comparison::Error;
        let driver = Driver { passes: &all, commits: &all, judge: &fails, jobs, order: &order };
        let seen = driver.run(seed)?;
        prop_assert_eq!(seen.met.len(), 2 * (n - 1));
        // Where nothing can be said the smaller change wins: here the lowest number.
        prop_assert_eq!(seen.winner, Some(0));
    }

    #[test]
    fn a_refused_champion_gives_way_to_the_last_that_fell(
        n in 2usize..12,
        seed: u64,
    ) {
        let all = vec![true; n];
        let mut commits = vec![true; n];
        commits[n - 1] = false;
        let driver = Driver { passes: &all, commits: &commits, judge: &higher, jobs: 1, order: &[0] };
        let seen = driver.run(seed)?;
        let last = seen.met.last().copied().map(|(l, r)| l.min(r));
        prop_assert_eq!(seen.commits.first().copied(), Some(n as u32 - 1));
        prop_assert_eq!(seen.winner, last);
    }
}

#[test]
fn a_stop_names_the_left_one_and_the_end_waits_for_nothing() {
    let mut strategy = Tournament::new(1);
    strategy.on(Event::Begin {
        attempts: 2,
        jobs: 2,
    });
    let mut last = Vec::new();
    for attempt in 0..2 {
        strategy.on(Event::Finished {
            attempt,
            candidate: true,
        });
        strategy.on(Event::Verified {
            attempt,
            passed: true,
        });
    }
    for attempt in 0..2 {
        last = strategy.on(Event::Scored {
            attempt,
            score: None,
            changed_bytes: 1,
        });
    }
    let [Action::Compare { left, .. }] = last[..] else {
        panic!("{last:?}");
    };
    let end = [Action::Stop(left), Action::Finish { winner: None }];
    assert_eq!(strategy.on(Event::Interrupted), end);
}
