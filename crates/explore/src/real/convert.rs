//! Between the plain data of explorations and the engine's.

use forkpoint_engine::{
    ChangeSet, ChangeSummary, ExitKind, ExitReport, JudgeSpec, Limit, Limits, Network,
};
use std::path::PathBuf;
use std::time::Duration;

use crate::backend::{Ended, Exit, JudgeRequest};
use crate::report::Changed;
use crate::spec::{LimitSpec, NetworkSpec};

/// How much of a score's standard output is looked at.
const CAPTURE: usize = 256 << 10;

pub(super) fn network(spec: NetworkSpec) -> Network {
    match spec {
        NetworkSpec::Loopback => Network::Loopback,
        NetworkSpec::Host => Network::Host,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn limits(spec: &LimitSpec, wall: Option<Duration>) -> Limits {
    Limits {
        wall_ms: wall.map(milliseconds),
        cpu_ms: spec.cpu.map(|t| milliseconds(t.0)),
        memory_bytes: spec.memory.map(|s| s.0),
        pids: spec.pids.map(u64::from),
        disk_bytes: spec.disk.map(|s| s.0),
    }
}

pub(super) fn judge_spec(request: &JudgeRequest, log: PathBuf) -> JudgeSpec {
    let run = &request.run;
    JudgeSpec {
        argv: run.argv.clone(),
        env: run.env.clone(),
        timeout: run.timeout,
        limits: limits(&run.limits, None),
        network: network(run.network),
        mounts: request.mounts.clone(),
        log: Some(log),
        redactor: request.redactor.clone(),
        capture_limit: if request.score { CAPTURE } else { 0 },
        score: request.score,
        cancel: run.cancel.clone(),
    }
}

pub(super) fn exit(report: &ExitReport) -> Exit {
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

pub(super) fn from_summary(summary: &ChangeSummary) -> Changed {
    Changed {
        files: summary.items,
        bytes: summary.bytes,
    }
}

pub(super) fn from_set(set: &ChangeSet) -> Changed {
    Changed {
        files: set.changes.len() as u64,
        bytes: set.bytes,
    }
}
