//! Moving a git branch: prepared first, so that whatever stands against it is known before anything
//! is decided, and finished by the next command if this one dies after the decision.

use super::GitRef;
use super::plumbing::{Repo, failed, not_started};
use crate::branch::{Branch, name};
use crate::codes;
use crate::detail::Detail;
use forkpoint_model::Result;
use forkpoint_model::state::BranchEvent;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// The name of nothing.
pub(super) const NONE: &str = "0000000000000000000000000000000000000000";

/// A transaction on references that holds their locks. Dropped before [`Prepared::commit`], it never
/// was: git ends it when its input ends.
pub(super) struct Prepared {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Prepared {
    /// Moves the branch from `old` to the commit, and drops the reference that kept it till then.
    pub(super) fn new(repo: &Repo, to: &GitRef) -> Result<Self> {
        let args = ["update-ref", "-m", "forkpoint: commit", "--stdin"];
        let mut child = repo
            .command(&args)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(not_started)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(codes::INTERNAL.error("a child without its pipes"));
        };
        let mut prepared = Self {
            child,
            input: Some(input),
            output: BufReader::new(output),
        };
        let (name, commit, old) = (&to.reference(), &to.commit, &to.old);
        prepared.say("start\n")?;
        prepared.say(&format!("update {name} {commit} {old}\n"))?;
        prepared.say(&format!("delete {} {commit}\nprepare\n", to.keeper))?;
        prepared.hear("start: ok")?;
        prepared.hear("prepare: ok")?;
        Ok(prepared)
    }

    /// Makes it so.
    pub(super) fn commit(mut self) -> Result<()> {
        self.say("commit\n")?;
        self.hear("commit: ok")?;
        self.input = None;
        let status = self.child.wait().map_err(not_started)?;
        match status.success() {
            true => Ok(()),
            false => Err(self.complaint()),
        }
    }

    fn say(&mut self, text: &str) -> Result<()> {
        let said = self
            .input
            .as_mut()
            .map(|input| input.write_all(text.as_bytes()));
        match said {
            Some(Ok(())) => Ok(()),
            _ => Err(self.complaint()),
        }
    }

    fn hear(&mut self, wanted: &str) -> Result<()> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(_) if line.trim_end() == wanted => Ok(()),
            _ => Err(self.complaint()),
        }
    }

    fn complaint(&mut self) -> forkpoint_model::Error {
        self.input = None;
        let mut text = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Without its words there is still the verb.
            stderr.take(1 << 16).read_to_end(&mut text).unwrap_or(0);
        }
        failed(&["update-ref"], &text)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.input = None;
        // It has nothing left to do but to let its locks go.
        self.child.wait().ok();
    }
}

impl Branch {
    /// Finishes a decided commit as a git branch after a crash. Says what it did, if anything.
    pub(crate) fn finish_git(&self) -> Result<Option<String>> {
        let Ok(_lock) = self.lock() else {
            return Ok(None);
        };
        let record = self.record()?;
        let Some(to) = Detail::of(&record)?.git else {
            return Ok(None);
        };
        if !record.state.is_applying() {
            return Ok(None);
        }
        let repo = Repo::of(&self.engine, &self.base()?)?;
        let now = repo.resolve(&to.reference())?;
        let line = if now.as_deref() == Some(&to.commit) {
            format!("{} is the git branch {}", name(&record), to.branch)
        } else if now.as_deref().unwrap_or(NONE) == to.old {
            Prepared::new(&repo, &to)?.commit()?;
            format!("{} became the git branch {}", name(&record), to.branch)
        } else {
            // Somebody else's by now: what was decided stays under the name it was kept by.
            format!(
                "{} was committed, and the git branch {} moved meanwhile: its commit is {}",
                name(&record),
                to.branch,
                to.keeper
            )
        };
        self.git_done(&record, &to)?;
        Ok(Some(line))
    }

    /// The reference is moved: the branch is committed, and its delta kept for what git cannot carry.
    pub(super) fn git_done(
        &self,
        record: &forkpoint_store::BranchRecord,
        to: &GitRef,
    ) -> Result<()> {
        let now = self.engine.now();
        let bytes = self.engine.delta_usage(record)?;
        let text = format!(
            "committed {} as git branch {}: {}",
            name(record),
            to.branch,
            to.commit
        );
        let store = self.engine.store();
        store.batch(forkpoint_store::Durability::Full, |store| {
            store.transition_with(self.id, &BranchEvent::Applied, now, |b| {
                b.retained = true;
                b.bytes = Some(bytes);
            })?;
            store.append_history(&forkpoint_store::HistoryRecord {
                seq: 0,
                at_ns: now,
                verb: "commit".into(),
                world: Some(record.world),
                branch: Some(self.id),
                commit: None,
                text,
                json: None,
            })?;
            Ok(())
        })
    }
}
