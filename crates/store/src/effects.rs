//! The effect journal: rows written before their effects, by whoever holds the branch's present
//! epoch, and never rolled back with the branch.

use crate::{
    Durability, EffectRecord, Store, codes,
    row::{Reader, key, rows, signed, sql},
};
use forkpoint_model::effect::{
    EffectClass, EffectEvent, EffectState, Intent, Recorded, TakenUp, at_decision, idempotency_key,
    step, take_up,
};
use forkpoint_model::{BranchId, Epoch, ParticipantId, Result};
use rusqlite::params;

pub(crate) const EFFECT: &str = "SELECT branch, ordinal, origin, overlay, place, epoch, participant, class, \
    state, key, intent, inverse, response, attempts, why, created_ns, settled_ns FROM effects";

/// An effect that is about to be performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEffect<'a> {
    /// Whose it is.
    pub participant: &'a str,
    /// How it is kept from being seen, or undone.
    pub class: EffectClass,
    /// What is to be done, in one canonical form: equal intents are equal bytes.
    pub intent: &'a [u8],
    /// What undoes it.
    pub inverse: Option<&'a [u8]>,
}

impl Store {
    /// Writes down an effect before it happens. Where the branch went back to a step and now intends
    /// what it had intended at this place before, the row of then is taken up again, with whatever
    /// response it recorded; nothing is to be sent then unless its state says so.
    ///
    /// # Errors
    /// FP0112 when `epoch` is over.
    pub fn intend(
        &self,
        branch: BranchId,
        epoch: Epoch,
        effect: &NewEffect<'_>,
        durability: Durability,
        now_ns: i64,
    ) -> Result<EffectRecord> {
        self.write(durability, |_| {
            let (own, access) = self.own_overlay(branch, epoch)?;
            let stack: Vec<u64> = access.stack().collect();
            let place = 1 + self.place(&stack)?;
            let recorded = self.at_place(branch, place)?;
            let recorded = recorded.iter().map(|row| Recorded {
                ordinal: row.ordinal,
                present: stack.contains(&row.overlay),
                same_intent: row.participant.0 == effect.participant
                    && row.class == effect.class
                    && row.intent == effect.intent,
                state: row.state,
            });
            let again = match take_up(recorded) {
                TakenUp::Again { ordinal } => return self.adopt(branch, ordinal, own, epoch),
                TakenUp::Anew { again } => again,
            };
            let intent = Intent {
                participant: effect.participant,
                class: effect.class,
                bytes: effect.intent,
            };
            let ordinal = 1 + self.last_ordinal(branch)?;
            self.cached(
                "INSERT INTO effects (branch, ordinal, origin, overlay, place, epoch, participant, \
                 class, state, key, intent, inverse, created_ns) \
                 VALUES (?1, ?2, ?1, ?3, ?4, ?5, ?6, ?7, 'intended', ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                key(branch.bits()),
                signed(ordinal),
                signed(own),
                signed(place),
                signed(epoch.0),
                effect.participant,
                effect.class.as_str(),
                idempotency_key(branch, place, again, intent).to_string(),
                effect.intent,
                effect.inverse,
                now_ns,
            ])
            .map_err(sql("writing the effect journal"))?;
            self.effect(branch, ordinal)
        })
    }

    /// Makes an effect part of what the branch now is.
    fn adopt(
        &self,
        branch: BranchId,
        ordinal: u64,
        overlay: u64,
        epoch: Epoch,
    ) -> Result<EffectRecord> {
        self.cached(
            "UPDATE effects SET overlay = ?3, epoch = ?4 WHERE branch = ?1 AND ordinal = ?2",
        )?
        .execute(params![
            key(branch.bits()),
            signed(ordinal),
            signed(overlay),
            signed(epoch.0)
        ])
        .map_err(sql("taking up an effect again"))?;
        self.effect(branch, ordinal)
    }

    /// Records what happened to an effect, by the rules of the model; `change` sets what else is known
    /// of it. An effect that is sent is so durably, before it is.
    ///
    /// # Errors
    /// Those of [`forkpoint_model::effect::step`]; FP0108 if there is no such effect.
    pub fn effect_happened(
        &self,
        branch: BranchId,
        ordinal: u64,
        event: EffectEvent,
        now_ns: i64,
        change: impl FnOnce(&mut EffectRecord),
    ) -> Result<EffectRecord> {
        self.write(self.durability(Durability::Full), |_| {
            let mut effect = self.effect(branch, ordinal)?;
            effect.state = step(effect.class, effect.state, event)?;
            change(&mut effect);
            let over = effect.state.is_undone() || effect.state == EffectState::Released;
            self.cached(
                "UPDATE effects SET state = ?3, inverse = ?4, response = ?5, attempts = ?6, \
                 why = ?7, settled_ns = CASE WHEN ?8 THEN coalesce(settled_ns, ?9) END \
                 WHERE branch = ?1 AND ordinal = ?2",
            )?
            .execute(params![
                key(branch.bits()),
                signed(ordinal),
                effect.state.as_str(),
                effect.inverse,
                effect.response,
                effect.attempts,
                effect.why,
                over,
                now_ns,
            ])
            .map_err(sql("writing the effect journal"))?;
            self.effect(branch, ordinal)
        })
    }

    /// Gives an effect another inverse, as a person may who knows how to undo it.
    pub fn set_inverse(&self, branch: BranchId, ordinal: u64, inverse: &[u8]) -> Result<()> {
        self.write(Durability::Full, |_| {
            self.effect(branch, ordinal)?;
            self.cached("UPDATE effects SET inverse = ?3 WHERE branch = ?1 AND ordinal = ?2")?
                .execute(params![key(branch.bits()), signed(ordinal), inverse])
                .map_err(sql("writing the effect journal"))?;
            Ok(())
        })
    }

    /// Drops everything that is only intended, held events among it. Returns how many there were.
    pub fn drop_intended(&self, branch: BranchId, now_ns: i64) -> Result<u64> {
        self.write(self.durability(Durability::Normal), |_| {
            let dropped = self
                .cached(
                    "UPDATE effects SET state = 'never_sent', settled_ns = ?2 \
                     WHERE branch = ?1 AND settled_ns IS NULL AND state = 'intended'",
                )?
                .execute(params![key(branch.bits()), now_ns])
                .map_err(sql("dropping what is held"))?;
            Ok(dropped as u64)
        })
    }

    /// A branch's journal, in order.
    pub fn effects(&self, branch: BranchId) -> Result<Vec<EffectRecord>> {
        let text = format!("{EFFECT} WHERE branch = ? ORDER BY ordinal");
        rows(&mut *self.cached(&text)?, [key(branch.bits())], read_effect)
    }

    /// What of it is not settled, in order: what a rollback has to undo.
    pub fn open_effects(&self, branch: BranchId) -> Result<Vec<EffectRecord>> {
        let text = format!("{EFFECT} WHERE branch = ? AND settled_ns IS NULL ORDER BY ordinal");
        rows(&mut *self.cached(&text)?, [key(branch.bits())], read_effect)
    }

    /// What a branch performed and then went back before, in order: it is not part of what would be
    /// committed, and must be undone first.
    pub fn forsaken_effects(&self, branch: BranchId) -> Result<Vec<EffectRecord>> {
        let stack = self.branch(branch)?.shared.stack();
        let mut open = self.open_effects(branch)?;
        open.retain(|effect| !stack.contains(&effect.overlay));
        Ok(open)
    }

    /// One effect. FP0108 if there is none.
    pub fn effect(&self, branch: BranchId, ordinal: u64) -> Result<EffectRecord> {
        let text = format!("{EFFECT} WHERE branch = ? AND ordinal = ?");
        rows(
            &mut *self.cached(&text)?,
            params![key(branch.bits()), signed(ordinal)],
            read_effect,
        )?
        .pop()
        .ok_or_else(|| codes::NOT_FOUND.error(format!("branch {branch} has no effect {ordinal}")))
    }

    /// Makes a committed child's effects its parent's, in order, behind the parent's own.
    pub fn move_effects(&self, child: BranchId, parent: BranchId) -> Result<()> {
        self.write(self.durability(Durability::Normal), |_| {
            let last = self.last_ordinal(parent)?;
            self.cached(
                "UPDATE effects SET branch = ?2, ordinal = ordinal + ?3 \
                 WHERE branch = ?1 AND settled_ns IS NULL",
            )?
            .execute(params![key(child.bits()), key(parent.bits()), signed(last)])
            .map_err(sql("moving effects to a parent"))?;
            Ok(())
        })
    }

    /// What a deciding transaction does to the journal beside publishing events: what is held becomes
    /// releasable, what happened is settled, and what was gone back before and never sent is dropped.
    pub(crate) fn commit_effects(&self, branch: BranchId, stack: &[u64], now: i64) -> Result<()> {
        for effect in self.open_effects(branch)? {
            let present = stack.contains(&effect.overlay);
            let decided = at_decision(effect.class, effect.state, present);
            let (state, over) = decided.map_err(|e| {
                codes::COMMIT_STATE
                    .error(format!("effect {}: {}", effect.ordinal, e.message))
                    .hint("forkpoint effect BRANCH --list shows what stands in the way")
            })?;
            self.cached(
                "UPDATE effects SET state = ?3, settled_ns = CASE WHEN ?4 THEN ?5 END \
                 WHERE branch = ?1 AND ordinal = ?2",
            )?
            .execute(params![
                key(branch.bits()),
                signed(effect.ordinal),
                state.as_str(),
                over,
                now
            ])
            .map_err(sql("committing effects"))?;
        }
        Ok(())
    }

    /// The effects that were committed and are not out yet.
    pub fn releasable(&self, branch: BranchId) -> Result<Vec<EffectRecord>> {
        let mut open = self.open_effects(branch)?;
        open.retain(|effect| effect.state == EffectState::Releasable);
        Ok(open)
    }

    fn at_place(&self, branch: BranchId, place: u64) -> Result<Vec<EffectRecord>> {
        let text = format!("{EFFECT} WHERE branch = ? AND place = ? ORDER BY ordinal");
        rows(
            &mut *self.cached(&text)?,
            params![key(branch.bits()), signed(place)],
            read_effect,
        )
    }

    /// The last place that is taken in a stack of overlays.
    fn place(&self, stack: &[u64]) -> Result<u64> {
        let mut last = 0;
        let mut find =
            self.cached("SELECT coalesce(max(place), 0) FROM effects WHERE overlay = ?")?;
        for &overlay in stack {
            let found = rows(&mut find, [signed(overlay)], |r| r.unsigned())?;
            last = found.into_iter().fold(last, u64::max);
        }
        Ok(last)
    }

    fn last_ordinal(&self, branch: BranchId) -> Result<u64> {
        let text = "SELECT coalesce(max(ordinal), 0) FROM effects WHERE branch = ?";
        let found = rows(&mut *self.cached(text)?, [key(branch.bits())], |r| {
            r.unsigned()
        })?;
        Ok(found.into_iter().fold(0, u64::max))
    }
}

pub(crate) fn read_effect(r: &mut Reader<'_, '_>) -> Result<EffectRecord> {
    Ok(EffectRecord {
        branch: r.id(BranchId::from_bits)?,
        ordinal: r.unsigned()?,
        origin: r.id(BranchId::from_bits)?,
        overlay: r.unsigned()?,
        place: r.unsigned()?,
        epoch: Epoch(r.unsigned()?),
        participant: ParticipantId(r.get()?),
        class: r.text(EffectClass::parse)?,
        state: r.text(EffectState::parse)?,
        key: r.get()?,
        intent: r.get()?,
        inverse: r.get()?,
        response: r.get()?,
        attempts: r.get()?,
        why: r.get()?,
        created_ns: r.get()?,
        settled_ns: r.get()?,
    })
}
