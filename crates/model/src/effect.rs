//! Effects: what a branch does to the world outside the storage it owns, as a journal of rows; and
//! draining one, which is what makes "rolled back" true (law 5). Pure: it says what to do next and is
//! told how that went.
//!
//! The journal follows sagas (Garcia-Molina and Salem, "Sagas", 1987): an inverse is written down
//! before its effect is sent, and inverses run in reverse order. What was being sent when the sender
//! died is _in doubt_: it is asked for, or undone by an inverse that is safe where nothing happened.

use crate::{BranchId, Conflict, Digest, Error, ParticipantId, Result, codes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// How an effect is kept from being seen, or is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Held, and sent once the commit is decided.
    Deferred,
    /// Sent at once; undone by an inverse.
    Compensated,
    /// Changes nothing; recorded so that it can be replayed.
    Read,
}

/// How far an effect got, durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// Written down; nothing was sent.
    Intended,
    /// Being sent: whether it arrived is not known.
    Sent,
    /// It happened, and its response is recorded.
    Acknowledged,
    /// Held, and its branch was committed.
    Releasable,
    /// Held, committed, and out.
    Released,
    /// Undone by its inverse.
    Compensated,
    /// Held or intended, and dropped.
    NeverSent,
    /// Asked for: it never happened.
    ConfirmedAbsent,
    /// It cannot be told whether it happened.
    Ambiguous,
    /// It happened, and its inverse failed for good.
    Failed,
}

use EffectState as S;

impl EffectClass {
    /// Every class.
    pub const ALL: [Self; 3] = [Self::Deferred, Self::Compensated, Self::Read];

    /// The text that the store and JSON use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Compensated => "compensated",
            Self::Read => "read",
        }
    }

    /// The class of this text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }
}

impl EffectState {
    /// Every state.
    pub const ALL: [Self; 10] = [
        S::Intended,
        S::Sent,
        S::Acknowledged,
        S::Releasable,
        S::Released,
        S::Compensated,
        S::NeverSent,
        S::ConfirmedAbsent,
        S::Ambiguous,
        S::Failed,
    ];

    /// The text that the store and JSON use.
    pub const fn as_str(self) -> &'static str {
        match self {
            S::Intended => "intended",
            S::Sent => "sent",
            S::Acknowledged => "acknowledged",
            S::Releasable => "releasable",
            S::Released => "released",
            S::Compensated => "compensated",
            S::NeverSent => "never_sent",
            S::ConfirmedAbsent => "confirmed_absent",
            S::Ambiguous => "ambiguous",
            S::Failed => "failed",
        }
    }

    /// The state of this text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether nothing of the effect is left outside (law 5).
    pub const fn is_undone(self) -> bool {
        matches!(self, S::Compensated | S::NeverSent | S::ConfirmedAbsent)
    }
}

impl fmt::Display for EffectClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for EffectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What an effect is, apart from when it is performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intent<'a> {
    /// Whose it is.
    pub participant: &'a str,
    /// How it is kept from being seen, or undone.
    pub class: EffectClass,
    /// What is to be done, in one canonical form: equal intents are equal bytes.
    pub bytes: &'a [u8],
}

/// The key under which a remote recognises an effect that is sent again: a digest of the lineage, the
/// place in it, and the intent. An intent of other words at the same place has another key, and so
/// has one that is performed `again` after as many of its like were undone there.
pub fn idempotency_key(lineage: BranchId, place: u64, again: u64, intent: Intent<'_>) -> Digest {
    let mut bytes = Vec::with_capacity(intent.bytes.len() + 80);
    bytes.extend_from_slice(b"forkpoint\0");
    for number in [lineage.bits(), place, again] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for text in [intent.participant, intent.class.as_str()] {
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(intent.bytes);
    Digest::of(&bytes)
}

/// What happened to an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectEvent {
    /// It is about to be sent. Durable before it is.
    SendBegan,
    /// It happened.
    Acknowledged,
    /// It did not happen, for certain: refused before anything was done.
    Refused,
    /// The remote was asked, after its sender was fenced.
    Inquired {
        /// Whether it had happened.
        happened: bool,
    },
    /// Whether it happened cannot be told.
    Lost,
    /// Its branch was committed.
    Committed,
    /// What was held went out.
    Released,
    /// It was given up before it was sent.
    Dropped,
    /// Its inverse ran.
    Compensated,
    /// Its inverse failed for good.
    InverseFailed,
    /// A person saw to it: nothing of it is left.
    Settled,
}

