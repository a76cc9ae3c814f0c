//! Performing an effect on behalf of a branch: written down, sent, answered, each durably in turn.

use super::{COMMAND, CommandEffect, Sent};
use crate::branch::{Branch, name};
use crate::codes;
use forkpoint_model::Result;
use forkpoint_model::effect::{Answer, EffectClass, EffectEvent, EffectState};
use forkpoint_store::{Durability, EffectRecord, NewEffect};

/// What became of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Performed {
    /// Its row in the journal, as it now is.
    pub effect: EffectRecord,
    /// It had been performed before the branch went back to a step: nothing was sent, and the response
    /// is the recorded one.
    pub replayed: bool,
}

impl Branch {
    /// Performs a host command on behalf of this branch, or holds it for the commit where there is
    /// nothing that undoes it. If the branch is rolled back, it is undone.
    ///
    /// # Errors
    /// `FP0112` when the branch is sealed or has no effect path, `FP0406` when another process works on
    /// it, `FP0440` when the command could not be performed: nothing of it happened then.
    pub fn perform(&self, effect: &CommandEffect) -> Result<Performed> {
        let class = match effect.undo {
            Some(_) => EffectClass::Compensated,
            None => EffectClass::Deferred,
        };
        let inverse = effect.inverse()?;
        self.perform_for(COMMAND, class, &effect.intent()?, inverse.as_deref())
    }

    /// The same for a participant that was registered ([`crate::Engine::register_remote`]). `intent`
    /// and `inverse` are in its own canonical form.
    ///
    /// # Errors
    /// As [`Branch::perform`], and `FP0440` when no such participant is registered.
    pub fn perform_for(
        &self,
        participant: &str,
        class: EffectClass,
        intent: &[u8],
        inverse: Option<&[u8]>,
    ) -> Result<Performed> {
        // Held until the command is over, so that nobody rolls back what is just being sent.
        let lock = self.lock()?;
        let record = self.record()?;
        let Some(remote) = self.engine.remote(participant) else {
            return Err(codes::EFFECT
                .error(format!("nobody here performs effects of {participant}"))
                .hint("register it with the engine that performs and undoes them"));
        };
        let new = NewEffect {
            participant,
            class,
            intent,
            inverse,
        };
        let now = self.engine.now();
        let store = self.engine.store();
        let (effect, begun) = store.batch(Durability::Full, |store| {
            let effect = store.intend(self.id, record.epoch, &new, Durability::Full, now)?;
            if class == EffectClass::Deferred || effect.state != EffectState::Intended {
                return Ok((effect, false));
            }
            let begun = EffectEvent::SendBegan;
            let effect = store.effect_happened(self.id, effect.ordinal, begun, now, |_| {})?;
            Ok((effect, true))
        })?;
        drop(store);
        let known = |effect| {
            Ok(Performed {
                effect,
                replayed: true,
            })
        };
        if class == EffectClass::Deferred {
            return Ok(Performed {
                effect,
                replayed: false,
            });
        }
        match effect.state {
            EffectState::Acknowledged => return known(effect),
            EffectState::Sent if begun => {}
            // Found in doubt from before.
            EffectState::Sent | EffectState::Ambiguous => {
                let effect = self.find_out(effect)?;
                if effect.state == EffectState::Acknowledged {
                    return known(effect);
                }
                return Err(codes::EFFECT
                    .error(format!(
                        "effect {} of {} is {}: whether it happened is not known",
                        effect.ordinal,
                        name(&record),
                        effect.state
                    ))
                    .hint("forkpoint resolve BRANCH asks again, or takes your word for it"));
            }
            state => {
                return Err(codes::EFFECT.error(format!("effect {} is {state}", effect.ordinal)));
            }
        }
        let effect = match remote.perform(&effect, lock.fd()) {
            Sent::Acknowledged(response) => {
                self.happened(&effect, EffectEvent::Acknowledged, Some(response), None)?
            }
            Sent::Refused(why) => {
                self.happened(&effect, EffectEvent::Refused, None, Some(why.clone()))?;
                return Err(codes::EFFECT.error(why).hint("nothing of it happened"));
            }
            Sent::Lost(why) => {
                let effect = self.happened(&effect, EffectEvent::Lost, None, Some(why))?;
                self.find_out(effect)?
            }
        };
        Ok(Performed {
            effect,
            replayed: false,
        })
    }

    /// Asks for an effect that is in doubt, where it can be asked for.
    pub(super) fn find_out(&self, effect: EffectRecord) -> Result<EffectRecord> {
        let Some(remote) = self.engine.remote(&effect.participant.0) else {
            return Ok(effect);
        };
        if !remote.can_inquire(&effect) {
            return Ok(effect);
        }
        let event = match remote.inquire(&effect) {
            Answer::Happened => EffectEvent::Inquired { happened: true },
            Answer::Absent => EffectEvent::Inquired { happened: false },
            Answer::Failed(why) => {
                return self.happened(&effect, EffectEvent::Lost, None, Some(why));
            }
            _ => return Ok(effect),
        };
        self.happened(&effect, event, None, None)
    }

    pub(super) fn happened(
        &self,
        effect: &EffectRecord,
        event: EffectEvent,
        response: Option<Vec<u8>>,
        why: Option<String>,
    ) -> Result<EffectRecord> {
        let now = self.engine.now();
        let store = self.engine.store();
        store.effect_happened(self.id, effect.ordinal, event, now, |e| {
            e.response = response.or(e.response.take());
            e.why = why;
        })
    }
}
