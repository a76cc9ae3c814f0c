//! Committing a branch as a git branch of the repository its base lies in.
//!
//! The new commit is HEAD's tree with the branch's changes, and HEAD's commit is its parent. The work
//! tree, the index, HEAD and the world's head stay as they are. Objects are written by one
//! `git fast-import`, which runs no hooks and no filters and keeps them from collection under a
//! reference of our own; then the decision is recorded; then the git branch is moved. A crash before
//! the decision leaves the branch as it was, one after it is finished by the next command.

mod choose;
mod plumbing;
mod refs;

use crate::branch::{Branch, kill_recorded, name};
use crate::codes;
use crate::commit::lost;
use crate::drive::Driver;
use crate::engine::Engine;
use crate::files::{Scratch, mismatch};
use crate::lock::Lock;
use crate::options::{CommitOptions, CommitOutcome, CommitReport, SealOptions};
use choose::Choice;
use forkpoint_fs::blobs::{self, Paths};
use forkpoint_fs::stream::{StreamRequest, StreamResponse};
use forkpoint_model::commit::Lost;
use forkpoint_model::state::{BranchEvent, BranchState};
use forkpoint_model::{BranchId, CommitId, Conflict, Result};
use forkpoint_store::{BranchRecord, Durability};
use plumbing::{Repo, failed, not_started};
use refs::{NONE, Prepared};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Stdio;

/// How to commit as a git branch.
#[derive(Clone)]
pub struct GitOptions {
    /// The git branch's name.
    pub branch: String,
    /// The commit's message; a line that names the Forkpoint branch if there is none.
    pub message: Option<String>,
    /// Also what the ignore rules leave out.
    pub include_ignored: bool,
    /// Move a git branch of that name that is there already.
    pub replace: bool,
    /// The rest is as for any commit. `stop_others` has no meaning: the base is not changed.
    pub commit: CommitOptions,
}

/// A git branch that a branch was committed as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitRef {
    /// The git branch's name.
    pub branch: String,
    /// The commit's object name.
    pub commit: String,
    /// What the git branch was before; all zeros where there was none.
    pub old: String,
    /// The reference that keeps the commit until the git branch does.
    pub keeper: String,
}

impl GitRef {
    fn reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }
}

/// What a commit as a git branch did.
#[derive(Debug, Clone)]
pub struct GitReport {
    /// The rest; `generation` is the world's, which stays.
    pub report: CommitReport,
    /// The git branch, when it is committed.
    pub made: Option<GitRef>,
    /// The commit's parent.
    pub parent: String,
    /// Paths that the ignore rules left out.
    pub ignored: Vec<PathBuf>,
    /// Paths of which git has no notion: FIFOs, devices, what lies in `.git`.
    pub uncarried: Vec<PathBuf>,
}

/// The git branch that a committed branch became, if it did.
pub fn git_ref(record: &BranchRecord) -> Option<GitRef> {
    crate::detail::Detail::of(record).ok()?.git
}

impl Branch {
    /// Commits it as a git branch. Siblings lose as by any commit; independent branches stay fresh,
    /// since the base does not change. Its delta stays retained: git does not carry all of it.
    ///
    /// # Errors
    /// `FP0430` where the repository cannot take it, `FP0431` where the name is taken, `FP0432` where
    /// git fails, and as [`Branch::commit`].
    pub fn commit_git(&self, options: &GitOptions) -> Result<GitReport> {
        let lock = self.lock()?;
        let world = self.world()?;
        let engine = &self.engine;
        let repo = Repo::of(engine, world.base())?;
        let old = free_name(&repo, options)?;
        let people = people(&repo)?;
        let parent = repo.resolve("HEAD^{commit}")?.ok_or_else(|| {
            codes::GIT
                .error("the repository has no commit yet")
                .hint("make a first one: git commit --allow-empty -m start")
        })?;
        self.seal_locked(&lock, &SealOptions::default())?;
        forkpoint_model::state::may_commit(&self.record()?.context(), options.commit.force)?;
        // Holds the base against whoever would commit into it meanwhile.
        let mut driver = Driver::new(engine, &world, self.id, Some(&lock), &options.commit)?;
        let txn = engine.draw(CommitId::from_bits);
        let record = self.record()?;
        let mut made = GitReport {
            report: CommitReport::new(txn, record.generation),
            made: None,
            parent: parent.clone(),
            ignored: Vec::new(),
            uncarried: Vec::new(),
        };
        if record.state == BranchState::Invalidated {
            let why = lost(&Lost::Sibling { winner: None });
            made.report.outcome = CommitOutcome::Lost { why };
            return Ok(made);
        }
        if let Some(outcome) = self.consider(&mut driver, &options.commit, &mut made.report)? {
            made.report.outcome = outcome;
            return Ok(made);
        }
        let keys = self.kv_changed()?;
        if keys > 0 {
            let note = format!("the {keys} keys it changed are not part of the git branch");
            made.report.notes.push(note);
        }
        let choice = self.choose(&repo, &parent, &driver, options, &mut made)?;
        let choice = match choice {
            Ok(choice) => choice,
            Err(outcome) => {
                made.report.outcome = outcome;
                return Ok(made);
            }
        };
        let keeper = format!("refs/forkpoint/{txn}");
        let commit = self.import(&repo, &choice, &parent, &keeper, &people, options)?;
        let to = GitRef {
            branch: options.branch.clone(),
            commit,
            old,
            keeper,
        };
        let done = self.settle_git(&lock, &repo, &to, &parent, options, &mut made);
        if !matches!(done, Ok(true)) {
            // Not decided, or nothing in it: what was written is left to git's own collection.
            repo.run(&["update-ref", "-d", &to.keeper])?;
        }
        done.map(|_| made)
    }