/// What an event makes of an effect. What says what is already so changes nothing, so that each can
/// be delivered again after a crash.
///
/// # Errors
/// `FP0089` for an event that cannot follow.
pub fn step(class: EffectClass, state: EffectState, event: EffectEvent) -> Result<EffectState> {
    use EffectClass as C;
    use EffectEvent as E;
    Ok(match (class, state, event) {
        (C::Compensated | C::Read, S::Intended | S::Sent, E::SendBegan) => S::Sent,
        (C::Compensated | C::Read, S::Sent | S::Acknowledged | S::Ambiguous, E::Acknowledged) => {
            S::Acknowledged
        }
        (C::Compensated | C::Read, S::Intended | S::Sent | S::NeverSent, E::Refused) => {
            S::NeverSent
        }
        (C::Compensated | C::Read, S::Sent | S::Ambiguous, E::Lost) => S::Ambiguous,
        (C::Compensated, S::Sent | S::Ambiguous, E::Inquired { happened: true }) => S::Acknowledged,
        (C::Compensated, S::Sent | S::Ambiguous, E::Inquired { happened: false }) => {
            S::ConfirmedAbsent
        }
        (C::Deferred, S::Intended | S::Releasable, E::Committed) => S::Releasable,
        (C::Deferred, S::Releasable | S::Released, E::Released) => S::Released,
        (_, S::Intended | S::NeverSent, E::Dropped) => S::NeverSent,
        (
            C::Compensated,
            S::Sent | S::Acknowledged | S::Ambiguous | S::Failed | S::Compensated,
            E::Compensated,
        ) => S::Compensated,
        (C::Compensated, S::Acknowledged | S::Failed, E::InverseFailed) => S::Failed,
        (C::Compensated, S::Sent | S::Ambiguous, E::InverseFailed) => S::Ambiguous,
        (_, S::Ambiguous | S::Failed | S::Acknowledged | S::Sent, E::Settled) => S::Compensated,
        (_, now, E::Settled) if now.is_undone() => now,
        _ => {
            return Err(codes::IMPOSSIBLE.error(format!(
                "{event:?} cannot follow {state} of a {class} effect"
            )));
        }
    })
}

/// A row that is already recorded at the place an effect is about to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Its number in the branch's journal.
    pub ordinal: u64,
    /// Whether it is part of what the branch is: it was not gone back before.
    pub present: bool,
    /// Whether what it recorded is exactly what is intended now ([`Intent`]).
    pub same_intent: bool,
    /// How far it got.
    pub state: EffectState,
}

/// What an intent is, in view of what was recorded at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenUp {
    /// The same as this row: it goes on from there, and nothing is sent twice.
    Again {
        /// The row's number.
        ordinal: u64,
    },
    /// Another effect. So many of its like were undone here before.
    Anew {
        /// For [`idempotency_key`].
        again: u64,
    },
}

/// Whether an intent is one that the branch had before it went back to a step. The place alone would
/// not do: an agent that is started again words its requests anew.
pub fn take_up(recorded: impl IntoIterator<Item = Recorded>) -> TakenUp {
    let mut again = 0;
    for row in recorded {
        if row.present || !row.same_intent {
            continue;
        }
        if !row.state.is_undone() {
            return TakenUp::Again {
                ordinal: row.ordinal,
            };
        }
        again += 1;
    }
    TakenUp::Anew { again }
}

/// What the deciding transaction of a commit makes of an effect, and whether that is its end.
/// `present`: it is part of what is committed.
///
/// # Errors
/// `FP0089` for one that stands in the way: in doubt, or performed and gone back before.
pub fn at_decision(
    class: EffectClass,
    state: EffectState,
    present: bool,
) -> Result<(EffectState, bool)> {
    match (class, state) {
        (EffectClass::Deferred, S::Intended) if present => Ok((S::Releasable, false)),
        (_, S::Intended) => Ok((S::NeverSent, true)),
        (_, S::Acknowledged) if present => Ok((S::Acknowledged, true)),
        (EffectClass::Read, state) => Ok((state, true)),
        (_, state) if state.is_undone() || state == S::Released => Ok((state, true)),
        (_, state) => Err(codes::IMPOSSIBLE.error(format!("a {class} effect is {state}"))),
    }
}

/// What draining needs to know of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its number in the branch's journal.
    pub ordinal: u64,
    /// Whose it is.
    pub participant: ParticipantId,
    /// Its class.
    pub class: EffectClass,
    /// How far it got.
    pub state: EffectState,
    /// Whether there is an inverse.
    pub inverse: bool,
    /// Whether the inverse does nothing where the effect had not happened.
    pub absence_safe: bool,
    /// Whether the remote can be asked.
    pub can_inquire: bool,
    /// What it is, for people.
    pub what: String,
    /// Why it is not settled yet, if that is known from before.
    pub why: Option<String>,
}

/// What is to be done for an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Record that it is never to be sent.
    Drop,
    /// Ask the remote whether it happened. Its sender is over: nothing of it is under way any more.
    Inquire,
    /// Run its inverse, with its key, so that running it twice is running it once.
    Compensate,
}

