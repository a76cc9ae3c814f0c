//! The event bus of a world: messages that go out when their branch is committed, and not before.

use crate::branch::Branch;
use crate::engine::Engine;
use crate::world::World;
use forkpoint_model::{BranchId, Epoch, Result, WorldId};
use forkpoint_store::{Event, EventCursor};

/// The bus as a branch sees it. It acts in the epoch it was asked for: after a seal it is refused.
#[derive(Clone)]
pub struct Bus {
    engine: Engine,
    branch: BranchId,
    epoch: Epoch,
}

impl Branch {
    /// The event bus, as this branch sees it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn bus(&self) -> Result<Bus> {
        let epoch = self.record()?.epoch;
        Ok(self.bus_in(epoch))
    }

    /// The same, in an epoch that was given before.
    pub fn bus_in(&self, epoch: Epoch) -> Bus {
        Bus {
            engine: self.engine.clone(),
            branch: self.id,
            epoch,
        }
    }
}

impl Bus {
    /// Holds an event until the branch is committed; then everybody can read it, in the order of
    /// publishing. If the branch is rolled back, nobody ever does. Returns the event's identifier,
    /// which is the same when a command that is run again from a step publishes the same again.
    ///
    /// # Errors
    /// `FP0112` after a seal, `FP0114` for a topic or payload out of bounds.
    pub fn publish(&self, topic: &str, payload: &[u8]) -> Result<String> {
        let now = self.engine.now();
        let store = self.engine.store();
        let held = store.publish(self.branch, self.epoch, topic, payload, now)?;
        Ok(held.key)
    }

    /// What the branch sees behind `after`: what was committed when it was forked, then what it holds.
    ///
    /// # Errors
    /// `FP0112` after a seal.
    pub fn read(&self, topic: Option<&str>, after: EventCursor, limit: u32) -> Result<Vec<Event>> {
        self.engine
            .store()
            .branch_events(self.branch, self.epoch, topic, after, limit)
    }
}

/// The bus of a world, from outside: committed events alone.
#[derive(Clone)]
pub struct WorldBus {
    engine: Engine,
    world: WorldId,
}

impl World {
    /// The event bus from outside every branch.
    pub fn bus(&self) -> WorldBus {
        WorldBus {
            engine: self.engine.clone(),
            world: self.id(),
        }
    }
}

impl WorldBus {
    /// Publishes at once.
    ///
    /// # Errors
    /// `FP0113` while a commit of the world is under way, `FP0114` for what is out of bounds.
    pub fn publish(&self, topic: &str, payload: &[u8]) -> Result<Event> {
        let now = self.engine.now();
        (self.engine.store()).publish_outside(self.world, topic, payload, now)
    }

    /// The committed events behind `after`, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn read(&self, topic: Option<&str>, after: EventCursor, limit: u32) -> Result<Vec<Event>> {
        self.engine.store().events(self.world, topic, after, limit)
    }

    /// What a named consumer has not acknowledged. Until it does, the same is returned again.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn poll(&self, consumer: &str, topic: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        let store = self.engine.store();
        let after = store.acknowledged(self.world, consumer, topic.unwrap_or(""))?;
        store.events(self.world, topic, after, limit)
    }

    /// Records, durably, that a consumer has dealt with everything up to `cursor`.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn acknowledge(
        &self,
        consumer: &str,
        topic: Option<&str>,
        cursor: EventCursor,
    ) -> Result<()> {
        let now = self.engine.now();
        self.engine
            .store()
            .acknowledge(self.world, consumer, topic.unwrap_or(""), cursor, now)
    }
}
