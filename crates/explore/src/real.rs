//! The real backend: the engine, and the store's records of explorations.

use forkpoint_engine::records::{
    AttemptRecord, ExplorationRecord, ExplorationState, ProcessRecord,
};
use forkpoint_engine::{
    AbortOptions, Branch, ChangeSet, ChangeSummary, CommitOptions, Drift, Engine, ExitKind,
    ExitReport, ForkOptions, JudgeSpec, Limit, Limits, Network, PrepareOptions, PreparedLayers,
    SealOptions, Stream as Streams, World,
};
use forkpoint_model::{BranchId, Error, ExplorationId, Result, WorldId};
use forkpoint_sys::{clock, rand};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::backend::{
    Attempt, Backend, CommitOutcome, CommitRequest, Committed, Delta, Ended, Exit, JudgeRequest,
    Judged, NewAttempt, NewExploration, PrepareRequest, Prepared, RolledBack, RunRequest, Stream,
};
use crate::report::{Changed, DroppedReport, Outcome, Report};
use crate::spec::{LimitSpec, NetworkSpec};
use crate::{codes, logs};

/// How much of a score's standard output is looked at.
const CAPTURE: usize = 256 << 10;

/// Explores a world of an engine.
pub struct EngineBackend {
    engine: Engine,
    world: World,
    cwd: PathBuf,
    network: NetworkSpec,
    prepared: Mutex<Option<PreparedLayers>>,
    begun: Mutex<Option<ExplorationRecord>>,
}

impl EngineBackend {
    /// A backend for `world`. `cwd` is the canonical directory in which `last` finds the exploration
    /// again; attempts see `network`.
    pub fn new(engine: Engine, world: World, cwd: PathBuf, network: NetworkSpec) -> Self {
        Self {
            engine,
            world,
            cwd,
            network,
            prepared: Mutex::new(None),
            begun: Mutex::new(None),
        }
    }

    /// Where the logs of what is not an attempt are.
    fn log(&self, exploration: ExplorationId, name: &str) -> Result<PathBuf> {
        let dir = self
            .engine
            .store_dir()
            .join("explorations")
            .join(exploration.to_string());
        std::fs::create_dir_all(&dir)
            .map_err(|e| codes::LOG.io(format!("cannot make {}", dir.display()), e))?;
        Ok(dir.join(name))
    }

