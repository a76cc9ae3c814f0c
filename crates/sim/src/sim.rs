//! The simulation: what happens in which step, all of it drawn from the seed.

use crate::{
    Breakage, Violation,
    disk::{Content, FakeDisk},
    oracle::{Oracle, Writer},
    rng::Rng,
    rows::FakeStore,
};
use forkpoint_model::commit::{Command, Coordinator, Event};
use forkpoint_model::state::BranchState;
use forkpoint_model::{Generation, WorldId};
use std::collections::{BTreeMap, VecDeque};

/// Steps of one run before everything is healed.
const STEPS: u32 = 400;
/// Rounds in which a healed system must come to rest.
const ROUNDS: u32 = 400;
/// Keys of a participant.
pub(crate) const KEYS: usize = 5;
/// Lines of the trace kept for a violation.
const TRACE: usize = 60;

/// What a run did, so that a test can see that it did something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Branches forked.
    pub forks: u64,
    /// Commits decided.
    pub decisions: u64,
    /// Commits taken back.
    pub undone: u64,
    /// Branches rolled back.
    pub rolled_back: u64,
    /// Branches invalidated by a sibling's commit.
    pub invalidated: u64,
    /// Redos that were blocked.
    pub blocked: u64,
    /// Processes killed, and power losses.
    pub crashes: u64,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) id: WorldId,
    pub(crate) parts: Vec<FakeDisk>,
}

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) coordinator: Coordinator,
}

#[derive(Debug, Clone)]
pub(crate) enum Msg {
    Do(u32, Command),
    Tell(u32, Event),
}

#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) rng: Rng,
    pub(crate) store: FakeStore,
    pub(crate) worlds: Vec<World>,
    pub(crate) lives: BTreeMap<u32, Live>,
    pub(crate) next_live: u32,
    pub(crate) msgs: Vec<Msg>,
    pub(crate) oracle: Oracle,
    pub(crate) stats: Stats,
    /// From now on nothing fails any more.
    pub(crate) healed: bool,
    next_id: u64,
    traced: bool,
    trace: VecDeque<String>,
    seed: u64,
    step: u32,
}

/// Runs one seed, with a fault built in if `broken`.
pub fn run(seed: u64, broken: Option<Breakage>) -> Result<Stats, Box<Violation>> {
    // Traces cost more than the run itself: they are made when there is something to show.
    attempt(seed, broken, false).or_else(|_| attempt(seed, broken, true))
}

fn attempt(seed: u64, broken: Option<Breakage>, traced: bool) -> Result<Stats, Box<Violation>> {
    let mut sim = Sim::new(seed, broken);
    sim.traced = traced;
    for _ in 0..STEPS {
        sim.step += 1;
        sim.act();
        sim.check()?;
    }
    sim.heal()?;
    Ok(sim.stats)
}

impl Sim {
    fn new(seed: u64, broken: Option<Breakage>) -> Self {
        let mut rng = Rng::new(seed);
        let mut oracle = Oracle::default();
        let mut store = FakeStore::new(broken);
        let mut worlds = Vec::new();
        for n in 0..1 + rng.below(2) {
            let id = WorldId::from_bits(n as u64 + 1);
            let mut parts = Vec::new();
            let mut contents = Vec::new();
            for place in 0..1 + rng.below(4) {
                let keys = 0..KEYS as u8;
                let content: Content = keys.map(|k| (k, oracle.value(Writer::Initial))).collect();
                contents.push(content.clone());
                parts.push(FakeDisk::new(place, rng.one_in(2), content, broken));
            }
            oracle.contents.insert((id, Generation(0)), contents);
            for rows in [&mut store.now, &mut store.synced] {
                rows.heads.insert(id, Generation(0));
            }
            worlds.push(World { id, parts });
        }
        Self {
            rng,
            store,
            worlds,
            lives: BTreeMap::new(),
            next_live: 0,
            msgs: Vec::new(),
            oracle,
            stats: Stats::default(),
            healed: false,
            next_id: 0,
            traced: false,
            trace: VecDeque::new(),
            seed,
            step: 0,
        }
    }

    pub(crate) fn violation(&self, law: &'static str, message: String) -> Box<Violation> {
        let trace = self.trace.iter().cloned().collect();
        Box::new(Violation {
            law,
            message,
            seed: self.seed,
            step: self.step,
            trace,
        })
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if !self.traced {
            return;
        }
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:4} {}", self.step, line()));
    }

    pub(crate) fn fresh(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn index(&self, id: WorldId) -> usize {
        let found = self.worlds.iter().position(|world| world.id == id);
        found.expect("a row names a world that exists")
    }

    /// One thing happens.
    fn act(&mut self) {
        match self.rng.below(100) {
            0..6 => self.fork(),
            6..14 => self.write(),
            14..16 => self.edit(),
            16..20 => self.verify(),
            20..27 => self.commit(),
            27..29 => self.abort(),
            29..33 => self.drive_rollback(),
            33..35 => self.rebase(),
            35..38 => self.resolve(),
            38..40 => self.undo(),
            40..42 => self.time_out(),
            42..43 => self.arm(),
            43..44 if self.rng.one_in(2) => self.power_loss(),
            43..44 => self.kill_one(),
            44..46 => self.run_recovery(),
            46..47 => self.collect(),
            _ => self.deliver_one(),
        }
    }

    fn deliver_one(&mut self) {
        let n = self.rng.below(self.msgs.len());
        if n < self.msgs.len() {
            let msg = self.msgs.swap_remove(n);
            self.note(|| format!("{msg:?}"));
            self.deliver(msg);
        }
    }

    /// Nothing fails any more: everything must come to rest, with nothing left behind.
    fn heal(&mut self) -> Result<(), Box<Violation>> {
        self.healed = true;
        self.store.fuse = None;
        for part in self.worlds.iter_mut().flat_map(|world| &mut world.parts) {
            part.fuse = None;
        }
        for _ in 0..ROUNDS {
            if self.check_rest().is_ok() {
                break;
            }
            self.step += 1;
            let ids: Vec<u32> = self.lives.keys().copied().collect();
            ids.into_iter().for_each(|id| self.tell(id, Event::Timeout));
            while !self.msgs.is_empty() {
                self.deliver_one();
                self.check()?;
            }
            self.resolve();
            self.run_recovery();
            self.drive_rollback();
            self.check()?;
        }
        self.check_rest()?;
        let ended = self.store.now.branches.values();
        self.stats.rolled_back = ended
            .filter(|b| b.ctx.state == BranchState::RolledBack)
            .count() as u64;
        Ok(())
    }
}
