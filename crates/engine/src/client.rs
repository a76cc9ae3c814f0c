//! The other end of a branch's socket: for a program that runs inside a branch and speaks to the
//! engine. It opens no store and needs nothing but the socket that `FORKPOINT_SOCK` names.

use crate::codes;
use crate::serve::{bus, bytes};
use forkpoint_model::{Error, Result};
use forkpoint_store::{Event, EventCursor, KvEntry, KvPage};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 8 << 20;
/// How long an answer is waited for that takes long, such as a checkpoint's, and any other.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_secs(60);

/// A connection to the engine, out of a branch.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    ok: Option<Value>,
    #[serde(default)]
    error: Option<Error>,
}

impl Client {
    /// Connects to the socket that `FORKPOINT_SOCK` names.
    ///
    /// # Errors
    /// `FP0452` when nothing listens there.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).map_err(|e| {
            codes::SOCKET
                .io(format!("cannot connect to {}", socket.display()), e)
                .hint("this works inside a branch, where FORKPOINT_SOCK names its socket")
        })?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Which branch this is: an object with `branch`, `epoch`, `exploration`, `attempt`, `deadline`…
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn info(&mut self) -> Result<Value> {
        self.call(&json!({"op": "info"}))
    }

    /// Publishes an event, which is held until the branch is committed. Returns its identifier.
    ///
    /// # Errors
    /// As [`Client::call`]; `FP0114` for a topic or payload out of bounds.
    pub fn publish(&mut self, topic: &str, payload: &[u8]) -> Result<String> {
        let mut request = json!({"op": "bus.publish", "topic": topic});
        bytes::put(&mut request, "payload", payload);
        let answer = self.call(&request)?;
        Ok(answer["id"].as_str().unwrap_or_default().to_owned())
    }

    /// The events that the branch sees behind `after`, at most `limit`: what was committed when it was
    /// forked, then what it holds. Their branch and commit are not told.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn events(
        &mut self,
        topic: Option<&str>,
        mut after: EventCursor,
        limit: u32,
    ) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            let left = limit.saturating_sub(events.len() as u32);
            let answer = self.call(&json!({
                "op": "bus.read", "topic": topic, "after": bus::written(after), "limit": left,
            }))?;
            let page = answer["events"].as_array().map_or(&[][..], Vec::as_slice);
            for one in page {
                let nonsense = || codes::SOCKET.error("the branch's socket answered nonsense");
                events.push(event(one).ok_or_else(nonsense)?);
            }
            match events.last() {
                Some(last) if !page.is_empty() && (events.len() as u32) < limit => {
                    after = last.cursor;
                }
                _ => return Ok(events),
            }
        }
    }

    /// A key as the branch sees it, with its version.
    ///
    /// # Errors
    /// As [`Client::call`]; `FP0114` for a key out of bounds.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>> {
        let answer = self.call(&keyed("kv.get", key))?;
        let version = answer["version"].as_u64().unwrap_or(0);
        Ok(bytes::get(&answer, "value").map(|value| (value, version)))
    }

    /// Writes a key of the branch, or removes it where `value` is none; with `expect` only where it has
    /// that version (0: where it is not there). Returns whether it was done, and the version the key
    /// has now.
    ///
    /// # Errors
    /// As [`Client::call`]; `FP0114` for what is out of bounds.
    pub fn set(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        expect: Option<u64>,
    ) -> Result<(bool, u64)> {
        let mut request = keyed(
            if value.is_some() {
                "kv.put"
            } else {
                "kv.delete"
            },
            key,
        );
        if let Some(value) = value {
            bytes::put(&mut request, "value", value);
        }
        if let Some(expect) = expect {
            request["expect"] = json!(expect);
        }
        let answer = self.call(&request)?;
        let done = answer["done"].as_bool().unwrap_or(false);
        Ok((done, answer["version"].as_u64().unwrap_or(0)))
    }

    /// The keys that begin with `prefix`, behind `after`, at most `limit`. The page's `next` is where to
    /// go on.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn list(&mut self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<KvPage> {
        let mut request = json!({"op": "kv.list", "limit": limit});
        bytes::put(&mut request, "prefix", prefix);
        if let Some(after) = after {
            bytes::put(&mut request, "after", after);
        }
        let answer = self.call(&request)?;
        let entry = |one: &Value| {
            Some(KvEntry {
                key: bytes::get(one, "key")?,
                value: bytes::get(one, "value")?,
                version: one["version"].as_u64()?,
            })
        };
        let entries = answer["entries"].as_array().map_or(&[][..], Vec::as_slice);
        let entries: Option<Vec<KvEntry>> = entries.iter().map(entry).collect();
        Ok(KvPage {
            entries: entries
                .ok_or_else(|| codes::SOCKET.error("the branch's socket answered nonsense"))?,
            next: bytes::get(&answer, "next"),
        })
    }

    /// Asks, and waits for the answer. `request` is an object with an `op`, as docs/socket.md lists
    /// them.
    ///
    /// # Errors
    /// The one that was answered; `FP0452` when no answer comes.
    pub fn call(&mut self, request: &Value) -> Result<Value> {
        let long = matches!(request["op"].as_str(), Some("checkpoint" | "step"));
        let line = self
            .exchange(request, if long { LONG } else { SHORT })
            .map_err(|e| {
                codes::SOCKET.io("the branch's socket gave no answer", e).hint(
                    "try again: the process that served it may have ended, and another takes over",
                )
            })?;
        let answer: Answer = serde_json::from_slice(&line)
            .map_err(|e| codes::SOCKET.io("the branch's socket answered nonsense", e))?;
        match (answer.ok, answer.error) {
            (Some(ok), None) => Ok(ok),
            (_, Some(error)) => Err(error),
            (None, None) => Err(codes::SOCKET.error("the branch's socket answered nothing")),
        }
    }

    fn exchange(&mut self, request: &Value, patience: Duration) -> io::Result<Vec<u8>> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        self.stream.get_ref().set_write_timeout(Some(patience))?;
        let mut line = request.to_string().into_bytes();
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut answer = Vec::new();
        (&mut self.stream)
            .take(MAX_ANSWER)
            .read_until(b'\n', &mut answer)?;
        match answer.last() {
            Some(b'\n') => Ok(answer),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn keyed(op: &str, key: &[u8]) -> Value {
    let mut request = json!({ "op": op });
    bytes::put(&mut request, "key", key);
    request
}

fn event(one: &Value) -> Option<Event> {
    let text = |name: &str| one[name].as_str().map(str::to_owned);
    Some(Event {
        cursor: bus::parse(one["cursor"].as_str()?)?,
        topic: text("topic")?,
        id: text("id")?,
        payload: bytes::get(one, "payload")?,
        branch: None,
        commit: None,
        held: one["held"].as_bool()?,
        at_ns: (one["time"].as_f64()? * 1e9) as i64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each line with the next of `answers`, then closes.
    fn served(answers: &'static [&'static str]) -> (tempfile::TempDir, Client) {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accept");
            let mut lines = BufReader::new(&stream);
            for answer in answers {
                lines.read_line(&mut String::new()).expect("a request");
                (&stream).write_all(answer.as_bytes()).expect("answer");
            }
        });
        let client = Client::connect(&path).expect("connect");
        (dir, client)
    }

    #[test]
    fn answers_and_errors_come_back_as_they_are() {
        let (_dir, mut client) = served(&[
            "{\"ok\":{\"branch\":\"b1\"}}\n",
            "{\"error\":{\"code\":\"FP0112\",\"kind\":\"closed\",\"message\":\"m\",\"hint\":\"h\"}}\n",
            "nonsense\n",
            "{\"ok\":{}",
        ]);
        assert_eq!(client.info().expect("ok")["branch"], "b1");
        let error = client.info().expect_err("an error");
        assert_eq!((error.code.as_str(), error.hint.as_str()), ("FP0112", "h"));
        assert_eq!(client.info().expect_err("nonsense").code, "FP0452");
        assert_eq!(client.info().expect_err("half an answer").code, "FP0452");
    }

    #[test]
    fn where_nothing_listens_the_hint_says_where_it_would() {
        let error = Client::connect(Path::new("/nonexistent/sock")).expect_err("nothing");
        assert_eq!(error.code, "FP0452");
        assert!(error.hint.contains("FORKPOINT_SOCK"));
    }
}