    fn layers(&self) -> Option<PreparedLayers> {
        self.prepared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Backend for EngineBackend {
    fn world(&self) -> WorldId {
        self.world.id()
    }

    fn wall_ns(&self) -> i64 {
        clock::wall_ns()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.world.notes().to_vec();
        if self.network == NetworkSpec::Host {
            notes.push(
                "the attempts reach the host's network: what they send there is not captured and \
                 cannot be rolled back"
                    .into(),
            );
        }
        notes
    }

    fn begin(&self, new: &NewExploration) -> Result<ExplorationId> {
        let id = ExplorationId::from_bits(rand::bits());
        let process = |e| codes::INTERNAL.io("cannot identify this process", e);
        let pid = std::process::id();
        let record = ExplorationRecord {
            id,
            world: self.world.id(),
            cwd: self.cwd.clone(),
            spec: new.spec.clone(),
            state: ExplorationState::Running,
            supervisor: Some(ProcessRecord {
                boot_id: clock::boot_id().map_err(process)?,
                pid,
                start_time: clock::process_start_time(pid).map_err(process)?,
            }),
            created_ns: clock::wall_ns(),
            ended_ns: None,
            result: None,
        };
        self.engine.store().put_exploration(&record)?;
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
        Ok(id)
    }

    fn prepare(
        &self,
        exploration: ExplorationId,
        request: &PrepareRequest,
        _output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Prepared> {
        let log = self.log(exploration, "prepare.log")?;
        let run = &request.run;
        let prepared = self.world.prepare(&PrepareOptions {
            argv: run.argv.clone(),
            env: run.env.clone(),
            network: network(run.network),
            limits: limits(&run.limits, run.timeout),
            inputs: request.inputs.clone(),
            log: Some(log.clone()),
            cancel: run.cancel.clone(),
        })?;
        *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared.layers);
        Ok(Prepared {
            cached: prepared.cached,
            changed: from_summary(&prepared.changes),
            log: (!prepared.cached).then_some(log),
        })
    }

    fn judge_base(&self, exploration: ExplorationId, request: &JudgeRequest) -> Result<Judged> {
        let log = self.log(exploration, &format!("base-{}", request.log))?;
        let judged = self
            .world
            .judge(self.layers().as_ref(), &judge_spec(request, log.clone()))?;
        Ok(Judged {
            exit: exit(&judged.exit),
            stdout: judged.stdout,
            metrics: judged.score_text,
            log: Some(log),
        })
    }

    fn fork(
        &self,
        exploration: ExplorationId,
        count: u32,
    ) -> Result<Vec<Result<Box<dyn Attempt>>>> {
        let forked = self.world.fork(&ForkOptions {
            count,
            durable: false,
            network: network(self.network),
            exploration: Some((exploration, 0)),
            over: self.layers(),
            ..ForkOptions::default()
        })?;
        let boxed = |branch| Box::new(EngineAttempt { branch }) as Box<dyn Attempt>;
        Ok(forked.into_iter().map(|fork| fork.map(boxed)).collect())
    }

    fn attempts(&self, exploration: ExplorationId, rows: &[NewAttempt]) -> Result<()> {
        let rows = rows
            .iter()
            .map(|row| {
                Ok(AttemptRecord {
                    exploration,
                    index: row.index,
                    branch: row.branch,
                    params: json(&row.params)?,
                    state: if row.branch.is_some() {
                        "running"
                    } else {
                        "failed_to_start"
                    }
                    .into(),
                    reason: None,
                    exit_code: None,
                    score: None,
                    passed: None,
                    detail: Some(json(&row.command)?),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        self.engine.store().put_attempts(&rows)
    }

    fn end(&self, report: &Report, error: Option<&Error>) -> Result<()> {
        let begun = self
            .begun
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(mut record) = begun else {
            return Ok(());
        };
        record.state = match report.outcome {
            Outcome::Interrupted | Outcome::Timeout => ExplorationState::Interrupted,
            _ => ExplorationState::Done,
        };
        record.ended_ns = Some(clock::wall_ns());
        record.result = Some(match error {
            Some(error) => json(error)?,
            None => json(report)?,
        });
        let rows = report
            .attempts
            .iter()
            .map(|a| attempt_record(report, a))
            .collect::<Result<Vec<_>>>()?;
        let store = self.engine.store();
        store.put_attempts(&rows)?;
        store.put_exploration(&record)
    }
}

fn attempt_record(report: &Report, a: &crate::AttemptReport) -> Result<AttemptRecord> {
    let state = serde_json::to_value(a.state)
        .map_err(|e| codes::INTERNAL.io("cannot write an attempt down", e))?;
    Ok(AttemptRecord {
        exploration: report.exploration,
        index: a.index,
        branch: a.branch,
        params: json(&a.params)?,
        state: state.as_str().unwrap_or_default().into(),
        reason: Some(a.reason.as_str().into()),
        exit_code: a.exit_code,
        score: a.score,
        passed: Some(a.passed),
        detail: Some(json(a)?),
    })
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| codes::INTERNAL.io("cannot write a record down", e))
}

struct EngineAttempt {
    branch: Branch,
}

impl EngineAttempt {
    fn beside_log(&self, name: &str) -> PathBuf {
        self.branch.log_path().with_file_name(name)
    }
}

impl Attempt for EngineAttempt {
    fn id(&self) -> BranchId {
        self.branch.id()
    }

    fn log(&self) -> PathBuf {
        self.branch.log_path()
    }

    fn out(&self) -> PathBuf {
        self.branch.out_path()
    }

    fn run(&self, request: &RunRequest, output: &mut dyn FnMut(Stream, &[u8])) -> Result<Exit> {
        let (program, args) = request
            .argv
            .split_first()
            .ok_or_else(|| codes::INTERNAL.error("an attempt without a command"))?;
        let mut command = self.branch.command(program);
        command
            .args(args)
            .stdin(Streams::Null)
            .stdout(Streams::Piped)
            .stderr(Streams::Piped);
        command
            .limits(limits(&request.limits, request.timeout))
            .lifeline(true)
            .new_session(true);
        for (name, value) in &request.env {
            command.env(name, value);
        }
        let mut child = command.spawn()?;
        let pipe = |file: Option<File>| {
            file.ok_or_else(|| codes::INTERNAL.error("an attempt without a pipe"))
        };
        let (stdout, stderr) = (pipe(child.stdout.take())?, pipe(child.stderr.take())?);
        logs::pump(
            stdout,
            stderr,
            child.wait_fd()?,
            request.cancel.fd(),
            &mut || child.kill(),
            &mut |stream, bytes| {
                output(stream, bytes);
                Ok(())
            },
        )?;
        let mut ended = exit(&child.wait()?);
        ended.uncaptured = child.warnings().to_vec();
        Ok(ended)
    }

    fn seal(&self, protect: &[String]) -> Result<Vec<PathBuf>> {
        Ok(self
            .branch
            .seal(&SealOptions {
                protect: protect.to_vec(),
            })?
            .restored)
    }

    fn delta(&self) -> Result<Delta> {
        let deltas = self.branch.deltas()?;
        let dropped = self.branch.dropped()?;
        Ok(Delta {
            changed: from_set(&deltas.attempt),
            prepared: from_set(&deltas.prepared),
            dropped: DroppedReport {
                files: dropped.files,
                bytes: dropped.bytes,
                paths: dropped.paths.into_iter().map(Into::into).collect(),
            },
        })
    }

    fn judge(&self, request: &JudgeRequest) -> Result<Judged> {
        let log = self.beside_log(&request.log);
        let judged = self.branch.judge(&judge_spec(request, log.clone()))?;
        Ok(Judged {
            exit: exit(&judged.exit),
            stdout: judged.stdout,
            metrics: judged.score_text,
            log: Some(log),
        })
    }

    fn record_verdict(&self, passed: bool, request: &JudgeRequest) -> Result<()> {
        let spec = judge_spec(request, self.beside_log(&request.log));
        self.branch.record_verdict(passed, &spec)
    }

    fn commit(&self, request: &CommitRequest) -> Result<Committed> {
        let reverify = request
            .reverify
            .as_ref()
            .map(|r| judge_spec(r, self.beside_log(&r.log)));
        let log = reverify.as_ref().and_then(|r| r.log.clone());
        let done = self.branch.commit(&CommitOptions {
            exclude: request.exclude.clone(),
            include_prepared: request.include_prepared,
            allow_host_exec: request.allow_host_exec,
            strict: request.strict,
            allow_empty: request.allow_empty,
            reverify,
            ..CommitOptions::default()
        })?;
        let mut notes = done.notes;
        if let Drift::Unknown { why, .. } = &done.drift {
            notes.push(format!(
                "whether the base changed elsewhere meanwhile is unknown: {why}"
            ));
        }
        use forkpoint_engine::CommitOutcome as E;
        let outcome = match done.outcome {
            E::Committed => CommitOutcome::Committed,
            E::Conflict(items) => CommitOutcome::Conflict(items),
            E::Lost { why } => CommitOutcome::Lost(why),
            E::ApplyBlocked(items) => CommitOutcome::Blocked(items),
            E::Drift(paths) => CommitOutcome::Drift(paths),
            E::Empty => CommitOutcome::Empty,
            E::ReverifyFailed(judged) => CommitOutcome::ReverifyFailed(Box::new(Judged {
                exit: exit(&judged.exit),
                stdout: judged.stdout,
                metrics: judged.score_text,
                log,
            })),
        };
        Ok(Committed {
            commit: done.commit,
            outcome,
            excluded: done.excluded,
            withheld: done.withheld,
            notes,
        })
    }

    fn abort(&self, reason: &str, retain: bool) -> Result<RolledBack> {
        let record = self.branch.record()?;
        if record.state.is_end() {
            // A sibling's commit has rolled it back already.
            return Ok(RolledBack {
                state: record.state,
                left: Vec::new(),
            });
        }
        let done = self.branch.abort(&AbortOptions {
            reason: reason.into(),
            retain,
        })?;
        Ok(RolledBack {
            state: done.state,
            left: done.left,
        })
    }
}

fn network(spec: NetworkSpec) -> Network {
    match spec {
        NetworkSpec::Loopback => Network::Loopback,
        NetworkSpec::Host => Network::Host,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn limits(spec: &LimitSpec, wall: Option<Duration>) -> Limits {
    Limits {
        wall_ms: wall.map(milliseconds),
        cpu_ms: spec.cpu.map(|t| milliseconds(t.0)),
        memory_bytes: spec.memory.map(|s| s.0),
        pids: spec.pids.map(u64::from),
        disk_bytes: spec.disk.map(|s| s.0),
    }
}

fn judge_spec(request: &JudgeRequest, log: PathBuf) -> JudgeSpec {
    let run = &request.run;
    JudgeSpec {
        argv: run.argv.clone(),
        env: run.env.clone(),
        timeout: run.timeout,
        limits: limits(&run.limits, None),
        network: network(run.network),
        mounts: request.mounts.clone(),
        log: Some(log),
        capture_limit: if request.score { CAPTURE } else { 0 },
        score: request.score,
        cancel: run.cancel.clone(),
    }
}

fn exit(report: &ExitReport) -> Exit {
    let ended = match &report.status {
        ExitKind::Code(code) => Ended::Code(*code),
        ExitKind::Signal(signal) => Ended::Signal(*signal),
        ExitKind::LimitHit(Limit::Wall) => Ended::TimeLimit,
        ExitKind::LimitHit(limit) => Ended::Limit(
            match limit {
                Limit::Wall => "time",
                Limit::Cpu => "processor time",
                Limit::Memory => "memory",
                Limit::Pids => "process",
                Limit::Disk => "disk",
            }
            .into(),
        ),
        ExitKind::StartFailed { errno, what } => Ended::NotStarted(format!(
            "{what}: {}",
            std::io::Error::from_raw_os_error(*errno)
        )),
    };
    Exit {
        ended,
        wall: Duration::from_nanos(report.wall_ns),
        cpu: Duration::from_nanos(report.cpu_ns),
        peak_memory_bytes: report.peak_memory_bytes,
        uncaptured: Vec::new(),
    }
}

fn from_summary(summary: &ChangeSummary) -> Changed {
    Changed {
        files: summary.items,
        bytes: summary.bytes,
    }
}

fn from_set(set: &ChangeSet) -> Changed {
    Changed {
        files: set.changes.len() as u64,
        bytes: set.bytes,
    }
}
