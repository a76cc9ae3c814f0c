//! Going on with a rollback that could not be completed.

use super::command;
use crate::branch::{Branch, name};
use crate::codes;
use forkpoint_model::effect::EffectEvent;
use forkpoint_model::state::{BranchEvent, BranchState};
use forkpoint_model::{Conflict, Result};
use forkpoint_store::{Durability, EffectRecord, HistoryRecord};
use std::ffi::OsString;

/// What is known now that was not known before.
#[derive(Debug, Clone, Default)]
pub struct ResolveOptions {
    /// Effects that a person has seen to: nothing of them is left. With the reason, which is recorded.
    pub settled: Vec<(u64, String)>,
    /// Commands that undo effects, in place of what was given when they were performed.
    pub inverses: Vec<(u64, Vec<OsString>)>,
}

/// How far it got.
#[derive(Debug, Clone)]
pub struct ResolveReport {
    /// The branch's state.
    pub state: BranchState,
    /// What is left.
    pub left: Vec<Conflict>,
}

impl Branch {
    /// Goes on with an incomplete rollback: tries again what failed, with what is known now.
    ///
    /// # Errors
    /// `FP0440` for an effect that is not there or cannot be treated so, `FP0405` when there is nothing
    /// to resolve. Nothing was changed then.
    pub fn resolve(&self, options: &ResolveOptions) -> Result<ResolveReport> {
        let lock = self.lock()?;
        let record = self.record()?;
        if !matches!(
            record.state,
            BranchState::RollbackIncomplete | BranchState::Aborting
        ) {
            return Err(codes::STATE
                .error(format!(
                    "{} is {}: there is nothing to resolve",
                    name(&record),
                    record.state
                ))
                .hint(
                    "only an incomplete rollback is resolved; forkpoint history says what happened",
                ));
        }
        let open = self.engine.store().open_effects(self.id)?;
        let find = |ordinal: u64| {
            open.iter().find(|e| e.ordinal == ordinal).ok_or_else(|| {
                codes::EFFECT
                    .error(format!(
                        "{} has no unsettled effect {ordinal}",
                        name(&record)
                    ))
                    .hint("forkpoint effect BRANCH --list names them")
            })
        };
        let settled = (options.settled.iter())
            .map(|(ordinal, why)| Ok((find(*ordinal)?, why)))
            .collect::<Result<Vec<(&EffectRecord, &String)>>>()?;
        let inverses = (options.inverses.iter())
            .map(|(ordinal, argv)| {
                let effect = find(*ordinal)?;
                if effect.participant.0 != super::COMMAND {
                    return Err(command::not_a_command(effect));
                }
                Ok((*ordinal, command::other_inverse(effect, argv)?))
            })
            .collect::<Result<Vec<_>>>()?;
        let now = self.engine.now();
        let store = self.engine.store();
        store.batch(Durability::Full, |store| {
            for (effect, why) in settled {
                let event = EffectEvent::Settled;
                store.effect_happened(self.id, effect.ordinal, event, now, |e| {
                    e.why = Some(format!("settled by hand: {why}"));
                })?;
                store.append_history(&HistoryRecord {
                    seq: 0,
                    at_ns: now,
                    verb: "resolve".into(),
                    world: Some(record.world),
                    branch: Some(self.id),
                    commit: None,
                    text: format!(
                        "{}: effect {} was settled by hand: {why}",
                        name(&record),
                        effect.ordinal
                    ),
                    json: None,
                })?;
            }
            for (ordinal, inverse) in inverses {
                store.set_inverse(self.id, ordinal, &inverse)?;
            }
            store.transition(self.id, &BranchEvent::AbortRequested, now)
        })?;
        drop(store);
        let done = self.drain(&lock)?;
        Ok(ResolveReport {
            state: done.state,
            left: done.left,
        })
    }

    /// Its effect journal, in order.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn effects(&self) -> Result<Vec<EffectRecord>> {
        self.engine.store().effects(self.id)
    }
}
