//! Search in rounds over forks of forks, the common part of beam, halving and refine: a round's
//! attempts run, are verified and scored; a [`Policy`] then says which of them are forked again. In
//! the end the best of all that passed, of whatever round, is committed.
//!
//! An attempt forked off another goes on from what that one left, so the change of the winner is its
//! own and that of every branch it comes from, and is committed as one.

use super::{
    Action, Event, Strategy,
    book::{Book, Phase},
    rank::{Direction, Merit, compare, compare_scores},
};
use std::cmp::Ordering;

/// What a policy sees when a round is over.
#[derive(Debug)]
pub struct Round<'a> {
    /// The round's number, from 0; also how deep its attempts are nested.
    pub number: u32,
    /// How many attempts the round was to have.
    pub planned: u32,
    /// The attempts of this round that can be forked again, best first.
    pub ranked: &'a [u32],
    /// The attempts of all rounds that can be forked again, best first.
    pub ranked_of_all: &'a [u32],
    /// Whether any attempt of any round has passed.
    pub any_passed: bool,
    /// Whether a score of this round is better than every one before; true in the first round that
    /// has one.
    pub improved: bool,
    /// Whether any attempt so far has a score.
    pub any_scored: bool,
    /// How many attempts the first round had.
    pub trials: u32,
    trial_of: &'a [u32],
}

impl Round<'_> {
    /// Which attempt of the first round `attempt` does again.
    pub fn trial_of(&self, attempt: u32) -> u32 {
        self.trial_of.get(attempt as usize).copied().unwrap_or(0)
    }

    /// The `branching` attempts of the first round that the forks of one branch do again.
    pub fn trials(&self, branching: u32) -> impl Iterator<Item = u32> + '_ {
        (0..branching).map(|k| k % self.trials.max(1))
    }
}

/// How a search goes on after a round.
pub trait Policy {
    /// The strategy's name.
    fn name(&self) -> &'static str;
    /// The attempts of the next round, as (parent, trial); none ends the search.
    fn next(&mut self, round: &Round<'_>) -> Vec<(u32, u32)>;
}

/// A strategy that searches in rounds.
#[derive(Debug, Clone)]
pub struct Nested<P> {
    policy: P,
    direction: Direction,
    exclusive: bool,
    max_attempts: u32,
    book: Book,
    /// Per attempt: its parent, its trial, its score, its size, whether it passed.
    nodes: Vec<Node>,
    round: u32,
    /// The number of the first attempt of the round.
    first: u32,
    best_score: Option<f64>,
    deadline: bool,
    interrupted: bool,
    searched: bool,
    over: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    parent: Option<u32>,
    trial: u32,
    score: Option<f64>,
    changed_bytes: u64,
    passed: bool,
}

impl<P: Policy> Nested<P> {
    /// A search that makes at most `max_attempts` attempts, and at least those it begins with.
    pub fn new(policy: P, direction: Direction, max_attempts: u32) -> Self {
        Self {
            policy,
            direction,
            exclusive: false,
            max_attempts,
            book: Book::default(),
            nodes: Vec::new(),
            round: 0,
            first: 0,
            best_score: None,
            deadline: false,
            interrupted: false,
            searched: false,
            over: false,
        }
    }

    /// Scores one at a time, after every attempt and verifier of the round has ended.
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    fn take_in(&mut self, event: Event) {
        use Phase::{
            Committed, Committing, Out, Passed, Ready, Running, Scored, Scoring, Verifying,
        };
        let book = &mut self.book;
        match event {
            Event::Begin { attempts, jobs } => {
                book.begin(attempts, jobs);
                let node = |trial| Node {
                    trial,
                    ..Node::default()
                };
                self.nodes = (0..attempts).map(node).collect();
            }
            Event::Finished { attempt, candidate } if book.phase(attempt) == Running => {
                book.set(attempt, if candidate { Ready } else { Out });
            }
            // What did not pass is scored too: it may be worth going on from.
            Event::Verified { attempt, passed } if book.phase(attempt) == Verifying => {
                self.nodes[attempt as usize].passed = passed;
                book.set(attempt, Passed);
            }
            Event::Scored {
                attempt,
                score,
                changed_bytes,
            } if book.phase(attempt) == Scoring => {
                let node = &mut self.nodes[attempt as usize];
                node.score = score.filter(|s| !s.is_nan());
                node.changed_bytes = changed_bytes;
                book.set(attempt, Scored);
            }
            Event::Failed { attempt } | Event::Stopped { attempt }
                if matches!(book.phase(attempt), Running | Verifying | Scoring) =>
            {
                book.set(attempt, Out);
            }
            Event::CommitResult { attempt, committed } if book.phase(attempt) == Committing => {
                book.set(attempt, if committed { Committed } else { Out });
            }
            Event::Deadline => self.deadline = true,
            Event::Interrupted => self.interrupted = true,
            _ => {}
        }
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        let merit = |i: u32| {
            let node = &self.nodes[i as usize];
            Merit {
                score: node.score,
                changed_bytes: node.changed_bytes,
                order: self.book.finished_order(i),
            }
        };
        let passed = |i: u32| self.nodes[i as usize].passed;
        let scores = |i: u32| self.nodes[i as usize].score;
        compare_scores(scores(a), scores(b), self.direction)
            .then(passed(b).cmp(&passed(a)))
            .then_with(|| compare(&merit(a), &merit(b), self.direction))
    }

