//! What can be asked for through a branch's socket, read from one line. Everything here comes from
//! inside a branch: a line is parsed without ever holding more than a few times its own size, and
//! what is not understood is refused by name.

use super::kv::{Kv, List};
use super::{bus, bytes};
use crate::codes;
use forkpoint_model::{Error, Result};
use serde::de::{self, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The protocol's version.
pub(crate) const VERSION: u64 = 1;
/// The longest line, its end included, in bytes: a value of 1 MiB in base64, and room beside it.
pub(crate) const MAX_LINE: usize = 2 << 20;
/// The longest progress text, in bytes.
pub(crate) const MAX_TEXT: usize = 1024;
/// The longest `id` that is echoed, in bytes.
const MAX_ID: usize = 128;
/// The most metrics one score may have.
const MAX_METRICS: usize = 256;

/// What the client calls its request, given back with the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Id {
    Text(String),
    Whole(u64),
    Signed(i64),
    Real(f64),
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a text of at most {MAX_ID} bytes, or a number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Id, E> {
                match text.len() {
                    0..=MAX_ID => Ok(Id::Text(text.to_owned())),
                    len => Err(E::invalid_length(len, &self)),
                }
            }
            fn visit_u64<E>(self, number: u64) -> std::result::Result<Id, E> {
                Ok(Id::Whole(number))
            }
            fn visit_i64<E>(self, number: i64) -> std::result::Result<Id, E> {
                Ok(Id::Signed(number))
            }
            fn visit_f64<E>(self, number: f64) -> std::result::Result<Id, E> {
                Ok(Id::Real(number))
            }
        }
        d.deserialize_any(Scalar)
    }
}

/// What every request has. The rest is read once it is known what is asked for.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    v: Option<u64>,
    #[serde(default)]
    id: Option<Id>,
    op: String,
}

/// One request.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) id: Option<Id>,
    pub(crate) op: Op,
}

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Op {
    Info,
    Score(Score),
    Cost(f64),
    Progress(Progress),
    Step { text: String },
    Checkpoint { name: Option<String> },
    Publish { topic: String, payload: Vec<u8> },
    Events(bus::Read),
    Kv(Kv),
}

/// What the attempt says its score is.
#[derive(Debug, PartialEq)]
pub(crate) struct Score {
    pub(crate) score: f64,
    pub(crate) metrics: BTreeMap<String, f64>,
}

/// How far it says it is.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Progress {
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fraction: Option<f64>,
}

impl Op {
    /// Whether it may take long: such a request does not hold up others.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Self::Step { .. } | Self::Checkpoint { .. })
    }
}

/// Declares the fields of one operation beside those that every request has. Others are refused.
macro_rules! fields {
    ($name:ident { $($(#[$attr:meta])* $field:ident : $type:ty),* $(,)? }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            #[serde(rename = "v", default)]
            _v: IgnoredAny,
            #[serde(rename = "id", default)]
            _id: IgnoredAny,
            #[serde(rename = "op")]
            _op: IgnoredAny,
            $($(#[$attr])* $field: $type),*
        }
    };
}

fields!(Nothing {});
fields!(ScoreFields {
    score: f64,
    #[serde(default)]
    metrics: Metrics,
});
fields!(CostFields { cost: f64 });
fields!(ProgressFields {
    text: String,
    #[serde(default)]
    fraction: Option<f64>,
});
fields!(StepFields {
    #[serde(default)]
    text: String,
});
fields!(CheckpointFields {
    #[serde(default)]
    name: Option<String>,
});

fields!(PublishFields {
    topic: String,
    #[serde(default)]
    payload: Option<String>,
    #[serde(default)]
    payload_b64: Option<String>,
});
fields!(EventsFields {
    #[serde(default)]
    topic: Option<String>,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    limit: Option<u32>,
});

fields!(KeyFields {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    key_b64: Option<String>,
    #[serde(default)]
    expect: Option<u64>,
});
fields!(PutFields {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    key_b64: Option<String>,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    value_b64: Option<String>,
    #[serde(default)]
    expect: Option<u64>,
});
fields!(ListFields {
    #[serde(default)]
    prefix: Option<String>,
    #[serde(default)]
    prefix_b64: Option<String>,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    after_b64: Option<String>,
    #[serde(default)]
    limit: Option<u32>,
});

/// Metrics, no more than there may be.
#[derive(Default)]
struct Metrics(BTreeMap<String, f64>);

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Metrics;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object of at most {MAX_METRICS} numbers")
            }
            fn visit_map<A: de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Metrics, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, f64>()? {
                    all.insert(name, value);
                    if all.len() > MAX_METRICS {
                        return Err(de::Error::invalid_length(all.len(), &self));
                    }
                }
                Ok(Metrics(all))
            }
        }
        d.deserialize_map(Map)
    }
}

