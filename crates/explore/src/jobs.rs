//! The work of one attempt that takes time, each run on a thread of its own: its command, its
//! verifier, its score. Nothing here decides anything about the exploration.

use forkpoint_engine::redact::Cleaner;
use forkpoint_model::{Error, Result};
use std::path::PathBuf;

use crate::backend::{Attempt, Delta, Ended, Exit, JudgeRequest, Judged, RunRequest};
use crate::codes;
use crate::logs::{LOG_CAP, Lines, LogFile};
use crate::observer::Progress;
use crate::score::{self, Score};
use crate::watch::Shared;

/// How a job came out.
#[derive(Debug)]
pub(crate) enum Done<T> {
    /// With this.
    Ok(T),
    /// It was told to stop.
    Stopped,
    /// It failed.
    Failed(Error),
}

impl<T> Done<T> {
    /// A failure of something that was told to stop is a stop.
    pub(crate) fn of(result: Result<Option<T>>, cancelled: bool) -> Self {
        match result {
            Ok(Some(value)) => Self::Ok(value),
            Ok(None) => Self::Stopped,
            Err(_) if cancelled => Self::Stopped,
            Err(error) => Self::Failed(error),
        }
    }
}

/// What came of an attempt's command.
#[derive(Debug)]
pub(crate) struct Run {
    /// How it ended and what it used, whatever came of it then; nothing where it was never started.
    pub(crate) exit: Option<Exit>,
    pub(crate) done: Done<Ran>,
}

impl Run {
    /// It did not even come to its command.
    pub(crate) fn failed(error: Error) -> Self {
        Self {
            exit: None,
            done: Done::Failed(error),
        }
    }
}

/// What an attempt's command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ended: Ended,
    pub(crate) restored: Vec<PathBuf>,
    pub(crate) delta: Delta,
}

/// What the verifier said: its last run.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) passed: bool,
    pub(crate) judged: Judged,
}

/// What a job's thread sends back.
#[derive(Debug)]
pub(crate) enum Outcome {
    Ran(Run),
    Verified(Done<Verdict>),
    Scored(Done<Score>),
    Compared(Done<Judged>),
}

/// Runs the attempt's command, then seals its branch and sums up what it changed.
pub(crate) fn run(
    index: u32,
    attempt: &dyn Attempt,
    request: &RunRequest,
    protect: &[String],
    shared: &Shared<'_>,
) -> Run {
    let cancelled = || request.cancel.is_cancelled();
    let mut used = None;
    let mut body = || {
        let exit = logged(Some(index), Some(attempt.log()), shared, |output| {
            attempt.run(request, output)
        })?;
        shared.tell(&Progress::Ended { index, exit: &exit });
        let ended = exit.ended.clone();
        used = Some(exit);
        if cancelled() {
            return Ok(None);
        }
        let restored = attempt.seal(protect)?;
        if !restored.is_empty() {
            shared.tell(&Progress::Restored {
                index,
                paths: restored.len(),
            });
        }
        let delta = attempt.delta()?;
        Ok(Some(Ran {
            ended,
            restored,
            delta,
        }))
    };
    let result = body();
    Run {
        exit: used,
        done: Done::of(result, cancelled()),
    }
}

/// Runs `command` with a function that takes its output: into the log, and line by line to whoever
/// watches. The first failure of the log is the result, since output that is lost unsaid is worse
/// than an attempt that fails.
pub(crate) fn logged(
    index: Option<u32>,
    log: Option<PathBuf>,
    shared: &Shared<'_>,
    command: impl FnOnce(&mut dyn FnMut(crate::backend::Stream, &[u8])) -> Result<Exit>,
) -> Result<Exit> {
    use crate::backend::Stream;
    let mut log = log
        .map(|path| LogFile::append(&path, LOG_CAP))
        .transpose()?;
    let mut failed: Option<Error> = None;
    let mut lines = [Lines::default(), Lines::default()];
    let mut clean = [(); 2].map(|()| Cleaner::new(&shared.redactor));
    let streams = [Stream::Stdout, Stream::Stderr];
    let tell = |stream, text: &str| {
        shared.tell(&Progress::Line {
            index,
            stream,
            text,
        })
    };
    let mut give = |stream: Stream, bytes: &[u8]| {
        if let Some(log) = log.as_mut().filter(|_| failed.is_none()) {
            failed = log.write(bytes).err();
        }
        lines[stream as usize].push(bytes, |text| tell(stream, text));
    };
    let exit = command(&mut |stream, bytes| {
        clean[stream as usize].push(bytes, &mut |bytes| give(stream, bytes));
    })?;
    for stream in streams {
        clean[stream as usize].end(&mut |bytes| give(stream, bytes));
    }
    for stream in streams {
        lines[stream as usize].end(|text| tell(stream, text));
    }
    if let Some(error) = failed {
        return Err(error);
    }
    log.map_or(Ok(()), LogFile::finish)?;
    Ok(exit)
}

/// Judges the attempt `repeat` times, until it does not pass.
pub(crate) fn verify(attempt: &dyn Attempt, request: &JudgeRequest, repeat: u32) -> Done<Verdict> {
    let cancelled = || request.run.cancel.is_cancelled();
    let body = || {
        for round in 1..=repeat.max(1) {
            let last = round >= repeat;
            let log = round_log("verify", round, repeat);
            let judged = attempt.judge(&JudgeRequest {
                log,
                ..request.clone()
            })?;
            if cancelled() {
                return Ok(None);
            }
            let passed = judged.exit.ended == Ended::Code(0);
            if !passed || last {
                attempt.record_verdict(passed, request)?;
                return Ok(Some(Verdict { passed, judged }));
            }
        }
        Err(codes::INTERNAL.error("a verifier was asked for no run at all"))
    };
    let result = body();
    Done::of(result, cancelled())
}

/// Scores the attempt `repeat` times and takes the median.
pub(crate) fn score(attempt: &dyn Attempt, request: &JudgeRequest, repeat: u32) -> Done<Score> {
    let cancelled = || request.run.cancel.is_cancelled();
    let body = || {
        let mut runs = Vec::new();
        for round in 1..=repeat.max(1) {
            let log = round_log("score", round, repeat);
            let judged = attempt.judge(&JudgeRequest {
                log,
                ..request.clone()
            })?;
            if cancelled() {
                return Ok(None);
            }
            runs.push(read_score(&judged)?);
        }
        let all =
            score::combine(&runs).ok_or_else(|| codes::SCORE.error("the scores have no median"))?;
        Ok(Some(all))
    };
    let result = body();
    Done::of(result, cancelled())
}

/// One run's score; a score command that fails has none, whatever it printed.
pub(crate) fn read_score(judged: &Judged) -> Result<Score> {
    match &judged.exit.ended {
        Ended::Code(0) => score::read(&judged.stdout, judged.metrics.as_deref()),
        ended => Err(codes::SCORE.error(format!("the score command {}", words(ended)))),
    }
}

fn round_log(what: &str, round: u32, repeat: u32) -> String {
    if repeat > 1 {
        format!("{what}-{round}.log")
    } else {
        format!("{what}.log")
    }
}

/// How a command ended, after "the command".
pub fn words(ended: &Ended) -> String {
    match ended {
        Ended::Code(code) => format!("exited with {code}"),
        Ended::Signal(signal) => format!("was killed by signal {signal}"),
        Ended::TimeLimit => "ran into its time limit".into(),
        Ended::Limit(which) => format!("ran into its {which} limit"),
        Ended::NotStarted(why) => format!("could not be started: {why}"),
    }
}
