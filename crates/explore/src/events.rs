//! What happens as JSON lines, for programs: schema `forkpoint.event/1` (docs/json.md). Each line is
//! written and flushed at once. A reader that goes away ends the writing and nothing else.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};

use crate::backend::{Ended, Stream};
use crate::observer::{Observer, Progress};
use crate::report::Report;

/// The schema of a line.
pub const SCHEMA: &str = "forkpoint.event/1";

/// Every event, as docs/json.md lists them.
pub const NAMES: &[&str] = &[
    "begun",
    "note",
    "preparing",
    "prepared",
    "baseline",
    "attempt_started",
    "output",
    "progress",
    "usage",
    "attempt_ended",
    "restored",
    "verified",
    "scored",
    "out",
    "compared",
    "stopped",
    "committing",
    "committed",
    "chosen",
    "refused",
    "ended",
];

/// Writes events. `clock` gives nanoseconds since 1970.
pub struct Events<W, C> {
    writer: Option<W>,
    clock: C,
    sequence: u64,
    failed: Option<String>,
    /// When each attempt's usage was last written, in nanoseconds.
    used: BTreeMap<u32, i64>,
}

/// A line of an attempt's usage is written at most this often, in nanoseconds: a long run's file stays small.
const USAGE_EVERY_NS: i64 = 10_000_000_000;

impl<W: Write + Send, C: Fn() -> i64 + Send> Events<W, C> {
    /// Writes to `writer`, which should not buffer.
    pub fn new(writer: W, clock: C) -> Self {
        Self {
            writer: Some(writer),
            clock,
            sequence: 0,
            failed: None,
            used: BTreeMap::new(),
        }
    }

    /// The last event. Returns what kept events from being written, where that was not just a reader
    /// that had gone.
    pub fn finish(&mut self, report: &Report) -> Option<String> {
        self.write(
            "ended",
            json!({
                "outcome": report.outcome, "winner": report.winner, "committed": report.committed,
                "commit": report.commit, "wall_s": report.wall_s,
            }),
        );
        self.failed.take()
    }

    fn write(&mut self, name: &str, mut fields: Value) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        fields["schema"] = json!(SCHEMA);
        fields["sequence"] = json!(self.sequence);
        fields["time"] = json!((self.clock)() as f64 / 1e9);
        fields["event"] = json!(name);
        self.sequence += 1;
        let mut line = fields.to_string();
        line.push('\n');
        if let Err(error) = writer
            .write_all(line.as_bytes())
            .and_then(|()| writer.flush())
        {
            if error.kind() != ErrorKind::BrokenPipe {
                self.failed = Some(error.to_string());
            }
            self.writer = None;
        }
    }
}

impl<W: Write + Send, C: Fn() -> i64 + Send> Observer for Events<W, C> {
    fn on(&mut self, progress: &Progress<'_>) {
        if let Progress::Usage { index, .. } = progress {
            let now = (self.clock)();
            let last = self.used.get(index);
            if last.is_some_and(|last| now.saturating_sub(*last) < USAGE_EVERY_NS) {
                return;
            }
            self.used.insert(*index, now);
        }
        let (name, fields) = event(progress);
        self.write(name, fields);
    }

    fn wants_usage(&self) -> bool {
        self.writer.is_some()
    }
}

