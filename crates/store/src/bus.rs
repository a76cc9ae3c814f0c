//! The event bus: committed events of a world in one order, and those a branch holds.
//!
//! What a branch publishes is a deferred effect in its journal, with the topic and the payload as its
//! intent. The deciding transaction appends it to the world's log, which is all the sending there is.

use crate::{
    CommitRecord, Durability, EffectRecord, Event, EventCursor, NewEffect, SharedRecord, Store,
    codes,
    row::{Reader, key, rows, signed, sql},
};
use forkpoint_model::effect::{EffectClass, EffectState};
use forkpoint_model::{BranchId, CommitId, Digest, Epoch, Result, WorldId};
use rusqlite::params;

/// The participant's name.
pub const BUS: &str = "bus";
/// The longest topic, in bytes.
pub const MAX_TOPIC: usize = 256;
/// The largest payload, in bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The most events one read returns.
pub const MAX_EVENTS: u32 = 1000;

const EVENT: &str = "SELECT position, n, topic, id, payload, branch, txn, at_ns FROM bus";

/// Where in the order of a world's events something is: after all that is committed come those that
/// are held.
const HELD: u64 = i64::MAX as u64;

impl Store {
    /// Holds an event until the branch is committed. Its identifier is the same if it is published
    /// again after the branch went back to a step before it.
    ///
    /// # Errors
    /// FP0112 when `epoch` is over, FP0114 for a topic or payload out of bounds.
    pub fn publish(
        &self,
        branch: BranchId,
        epoch: Epoch,
        topic: &str,
        payload: &[u8],
        now_ns: i64,
    ) -> Result<EffectRecord> {
        check(topic, payload)?;
        let intent = [topic.as_bytes(), &[0], payload].concat();
        let effect = NewEffect {
            participant: BUS,
            class: EffectClass::Deferred,
            intent: &intent,
            inverse: None,
        };
        self.intend(branch, epoch, &effect, Durability::Normal, now_ns)
    }

    /// What a branch sees after `after`: what was committed when it was forked, then what it holds
    /// itself. At most `limit` events, and never more than [`MAX_EVENTS`].
    ///
    /// # Errors
    /// FP0112 when `epoch` is over.
    pub fn branch_events(
        &self,
        branch: BranchId,
        epoch: Epoch,
        topic: Option<&str>,
        after: EventCursor,
        limit: u32,
    ) -> Result<Vec<Event>> {
        self.look(|store| {
            let access = store.access(branch, epoch)?;
            let stack: Vec<u64> = access.stack().collect();
            let at = (access.world, access.position);
            store.through(at, &stack, topic, after, limit)
        })
    }

    /// The same for somebody who stands where `shared` says: for looking at what is sealed.
    pub fn see_events(
        &self,
        world: WorldId,
        shared: &SharedRecord,
        topic: Option<&str>,
        after: EventCursor,
        limit: u32,
    ) -> Result<Vec<Event>> {
        let position = shared.position.unwrap_or(HELD);
        self.look(|store| store.through((world, position), &shared.stack(), topic, after, limit))
    }

    /// What is committed up to a position, then what a stack of overlays holds.
    fn through(
        &self,
        (world, position): (WorldId, u64),
        stack: &[u64],
        topic: Option<&str>,
        after: EventCursor,
        limit: u32,
    ) -> Result<Vec<Event>> {
        let limit = limit.min(MAX_EVENTS);
        let mut found = self.committed(world, topic, after, position, limit)?;
        if (found.len() as u32) < limit {
            let held = self.held_at(stack, position)?.into_iter().zip(1..);
            let held = held.filter(|(_, n)| {
                EventCursor {
                    position: HELD,
                    n: *n,
                } > after
            });
            for (effect, n) in held {
                let event = held_event(effect, n)?;
                if topic.is_none_or(|wanted| wanted == event.topic) {
                    found.push(event);
                }
            }
            found.truncate(limit as usize);
        }
        Ok(found)
    }

    /// The committed events of a world after `after`, oldest first, at most `limit`.
    pub fn events(
        &self,
        world: WorldId,
        topic: Option<&str>,
        after: EventCursor,
        limit: u32,
    ) -> Result<Vec<Event>> {
        self.committed(world, topic, after, HELD, limit.min(MAX_EVENTS))
    }

