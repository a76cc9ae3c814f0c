//! One attempt as the engine's branch.

use forkpoint_engine::{
    AbortOptions, Branch, CommitOptions, Drift, ForkOptions, Network, OUT_INSIDE, SealOptions,
    Stream as Streams,
};
use forkpoint_model::{BranchId, ExplorationId, Result};
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use super::convert::{exit, from_set, judge_spec, limits};
use crate::backend::{
    Attempt, CommitOutcome, CommitRequest, Committed, Delta, Exit, JudgeRequest, Judged,
    RolledBack, RunRequest, Stream, Told, Usage,
};
use crate::claims::{self, CLAIM_LIMIT, COST_FILE, COST_LIMIT, PROGRESS_FILE, SCORE_FILE};
use crate::cost::Cost;
use crate::report::DroppedReport;
use crate::{codes, files, logs};

pub(crate) struct EngineAttempt {
    pub(super) branch: Branch,
    pub(super) network: Network,
}

impl EngineAttempt {
    /// A branch that is no attempt of an exploration.
    pub(crate) fn plain(branch: Branch, network: Network) -> Self {
        Self { branch, network }
    }

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

    fn fork(&self, exploration: ExplorationId, index: u32) -> Result<Box<dyn Attempt>> {
        let forked = self.branch.fork(&ForkOptions {
            count: 1,
            durable: false,
            network: self.network,
            exploration: Some((exploration, index)),
            group: self.branch.record()?.group,
            beside: true,
            ..ForkOptions::default()
        })?;
        let branch = forked
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(codes::INTERNAL.error("the engine forked nothing")))?;
        Ok(Box::new(Self {
            branch,
            network: self.network,
        }))
    }

    fn usage(&self, disk: bool) -> Result<Usage> {
        let usage = self.branch.usage(disk)?;
        Ok(Usage {
            cpu: Duration::from_nanos(usage.cpu_ns),
            memory_bytes: usage.memory_bytes,
            disk_bytes: usage.disk_bytes,
        })
    }

    fn cost(&self) -> Result<Cost> {
        files::read_claim(&self.out(), COST_FILE, COST_LIMIT).map(|text| claims::cost(&text))
    }

    fn claimed_score(&self) -> Result<Option<f64>> {
        files::read_claim(&self.out(), SCORE_FILE, CLAIM_LIMIT).map(|text| claims::score(&text))
    }

    fn progress(&self) -> Result<Option<Told>> {
        let text = files::read_claim(&self.out(), PROGRESS_FILE, CLAIM_LIMIT);
        text.map(|text| claims::progress(&text))
    }

    fn inside(&self, name: &str) -> OsString {
        format!("{OUT_INSIDE}/{name}").into()
    }

    fn leave(&self, name: &str, text: &[u8]) -> Result<OsString> {
        files::leave(&self.out(), name, text)?;
        Ok(self.inside(name))
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