    /// Decides and moves the git branch; false when nothing was decided.
    fn settle_git(
        &self,
        _lock: &Lock,
        repo: &Repo,
        to: &GitRef,
        parent: &str,
        options: &GitOptions,
        made: &mut GitReport,
    ) -> Result<bool> {
        let tree = |commit: &str| repo.resolve(&format!("{commit}^{{tree}}"));
        if tree(&to.commit)? == tree(parent)? && !options.commit.allow_empty {
            made.report.outcome = CommitOutcome::Empty;
            return Ok(false);
        }
        let prepared = Prepared::new(repo, to)?;
        if repo.resolve("HEAD^{commit}")?.as_deref() != Some(parent) {
            made.report.outcome =
                CommitOutcome::Conflict(vec![conflict("HEAD", "it moved meanwhile")]);
            return Ok(false);
        }
        match self.decide_git(to, options.commit.force)? {
            Ok(losers) => made.report.losers = losers,
            Err(why) => {
                made.report.outcome = CommitOutcome::Lost { why: lost(&why) };
                return Ok(false);
            }
        }
        for &loser in &made.report.losers {
            let record = self.engine.store().branch(loser)?;
            kill_recorded(&self.engine, &record)?;
        }
        // From here on it is decided: a failure is finished by the next command.
        if let Err(error) = prepared.commit() {
            made.report.outcome =
                CommitOutcome::ApplyBlocked(vec![conflict(&to.branch, &error.message)]);
            return Ok(true);
        }
        self.git_done(&self.record()?, to)?;
        made.report.outcome = CommitOutcome::Committed;
        made.made = Some(to.clone());
        Ok(true)
    }

    /// The one transaction: the branch is decided, its siblings have lost (law 7).
    fn decide_git(&self, to: &GitRef, force: bool) -> Result<Result<Vec<BranchId>, Lost>> {
        let now = self.engine.now();
        let store = self.engine.store();
        store.batch(Durability::Full, |store| {
            let record = store.branch(self.id)?;
            if !record.state.is_live() {
                return Ok(Err(Lost::Sibling { winner: None }));
            }
            let siblings = match record.group {
                Some(group) => store.siblings(group)?,
                None => Vec::new(),
            };
            let won =
                |s: &&BranchRecord| s.state == BranchState::Committed || s.state.is_applying();
            if let Some(winner) = siblings.iter().find(won) {
                let winner = Some(winner.id);
                return Ok(Err(Lost::Sibling { winner }));
            }
            let mut detail = crate::detail::Detail::of(&record)?;
            detail.git = Some(to.clone());
            let detail = detail.text()?;
            store.transition(self.id, &BranchEvent::StageBegan { force }, now)?;
            let decided = BranchEvent::Decided { in_place: true };
            store.transition_with(self.id, &decided, now, |b| b.detail = detail)?;
            let mut losers = Vec::new();
            let live = |s: &&BranchRecord| s.id != self.id && s.state.is_live();
            for sibling in siblings.iter().filter(live) {
                store.transition_with(sibling.id, &BranchEvent::SiblingCommitted, now, |b| {
                    b.reason = b.reason.take().or(Some("sibling_committed".into()));
                })?;
                losers.push(sibling.id);
            }
            Ok(Ok(losers))
        })
    }

