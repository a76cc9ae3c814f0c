//! Auditing a commit: what each participant's state derives from, and that nothing uncommitted of
//! another branch is in it. Looks at what the store recorded, and changes nothing.

use crate::branch::name;
use crate::codes;
use crate::engine::Engine;
use forkpoint_model::effect::EffectState;
use forkpoint_model::state::BranchState;
use forkpoint_model::{BranchId, CommitId, Generation, Result, Source};
use forkpoint_store::{BranchRecord, CommitRecord, CommitState};
use std::collections::BTreeSet;

/// No chain of forks is followed further than this.
const DEEPEST: usize = 10_000;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditCheck {
    /// What was looked at: a participant, `decision`, `lineage`.
    pub subject: String,
    /// Whether it holds; `None` where what would tell is not kept any more.
    pub holds: Option<bool>,
    /// What was found.
    pub found: String,
}

/// What is known of a commit.
#[derive(Debug, Clone)]
pub struct AuditReport {
    /// The commit.
    pub commit: CommitRecord,
    /// The branch that was committed, while its record is kept.
    pub branch: Option<BranchRecord>,
    /// The generation its state derives from.
    pub from: Generation,
    /// Everything that was looked at.
    pub checks: Vec<AuditCheck>,
}

impl AuditReport {
    /// Whether nothing that was looked at fails.
    pub fn sound(&self) -> bool {
        self.checks.iter().all(|check| check.holds != Some(false))
    }

    fn check(&mut self, subject: impl Into<String>, holds: Option<bool>, found: impl Into<String>) {
        self.checks.push(AuditCheck {
            subject: subject.into(),
            holds,
            found: found.into(),
        });
    }
}

impl Engine {
    /// Audits a commit.
    ///
    /// # Errors
    /// `FP0108` when there is no such commit, and when the store cannot be read.
    pub fn audit(&self, txn: CommitId) -> Result<AuditReport> {
        let commit = self.store().commit(txn)?;
        let branch = match self.store().branch(commit.branch) {
            Ok(branch) => Some(branch),
            Err(e) if e.code == forkpoint_store::codes::NOT_FOUND.text => None,
            Err(e) => return Err(e),
        };
        let mut report = AuditReport {
            from: commit.from,
            branch,
            checks: Vec::new(),
            commit,
        };
        self.audit_decision(&mut report)?;
        self.audit_participants(&mut report)?;
        match report.branch.clone() {
            Some(branch) => {
                let line = self.line(&branch)?;
                self.audit_layers(&mut report, &branch, &line)?;
                self.audit_shared(&mut report, &branch, &line)?;
                self.audit_effects(&mut report, &branch)?;
            }
            None => report.check("lineage", None, "the branch's record was collected"),
        }
        Ok(report)
    }

    /// The commit that a branch became, if it did.
    ///
    /// # Errors
    /// `FP0405` when it was not committed into a directory.
    pub fn commit_of(&self, branch: &BranchRecord) -> Result<CommitId> {
        let commits = self.store().commits(branch.world)?;
        let decided = commits
            .iter()
            .find(|c| c.branch == branch.id && c.decided_ns.is_some());
        decided.map(|c| c.id).ok_or_else(|| {
            codes::STATE
                .error(format!(
                    "{} is {} and was not committed",
                    name(branch),
                    branch.state
                ))
                .hint("forkpoint history shows the commits")
        })
    }

    /// One decision on its parent generation, and that of a generation that was.
    fn audit_decision(&self, report: &mut AuditReport) -> Result<()> {
        let commit = report.commit.clone();
        if commit.decided_ns.is_none() {
            report.check(
                "decision",
                Some(false),
                "it was not decided: nothing of it is visible",
            );
            return Ok(());
        }
        let all = self.store().commits(commit.world)?;
        let rival = all
            .iter()
            .find(|c| c.id != commit.id && c.from == commit.from && c.decided_ns.is_some());
        let found = match rival {
            Some(rival) => format!(
                "{} was decided on generation {} too",
                rival.id, commit.from.0
            ),
            None => format!("the only one on generation {}", commit.from.0),
        };
        report.check("decision", Some(rival.is_none()), found);
        let undone = commit.state == CommitState::Undone;
        // An undo makes a generation of its own, which equals one before.
        let made = commit.from.0 == 0
            || all
                .iter()
                .any(|c| c.to == commit.from || c.state == CommitState::Undone);
        let state = if undone {
            ", and was taken back since"
        } else {
            ""
        };
        report.check(
            "generation",
            Some(made && commit.to.0 == commit.from.0 + 1),
            format!(
                "{} made {} from {}{state}",
                commit.id, commit.to.0, commit.from.0
            ),
        );
        Ok(())
    }

