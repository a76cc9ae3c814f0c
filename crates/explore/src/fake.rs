//! A backend for tests: attempts whose every step is scripted, and a log of what was asked of it.

use forkpoint_model::participant::Conflict;
use forkpoint_model::state::BranchState;
use forkpoint_model::{
    BranchId, Code, CommitId, Error, ExplorationId, Kind, ParticipantId, Result, WorldId,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::backend::*;
use crate::cost::Cost;
use crate::report::Changed;
use crate::{Cancel, Report};

pub(crate) const FAILS: Code = Code::new("FP0990", Kind::Io, "a scripted failure");

/// What one attempt will do.
#[derive(Clone)]
pub(crate) struct Script {
    /// How long its command runs; killed earlier by a cancel. None: until it is cancelled.
    pub(crate) takes: Option<Duration>,
    pub(crate) output: &'static str,
    pub(crate) ended: Ended,
    pub(crate) changed: Changed,
    /// What each run of the verifier says, the last for ever.
    pub(crate) verdicts: Vec<Ended>,
    /// How long each verifier run takes; None: until it is cancelled.
    pub(crate) verify_takes: Option<Duration>,
    /// What each run of the score prints, the last for ever.
    pub(crate) scores: Vec<&'static str>,
    pub(crate) commit: CommitOutcome,
    pub(crate) fork_fails: bool,
    pub(crate) commit_fails: bool,
    pub(crate) left: usize,
    pub(crate) restored: Vec<&'static str>,
    pub(crate) usage: Usage,
    pub(crate) cost: Cost,
    pub(crate) claimed_score: Option<f64>,
    pub(crate) told: Option<Told>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            takes: Some(Duration::ZERO),
            output: "",
            ended: Ended::Code(0),
            changed: Changed {
                files: 1,
                bytes: 10,
            },
            verdicts: vec![Ended::Code(0)],
            verify_takes: Some(Duration::ZERO),
            scores: vec!["1"],
            commit: CommitOutcome::Committed,
            fork_fails: false,
            commit_fails: false,
            left: 0,
            restored: Vec::new(),
            usage: Usage::default(),
            cost: Cost::default(),
            claimed_score: None,
            told: None,
        }
    }
}

/// What happened, in order.
#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) events: Mutex<Vec<String>>,
}

impl Journal {
    fn add(&self, event: impl Into<String>) {
        self.events.lock().unwrap().push(event.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) fn place(&self, event: &str) -> usize {
        let all = self.all();
        all.iter()
            .position(|e| e == event)
            .unwrap_or_else(|| panic!("no {event} in {all:?}"))
    }
}

pub(crate) struct Fake {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) scripts: Vec<Script>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) base_verdict: Ended,
    pub(crate) base_score: &'static str,
    pub(crate) prepare_fails: bool,
    /// How every comparison ends, and what it prints.
    pub(crate) comparison: (Ended, &'static str),
    /// Told of each command that starts, so that a test can cancel in the middle.
    pub(crate) on_start: Option<Arc<dyn Fn(u32) + Send + Sync>>,
    pub(crate) ended: Mutex<Option<(Report, Option<Error>)>>,
    pub(crate) vars: Arc<Mutex<BTreeMap<u32, BTreeMap<String, String>>>>,
}

impl Fake {
    pub(crate) fn new(scripts: Vec<Script>) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            scripts,
            journal: Arc::default(),
            base_verdict: Ended::Code(1),
            base_score: "0",
            prepare_fails: false,
            comparison: (Ended::Code(0), "left\n"),
            on_start: None,
            ended: Mutex::new(None),
            vars: Arc::default(),
        }
    }
}

fn exit(ended: Ended) -> Exit {
    Exit {
        ended,
        wall: Duration::from_millis(1500),
        cpu: Duration::from_millis(500),
        peak_memory_bytes: 1 << 20,
        uncaptured: Vec::new(),
    }
}

/// Waits for `takes` or the cancel; whether it was cancelled.
fn wait(takes: Option<Duration>, cancel: &Cancel) -> bool {
    let deadline = takes.map(|t| Instant::now() + t);
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let left = left.map(|l| Timespec {
            tv_sec: 0,
            tv_nsec: l.as_nanos() as i64,
        });
        let mut fds = [PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)];
        poll(&mut fds, left.as_ref()).unwrap();
        if cancel.is_cancelled() {
            return true;
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            return false;
        }
    }
}