/// Reads one line, without its end. What cannot be read comes with its `id`, where that could be.
pub(crate) fn read(line: &[u8]) -> std::result::Result<Request, (Option<Id>, Error)> {
    let head: Head = parse(line).map_err(|e| (None, e))?;
    let op = match head.v {
        None | Some(VERSION) => operation(&head.op, line),
        Some(other) => Err(codes::SOCKET_REQUEST
            .error(format!("version {other} of the protocol is not known here"))
            .hint(format!("send \"v\":{VERSION}, or leave it out"))),
    };
    match op {
        Ok(op) => Ok(Request { id: head.id, op }),
        Err(e) => Err((head.id, e)),
    }
}

fn operation(name: &str, line: &[u8]) -> Result<Op> {
    match name {
        "info" => parse::<Nothing>(line).map(|_| Op::Info),
        "score" => {
            let fields: ScoreFields = parse(line)?;
            Ok(Op::Score(Score {
                score: fields.score,
                metrics: fields.metrics.0,
            }))
        }
        "cost" => parse::<CostFields>(line).map(|fields| Op::Cost(fields.cost)),
        "progress" => {
            let ProgressFields { text, fraction, .. } = parse(line)?;
            short(&text)?;
            if fraction.is_some_and(|f| !(0.0..=1.0).contains(&f)) {
                return Err(refused("a fraction lies between 0 and 1"));
            }
            Ok(Op::Progress(Progress { text, fraction }))
        }
        "step" => {
            let StepFields { text, .. } = parse(line)?;
            short(&text)?;
            Ok(Op::Step { text })
        }
        "checkpoint" => {
            let CheckpointFields { name, .. } = parse(line)?;
            name.as_deref().map_or(Ok(()), short)?;
            Ok(Op::Checkpoint { name })
        }
        "bus.publish" => {
            let fields: PublishFields = parse(line)?;
            Ok(Op::Publish {
                topic: fields.topic,
                payload: bytes::either("payload", fields.payload, fields.payload_b64)?,
            })
        }
        "bus.read" => {
            let fields: EventsFields = parse(line)?;
            bus::Read::new(fields.topic, fields.after, fields.limit).map(Op::Events)
        }
        _ if name.starts_with("kv.") => keys(name, line).map(Op::Kv),
        other => Err(unknown(other)),
    }
}

fn keys(name: &str, line: &[u8]) -> Result<Kv> {
    match name {
        "kv.get" | "kv.delete" => {
            let fields: KeyFields = parse(line)?;
            let key = bytes::either("key", fields.key, fields.key_b64)?;
            match (name, fields.expect) {
                ("kv.get", None) => Ok(Kv::Get(key)),
                ("kv.get", Some(_)) => Err(refused("'expect' is for what changes a key")),
                (_, expect) => Ok(Kv::Delete { key, expect }),
            }
        }
        "kv.put" => {
            let fields: PutFields = parse(line)?;
            Ok(Kv::Put {
                key: bytes::either("key", fields.key, fields.key_b64)?,
                value: bytes::either("value", fields.value, fields.value_b64)?,
                expect: fields.expect,
            })
        }
        "kv.list" => {
            let fields: ListFields = parse(line)?;
            let prefix = bytes::maybe("prefix", fields.prefix, fields.prefix_b64)?;
            Ok(Kv::List(List {
                prefix: prefix.unwrap_or_default(),
                after: bytes::maybe("after", fields.after, fields.after_b64)?,
                limit: fields.limit,
            }))
        }
        other => Err(unknown(other)),
    }
}

fn unknown(name: &str) -> Error {
    let shown: String = name.chars().take(40).collect();
    refused(format!("there is no operation {shown:?}"))
}

fn short(text: &str) -> Result<()> {
    match text.len() {
        0..=MAX_TEXT => Ok(()),
        _ => Err(refused(format!("a text of more than {MAX_TEXT} bytes"))),
    }
}

fn parse<'de, T: Deserialize<'de>>(line: &'de [u8]) -> Result<T> {
    serde_json::from_slice(line).map_err(|e| refused(format!("this is no request: {e}")))
}

