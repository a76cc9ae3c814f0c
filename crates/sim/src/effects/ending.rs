//! How it ends: rolled back or committed; and what must hold after every step.

use super::{Removed, Row, Sim, State, Step, Stop, TURNED};
use forkpoint_model::ParticipantId;
use forkpoint_model::effect::{
    Action, Answer, Drain, EffectClass as C, EffectEvent as E, EffectState as S, Pending,
    at_decision,
};
use std::collections::BTreeSet;

impl Sim {
    /// Whoever sends holds the branch: nobody drains before nothing is on its way any more.
    fn fence(&mut self) {
        while let Some(key) = self.wire.pop() {
            if self.rng.one_in(2) {
                self.apply(&key);
            }
        }
    }

    pub(super) fn roll_back(&mut self) -> Step<()> {
        if !self.is(Removed::AskedTooEarly) {
            self.fence();
        }
        let open: Vec<u64> = self.rows.iter().map(|row| row.ordinal).collect();
        let left = self.drain(&open)?;
        self.may_crash()?;
        let nothing = left == 0 || self.is(Removed::EndedWithoutLooking);
        self.state = match nothing {
            true => State::RolledBack,
            false => State::Incomplete,
        };
        self.say(format!("{left} left: {:?}", self.state));
        match nothing {
            true => self.stats.rolled_back += 1,
            false => self.stats.incomplete += 1,
        }
        Ok(())
    }

    /// Undoes these, and says how many are left.
    fn drain(&mut self, ordinals: &[u64]) -> Step<usize> {
        let mut pending = Vec::new();
        for &ordinal in ordinals {
            let mut row = self.row(ordinal);
            if self.is(Removed::DoubtTakenForAbsence) && matches!(row.state, S::Sent | S::Ambiguous)
            {
                self.set(ordinal, S::NeverSent);
                row.state = S::NeverSent;
            }
            pending.push(Pending {
                ordinal: match self.is(Removed::OldestFirst) {
                    true => TURNED - ordinal,
                    false => ordinal,
                },
                participant: ParticipantId(row.participant.to_string()),
                class: row.class,
                state: row.state,
                inverse: row.class == C::Compensated,
                absence_safe: row.absence_safe,
                can_inquire: row.can_inquire,
                what: String::new(),
                why: None,
            });
        }
        let mut drain = Drain::new(pending, 2);
        for _ in 0..ordinals.len() * 8 {
            let Some((number, action)) = drain.next() else {
                break;
            };
            let ordinal = match self.is(Removed::OldestFirst) {
                true => TURNED - number,
                false => number,
            };
            let answer = self.undo(ordinal, action)?;
            self.may_crash()?;
            let handled = drain.handle(number, answer);
            let event =
                handled.map_err(|e| Stop::Law("law_05_rolled_back_means_undone", e.message))?;
            if let Some(event) = event {
                self.happened(ordinal, event)?;
                self.may_crash()?;
            }
        }
        Ok(drain.left().len())
    }

    fn undo(&mut self, ordinal: u64, action: Action) -> Step<Answer> {
        let row = self.row(ordinal);
        Ok(match action {
            Action::Drop => Answer::Dropped,
            Action::Inquire if self.rng.one_in(8) => Answer::Failed("unreachable".into()),
            Action::Inquire => match self.remote.contains(&row.key) {
                true => Answer::Happened,
                false => Answer::Absent,
            },
            Action::Compensate if self.stubborn.contains(&row.participant) => {
                Answer::Failed("no".into())
            }
            Action::Compensate => {
                let all = self.state == State::Aborting;
                let newer = self.rows.iter().find(|other| {
                    let mine = all || !self.stack.contains(&other.overlay);
                    mine && other.participant == row.participant
                        && other.ordinal > ordinal
                        && self.remote.contains(&other.key)
                });
                if let Some(newer) = newer {
                    let what = format!("effect {ordinal} was undone before {}", newer.ordinal);
                    return Err(Stop::Law("law_05_newest_first", what));
                }
                self.remote.remove(&row.key);
                self.stats.compensated += 1;
                Answer::Compensated
            }
        })
    }

    pub(super) fn commit(&mut self) -> Step<()> {
        self.fence();
        let stack = self.stack.clone();
        let forsaken: Vec<u64> = (self.rows.iter())
            .filter(|row| !stack.contains(&row.overlay) && !row.state.is_undone())
            .map(|row| row.ordinal)
            .collect();
        if !self.is(Removed::ForsakenKept) && self.drain(&forsaken)? > 0 {
            return Ok(());
        }
        for row in self.rows.clone() {
            if matches!(row.state, S::Sent | S::Ambiguous) && row.can_inquire {
                let happened = self.remote.contains(&row.key);
                self.happened(row.ordinal, E::Inquired { happened })?;
            }
        }
        // One transaction: all of it, or nothing.
        let mut decided = Vec::new();
        for row in &self.rows {
            let present = stack.contains(&row.overlay);
            match at_decision(row.class, row.state, present) {
                Ok((state, _)) => decided.push(state),
                Err(_) if self.is(Removed::CommittedInDoubt) && present => {
                    decided.push(S::Acknowledged)
                }
                Err(_) if self.is(Removed::ForsakenKept) && !present => decided.push(row.state),
                Err(_) => return Ok(()),
            }
        }
        self.may_crash()?;
        for (row, state) in self.rows.iter_mut().zip(decided) {
            row.state = state;
        }
        self.state = State::Committed;
        self.stats.committed += 1;
        self.say("committed".into());
        Ok(())
    }

    /// At least once, in order, with its key.
    pub(super) fn release(&mut self) -> Step<()> {
        let held = self
            .rows
            .iter()
            .find(|row| row.state == S::Releasable)
            .cloned();
        let Some(row) = held else { return Ok(()) };
        if self.is(Removed::ReleasedBeforeSent) {
            self.happened(row.ordinal, E::Released)?;
            self.may_crash()?;
        }
        self.apply(&row.key);
        self.may_crash()?;
        self.happened(row.ordinal, E::Released)
    }

    /// The laws, after every step.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let is_out = |row: &Row| self.remote.contains(&row.key);
        for row in &self.rows {
            let early = row.class == C::Deferred && self.state != State::Committed;
            if early && is_out(row) {
                return Err((
                    "law_02_effect_isolation",
                    format!("effect {} was not held", row.ordinal),
                ));
            }
        }
        let keys: BTreeSet<&str> = self.rows.iter().map(|row| row.key.as_str()).collect();
        if keys.len() < self.rows.len() {
            return Err(("law_02_effect_isolation", "two effects have one key".into()));
        }
        match self.state {
            State::RolledBack => {
                let left: Vec<u64> = self
                    .rows
                    .iter()
                    .filter(|r| is_out(r))
                    .map(|r| r.ordinal)
                    .collect();
                let coming = self.wire.iter().any(|key| keys.contains(key.as_str()));
                let open = self.rows.iter().any(|row| !row.state.is_undone());
                if !left.is_empty() || coming || open || !self.remote.is_empty() {
                    let message =
                        format!("left: {left:?}, on its way: {coming}, open rows: {open}");
                    return Err(("law_05_rolled_back_means_undone", message));
                }
            }
            State::Committed => {
                for row in &self.rows {
                    let wanted = matches!(row.state, S::Acknowledged | S::Released)
                        && self.stack.contains(&row.overlay);
                    let held = row.state == S::Releasable;
                    if wanted != is_out(row) && !held {
                        let message = format!(
                            "effect {} is {}, and out: {}",
                            row.ordinal,
                            row.state,
                            is_out(row)
                        );
                        return Err(("law_08_atomic_visibility", message));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