fn event(progress: &Progress<'_>) -> (&'static str, Value) {
    match progress {
        Progress::Note(text) => ("note", json!({"text": text})),
        Progress::Begin {
            exploration,
            attempts,
            jobs,
            strategy,
        } => (
            "begun",
            json!({"exploration": exploration, "attempts": attempts, "jobs": jobs, "strategy": strategy}),
        ),
        Progress::Preparing { command } => ("preparing", json!({"command": command})),
        Progress::Prepared { prepared, took } => (
            "prepared",
            json!({"cached": prepared.cached, "changed": prepared.changed, "wall_s": took.as_secs_f64()}),
        ),
        Progress::Baseline(baseline) => ("baseline", json!({"baseline": baseline})),
        Progress::Started { index, command } => (
            "attempt_started",
            json!({"attempt": index, "command": command}),
        ),
        Progress::Line {
            index,
            stream,
            text,
        } => {
            let stream = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            (
                "output",
                json!({"attempt": index, "stream": stream, "text": text}),
            )
        }
        Progress::Told {
            index,
            text,
            fraction,
        } => (
            "progress",
            json!({"attempt": index, "text": text, "fraction": fraction}),
        ),
        Progress::Usage {
            index,
            cpu,
            memory_bytes,
        } => (
            "usage",
            json!({"attempt": index, "cpu_s": cpu.as_secs_f64(), "memory_bytes": memory_bytes}),
        ),
        Progress::Ended { index, exit } => (
            "attempt_ended",
            json!({
                "attempt": index, "exit_code": exit.ended.exit_code(), "how": how(&exit.ended),
                "wall_s": exit.wall.as_secs_f64(), "cpu_s": exit.cpu.as_secs_f64(),
                "peak_memory_bytes": exit.peak_memory_bytes,
            }),
        ),
        Progress::Restored { index, paths } => {
            ("restored", json!({"attempt": index, "paths": paths}))
        }
        Progress::Verified { index, passed, .. } => {
            ("verified", json!({"attempt": index, "passed": passed}))
        }
        Progress::Scored { index, score } => ("scored", json!({"attempt": index, "score": score})),
        Progress::Out {
            index,
            reason,
            detail,
        } => (
            "out",
            json!({"attempt": index, "reason": reason, "detail": detail}),
        ),
        Progress::LosersDead { count, took } => (
            "stopped",
            json!({"count": count, "wall_s": took.as_secs_f64()}),
        ),
        Progress::Committing { index } => ("committing", json!({"attempt": index})),
        Progress::Won { attempt, committed } => {
            let name = if *committed { "committed" } else { "chosen" };
            (
                name,
                json!({"attempt": attempt.index, "score": attempt.score}),
            )
        }
        Progress::Compared {
            left,
            right,
            verdict,
        } => (
            "compared",
            json!({"left": left, "right": right, "verdict": verdict}),
        ),
        Progress::Refused { index, why } => ("refused", json!({"attempt": index, "why": why})),
    }
}

fn how(ended: &Ended) -> &'static str {
    match ended {
        Ended::Code(_) => "exit",
        Ended::Signal(_) => "signal",
        Ended::TimeLimit => "timeout",
        Ended::Limit(_) => "limit",
        Ended::NotStarted(_) => "start_error",
    }
}

/// Tells several.
#[derive(Default)]
pub struct Tee<'a>(pub Vec<&'a mut dyn Observer>);

impl Observer for Tee<'_> {
    fn on(&mut self, progress: &Progress<'_>) {
        for observer in &mut self.0 {
            observer.on(progress);
        }
    }

    fn wants_usage(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_usage())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>, Option<ErrorKind>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            match self.1 {
                Some(kind) => Err(kind.into()),
                None => {
                    self.0.lock().unwrap().extend_from_slice(bytes);
                    Ok(bytes.len())
                }
            }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_event_is_a_line_with_its_number_and_time() {
        let sink = Sink::default();
        let mut events = Events::new(sink.clone(), || 1_500_000_000);
        events.on(&Progress::Note("a\nb"));
        events.on(&Progress::Scored {
            index: 3,
            score: 1.5,
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[1],
            json!({"schema": SCHEMA, "sequence": 1, "time": 1.5, "event": "scored", "attempt": 3, "score": 1.5})
        );
    }

    #[test]
    fn usage_is_written_now_and_then() {
        let sink = Sink::default();
        let now = std::sync::atomic::AtomicI64::new(0);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let mut events = Events::new(sink.clone(), || now.load(relaxed));
        assert!(events.wants_usage() && Tee(vec![&mut events]).wants_usage());
        for index in [0, 1].repeat(10) {
            now.fetch_add(1_000_000_000, relaxed);
            events.on(&Progress::Usage {
                index,
                cpu: std::time::Duration::from_secs(1),
                memory_bytes: 7,
            });
        }
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().collect::<Vec<_>>();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].contains("\"memory_bytes\":7"));
    }

    #[test]
    fn a_reader_that_goes_away_ends_the_writing_alone() {
        for (kind, told) in [
            (ErrorKind::BrokenPipe, false),
            (ErrorKind::StorageFull, true),
        ] {
            let mut events = Events::new(Sink(Arc::default(), Some(kind)), || 0);
            events.on(&Progress::Note("x"));
            events.on(&Progress::Note("y"));
            assert_eq!(events.failed.is_some(), told);
            assert!(events.writer.is_none());
        }
    }

    #[test]
    fn docs_json_lists_every_event() {
        let page = include_str!("../../../docs/json.md");
        for name in NAMES {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
