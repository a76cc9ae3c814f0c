//! One branch and its effects: performed, held, gone back before, committed or rolled back, through
//! crashes between any two steps, lost acknowledgements, requests that arrive late, and inverses that
//! fail. The model's own rules decide ([`forkpoint_model::effect`]); the remote and the journal are
//! fakes.

mod ending;

use crate::Violation;
use crate::rng::Rng;
use forkpoint_model::BranchId;
use forkpoint_model::effect::{
    EffectClass as C, EffectEvent as E, EffectState as S, Intent, Recorded, TakenUp,
    idempotency_key, step, take_up,
};
use std::collections::BTreeSet;

/// A mechanism of the effect boundary taken away, to prove that its law would find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// A request goes out before the journal says that it is being sent.
    SentBeforeWritten,
    /// What was being sent is taken for never sent.
    DoubtTakenForAbsence,
    /// The oldest effect is undone first.
    OldestFirst,
    /// The remote is asked while a request may still be under way.
    AskedTooEarly,
    /// The branch is called rolled back without looking whether anything is left.
    EndedWithoutLooking,
    /// A commit takes effects in doubt for performed.
    CommittedInDoubt,
    /// What is held goes out at once.
    HeldNotHeld,
    /// What is held is recorded as out before it is.
    ReleasedBeforeSent,
    /// What was gone back before is kept by a commit.
    ForsakenKept,
    /// After going back, whatever is intended at a place gets the response recorded there.
    ReplayedByPlace,
    /// The epoch is not looked at.
    EpochIgnored,
    /// A response is acted on before it is recorded.
    AnswerNotRecorded,
}

impl Removed {
    /// Every one.
    pub const ALL: [Self; 12] = [
        Self::SentBeforeWritten,
        Self::DoubtTakenForAbsence,
        Self::OldestFirst,
        Self::AskedTooEarly,
        Self::EndedWithoutLooking,
        Self::CommittedInDoubt,
        Self::HeldNotHeld,
        Self::ReleasedBeforeSent,
        Self::ForsakenKept,
        Self::ReplayedByPlace,
        Self::EpochIgnored,
        Self::AnswerNotRecorded,
    ];
}

/// What the runs did, to see that they did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EffectStats {
    /// Effects that reached the remote.
    pub performed: u64,
    /// Answered from the journal.
    pub replayed: u64,
    /// Inverses that ran.
    pub compensated: u64,
    /// Crashes.
    pub crashes: u64,
    /// Branches rolled back.
    pub rolled_back: u64,
    /// Branches committed.
    pub committed: u64,
    /// Rollbacks that were incomplete for a while.
    pub incomplete: u64,
}

#[derive(Debug, Clone)]
struct Row {
    ordinal: u64,
    place: u64,
    overlay: u32,
    participant: usize,
    class: C,
    state: S,
    key: String,
    intent: u64,
    /// The remote can be asked.
    can_inquire: bool,
    /// The inverse does nothing where nothing happened.
    absence_safe: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Sealed,
    Committed,
    Aborting,
    Incomplete,
    RolledBack,
}

/// The process died. What is durable, and what is on its way, goes on.
struct Crash;

type Step<T> = Result<T, Stop>;