    /// Publishes from outside a branch: at once, at a position of its own.
    ///
    /// # Errors
    /// FP0113 while a commit of the world is under way, FP0114 for a topic or payload out of bounds.
    pub fn publish_outside(
        &self,
        world: WorldId,
        topic: &str,
        payload: &[u8],
        now_ns: i64,
    ) -> Result<Event> {
        check(topic, payload)?;
        self.write(self.durability(Durability::Full), |_| {
            let position = self.advance(world)?;
            let seed = [
                &world.bits().to_be_bytes()[..],
                &position.to_be_bytes(),
                topic.as_bytes(),
            ];
            let event = Event {
                cursor: EventCursor { position, n: 1 },
                topic: topic.to_owned(),
                id: Digest::of(&seed.concat()).to_string(),
                payload: payload.to_vec(),
                branch: None,
                commit: None,
                held: false,
                at_ns: now_ns,
            };
            self.append_event(world, &event)?;
            Ok(event)
        })
    }

    /// Up to where a consumer has acknowledged a topic (all topics: the empty one).
    pub fn acknowledged(&self, world: WorldId, consumer: &str, topic: &str) -> Result<EventCursor> {
        let text = "SELECT position, n FROM bus_consumers \
                    WHERE world = ? AND consumer = ? AND topic = ?";
        let found = rows(
            &mut *self.cached(text)?,
            params![key(world.bits()), consumer, topic],
            |r| {
                Ok(EventCursor {
                    position: r.unsigned()?,
                    n: r.unsigned()?,
                })
            },
        )?;
        Ok(found.first().copied().unwrap_or_default())
    }

    /// Records that a consumer has dealt with everything up to `cursor`. It never goes back.
    pub fn acknowledge(
        &self,
        world: WorldId,
        consumer: &str,
        topic: &str,
        cursor: EventCursor,
        now_ns: i64,
    ) -> Result<()> {
        self.write(self.durability(Durability::Full), |_| {
            if self.acknowledged(world, consumer, topic)? >= cursor {
                return Ok(());
            }
            self.cached(
                "INSERT INTO bus_consumers (world, consumer, topic, position, n, at_ns) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (world, consumer, topic) \
                 DO UPDATE SET position = ?4, n = ?5, at_ns = ?6",
            )?
            .execute(params![
                key(world.bits()),
                consumer,
                topic,
                signed(cursor.position),
                signed(cursor.n),
                now_ns
            ])
            .map_err(sql("acknowledging events"))?;
            Ok(())
        })
    }

    /// Appends what a committed branch holds to the world's log, in the deciding transaction.
    pub(crate) fn publish_events(
        &self,
        commit: &CommitRecord,
        stack: &[u64],
        position: u64,
        now_ns: i64,
    ) -> Result<()> {
        for (effect, n) in self.held(stack)?.into_iter().zip(1..) {
            let (branch, ordinal) = (effect.branch, effect.ordinal);
            let mut event = held_event(effect, n)?;
            event.cursor = EventCursor { position, n };
            event.commit = Some(commit.id);
            event.at_ns = now_ns;
            self.append_event(commit.world, &event)?;
            self.cached(
                "UPDATE effects SET state = ?3, settled_ns = ?4 WHERE branch = ?1 AND ordinal = ?2",
            )?
            .execute(params![
                key(branch.bits()),
                signed(ordinal),
                EffectState::Released.as_str(),
                now_ns
            ])
            .map_err(sql("releasing an event"))?;
        }
        Ok(())
    }

    /// The events that a stack of overlays holds, in the order of their publishing.
    pub(crate) fn held(&self, stack: &[u64]) -> Result<Vec<EffectRecord>> {
        let text = format!(
            "{} WHERE overlay = ? AND participant = 'bus' AND state = 'intended' ORDER BY place",
            crate::effects::EFFECT
        );
        let mut find = self.cached(&text)?;
        let mut held = Vec::new();
        for &overlay in stack.iter().rev() {
            held.extend(rows(
                &mut find,
                [signed(overlay)],
                crate::effects::read_effect,
            )?);
        }
        Ok(held)
    }