fn judged(ended: Ended, stdout: &str, log: &str) -> Judged {
    Judged {
        exit: exit(ended),
        stdout: stdout.as_bytes().to_vec(),
        metrics: None,
        log: Some(PathBuf::from(log)),
    }
}

impl Backend for Fake {
    fn world(&self) -> WorldId {
        WorldId::from_bits(1)
    }
    fn wall_ns(&self) -> i64 {
        1_000_000_000_000
    }
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    fn begin(&self, exploration: &NewExploration) -> Result<ExplorationId> {
        self.journal.add(format!(
            "begin {} {}",
            exploration.strategy, exploration.attempts
        ));
        Ok(ExplorationId::from_bits(7))
    }
    fn prepare(
        &self,
        _: ExplorationId,
        request: &PrepareRequest,
        output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Prepared> {
        self.journal.add("prepare");
        output(Stream::Stdout, b"installing\n");
        if self.prepare_fails {
            return Err(FAILS.error("the preparation exited with 1"));
        }
        if let Some(hook) = &self.on_start {
            hook(u32::MAX);
        }
        if request.run.cancel.is_cancelled() {
            return Err(FAILS.error("cancelled"));
        }
        Ok(Prepared {
            cached: false,
            changed: Changed {
                files: 2,
                bytes: 20,
            },
            log: None,
        })
    }
    fn judge_base(&self, _: ExplorationId, request: &JudgeRequest) -> Result<Judged> {
        self.journal.add(format!("base {}", request.log));
        Ok(match request.score {
            true => judged(Ended::Code(0), self.base_score, "/log/base-score"),
            false => judged(self.base_verdict.clone(), "", "/log/base-verify"),
        })
    }
    fn fork(&self, _: ExplorationId, count: u32) -> Result<Vec<Result<Box<dyn Attempt>>>> {
        self.journal.add(format!("fork {count}"));
        let pen = Arc::new(Pen {
            scripts: self.scripts.clone(),
            dir: self.dir.path().to_owned(),
            journal: self.journal.clone(),
            on_start: self.on_start.clone(),
            vars: self.vars.clone(),
        });
        Ok((0..count).map(|i| pen.fork(i)).collect())
    }
    fn compare(
        &self,
        _: ExplorationId,
        pair: [&dyn Attempt; 2],
        request: &JudgeRequest,
    ) -> Result<Judged> {
        let [left, right] = pair.map(|a| a.id());
        self.journal.add(format!("compare {left} {right}"));
        Ok(judged(
            self.comparison.0.clone(),
            self.comparison.1,
            &request.log,
        ))
    }
    fn attempts(&self, _: ExplorationId, rows: &[NewAttempt]) -> Result<()> {
        self.journal.add(format!("rows {}", rows.len()));
        Ok(())
    }
    fn end(&self, report: &Report, error: Option<&Error>) -> Result<()> {
        self.journal.add("end");
        *self.ended.lock().unwrap() = Some((report.clone(), error.cloned()));
        Ok(())
    }
}

/// What the attempts of one fake share, so that one can be forked off another.
struct Pen {
    scripts: Vec<Script>,
    dir: PathBuf,
    journal: Arc<Journal>,
    on_start: Option<Arc<dyn Fn(u32) + Send + Sync>>,
    vars: Arc<Mutex<BTreeMap<u32, BTreeMap<String, String>>>>,
}

impl Pen {
    fn fork(self: &Arc<Self>, index: u32) -> Result<Box<dyn Attempt>> {
        let script = self.scripts[index as usize].clone();
        if script.fork_fails {
            return Err(FAILS.error("no space left"));
        }
        Ok(Box::new(FakeAttempt {
            index,
            script,
            pen: self.clone(),
            runs: Mutex::new((0, 0)),
        }))
    }
}

struct FakeAttempt {
    index: u32,
    script: Script,
    pen: Arc<Pen>,
    runs: Mutex<(usize, usize)>,
}

impl FakeAttempt {
    fn note(&self, what: &str) {
        self.pen.journal.add(format!("{what} {}", self.index));
    }
}

impl Attempt for FakeAttempt {
    fn id(&self) -> BranchId {
        BranchId::from_bits(u64::from(self.index))
    }
    fn log(&self) -> PathBuf {
        self.pen.dir.join(format!("{}.log", self.index))
    }
    fn out(&self) -> PathBuf {
        "/out".into()
    }
    fn run(&self, request: &RunRequest, output: &mut dyn FnMut(Stream, &[u8])) -> Result<Exit> {
        self.note("run");
        let text = |s: &std::ffi::OsString| s.to_string_lossy().into_owned();
        let vars = request
            .env
            .iter()
            .map(|(k, v)| (text(k), text(v)))
            .collect();
        self.pen.vars.lock().unwrap().insert(self.index, vars);
        if let Some(hook) = &self.pen.on_start {
            hook(self.index);
        }
        output(Stream::Stdout, self.script.output.as_bytes());
        let killed = wait(self.script.takes, &request.cancel);
        self.note("dead");
        Ok(exit(if killed {
            Ended::Signal(9)
        } else {
            self.script.ended.clone()
        }))
    }
    fn seal(&self, protect: &[String]) -> Result<Vec<PathBuf>> {
        self.note("seal");
        let restored = if protect.is_empty() {
            &[][..]
        } else {
            &self.script.restored
        };
        Ok(restored.iter().map(PathBuf::from).collect())
    }
    fn delta(&self) -> Result<Delta> {
        Ok(Delta {
            changed: self.script.changed,
            ..Delta::default()
        })
    }
    fn fork(&self, _: ExplorationId, index: u32) -> Result<Box<dyn Attempt>> {
        self.note(&format!("fork {index} off"));
        self.pen.fork(index)
    }
    fn usage(&self, _: bool) -> Result<Usage> {
        Ok(self.script.usage)
    }
    fn cost(&self) -> Result<Cost> {
        Ok(self.script.cost)
    }
    fn claimed_score(&self) -> Result<Option<f64>> {
        Ok(self.script.claimed_score)
    }
    fn progress(&self) -> Result<Option<Told>> {
        Ok(self.script.told.clone())
    }
    fn inside(&self, name: &str) -> std::ffi::OsString {
        format!("/inside/{name}").into()
    }
    fn leave(&self, name: &str, text: &[u8]) -> Result<std::ffi::OsString> {
        let text = String::from_utf8_lossy(text).replace('\n', "|");
        self.note(&format!("leave {name} {text}"));
        Ok(self.inside(name))
    }
    fn judge(&self, request: &JudgeRequest) -> Result<Judged> {
        let mut runs = self.runs.lock().unwrap();
        if request.score {
            self.note("score");
            let text = self.script.scores[runs.1.min(self.script.scores.len() - 1)];
            runs.1 += 1;
            return Ok(judged(Ended::Code(0), text, "/log/score"));
        }
        self.note("verify");
        let verdict = self.script.verdicts[runs.0.min(self.script.verdicts.len() - 1)].clone();
        runs.0 += 1;
        if wait(self.script.verify_takes, &request.run.cancel) {
            self.note("judge killed");
            return Err(FAILS.error("cancelled"));
        }
        Ok(judged(verdict, "", &request.log))
    }
    fn record_verdict(&self, passed: bool, _: &JudgeRequest) -> Result<()> {
        self.note(if passed { "passed" } else { "failed" });
        Ok(())
    }
    fn commit(&self, _: &CommitRequest) -> Result<Committed> {
        self.note("commit");
        if self.script.commit_fails {
            return Err(FAILS.error("disk full"));
        }
        Ok(Committed {
            commit: CommitId::from_bits(9),
            outcome: self.script.commit.clone(),
            excluded: Vec::new(),
            withheld: vec![".git/hooks/x".into()],
            notes: Vec::new(),
        })
    }
    fn abort(&self, reason: &str, retain: bool) -> Result<RolledBack> {
        self.note(&format!(
            "abort {reason} {}",
            if retain { "retain" } else { "drop" }
        ));
        let left: Vec<Conflict> = (0..self.script.left)
            .map(|i| Conflict {
                participant: ParticipantId("disk:0".into()),
                item: i.to_string(),
                why: "left".into(),
            })
            .collect();
        let state = match left.is_empty() {
            true => BranchState::RolledBack,
            false => BranchState::RollbackIncomplete,
        };
        Ok(RolledBack { state, left })
    }
}