    /// Writes the objects and keeps them under a reference of ours. Returns the commit's name.
    fn import(
        &self,
        repo: &Repo,
        choice: &Choice,
        parent: &str,
        keeper: &str,
        people: &People,
        options: &GitOptions,
    ) -> Result<String> {
        let scratch = Scratch::new(&self.engine, "git")?;
        let complaints = scratch.path().join("stderr");
        let stderr =
            File::create(&complaints).map_err(|e| codes::IO.io("cannot make a file", e))?;
        let args = ["fast-import", "--quiet", "--done", "--date-format=raw"];
        let mut child = repo
            .command(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(not_started)?;
        let message = match &options.message {
            Some(message) => format!("{}\n", message.trim_end()),
            None => format!("Commit Forkpoint branch {}\n", self.label()?),
        };
        let mut text = format!(
            "commit {keeper}\nauthor {}\ncommitter {}\ndata {}\n{message}\nfrom {parent}\n",
            people.author,
            people.committer,
            message.len()
        )
        .into_bytes();
        for path in &choice.removed {
            text.extend_from_slice(b"D ");
            text.extend_from_slice(&blobs::git_quoted(&repo.prefix.join(path)));
            text.push(b'\n');
        }
        let Some(mut input) = child.stdin.take() else {
            return Err(codes::INTERNAL.error("a child without its pipes"));
        };
        let fed = input
            .write_all(&text)
            .map_err(|e| codes::GIT_FAILED.io("git fast-import reads no more", e))
            .and_then(|()| self.import_files(repo, choice, input.as_fd()))
            .and_then(|()| {
                let end = input.write_all(b"done\n");
                end.map_err(|e| codes::GIT_FAILED.io("git fast-import reads no more", e))
            });
        drop(input);
        let status = child.wait().map_err(not_started)?;
        let said = std::fs::read(&complaints).map_err(|e| codes::IO.io("cannot read a file", e))?;
        if !status.success() {
            return Err(failed(&args, &said));
        }
        fed?;
        repo.resolve(keeper)?
            .ok_or_else(|| codes::GIT_FAILED.error("git fast-import made no commit"))
    }

    fn import_files(
        &self,
        repo: &Repo,
        choice: &Choice,
        to: std::os::fd::BorrowedFd<'_>,
    ) -> Result<()> {
        let paths = Paths {
            layers: self.first_disk()?.compared(),
            options: self.engine.diff_options(),
            paths: choice.put.clone(),
        };
        let prefix = repo.prefix.clone();
        match self
            .engine
            .stream(StreamRequest::Import { paths, prefix }, to)?
        {
            StreamResponse::Imported => Ok(()),
            _ => Err(mismatch("an import")),
        }
    }
}

/// Who commits, as git writes it.
struct People {
    author: String,
    committer: String,
}

fn people(repo: &Repo) -> Result<People> {
    let of = |variable: &str| {
        repo.text(&["var", variable]).map_err(|_| {
            codes::GIT
                .error("git does not know who you are")
                .hint("git config --global user.name NAME; git config --global user.email MAIL")
        })
    };
    Ok(People {
        author: of("GIT_AUTHOR_IDENT")?,
        committer: of("GIT_COMMITTER_IDENT")?,
    })
}

/// What the git branch is now; refused where it may not be moved.
fn free_name(repo: &Repo, options: &GitOptions) -> Result<String> {
    let branch = &options.branch;
    let reference = format!("refs/heads/{branch}");
    let fits = !branch.starts_with('-') && branch != "HEAD";
    if !fits || repo.run(&["check-ref-format", &reference]).is_err() {
        return Err(codes::GIT
            .error(format!("{branch:?} cannot be the name of a git branch"))
            .hint("git check-ref-format has the rules"));
    }
    let Some(old) = repo.resolve(&reference)? else {
        return Ok(NONE.to_owned());
    };
    if !options.replace {
        return Err(codes::GIT_EXISTS
            .error(format!("there is a git branch {branch} already"))
            .hint("choose another name, or move it with --force"));
    }
    let format = "--format=%(worktreepath)";
    let checked_out = repo.text(&["for-each-ref", format, &reference])?;
    if !checked_out.is_empty() {
        return Err(codes::GIT_EXISTS
            .error(format!(
                "the git branch {branch} is checked out in {checked_out}"
            ))
            .hint("choose another name: a branch that is checked out is never moved"));
    }
    Ok(old)
}

fn conflict(item: &str, why: &str) -> Conflict {
    Conflict {
        participant: crate::disk::participant(0),
        item: item.to_owned(),
        why: why.to_owned(),
    }
}

impl Engine {
    /// Finishes commits as git branches that a crash cut off after their decision.
    pub(crate) fn finish_git(&self, record: &BranchRecord, said: &mut Vec<String>) {
        match Branch::new(self.clone(), record.id).finish_git() {
            Ok(line) => said.extend(line),
            Err(error) => said.push(format!(
                "{} waits to become a git branch: {error}",
                name(record)
            )),
        }
    }
}
