//! A tournament: those that passed meet two by two; a command says which goes on.

use super::{
    Action, Comparison, Event, Strategy,
    book::{Book, Phase},
    rank::{Direction, Merit, compare},
};
use std::cmp::Ordering;

/// How often a comparison that failed is made again.
const RETRIES: u32 = 1;

/// Lets all attempts finish, draws a bracket of those that passed, and commits the one that wins it.
/// The draw depends on the seed and on who passed, on nothing else. Where the number is odd the last
/// of a round goes on unmet. A tie, and a comparison that failed twice, go to the smaller change, then
/// to the one that finished earlier. If the commit of the winner is refused, those that fell are tried,
/// the last to fall first. Of `n` that passed, `n - 1` pairs meet, each at most twice.
#[derive(Debug, Clone)]
pub struct Tournament {
    book: Book,
    seed: u64,
    sizes: Vec<u64>,
    /// Who is still in, in the order of the bracket; none before it was drawn.
    round: Option<Vec<u32>>,
    /// The pairs of the round that have yet to meet, with how often they were tried.
    to_meet: Vec<(u32, u32, u32)>,
    meeting: Vec<(u32, u32, u32)>,
    /// Who fell, in that order.
    fallen: Vec<u32>,
    closing: bool,
    over: bool,
}

impl Tournament {
    /// One whose bracket is drawn by `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            book: Book::default(),
            seed,
            sizes: Vec::new(),
            round: None,
            to_meet: Vec::new(),
            meeting: Vec::new(),
            fallen: Vec::new(),
            closing: false,
            over: false,
        }
    }

    fn take_in(&mut self, event: Event) {
        use Phase::{
            Committed, Committing, Out, Passed, Ready, Running, Scored, Scoring, Verifying,
        };
        let book = &mut self.book;
        match event {
            Event::Begin { attempts, jobs } => {
                book.begin(attempts, jobs);
                self.sizes = vec![0; attempts as usize];
            }
            Event::Finished { attempt, candidate } if book.phase(attempt) == Running => {
                book.set(attempt, if candidate { Ready } else { Out });
            }
            Event::Verified { attempt, passed } if book.phase(attempt) == Verifying => {
                book.set(attempt, if passed { Passed } else { Out });
            }
            Event::Scored {
                attempt,
                changed_bytes,
                ..
            } if book.phase(attempt) == Scoring => {
                self.sizes[attempt as usize] = changed_bytes;
                book.set(attempt, Scored);
            }
            Event::Failed { attempt } | Event::Stopped { attempt }
                if matches!(book.phase(attempt), Running | Verifying | Scoring) =>
            {
                book.set(attempt, Out);
            }
            Event::Compared {
                left,
                right,
                verdict,
            } => self.met(left, right, verdict),
            // A comparison that was stopped says nothing; only a closing tournament stops one.
            Event::Stopped { attempt } if book.phase(attempt) == Phase::Comparing => {
                self.meeting.retain(|&(left, _, _)| left != attempt);
                book.set(attempt, Scored);
            }
            Event::CommitResult { attempt, committed } if book.phase(attempt) == Committing => {
                book.set(attempt, if committed { Committed } else { Out });
            }
            Event::Deadline | Event::Interrupted => self.closing = true,
            _ => {}
        }
    }

    fn met(&mut self, left: u32, right: u32, verdict: Comparison) {
        let Some(at) = (self.meeting.iter()).position(|&(l, r, _)| (l, r) == (left, right)) else {
            return;
        };
        let (_, _, tried) = self.meeting.remove(at);
        self.book.set(left, Phase::Scored);
        let loser = match verdict {
            Comparison::Left => right,
            Comparison::Right => left,
            Comparison::Error if tried < RETRIES => {
                self.to_meet.insert(0, (left, right, tried + 1));
                return;
            }
            Comparison::Tie | Comparison::Error => match self.compare(left, right) {
                Ordering::Greater => left,
                _ => right,
            },
        };
        self.fallen.push(loser);
        if let Some(round) = &mut self.round {
            round.retain(|&i| i != loser);
        }
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        let merit = |i: u32| Merit {
            score: None,
            changed_bytes: self.sizes[i as usize],
            order: self.book.finished_order(i),
        };
        compare(&merit(a), &merit(b), Direction::default())
    }

    /// Draws the bracket: the order of those that passed, mixed by the seed (Fisher and Yates).
    fn draw(&self) -> Vec<u32> {
        let mut entrants: Vec<u32> = self.book.all(Phase::Scored).collect();
        let mut state = self.seed;
        for i in (1..entrants.len()).rev() {
            let j = split_mix(&mut state) % (i as u64 + 1);
            entrants.swap(i, j as usize);
        }
        entrants
    }

    /// Lets pairs meet, as far as slots go; pairs the next round when this one is over.
    fn play(&mut self, out: &mut Vec<Action>) {
        if self.round.is_none() {
            self.round = Some(self.draw());
        }
        if self.meeting.is_empty() && self.to_meet.is_empty() {
            let round = self.round.iter().flatten().copied().collect::<Vec<_>>();
            let pairs = round.chunks_exact(2);
            self.to_meet = pairs.map(|pair| (pair[0], pair[1], 0)).collect();
        }
        while !self.to_meet.is_empty() && self.book.has_slot() {
            let (left, right, tried) = self.to_meet.remove(0);
            self.book.set(left, Phase::Comparing);
            self.meeting.push((left, right, tried));
            out.push(Action::Compare { left, right });
        }
    }

    fn finish(&mut self, winner: Option<u32>, out: &mut Vec<Action>) {
        self.over = true;
        out.push(Action::Finish { winner });
    }

    /// The one to commit, once the bracket is played: its winner, else the last that fell.
    fn champion(&self) -> Option<u32> {
        let standing = self.round.iter().flatten().copied();
        let fallen = self.fallen.iter().rev().copied();
        standing
            .chain(fallen)
            .find(|&i| self.book.phase(i) == Phase::Scored)
    }

    fn act(&mut self, out: &mut Vec<Action>) {
        if let Some(winner) = self.book.first(Phase::Committed) {
            return self.finish(Some(winner), out);
        }
        if self.closing {
            self.book.stop_busy(out);
        }
        if self.book.any(Phase::Committing) {
            return;
        }
        if self.closing {
            return self.finish(None, out);
        }
        if self.round.is_none() {
            self.book.score(false, out);
            self.book.fill(out);
            self.book.score(false, out);
            if self.book.busy() > 0 {
                return;
            }
        }
        self.play(out);
        if self.book.busy() == 0 {
            match self.champion() {
                Some(i) => {
                    self.book.set(i, Phase::Committing);
                    out.push(Action::Commit(i));
                }
                None => self.finish(None, out),
            }
        }
    }
}

/// The next number of a small generator (Steele, Lea and Flood, SplitMix, 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Strategy for Tournament {
    fn name(&self) -> &'static str {
        "tournament"
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