enum Stop {
    Crash,
    Law(&'static str, String),
}

impl From<Crash> for Stop {
    fn from(_: Crash) -> Self {
        Self::Crash
    }
}

struct Sim {
    rng: Rng,
    removed: Option<Removed>,
    stats: EffectStats,
    trace: Vec<String>,
    state: State,
    /// Durable.
    rows: Vec<Row>,
    stack: Vec<u32>,
    next_overlay: u32,
    /// Checkpoints to go back to: how tall the stack was.
    steps: Vec<usize>,
    /// The remote: the keys of what happened there.
    remote: BTreeSet<String>,
    /// Requests that may arrive yet.
    wire: Vec<String>,
    /// Participants whose inverses fail for now.
    stubborn: BTreeSet<usize>,
}

/// More than there are effects, to turn their order round.
const TURNED: u64 = 10_000;
const PARTICIPANTS: usize = 3;
const LINEAGE: BranchId = BranchId::from_bits(1);

/// Runs one seed.
///
/// # Errors
/// The law that was broken.
pub fn run_effects(seed: u64, removed: Option<Removed>) -> Result<EffectStats, Box<Violation>> {
    let mut sim = Sim {
        rng: Rng::new(seed),
        removed,
        stats: EffectStats::default(),
        trace: Vec::new(),
        state: State::Open,
        rows: Vec::new(),
        stack: vec![0],
        next_overlay: 1,
        steps: Vec::new(),
        remote: BTreeSet::new(),
        wire: Vec::new(),
        stubborn: BTreeSet::new(),
    };
    for number in 0..120 {
        let law = match sim.turn() {
            Ok(()) => sim.check(),
            Err(Stop::Crash) => {
                sim.stats.crashes += 1;
                sim.trace.push("crash".into());
                sim.check()
            }
            Err(Stop::Law(law, message)) => Err((law, message)),
        };
        if let Err((law, message)) = law {
            let last = sim.trace.len().saturating_sub(20);
            return Err(Box::new(Violation {
                law,
                message,
                seed,
                step: number,
                trace: sim.trace.split_off(last),
            }));
        }
        if sim.over() {
            break;
        }
    }
    Ok(sim.stats)
}

impl Sim {
    fn is(&self, removed: Removed) -> bool {
        self.removed == Some(removed)
    }

    fn over(&self) -> bool {
        let held = self.rows.iter().any(|row| row.state == S::Releasable);
        self.state == State::RolledBack || self.state == State::Committed && !held
    }

    fn may_crash(&mut self) -> Result<(), Crash> {
        match self.rng.one_in(14) {
            true => Err(Crash),
            false => Ok(()),
        }
    }

    fn turn(&mut self) -> Step<()> {
        match self.state {
            State::Open => match self.rng.below(16) {
                0..=8 => self.perform(),
                9 => self.take_step(),
                10 | 11 => self.go_back(),
                12 => self.arrive(),
                13 => self.flip_stubborn(),
                14 => {
                    self.say("seal".into());
                    self.state = State::Sealed;
                    Ok(())
                }
                _ => {
                    self.say("abort".into());
                    self.state = State::Aborting;
                    Ok(())
                }
            },
            State::Sealed => match self.rng.below(5) {
                0 => self.perform(),
                1 => self.arrive(),
                2 => {
                    self.state = State::Aborting;
                    Ok(())
                }
                _ => self.commit(),
            },
            State::Aborting => self.roll_back(),
            State::Incomplete => {
                self.stubborn.clear();
                self.state = State::Aborting;
                Ok(())
            }
            State::Committed => self.release(),
            State::RolledBack => Ok(()),
        }
    }

    fn say(&mut self, what: String) {
        self.trace.push(what);
    }

    fn take_step(&mut self) -> Step<()> {
        self.steps.push(self.stack.len());
        self.stack.push(self.next_overlay);
        self.next_overlay += 1;
        self.say("step".into());
        Ok(())
    }

    fn go_back(&mut self) -> Step<()> {
        let Some(&height) = self.rng.pick(&self.steps) else {
            return Ok(());
        };
        self.steps.retain(|&s| s <= height);
        self.stack.truncate(height);
        self.stack.push(self.next_overlay);
        self.next_overlay += 1;
        self.say(format!("back to {height}"));
        Ok(())
    }

    fn flip_stubborn(&mut self) -> Step<()> {
        let participant = self.rng.below(PARTICIPANTS);
        if !self.stubborn.remove(&participant) {
            self.stubborn.insert(participant);
        }
        Ok(())
    }

    /// Something that was on its way arrives.
    fn arrive(&mut self) -> Step<()> {
        if !self.wire.is_empty() {
            let at = self.rng.below(self.wire.len());
            let key = self.wire.swap_remove(at);
            self.apply(&key);
        }
        Ok(())
    }

    /// The same key is the same effect, however often it is sent.
    fn apply(&mut self, key: &str) {
        if self.remote.insert(key.to_owned()) {
            self.stats.performed += 1;
        }
    }

