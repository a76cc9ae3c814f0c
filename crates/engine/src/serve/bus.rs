//! The event bus through the socket: the same as [`crate::Bus`], in the capability's epoch; for a judge
//! as it sees it.

use super::Capability;
use super::bytes;
use super::request::refused;
use crate::engine::Engine;
use forkpoint_model::Result;
use forkpoint_store::{Event, EventCursor};
use serde_json::{Value, json};

/// So many events are read at a time, and an answer ends with the one that makes it longer than this
/// many bytes.
const AT_ONCE: u32 = 8;
const MAX_BYTES: usize = 1 << 20;
/// How many one answer has at most, and where it is not said.
const MAX_EVENTS: u32 = 1000;
const EVENTS: u32 = 100;

/// Where to read on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Read {
    pub(super) topic: Option<String>,
    pub(super) after: EventCursor,
    pub(super) limit: u32,
}

impl Read {
    pub(super) fn new(
        topic: Option<String>,
        after: Option<String>,
        limit: Option<u32>,
    ) -> Result<Self> {
        let after = match after {
            Some(text) => {
                parse(&text).ok_or_else(|| refused("'after' is the cursor of an event"))?
            }
            None => EventCursor { position: 0, n: 0 },
        };
        Ok(Self {
            topic,
            after,
            limit: limit.unwrap_or(EVENTS).min(MAX_EVENTS),
        })
    }
}

/// The position of what is held: behind all that is committed.
const HELD: u64 = i64::MAX as u64;

/// A cursor is opaque to whoever holds it, and the same as `forkpoint bus read` prints: the position,
/// or that it is held, a dot, the number.
pub(crate) fn parse(text: &str) -> Option<EventCursor> {
    let (position, n) = text.split_once('.')?;
    let number = |text: &str| {
        let number: i64 = text.parse().ok()?;
        u64::try_from(number).ok()
    };
    Some(EventCursor {
        position: match position {
            "held" => HELD,
            position => number(position)?,
        },
        n: number(n)?,
    })
}

pub(crate) fn written(cursor: EventCursor) -> String {
    match cursor.position {
        HELD => format!("held.{}", cursor.n),
        position => format!("{position}.{}", cursor.n),
    }
}

pub(super) fn publish(
    engine: &Engine,
    capability: &Capability,
    topic: &str,
    payload: &[u8],
) -> Result<Value> {
    let branch = engine.branch_by_id(capability.branch)?;
    let id = branch.bus_in(capability.epoch).publish(topic, payload)?;
    Ok(json!({ "id": id }))
}

/// Reads on until an answer is full; `part` gives at most so many events behind a cursor.
pub(super) fn read(
    read: &Read,
    part: impl Fn(EventCursor, u32) -> Result<Vec<Event>>,
) -> Result<Value> {
    let (mut after, mut size) = (read.after, 0);
    let mut events = Vec::new();
    loop {
        let left = read.limit.saturating_sub(events.len() as u32);
        let page = part(after, left.min(AT_ONCE))?;
        let whole = page.len() as u32 == AT_ONCE;
        for event in page {
            size += event.payload.len() + event.topic.len();
            after = event.cursor;
            let mut one = json!({
                "cursor": written(event.cursor),
                "id": event.id,
                "topic": event.topic,
                "held": event.held,
                "time": event.at_ns as f64 / 1e9,
            });
            bytes::put(&mut one, "payload", &event.payload);
            events.push(one);
            if size >= MAX_BYTES {
                break;
            }
        }
        if size >= MAX_BYTES || !whole {
            break;
        }
    }
    Ok(json!({ "events": events, "after": written(after) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_as_they_were_given() {
        for (position, n) in [(0, 0), (12, 1), (i64::MAX as u64, 7)] {
            let cursor = EventCursor { position, n };
            assert_eq!(parse(&written(cursor)), Some(cursor));
        }
        for bad in [
            "",
            "1",
            "1.",
            "-1.0",
            "1.2.3",
            "9223372036854775808.0",
            "a.b",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
