//! What an exploration tells whoever watches it, while it happens. The report says all of it again at
//! the end; nothing here is needed to understand the outcome.

use forkpoint_model::ExplorationId;
use forkpoint_model::strategy::Comparison;
use std::path::Path;
use std::time::Duration;

use crate::backend::{Exit, Prepared, Stream};
use crate::report::{AttemptReport, Baseline, Reason};

/// One thing that happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Something a person should know.
    Note(&'a str),
    /// It begins.
    Begin {
        /// Its id.
        exploration: ExplorationId,
        /// How many attempts.
        attempts: u32,
        /// How many at once.
        jobs: u32,
        /// How the winner is chosen.
        strategy: &'static str,
    },
    /// The preparation begins.
    Preparing {
        /// The command.
        command: &'a str,
    },
    /// The preparation is there.
    Prepared {
        /// What it gave.
        prepared: &'a Prepared,
        /// How long it took.
        took: Duration,
    },
    /// The gate has looked at the base.
    Baseline(&'a Baseline),
    /// An attempt's command starts.
    Started {
        /// The attempt.
        index: u32,
        /// Its command.
        command: &'a str,
    },
    /// A line of output. Control characters are replaced, and a very long line is cut.
    Line {
        /// The attempt; none for the preparation.
        index: Option<u32>,
        /// Which stream.
        stream: Stream,
        /// The line without its end.
        text: &'a str,
    },
    /// An attempt says how far it is.
    Told {
        /// The attempt.
        index: u32,
        /// In words, without control characters.
        text: &'a str,
        /// How much is done, from 0 to 1.
        fraction: Option<f64>,
    },
    /// What a running attempt uses, from time to time; to those who ask for it.
    Usage {
        /// The attempt.
        index: u32,
        /// Processor time so far.
        cpu: Duration,
        /// Memory now, in bytes.
        memory_bytes: u64,
    },
    /// An attempt's command ended.
    Ended {
        /// The attempt.
        index: u32,
        /// How.
        exit: &'a Exit,
    },
    /// Protected paths that an attempt had changed were put back.
    Restored {
        /// The attempt.
        index: u32,
        /// How many.
        paths: usize,
    },
    /// The gate has judged.
    Verified {
        /// The attempt.
        index: u32,
        /// Whether it passed.
        passed: bool,
        /// Where the verifier's output is.
        log: Option<&'a Path>,
    },
    /// The score is known.
    Scored {
        /// The attempt.
        index: u32,
        /// The score.
        score: f64,
    },
    /// Two attempts were compared.
    Compared {
        /// The one on the left.
        left: u32,
        /// The one on the right.
        right: u32,
        /// Which is better.
        verdict: Comparison,
    },
    /// An attempt is out.
    Out {
        /// The attempt.
        index: u32,
        /// Why.
        reason: Reason,
        /// In words, where there are any.
        detail: Option<&'a str>,
    },
    /// Everything that was told to stop is dead.
    LosersDead {
        /// How many.
        count: usize,
        /// Since they were told.
        took: Duration,
    },
    /// A commit begins.
    Committing {
        /// The attempt.
        index: u32,
    },
    /// It is committed, or chosen.
    Won {
        /// The attempt.
        attempt: &'a AttemptReport,
        /// Whether it is committed.
        committed: bool,
    },
    /// A commit was refused.
    Refused {
        /// The attempt.
        index: u32,
        /// Why.
        why: &'a str,
    },
}

/// Watches an exploration. Called from several threads, one at a time; a call should not take long,
/// since the attempts' output waits for it.
pub trait Observer: Send {
    /// Something happened.
    fn on(&mut self, progress: &Progress<'_>);

    /// Whether it wants to know what running attempts use: each is then asked every few seconds.
    fn wants_usage(&self) -> bool {
        false
    }
}

/// Watches nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {
    fn on(&mut self, _progress: &Progress<'_>) {}
}