    /// The same for somebody who stands on these overlays at a position: what was committed since is
    /// seen as before, since a view does not change under whoever has it.
    fn held_at(&self, stack: &[u64], position: u64) -> Result<Vec<EffectRecord>> {
        let text = format!(
            "{} WHERE overlay = ? AND participant = 'bus' AND state IN ('intended', 'released') \
             ORDER BY place",
            crate::effects::EFFECT
        );
        let mut find = self.cached(&text)?;
        let mut decided = self.cached(
            "SELECT 1 FROM commits WHERE branch = ? AND decided_ns IS NOT NULL AND position <= ?",
        )?;
        let mut held = Vec::new();
        for &overlay in stack.iter().rev() {
            for effect in rows(&mut find, [signed(overlay)], crate::effects::read_effect)? {
                let by = params![key(effect.branch.bits()), signed(position)];
                let below = effect.state == EffectState::Released
                    && !rows(&mut decided, by, |r| r.get::<i64>())?.is_empty();
                if !below {
                    held.push(effect);
                }
            }
        }
        Ok(held)
    }

    fn committed(
        &self,
        world: WorldId,
        topic: Option<&str>,
        after: EventCursor,
        upto: u64,
        limit: u32,
    ) -> Result<Vec<Event>> {
        let place = "world = ?1 AND (position, n) > (?2, ?3) AND position <= ?4";
        let order = "ORDER BY position, n LIMIT ?5";
        let world = key(world.bits());
        let (position, n, upto) = (signed(after.position), signed(after.n), signed(upto));
        match topic {
            Some(topic) => rows(
                &mut *self.cached(&format!("{EVENT} WHERE {place} AND topic = ?6 {order}"))?,
                params![world, position, n, upto, limit, topic],
                read_event,
            ),
            None => rows(
                &mut *self.cached(&format!("{EVENT} WHERE {place} {order}"))?,
                params![world, position, n, upto, limit],
                read_event,
            ),
        }
    }

    fn append_event(&self, world: WorldId, event: &Event) -> Result<()> {
        self.cached(
            "INSERT INTO bus (world, position, n, topic, id, payload, branch, txn, at_ns) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            key(world.bits()),
            signed(event.cursor.position),
            signed(event.cursor.n),
            event.topic,
            event.id,
            event.payload,
            event.branch.map(|b| key(b.bits())),
            event.commit.map(|c| key(c.bits())),
            event.at_ns,
        ])
        .map_err(sql("appending an event"))?;
        Ok(())
    }
}

/// A topic is printable text, since people type it and terminals show it.
fn check(topic: &str, payload: &[u8]) -> Result<()> {
    let fits = !topic.is_empty() && topic.len() <= MAX_TOPIC;
    if !fits || topic.chars().any(char::is_control) {
        return Err(codes::BOUNDS
            .error(format!(
                "a topic is 1 to {MAX_TOPIC} bytes of text without control characters"
            ))
            .hint("choose a shorter or plainer topic"));
    }
    if payload.len() > MAX_PAYLOAD {
        return Err(codes::BOUNDS
            .error(format!(
                "a payload of {} bytes is above {MAX_PAYLOAD}",
                payload.len()
            ))
            .hint("write it to a file of the branch and publish its path"));
    }
    Ok(())
}

/// A held event, as its branch sees it.
fn held_event(effect: EffectRecord, n: u64) -> Result<Event> {
    let damaged = || codes::DAMAGED.error(format!("effect {} is not an event", effect.ordinal));
    let end = effect
        .intent
        .iter()
        .position(|&b| b == 0)
        .ok_or_else(damaged)?;
    let topic = std::str::from_utf8(&effect.intent[..end]).map_err(|_| damaged())?;
    Ok(Event {
        cursor: EventCursor { position: HELD, n },
        topic: topic.to_owned(),
        payload: effect.intent[end + 1..].to_vec(),
        id: effect.key.clone(),
        branch: Some(effect.origin),
        commit: None,
        held: true,
        at_ns: effect.created_ns,
    })
}

fn read_event(r: &mut Reader<'_, '_>) -> Result<Event> {
    Ok(Event {
        cursor: EventCursor {
            position: r.unsigned()?,
            n: r.unsigned()?,
        },
        topic: r.get()?,
        id: r.get()?,
        payload: r.get()?,
        branch: r.opt_id(BranchId::from_bits)?,
        commit: r.opt_id(CommitId::from_bits)?,
        held: false,
        at_ns: r.get()?,
    })
}
