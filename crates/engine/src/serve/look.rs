//! What a judge sees through its socket: the keys and events of the sealed branch it judges, or what
//! is committed where it judges the base. Nothing it reads is recorded, and nothing can be changed.

use super::request::{Op, VERSION};
use super::{Capability, bus, kv};
use crate::codes;
use crate::engine::Engine;
use forkpoint_model::{BranchId, Epoch, Result, WorldId};
use forkpoint_store::{BranchRecord, SharedRecord, Store, codes as store_codes};
use serde_json::{Value, json};

/// A view of keys and events, as of when judging began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    /// The branch that is judged, in its epoch; none where the base is.
    of: Option<(BranchId, Epoch)>,
    world: WorldId,
    shared: SharedRecord,
}

impl Look {
    /// At a sealed branch.
    pub(crate) fn at(record: &BranchRecord) -> Self {
        Self {
            of: Some((record.id, record.epoch)),
            world: record.world,
            shared: record.shared.clone(),
        }
    }

    /// At what is committed, as the base's files are: as they are now.
    pub(crate) fn at_base(world: WorldId) -> Self {
        Self {
            of: None,
            world,
            shared: SharedRecord::default(),
        }
    }

    /// Serves one request.
    pub(super) fn run(&self, engine: &Engine, capability: &Capability, op: &Op) -> Result<Value> {
        match op {
            Op::Info => self.info(engine, capability),
            Op::Kv(kv::Kv::Get(key)) => self
                .look(engine, |store| store.kv_see(self.world, &self.shared, key))
                .map(kv::found),
            Op::Kv(kv::Kv::List(list)) => kv::list(list, |after, limit| {
                self.look(engine, |store| {
                    store.kv_see_list(self.world, &self.shared, &list.prefix, after, limit)
                })
            }),
            Op::Events(read) => bus::read(read, |after, limit| {
                self.look(engine, |store| {
                    let topic = read.topic.as_deref();
                    store.see_events(self.world, &self.shared, topic, after, limit)
                })
            }),
            Op::Score(_)
            | Op::Cost(_)
            | Op::Progress(_)
            | Op::Step { .. }
            | Op::Checkpoint { .. }
            | Op::Publish { .. }
            | Op::Kv(kv::Kv::Put { .. } | kv::Kv::Delete { .. }) => Err(codes::READS_ONLY
                .error("a verifier or a score command reads keys and events, and changes nothing")
                .hint(
                    "it says what it finds by its exit status, or in FORKPOINT_SCORE_FILE; what \
                     is to be committed is written by the attempt",
                )),
        }
    }

    /// Reads as of one moment, as long as the branch is what is being judged: what it held may be gone
    /// once it has ended, and is another's to see once it was moved.
    fn look<T>(&self, engine: &Engine, work: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        engine.store().look(|store| {
            if let Some((id, epoch)) = self.of {
                let now = store.branch(id)?;
                let same = now.epoch == epoch && now.shared.position == self.shared.position;
                if !same || now.ended_ns.is_some() {
                    return Err(store_codes::FENCED
                        .error(format!("branch {id} is no longer what is being judged"))
                        .hint("it was committed, rolled back or moved meanwhile: judge it again"));
                }
            }
            work(store)
        })
    }

    fn info(&self, engine: &Engine, capability: &Capability) -> Result<Value> {
        let record = self.look(engine, |store| {
            self.of.map(|(id, _)| store.branch(id)).transpose()
        })?;
        let record = record.as_ref();
        let exploration = record.and_then(|r| r.exploration);
        Ok(json!({
            "v": VERSION,
            "branch": record.map(|r| r.id),
            "name": record.and_then(|r| r.name.clone()),
            "exploration": exploration.map(|(id, _)| id),
            "attempt": exploration.map(|(_, index)| index),
            "epoch": record.map(|r| r.epoch),
            "layer": record.map(|r| super::ops::layer(r.layer)),
            "deadline": capability.deadline(),
            "reads_only": true,
        }))
    }
}