/// An error of whoever asks.
pub(crate) fn refused(why: impl Into<String>) -> Error {
    codes::SOCKET_REQUEST
        .error(why)
        .hint("docs/socket.md lists the operations and their fields")
}

/// The answer's line, its end included.
pub(crate) fn answer(id: Option<&Id>, result: &Result<serde_json::Value>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a Id>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ok: Option<&'a serde_json::Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a Error>,
    }
    let answer = Answer {
        id,
        ok: result.as_ref().ok(),
        error: result.as_ref().err(),
    };
    // Numbers that JSON has no word for become null; nothing here can fail.
    let mut line = serde_json::to_vec(&answer).unwrap_or_else(|_| b"{}".to_vec());
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op(line: &str) -> Result<Op> {
        read(line.as_bytes()).map(|r| r.op).map_err(|(_, e)| e)
    }

    #[test]
    fn each_operation_is_read_with_its_fields() {
        assert_eq!(op(r#"{"op":"info"}"#), Ok(Op::Info));
        assert_eq!(op(r#" {"v":1,"id":7,"op":"info"} "#), Ok(Op::Info));
        assert_eq!(op(r#"{"op":"cost","cost":0.5}"#), Ok(Op::Cost(0.5)));
        let score = op(r#"{"op":"score","score":2,"metrics":{"time":3}}"#);
        let metrics = [("time".to_owned(), 3.0)].into();
        assert_eq!(
            score,
            Ok(Op::Score(Score {
                score: 2.0,
                metrics
            }))
        );
        let progress = op(r#"{"op":"progress","text":"half","fraction":0.5}"#);
        let (text, fraction) = ("half".to_owned(), Some(0.5));
        assert_eq!(progress, Ok(Op::Progress(Progress { text, fraction })));
        assert_eq!(
            op(r#"{"op":"checkpoint"}"#),
            Ok(Op::Checkpoint { name: None })
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let deep = "[".repeat(100_000);
        for bad in [
            "",
            "{}",
            "info",
            "[]",
            "null",
            "{\"op\":1}",
            "{\"op\":\"kill\"}",
            "{\"op\":\"info\",\"key\":\"x\"}",
            "{\"op\":\"info\"} {\"op\":\"info\"}",
            "{\"op\":\"info\",\"op\":\"info\"}",
            "{\"v\":2,\"op\":\"info\"}",
            "{\"v\":\"1\",\"op\":\"info\"}",
            "{\"id\":[1],\"op\":\"info\"}",
            "{\"id\":{},\"op\":\"info\"}",
            "{\"op\":\"cost\"}",
            "{\"op\":\"cost\",\"cost\":\"1\"}",
            "{\"op\":\"cost\",\"cost\":NaN}",
            "{\"op\":\"score\",\"score\":1,\"metrics\":{\"a\":\"b\"}}",
            "{\"op\":\"progress\",\"text\":\"x\",\"fraction\":1.5}",
            "{\"op\":\"info\",\"x\":",
            &deep,
            &format!("{{\"op\":\"info\",\"x\":{deep}"),
            &format!("{{\"op\":\"info\",\"id\":\"{}\"}}", "x".repeat(129)),
            &format!("{{\"op\":\"progress\",\"text\":\"{}\"}}", "x".repeat(1025)),
        ] {
            let error = op(bad).expect_err(bad);
            assert_eq!(error.code, codes::SOCKET_REQUEST.text, "{bad}");
            assert!(!error.hint.is_empty(), "{bad}");
        }
    }

    #[test]
    fn the_id_comes_back_also_with_an_error() {
        let (id, error) = read(br#"{"id":"a\"b","op":"nothing"}"#).expect_err("no such thing");
        let line = answer(id.as_ref(), &Err(error));
        let said: serde_json::Value = serde_json::from_slice(&line).expect("json");
        assert_eq!(said["id"], "a\"b");
        assert_eq!(said["error"]["code"], "FP0450");
        assert!(said["ok"].is_null());
        let line = answer(Some(&Id::Real(1.5)), &Ok(serde_json::json!({})));
        assert_eq!(line, b"{\"id\":1.5,\"ok\":{}}\n");
    }

    proptest! {
        #[test]
        fn no_line_panics(line: Vec<u8>) {
            let answered = match read(&line) {
                Ok(request) => answer(request.id.as_ref(), &Ok(serde_json::Value::Null)),
                Err((id, e)) => answer(id.as_ref(), &Err(e)),
            };
            prop_assert_eq!(answered.iter().filter(|&&b| b == b'\n').count(), 1);
        }
    }
}
