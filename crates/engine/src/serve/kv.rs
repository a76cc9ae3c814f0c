//! Keys through the socket: the branch's own view of its world's keys, in the capability's epoch; for a
//! judge the view of what it judges.

use super::Capability;
use super::bytes;
use crate::engine::Engine;
use forkpoint_model::Result;
use forkpoint_store::{KvEntry, KvPage, KvWritten};
use serde_json::{Value, json};

/// So many entries are read at a time, and an answer ends with the one that makes it longer than this
/// many bytes.
const AT_ONCE: u32 = 128;
const MAX_BYTES: usize = 1 << 20;
/// How many one answer has at most, and where it is not said.
const MAX_ENTRIES: u32 = 1000;
const ENTRIES: u32 = 100;

/// What is asked of the keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kv {
    Get(Vec<u8>),
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        expect: Option<u64>,
    },
    Delete {
        key: Vec<u8>,
        expect: Option<u64>,
    },
    List(List),
}

/// Which keys are listed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct List {
    pub(super) prefix: Vec<u8>,
    pub(super) after: Option<Vec<u8>>,
    pub(super) limit: Option<u32>,
}

pub(super) fn run(engine: &Engine, capability: &Capability, kv: &Kv) -> Result<Value> {
    let Capability { branch, epoch, .. } = *capability;
    match kv {
        Kv::Get(key) => engine.store().kv_get(branch, epoch, key).map(found),
        Kv::Put { key, value, expect } => {
            let store = engine.store();
            store
                .kv_write(branch, epoch, key, Some(value), *expect)
                .map(written)
        }
        Kv::Delete { key, expect } => {
            let store = engine.store();
            store
                .kv_write(branch, epoch, key, None, *expect)
                .map(written)
        }
        Kv::List(wanted) => list(wanted, |after, limit| {
            let store = engine.store();
            store.kv_list(branch, epoch, &wanted.prefix, after, limit)
        }),
    }
}

pub(super) fn found(entry: Option<KvEntry>) -> Value {
    let mut answer = json!({ "version": 0 });
    if let Some(entry) = entry {
        answer["version"] = json!(entry.version);
        bytes::put(&mut answer, "value", &entry.value);
    }
    answer
}

fn written(written: KvWritten) -> Value {
    json!({ "done": written.done, "version": written.version })
}

/// Lists on until an answer is full; `part` gives at most so many entries behind a key.
pub(super) fn list(
    wanted: &List,
    part: impl Fn(Option<&[u8]>, u32) -> Result<KvPage>,
) -> Result<Value> {
    let limit = wanted.limit.unwrap_or(ENTRIES).min(MAX_ENTRIES);
    let mut after = wanted.after.clone();
    let (mut entries, mut size) = (Vec::new(), 0);
    let more = loop {
        let left = limit.saturating_sub(entries.len() as u32).min(AT_ONCE);
        if left == 0 || size >= MAX_BYTES {
            break true;
        }
        let page = part(after.as_deref(), left)?;
        for entry in page.entries {
            if size >= MAX_BYTES {
                break;
            }
            size += entry.key.len() + entry.value.len();
            let mut one = json!({ "version": entry.version });
            bytes::put(&mut one, "key", &entry.key);
            bytes::put(&mut one, "value", &entry.value);
            entries.push(one);
            after = Some(entry.key);
        }
        if page.next.is_none() && size < MAX_BYTES {
            break false;
        }
    };
    let mut answer = json!({ "entries": entries });
    // Where nothing follows after all, the next answer is empty.
    if let Some(last) = after.filter(|_| more) {
        bytes::put(&mut answer, "next", &last);
    }
    Ok(answer)
}
