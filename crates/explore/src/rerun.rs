//! Doing again what was committed, in a fork of the base as it was before, and comparing: the last part
//! of an audit. A result that comes out the same was made by what is on record, and by nothing else.

use forkpoint_engine::{AbortOptions, ChangeSet, Engine, ForkOptions, Network, SealOptions};
use forkpoint_model::{BranchId, CommitId, Result};
use std::ffi::OsString;

use crate::backend::{Attempt, Ended, RunRequest, Stream};
use crate::real::EngineAttempt;
use crate::spec::{ExploreSpec, NetworkSpec};
use crate::vars::{self, Caller};
use crate::{Cancel, codes, redact};

/// What came of it.
#[derive(Debug)]
pub struct Rerun {
    /// What was run, for a person.
    pub command: String,
    /// How it ended.
    pub ended: Ended,
    /// In what the files differ from the base as it now is, times aside.
    pub differences: ChangeSet,
    /// Whether the keys that it changes, and to what, are the commit's; none where neither changes any.
    pub same_keys: Option<bool>,
}

impl Rerun {
    /// Whether it came out the same.
    pub fn same(&self) -> bool {
        self.differences.changes.is_empty() && self.same_keys != Some(false)
    }
}

/// Runs again what made a commit: the command of its attempt as the exploration's record has it, or
/// `command`. The base is not touched, and the fork is gone afterwards. `output` is given what it writes.
///
/// # Errors
/// `FP0410` where the base is not as the commit left it, or what was before is not kept; `FP0502` where
/// no command is on record and none is given.
pub fn rerun(
    engine: &Engine,
    txn: CommitId,
    command: Option<&[OsString]>,
    caller: Caller<'_>,
    cancel: &Cancel,
    output: &mut dyn FnMut(Stream, &[u8]),
) -> Result<Rerun> {
    let commit = engine.store().commit(txn)?;
    let requests = match command {
        Some(argv) => vec![RunRequest {
            argv: argv.to_vec(),
            env: Vec::new(),
            timeout: None,
            limits: Default::default(),
            network: NetworkSpec::Loopback,
            cancel: cancel.clone(),
        }],
        None => recorded(engine, commit.branch, caller, cancel)?,
    };
    let shown = |r: &RunRequest| {
        let words = r.argv.iter().map(|w| w.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    };
    let text = requests.iter().map(shown).collect::<Vec<_>>().join("; ");
    let branch = engine.fork_before(txn, &ForkOptions::default())?;
    let attempt = EngineAttempt::plain(branch.clone(), Network::Loopback);
    let done = (|| {
        let mut ended = Ended::Code(0);
        for request in &requests {
            ended = attempt.run(request, output)?.ended;
            if ended != Ended::Code(0) {
                break;
            }
        }
        branch.seal(&SealOptions::default())?;
        let keys = branch.changed_keys()?;
        let voted = commit.votes.iter().find(|(p, _)| p.0 == "kv");
        let same_keys = match (voted, keys) {
            (None, (0, _)) => None,
            (Some((_, vote)), (_, digest)) => Some(vote.digest == digest),
            (None, _) => Some(false),
        };
        Ok(Rerun {
            command: text,
            ended,
            differences: branch.differences()?,
            same_keys,
        })
    })();
    branch.abort(&AbortOptions {
        reason: "rerun".into(),
        retain: false,
    })?;
    done
}

/// What an exploration's record says that the branch ran: the preparation, if there was one, then its
/// command, with the variables that it had.
fn recorded(
    engine: &Engine,
    branch: BranchId,
    caller: Caller<'_>,
    cancel: &Cancel,
) -> Result<Vec<RunRequest>> {
    let none = |why: String| {
        codes::UNKNOWN
            .error(why)
            .hint("say what made it: forkpoint audit COMMIT --rerun -- COMMAND")
    };
    let store = engine.store();
    let record = store.branch(branch)?;
    let Some((exploration, index)) = record.exploration else {
        return Err(none(format!("{branch} was made by no exploration")));
    };
    let text = store.exploration(exploration)?.spec;
    let detail = store.attempt(exploration, index)?.detail;
    drop(store);
    let spec: ExploreSpec = serde_json::from_str(&text)
        .map_err(|e| codes::INTERNAL.io("the record of an exploration is damaged", e))?;
    let row: Option<crate::AttemptReport> = detail
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    if let Some(parent) = row.and_then(|row| row.parent) {
        return Err(none(format!(
            "attempt {index} went on from attempt {parent}: no one command made it"
        )));
    }
    let trials = spec.expand()?;
    let trial = trials
        .get(index as usize)
        .ok_or_else(|| none(format!("attempt {index} is not on record")))?;
    let common = vars::resolve(&spec.env, caller);
    let secrets = redact::values(&spec.secrets, caller)?;
    let mut requests = Vec::new();
    if let Some(prepare) = &spec.prepare {
        let mut env = common.clone();
        if prepare.secrets {
            env.extend(secrets.iter().cloned());
        }
        requests.push(RunRequest {
            argv: prepare.command.argv(),
            env,
            timeout: prepare.timeout.map(|t| t.0),
            limits: spec.limits,
            network: prepare.network,
            cancel: cancel.clone(),
        });
    }
    let mut env = vars::of_attempt(exploration, index, trial, &common, caller);
    env.push(("FORKPOINT_DEPTH".into(), "0".into()));
    env.extend(secrets);
    requests.push(RunRequest {
        argv: trial.command.argv(),
        env,
        timeout: trial.timeout.map(|t| t.0),
        limits: trial.limits,
        network: spec.network,
        cancel: cancel.clone(),
    });
    Ok(requests)
}