    /// What the store's `intend` does, then sending.
    fn perform(&mut self) -> Step<()> {
        let sealed = self.state != State::Open;
        if sealed && !self.is(Removed::EpochIgnored) {
            return Ok(());
        }
        let participant = self.rng.below(PARTICIPANTS);
        // Few intents, so that after going back the same comes often.
        let intent = self.rng.below(3) as u64;
        let class = match self.rng.one_in(4) {
            true => C::Deferred,
            false => C::Compensated,
        };
        let present = |row: &Row, stack: &[u32]| stack.contains(&row.overlay);
        let stack = self.stack.clone();
        let in_stack = self.rows.iter().filter(|row| present(row, &stack));
        let place = 1 + in_stack.map(|row| row.place).max().unwrap_or(0);
        let by_place = self.is(Removed::ReplayedByPlace);
        let recorded: Vec<Recorded> = (self.rows.iter().filter(|row| row.place == place))
            .map(|row| Recorded {
                ordinal: row.ordinal,
                present: present(row, &stack),
                same_intent: by_place
                    || row.intent == intent && row.participant == participant && row.class == class,
                state: row.state,
            })
            .collect();
        let top = self.stack.last().copied().unwrap_or(0);
        let ordinal = match take_up(recorded) {
            TakenUp::Again { ordinal } => {
                let Some(row) = self.rows.iter_mut().find(|row| row.ordinal == ordinal) else {
                    return Ok(());
                };
                row.overlay = top;
                if row.intent != intent || row.participant != participant {
                    let what = format!("intent {intent} was answered with that of {}", row.intent);
                    return Err(Stop::Law("law_02_effect_isolation", what));
                }
                self.stats.replayed += 1;
                ordinal
            }
            TakenUp::Anew { again } => {
                let ordinal = self.rows.len() as u64 + 1;
                let names = ["p", "q", "r"];
                let what = Intent {
                    participant: names.get(participant).copied().unwrap_or_default(),
                    class,
                    bytes: &[intent as u8],
                };
                self.rows.push(Row {
                    ordinal,
                    place,
                    overlay: top,
                    participant,
                    class,
                    state: S::Intended,
                    key: idempotency_key(LINEAGE, place, again, what).to_string(),
                    intent,
                    can_inquire: participant == 0,
                    absence_safe: participant == 1,
                });
                ordinal
            }
        };
        self.say(format!(
            "effect {ordinal} at place {place}: {class} of {participant}, intent {intent}"
        ));
        if sealed {
            return Err(Stop::Law(
                "law_09_sealed_is_immutable",
                format!("effect {ordinal} after the seal"),
            ));
        }
        self.may_crash()?;
        self.send(ordinal)
    }

    fn send(&mut self, ordinal: u64) -> Step<()> {
        let row = self.row(ordinal);
        if row.class == C::Deferred {
            if self.is(Removed::HeldNotHeld) {
                self.apply(&row.key);
            }
            return Ok(());
        }
        if row.state != S::Intended {
            return Ok(());
        }
        if self.is(Removed::SentBeforeWritten) {
            self.apply(&row.key);
            self.may_crash()?;
        }
        self.happened(ordinal, E::SendBegan)?;
        self.may_crash()?;
        self.wire.push(row.key.clone());
        self.may_crash()?;
        // It may stay on its way, or be lost, and so may its answer.
        match self.rng.below(6) {
            0 => return self.happened(ordinal, E::Lost),
            1 => {
                self.wire.retain(|key| *key != row.key);
                return self.happened(ordinal, E::Lost);
            }
            _ => {}
        }
        self.wire.retain(|key| *key != row.key);
        self.apply(&row.key);
        self.may_crash()?;
        if self.is(Removed::AnswerNotRecorded) && self.rng.one_in(2) {
            self.set(ordinal, S::NeverSent);
            return Ok(());
        }
        self.happened(ordinal, E::Acknowledged)
    }

    fn row(&self, ordinal: u64) -> Row {
        self.rows[ordinal as usize - 1].clone()
    }

    fn set(&mut self, ordinal: u64, state: S) {
        self.rows[ordinal as usize - 1].state = state;
    }

    fn happened(&mut self, ordinal: u64, event: E) -> Step<()> {
        let row = self.row(ordinal);
        let next = step(row.class, row.state, event)
            .map_err(|e| Stop::Law("law_05_rolled_back_means_undone", e.message))?;
        self.set(ordinal, next);
        self.say(format!("effect {ordinal}: {event:?}: {next}"));
        Ok(())
    }
}