    /// The scored attempts from number `first` on, best first.
    fn ranked(&self, first: u32) -> Vec<u32> {
        let scored = self.book.all(Phase::Scored).filter(|&i| i >= first);
        let mut ranked: Vec<u32> = scored.collect();
        ranked.sort_by(|&a, &b| self.compare(a, b));
        ranked
    }

    /// Plans the next round; whether there is one.
    fn next_round(&mut self) -> bool {
        let (ranked, ranked_of_all) = (self.ranked(self.first), self.ranked(0));
        let scores = ranked.iter().filter_map(|&i| self.nodes[i as usize].score);
        let best = scores.min_by(|&a, &b| compare_scores(Some(a), Some(b), self.direction));
        let improved = best.is_some()
            && compare_scores(best, self.best_score, self.direction) == Ordering::Less;
        if improved {
            self.best_score = best;
        }
        let trial_of: Vec<u32> = self.nodes.iter().map(|n| n.trial).collect();
        let trials = self.nodes.iter().filter(|n| n.parent.is_none()).count() as u32;
        let mut children = self.policy.next(&Round {
            number: self.round,
            planned: self.book.len() - self.first,
            ranked: &ranked,
            ranked_of_all: &ranked_of_all,
            any_passed: self.nodes.iter().any(|n| n.passed),
            improved,
            any_scored: self.best_score.is_some(),
            trials,
            trial_of: &trial_of,
        });
        children.truncate(self.max_attempts.saturating_sub(self.book.len()) as usize);
        self.round += 1;
        self.first = self.book.len();
        for (parent, trial) in &children {
            self.book.add();
            self.nodes.push(Node {
                parent: Some(*parent),
                trial: *trial,
                ..Node::default()
            });
        }
        !children.is_empty()
    }

    fn fill(&mut self, out: &mut Vec<Action>) {
        let nodes = &self.nodes;
        self.book.fill_with(out, |attempt| {
            let node = &nodes[attempt as usize];
            match node.parent {
                None => Action::Start(attempt),
                Some(parent) => Action::Fork {
                    attempt,
                    parent,
                    trial: node.trial,
                },
            }
        });
    }

    fn finish(&mut self, winner: Option<u32>, out: &mut Vec<Action>) {
        self.over = true;
        out.push(Action::Finish { winner });
    }

    /// Runs the round on as far as slots go.
    fn run(&mut self, out: &mut Vec<Action>) {
        if !self.exclusive {
            self.book.score(false, out);
        }
        self.fill(out);
        self.book.score(self.exclusive, out);
    }

    fn act(&mut self, out: &mut Vec<Action>) {
        if let Some(winner) = self.book.first(Phase::Committed) {
            return self.finish(Some(winner), out);
        }
        let closing = self.deadline || self.interrupted;
        if closing {
            self.book.stop_busy(out);
        }
        if self.book.any(Phase::Committing) {
            return;
        }
        if closing {
            return self.finish(None, out);
        }
        self.run(out);
        if self.book.busy() == 0 && !self.searched {
            self.searched = !self.next_round();
            self.run(out);
        }
        if self.book.busy() == 0 && self.searched {
            let passed = |&i: &u32| self.nodes[i as usize].passed;
            match self.ranked(0).into_iter().find(passed) {
                Some(i) => {
                    self.book.set(i, Phase::Committing);
                    out.push(Action::Commit(i));
                }
                None => self.finish(None, out),
            }
        }
    }
}

impl<P: Policy> Strategy for Nested<P> {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        if !self.over {
            self.take_in(event);
            self.act(&mut out);
        }
        out
    }
}