    /// What was decided is, byte for byte, what each participant voted for.
    fn audit_participants(&self, report: &mut AuditReport) -> Result<()> {
        let commit = report.commit.clone();
        for participant in &commit.participants {
            let Some((_, vote)) = commit.votes.iter().find(|(p, _)| p == participant) else {
                report.check(participant.0.clone(), Some(false), "it did not vote");
                continue;
            };
            let derives = format!(
                "from generation {}, staged as {}",
                commit.from.0, vote.digest
            );
            if !vote.in_place {
                report.check(participant.0.clone(), Some(true), derives);
                continue;
            }
            let journal = self.store().journal(commit.id, participant)?;
            let pinned = |bytes: Vec<u8>| -> Result<bool> {
                Ok(forkpoint_fs::apply::Journal::from_bytes(&bytes)?.digest()? == vote.digest)
            };
            match journal.map(pinned).transpose()? {
                Some(true) => report.check(participant.0.clone(), Some(true), derives),
                Some(false) => report.check(
                    participant.0.clone(),
                    Some(false),
                    format!("{derives}: its journal is another one"),
                ),
                None => report.check(
                    participant.0.clone(),
                    None,
                    format!("{derives}; its journal was collected"),
                ),
            }
        }
        Ok(())
    }

    /// The branches that a branch's state may hold something of: those it was forked from, and those
    /// that were committed into it or into them.
    fn line(&self, branch: &BranchRecord) -> Result<BTreeSet<BranchId>> {
        let mut line = BTreeSet::new();
        let mut next = vec![branch.clone()];
        while let Some(one) = next.pop() {
            if line.len() > DEEPEST || !line.insert(one.id) {
                continue;
            }
            if let Source::Branch(parent) = one.parent {
                let found = self.store().branch(parent);
                match found {
                    Ok(parent) => next.push(parent),
                    Err(e) if e.code == forkpoint_store::codes::NOT_FOUND.text => {}
                    Err(e) => return Err(e),
                }
            }
            let children = self.store().children(one.id)?;
            let committed = |child: &BranchRecord| child.state == BranchState::Committed;
            next.extend(children.into_iter().filter(committed));
        }
        Ok(line)
    }

    /// No layer it stands on is what a branch outside its line writes to.
    fn audit_layers(
        &self,
        report: &mut AuditReport,
        branch: &BranchRecord,
        line: &BTreeSet<BranchId>,
    ) -> Result<()> {
        let own: BTreeSet<_> = branch.stacks.iter().flatten().collect();
        let others = self.store().branches(Some(branch.world), true)?;
        let foreign = others
            .iter()
            .filter(|b| !line.contains(&b.id))
            .find(|other| {
                let uppers = other.stacks.iter().filter_map(|stack| stack.first());
                uppers.clone().any(|upper| own.contains(upper))
            });
        match foreign {
            Some(other) => report.check(
                "lineage",
                Some(false),
                format!("it stands on a layer of {}", name(other)),
            ),
            None => report.check(
                "lineage",
                Some(true),
                format!(
                    "{} layers, none of a branch outside its line of {}",
                    own.len(),
                    line.len()
                ),
            ),
        }
        Ok(())
    }

    /// Its keys and events come from its line alone, and whatever it read was committed when it was
    /// forked.
    fn audit_shared(
        &self,
        report: &mut AuditReport,
        branch: &BranchRecord,
        line: &BTreeSet<BranchId>,
    ) -> Result<()> {
        let stack = branch.shared.stack();
        if stack.is_empty() {
            report.check(
                "shared",
                Some(true),
                "it neither read nor wrote any key or event",
            );
            return Ok(());
        }
        let owners = self.store().overlay_owners(&stack)?;
        let foreign = owners.iter().find(|owner| !line.contains(owner));
        let position = branch.shared.position.unwrap_or(0);
        match foreign {
            Some(other) => report.check(
                "shared",
                Some(false),
                format!("it stands on an overlay of {other}"),
            ),
            None => {
                let reads = self.store().overlay_read_count(&stack)?;
                report.check(
                    "shared",
                    Some(true),
                    format!(
                        "{} overlays of its line; {reads} reads from below them, all at position {position}",
                        stack.len()
                    ),
                );
            }
        }
        Ok(())
    }

    /// Nothing of its journal is left in between.
    fn audit_effects(&self, report: &mut AuditReport, branch: &BranchRecord) -> Result<()> {
        let effects = self.store().effects(branch.id)?;
        let waiting = effects
            .iter()
            .filter(|e| e.state == EffectState::Releasable)
            .count();
        let doubtful = effects.iter().find(|e| {
            matches!(
                e.state,
                EffectState::Sent | EffectState::Ambiguous | EffectState::Failed
            )
        });
        match doubtful {
            Some(effect) => report.check(
                "effects",
                Some(false),
                format!("effect {} is {}", effect.ordinal, effect.state),
            ),
            None => report.check(
                "effects",
                Some(true),
                format!(
                    "{} in its journal, {waiting} of them still to go out",
                    effects.len()
                ),
            ),
        }
        Ok(())
    }
}
