//! Draining a branch's journal: what a rollback does beside dropping storage.

use crate::branch::Branch;
use crate::codes;
use forkpoint_model::effect::{
    Action, Answer, Drain, EffectClass, EffectEvent, EffectState, Pending, is_over,
};
use forkpoint_model::{Conflict, Result};
use forkpoint_store::{EffectRecord, Store};
use std::collections::BTreeSet;

/// How often each step of undoing an effect is tried before it is left for `resolve`.
const ATTEMPTS: u32 = 3;
/// No drain takes more steps than this for one row.
const STEPS_A_ROW: usize = 2 * ATTEMPTS as usize + 2;

impl Branch {
    /// Undoes what the branch did outside, newest first, and says what could not be undone. Can be
    /// interrupted anywhere and done again.
    pub(crate) fn drain_effects(&self) -> Result<Vec<Conflict>> {
        let open = {
            let (store, now) = (self.engine.store(), self.engine.now());
            store.drop_intended(self.id, now)?;
            store.open_effects(self.id)?
        };
        self.undo_effects(open)
    }

    /// What was performed and then gone back before, and what is in doubt: neither may be committed.
    /// Says what stands in the way after that was tried.
    pub(crate) fn effects_in_the_way(&self) -> Result<Vec<Conflict>> {
        let forsaken = self.engine.store().forsaken_effects(self.id)?;
        let mut left = match forsaken.is_empty() {
            true => Vec::new(),
            false => self.undo_effects(forsaken)?,
        };
        let open = self.engine.store().open_effects(self.id)?;
        for effect in open {
            let doubtful = matches!(effect.state, EffectState::Sent | EffectState::Ambiguous);
            let known = left.iter().any(|l| l.item.starts_with(&item(&effect)));
            let effect = match doubtful && !known {
                true => self.find_out(effect)?,
                false => continue,
            };
            if matches!(effect.state, EffectState::Sent | EffectState::Ambiguous) {
                let why = effect.why.clone();
                left.push(Conflict {
                    participant: effect.participant.clone(),
                    item: format!(
                        "{}: {}",
                        item(&effect),
                        self.engine.describe_effect(&effect)
                    ),
                    why: format!(
                        "{}: {}",
                        effect.state,
                        why.unwrap_or_else(|| "whether it happened is not known".into())
                    ),
                });
            }
        }
        Ok(left)
    }

    /// How many effects would become part of what it is committed into.
    pub(crate) fn effects_to_commit(&self) -> Result<u64> {
        let stack = self.record()?.shared.stack();
        if stack.is_empty() {
            return Ok(0);
        }
        let open = self.engine.store().open_effects(self.id)?;
        let counted = open
            .iter()
            .filter(|effect| stack.contains(&effect.overlay) && effect.class != EffectClass::Read);
        Ok(counted.count() as u64)
    }

    /// Sends what a commit made releasable, in order, at least once and with its key. What could not
    /// be sent stays so, and those behind it of the same participant wait; says why.
    pub(crate) fn release_effects(&self) -> Result<Vec<String>> {
        let releasable = self.engine.store().releasable(self.id)?;
        let mut waiting: Vec<String> = Vec::new();
        let mut behind = BTreeSet::new();
        for effect in releasable {
            if behind.contains(&effect.participant) {
                continue;
            }
            let sent = match self.engine.remote(&effect.participant.0) {
                Some(remote) => remote.release(&effect),
                None => Err(format!(
                    "nobody here sends effects of {}",
                    effect.participant
                )),
            };
            match sent {
                Ok(response) => {
                    self.happened(&effect, EffectEvent::Released, Some(response), None)?;
                }
                Err(why) => {
                    let what = self.engine.describe_effect(&effect);
                    waiting.push(format!("held {}: {what}: {why}", item(&effect)));
                    self.note(&effect, why)?;
                    behind.insert(effect.participant);
                }
            }
        }
        Ok(waiting)
    }

    fn note(&self, effect: &EffectRecord, why: String) -> Result<()> {
        let now = self.engine.now();
        let store = self.engine.store();
        // What is releasable stays so: only why it is not out is added.
        store.effect_happened(self.id, effect.ordinal, EffectEvent::Committed, now, |e| {
            e.attempts += 1;
            e.why = Some(why);
        })?;
        Ok(())
    }

    fn undo_effects(&self, rows: Vec<EffectRecord>) -> Result<Vec<Conflict>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let most = rows.len() * STEPS_A_ROW;
        let mut drain = Drain::new(rows.iter().map(|row| self.pending(row)).collect(), ATTEMPTS);
        for _ in 0..most {
            let Some((ordinal, action)) = drain.next() else {
                return Ok(drain.left());
            };
            let effect = self.engine.store().effect(self.id, ordinal)?;
            let answer = self.undo_step(&effect, action);
            let why = match &answer {
                Answer::Failed(why) => Some(why.clone()),
                _ => None,
            };
            if let Some(event) = drain.handle(ordinal, answer)? {
                self.record_undoing(&effect, event, why)?;
            }
        }
        Err(codes::INTERNAL.error("draining an effect journal did not come to an end"))
    }

    fn undo_step(&self, effect: &EffectRecord, action: Action) -> Answer {
        let Some(remote) = self.engine.remote(&effect.participant.0) else {
            return match action {
                Action::Drop => Answer::Dropped,
                _ => Answer::Failed(format!(
                    "nobody here undoes effects of {}",
                    effect.participant
                )),
            };
        };
        match action {
            Action::Drop => Answer::Dropped,
            Action::Inquire => remote.inquire(effect),
            Action::Compensate => remote.compensate(effect),
        }
    }

    fn record_undoing(
        &self,
        effect: &EffectRecord,
        event: EffectEvent,
        why: Option<String>,
    ) -> Result<()> {
        let now = self.engine.now();
        let store = self.engine.store();
        store.effect_happened(self.id, effect.ordinal, event, now, |e| {
            if why.is_some() {
                e.attempts += ATTEMPTS;
            }
            e.why = why;
        })?;
        Ok(())
    }

    fn pending(&self, effect: &EffectRecord) -> Pending {
        let remote = self.engine.remote(&effect.participant.0);
        Pending {
            ordinal: effect.ordinal,
            participant: effect.participant.clone(),
            class: effect.class,
            state: effect.state,
            inverse: effect.inverse.is_some(),
            absence_safe: remote.as_ref().is_some_and(|r| r.absence_safe(effect)),
            // Without its remote it is asked in vain, which says why it is left.
            can_inquire: remote.as_ref().is_none_or(|r| r.can_inquire(effect)),
            what: self.engine.describe_effect(effect),
            why: None,
        }
    }

    /// What is left of its journal, looked at in the transaction that ends the branch.
    pub(crate) fn effects_left(&self, store: &Store) -> Result<Vec<Conflict>> {
        let mut left = Vec::new();
        for effect in store.open_effects(self.id)?.into_iter().rev() {
            if !is_over(&self.pending(&effect)) {
                left.push(Conflict {
                    participant: effect.participant.clone(),
                    item: format!(
                        "{}: {}",
                        item(&effect),
                        self.engine.describe_effect(&effect)
                    ),
                    why: effect.state.to_string(),
                });
            }
        }
        Ok(left)
    }
}

fn item(effect: &EffectRecord) -> String {
    format!("effect {}", effect.ordinal)
}
