//! The real backend: the engine, and the store's records of explorations.

use forkpoint_engine::records::{
    AttemptRecord, ExplorationRecord, ExplorationState, ProcessRecord,
};
use forkpoint_engine::{
    COMPARED, Engine, ForkOptions, GroupId, PrepareOptions, PreparedLayers, World,
};
use forkpoint_model::{Error, ExplorationId, Result, WorldId};
use forkpoint_sys::{clock, rand};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::backend::{
    Attempt, Backend, JudgeRequest, Judged, NewAttempt, NewExploration, PrepareRequest, Prepared,
    Stream,
};
use crate::claims::COMPARE_LIMIT;
use crate::codes;
use crate::report::{Outcome, Report};
use crate::spec::NetworkSpec;

mod attempt;
mod convert;

pub(crate) use attempt::EngineAttempt;
use convert::{exit, from_summary, judge_spec, limits, network};

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
        for device in self.engine.devices() {
            notes.push(format!(
                "the attempts use {}: what they do with it is not captured and cannot be rolled back",
                device.display()
            ));
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
            redactor: request.redactor.clone(),
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
            // One group for all there will ever be: of one exploration one commit succeeds.
            group: Some(GroupId::from_bits(rand::bits())),
            over: self.layers(),
            ..ForkOptions::default()
        })?;
        let network = network(self.network);
        let boxed = |branch| Box::new(EngineAttempt { branch, network }) as Box<dyn Attempt>;
        Ok(forked.into_iter().map(|fork| fork.map(boxed)).collect())
    }

    fn compare(
        &self,
        exploration: ExplorationId,
        pair: [&dyn Attempt; 2],
        request: &JudgeRequest,
    ) -> Result<Judged> {
        let log = self.log(exploration, &request.log)?;
        let left = self.engine.branch_by_id(pair[0].id())?;
        let right = self.engine.branch_by_id(pair[1].id())?;
        let mut spec = judge_spec(request, log.clone());
        spec.capture_limit = COMPARE_LIMIT;
        for (name, place) in ["FORKPOINT_LEFT", "FORKPOINT_RIGHT"]
            .into_iter()
            .zip(COMPARED)
        {
            spec.env.push((name.into(), place.into()));
        }
        let judged = self
            .world
            .compare(self.layers().as_ref(), [&left, &right], &spec)?;
        Ok(Judged {
            exit: exit(&judged.exit),
            stdout: judged.stdout,
            metrics: None,
            log: Some(log),
        })
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