/// How an action went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was recorded as dropped.
    Dropped,
    /// The remote has it.
    Happened,
    /// The remote does not have it.
    Absent,
    /// The inverse ran.
    Compensated,
    /// It could not be done, perhaps later.
    Failed(String),
}

/// Draining one branch's journal: newest first, every row at most [`Drain::attempts`] times. A row
/// that cannot be undone holds back the older ones of its participant, whose inverses may rely on it
/// being gone, and no others.
#[derive(Debug, Clone)]
pub struct Drain {
    rows: Vec<(Pending, u32)>,
    attempts: u32,
}

impl Drain {
    /// Over the rows that are not settled, in any order.
    pub fn new(rows: Vec<Pending>, attempts: u32) -> Self {
        let mut rows: Vec<_> = rows.into_iter().map(|row| (row, 0)).collect();
        rows.sort_by_key(|(row, _)| std::cmp::Reverse(row.ordinal));
        Self { rows, attempts }
    }

    /// How often each action is tried.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The next thing to do: of which row, and what.
    pub fn next(&self) -> Option<(u64, Action)> {
        let mut held_back = BTreeSet::new();
        for (row, tried) in &self.rows {
            if is_over(row) || held_back.contains(&row.participant) {
                continue;
            }
            match todo(row) {
                Some(action) if *tried < self.attempts => return Some((row.ordinal, action)),
                _ => {
                    held_back.insert(row.participant.clone());
                }
            }
        }
        None
    }

    /// Takes in how the action on a row went; returns the event that is to be recorded of it, if any.
    pub fn handle(&mut self, ordinal: u64, answer: Answer) -> Result<Option<EffectEvent>> {
        let attempts = self.attempts;
        let Some((row, tried)) = self.rows.iter_mut().find(|(r, _)| r.ordinal == ordinal) else {
            return Err(unknown(ordinal));
        };
        let asked = todo(row);
        let event = match answer {
            Answer::Dropped => EffectEvent::Dropped,
            Answer::Happened => EffectEvent::Inquired { happened: true },
            Answer::Absent => EffectEvent::Inquired { happened: false },
            Answer::Compensated => EffectEvent::Compensated,
            Answer::Failed(why) => {
                *tried += 1;
                row.why = Some(why);
                if *tried < attempts {
                    return Ok(None);
                }
                match asked {
                    Some(Action::Compensate) => EffectEvent::InverseFailed,
                    Some(Action::Inquire) => EffectEvent::Lost,
                    _ => return Ok(None),
                }
            }
        };
        row.state = step(row.class, row.state, event)?;
        if !matches!(event, EffectEvent::InverseFailed | EffectEvent::Lost) {
            *tried = 0;
            row.why = None;
        }
        Ok(Some(event))
    }

    /// What is left, newest first, each with why.
    pub fn left(&self) -> Vec<Conflict> {
        let mut held_back: Vec<(&ParticipantId, u64)> = Vec::new();
        let mut left = Vec::new();
        for (row, _) in self.rows.iter().filter(|(row, _)| !is_over(row)) {
            let behind = held_back.iter().find(|(p, _)| **p == row.participant);
            let why = match (behind, &row.why) {
                (Some((_, newer)), _) => format!("{}: waits for effect {newer}", row.state),
                (None, Some(why)) => format!("{}: {why}", row.state),
                (None, None) => format!("{}: {}", row.state, stuck(row)),
            };
            if behind.is_none() {
                held_back.push((&row.participant, row.ordinal));
            }
            left.push(Conflict {
                participant: row.participant.clone(),
                item: format!("effect {}: {}", row.ordinal, row.what),
                why,
            });
        }
        left
    }
}

/// Whether nothing is to be done for a row. What was only read changed nothing.
pub fn is_over(row: &Pending) -> bool {
    row.state.is_undone() || row.class == EffectClass::Read && row.state != S::Intended
}

/// What would bring a row nearer to being undone.
fn todo(row: &Pending) -> Option<Action> {
    match row.state {
        S::Intended => Some(Action::Drop),
        S::Sent | S::Ambiguous if row.can_inquire => Some(Action::Inquire),
        S::Sent | S::Ambiguous if row.inverse && row.absence_safe => Some(Action::Compensate),
        S::Acknowledged | S::Failed if row.inverse => Some(Action::Compensate),
        _ => None,
    }
}

fn stuck(row: &Pending) -> &'static str {
    match row.state {
        S::Sent | S::Ambiguous => "it can neither be asked for nor be undone without knowing",
        S::Acknowledged | S::Failed => "there is no inverse",
        S::Releasable | S::Released => "it belongs to a commit that was decided",
        _ => "it was not tried",
    }
}

fn unknown(ordinal: u64) -> Error {
    codes::IMPOSSIBLE.error(format!("effect {ordinal} is not being drained"))
}

#[cfg(test)]
#[path = "effect_tests.rs"]
mod tests;
