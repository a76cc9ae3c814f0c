//! What a request does. Each is done for the branch of the capability alone, and only while that
//! branch is open in the capability's epoch: the look at the epoch and the deed are one transaction,
//! or are done under the branch's lock, without which it cannot be sealed.

use super::Capability;
use super::request::{Op, VERSION};
use super::{bus, kv, reports};
use crate::codes;
use crate::engine::{Engine, Inner};
use forkpoint_model::Result;
use forkpoint_model::state::ForkLayer;
use forkpoint_store::Durability;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Serves one request. A fault of ours is answered, and ends nothing else.
pub(super) fn caught(inner: &Arc<Inner>, capability: &Capability, op: &Op) -> Result<Value> {
    catch_unwind(AssertUnwindSafe(|| run(&inner.engine(), capability, op)))
        .unwrap_or_else(|_| Err(codes::INTERNAL.error("serving the request failed")))
}

fn run(engine: &Engine, capability: &Capability, op: &Op) -> Result<Value> {
    if let Some(look) = &capability.look {
        return look.run(engine, capability, op);
    }
    match op {
        Op::Info => info(engine, capability),
        Op::Score(score) => report(engine, capability, |out| reports::score(out, score)),
        Op::Cost(cost) => report(engine, capability, |out| reports::cost(out, *cost)),
        Op::Progress(progress) => {
            report(engine, capability, |out| reports::progress(out, progress))
        }
        Op::Publish { topic, payload } => bus::publish(engine, capability, topic, payload),
        Op::Kv(kv) => kv::run(engine, capability, kv),
        Op::Events(read) => {
            let branch = engine.branch_by_id(capability.branch)?;
            let bus = branch.bus_in(capability.epoch);
            let topic = read.topic.as_deref();
            bus::read(read, |after, limit| bus.read(topic, after, limit))
        }
        Op::Step { text } => {
            let branch = engine.branch_by_id(capability.branch)?;
            let number = branch.step_in(text, Some(capability.epoch))?;
            Ok(json!({ "step": number }))
        }
        Op::Checkpoint { name } => {
            let branch = engine.branch_by_id(capability.branch)?;
            let checkpoint = branch.checkpoint_itself(name.as_deref(), capability.epoch)?;
            Ok(json!({
                "checkpoint": checkpoint.id(),
                "name": checkpoint.name(),
                "notes": checkpoint.notes(),
            }))
        }
    }
}

/// Writes down what the attempt says of itself. Nothing of it is taken once the branch is sealed.
fn report(
    engine: &Engine,
    capability: &Capability,
    write: impl FnOnce(&Path) -> Result<()>,
) -> Result<Value> {
    let out = engine.paths().out(capability.branch);
    engine.store().batch(Durability::Normal, |store| {
        store.access(capability.branch, capability.epoch)?;
        write(&out)
    })?;
    Ok(json!({}))
}

fn info(engine: &Engine, capability: &Capability) -> Result<Value> {
    let store = engine.store();
    store.access(capability.branch, capability.epoch)?;
    let record = store.branch(capability.branch)?;
    drop(store);
    Ok(json!({
        "v": VERSION,
        "branch": record.id,
        "name": record.name,
        "exploration": record.exploration.map(|(id, _)| id),
        "attempt": record.exploration.map(|(_, index)| index),
        "epoch": record.epoch,
        "layer": layer(record.layer),
        "deadline": capability.deadline(),
        "reads_only": false,
    }))
}

pub(super) fn layer(layer: ForkLayer) -> &'static str {
    match layer {
        ForkLayer::Effect => "effect",
        ForkLayer::Reasoning => "reasoning",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{AbortOptions, EngineOptions, ForkOptions, SealOptions, WorldOptions};
    use crate::serve::request::{Progress, Score};
    use forkpoint_model::Epoch;

    #[test]
    fn nothing_is_taken_in_another_epoch_or_of_a_branch_that_is_sealed() {
        let dir = tempfile::tempdir().expect("tempdir");
        let base = dir.path().join("base");
        std::fs::create_dir(&base).expect("mkdir");
        let engine = Engine::open(EngineOptions {
            store: dir.path().join("store"),
            ..EngineOptions::default()
        })
        .expect("engine");
        let world = engine.world(&base, WorldOptions::default()).expect("world");
        let forked = world.fork(&ForkOptions::default()).expect("fork");
        let branch = forked.into_iter().next().expect("one").expect("a branch");
        std::fs::create_dir_all(branch.out_path()).expect("mkdir");
        let capability = |epoch| Capability {
            branch: branch.id(),
            epoch,
            deadline_ns: None,
            look: None,
        };
        let ops = [
            Op::Info,
            Op::Cost(1.0),
            Op::Score(Score {
                score: 1.0,
                metrics: Default::default(),
            }),
            Op::Progress(Progress {
                text: "x".into(),
                fraction: None,
            }),
            Op::Publish {
                topic: "t".into(),
                payload: b"x".to_vec(),
            },
            Op::Events(bus::Read::new(None, None, None).expect("a request")),
            Op::Kv(kv::Kv::Get(b"k".to_vec())),
            Op::Kv(kv::Kv::Put {
                key: b"k".to_vec(),
                value: b"v".to_vec(),
                expect: None,
            }),
            Op::Kv(kv::Kv::List(kv::List {
                prefix: Vec::new(),
                after: None,
                limit: None,
            })),
            Op::Kv(kv::Kv::Delete {
                key: b"k".to_vec(),
                expect: None,
            }),
            Op::Step { text: "x".into() },
            Op::Checkpoint { name: None },
        ];
        let epoch = branch.record().expect("record").epoch;
        for op in &ops {
            let done = caught(&engine.inner, &capability(epoch), op);
            assert!(done.is_ok(), "{op:?} {done:?}");
            let forged = capability(Epoch(epoch.0 + 1));
            let error = caught(&engine.inner, &forged, op).expect_err("another epoch");
            assert_eq!(error.code, "FP0112", "{op:?}");
        }
        branch.seal(&SealOptions::default()).expect("seal");
        let now = branch.record().expect("record").epoch;
        let files = || std::fs::read_dir(branch.out_path()).expect("list").count();
        let before = (files(), branch.steps().expect("steps").len());
        for epoch in [epoch, now] {
            for op in &ops {
                let error = caught(&engine.inner, &capability(epoch), op).expect_err("sealed");
                assert_eq!(error.code, "FP0112", "{op:?}");
            }
        }
        assert_eq!(before, (files(), branch.steps().expect("steps").len()));
        branch.abort(&AbortOptions::default()).expect("abort");
        let error = caught(&engine.inner, &capability(epoch), &Op::Info).expect_err("ended");
        assert_eq!(error.code, "FP0112");
    }
}
