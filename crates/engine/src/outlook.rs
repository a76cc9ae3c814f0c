//! What a branch is, what would become of it, and what stands in the way: looked at, and nothing
//! changed.

use crate::activity::Activity;
use crate::branch::{Branch, NETWORK_HOST, name};
use crate::device;
use crate::disk::Disk;
use crate::effect_paths::EffectPath;
use crate::engine::Engine;
use crate::options::CommitOptions;
use crate::start::defaults;
use forkpoint_fs::conflict::Drift;
use forkpoint_model::participant::Participant;
use forkpoint_model::state::{BranchState, ForkLayer, may_commit};
use forkpoint_model::{ChangeSummary, Conflict, Result};
use forkpoint_sandbox::Network;
use forkpoint_store::BranchRecord;
use std::path::PathBuf;

/// What a commit would do now.
#[derive(Debug, Clone, Default)]
pub struct Preview {
    /// What would be written.
    pub changed: ChangeSummary,
    /// The first paths of it.
    pub paths: Vec<PathBuf>,
    /// Left out by the caller's globs.
    pub excluded: Vec<PathBuf>,
    /// Left out because the host would run something.
    pub withheld: Vec<PathBuf>,
    /// Changed underneath too; always empty for what is committed into another branch.
    pub conflicts: Vec<Conflict>,
    /// What else changed in the base since the fork.
    pub drift: Vec<PathBuf>,
    /// Why that is not known, where it is not.
    pub drift_unknown: Option<String>,
}

/// Something that keeps a branch from being committed, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// What.
    pub why: String,
    /// What to do.
    pub mend: String,
}

/// What there is to say of a branch.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// Its record.
    pub record: BranchRecord,
    /// What its processes do.
    pub activity: Activity,
    /// Where a commit would go.
    pub into: String,
    /// By which ways it has effects.
    pub effect_paths: Vec<EffectPath>,
    /// Ways out that nothing captures and that have been open: it ends `abandoned`.
    pub opened: Vec<String>,
    /// Those that a command in it would open.
    pub would_open: Vec<String>,
    /// What a commit would do; `None` once that cannot be any more.
    pub preview: Option<Preview>,
    /// What stands in the way of one.
    pub obstacles: Vec<Obstacle>,
    /// Commands that make sense next, and what each does.
    pub next: Vec<(String, String)>,
}

/// The first so many paths are named.
const NAMED: usize = 20;

impl Branch {
    /// Looks at it, and at what a commit with these options would do. While something runs in it, that
    /// is of no one moment.
    ///
    /// # Errors
    /// When its layers, or the store, cannot be read.
    pub fn outlook(&self, options: &CommitOptions) -> Result<Outlook> {
        let record = self.record()?;
        let activity = self.engine.activity(&record)?;
        let base = self.world()?.base().display().to_string();
        let into = match self.committed_into(&record)? {
            Some(parent) => self.engine.branch_by_id(parent)?.label()?,
            None => base,
        };
        let mut outlook = Outlook {
            activity,
            into,
            effect_paths: self.effect_paths()?,
            opened: record.uncaptured.clone(),
            would_open: would_open(&record)?,
            preview: None,
            obstacles: Vec::new(),
            next: Vec::new(),
            record,
        };
        if outlook.record.state.is_live() {
            outlook.preview = Some(self.preview(&outlook.record, options)?);
        }
        self.obstacles(&mut outlook, options)?;
        outlook.next = next(&outlook);
        Ok(outlook)
    }

    fn preview(&self, record: &BranchRecord, options: &CommitOptions) -> Result<Preview> {
        let mut preview = Preview::default();
        if self.committed_into(record)?.is_some() {
            let changes = self.diff()?;
            preview.changed = crate::disk::summary(&changes);
            preview.paths = changes.changes.into_iter().map(|c| c.path).collect();
            preview.paths.truncate(NAMED);
            return Ok(preview);
        }
        for (index, disk) in self.world()?.disks().iter().enumerate() {
            let mut disk = Disk::new(&self.engine, index, disk.path.clone(), options.clone());
            preview
                .conflicts
                .extend(disk.validate(self.id, record.generation)?);
            let Some(selection) = disk.selected.take() else {
                continue;
            };
            let sum = crate::disk::summary(&selection.commit);
            preview.changed.items += sum.items;
            preview.changed.bytes += sum.bytes;
            preview.excluded.extend(selection.excluded);
            preview.withheld.extend(selection.withheld);
            let paths = selection.commit.changes.into_iter().map(|c| c.path);
            preview
                .paths
                .extend(paths.take(NAMED - preview.paths.len().min(NAMED)));
            match selection.drift {
                Drift::None => {}
                Drift::Paths(paths) => preview.drift.extend(paths),
                Drift::Unknown { why, .. } => preview.drift_unknown = Some(why),
            }
        }
        Ok(preview)
    }

    fn obstacles(&self, outlook: &mut Outlook, options: &CommitOptions) -> Result<()> {
        let record = &outlook.record;
        let label = name(record);
        let mut found = Vec::new();
        let mut add = |why: String, mend: String| found.push(Obstacle { why, mend });
        if record.stale {
            add(
                stale_because(&self.engine, record)?,
                format!("forkpoint rebase {label}"),
            );
        } else if record.state.is_live()
            && let Err(error) = may_commit(&record.context(), options.force)
        {
            add(error.message, error.hint.replace("BRANCH", &label));
        }
        match record.state {
            BranchState::ApplyBlocked | BranchState::Applying => {
                for item in blocked_by(&self.engine, record)? {
                    add(
                        format!("{}: {}", item.item, item.why),
                        "remove what is in the way: the next command goes on by itself".into(),
                    );
                }
            }
            BranchState::Staged => add(
                "another command is committing it".into(),
                "wait for that one".into(),
            ),
            _ => {}
        }
        if let Some(preview) = &outlook.preview {
            if !preview.conflicts.is_empty() {
                add(
                    format!(
                        "{} paths changed underneath too, first {}",
                        preview.conflicts.len(),
                        preview.conflicts[0].item
                    ),
                    format!("forkpoint diff {label} --patch, and apply by hand; or fork anew"),
                );
            } else if preview.changed.items == 0 && !options.allow_empty {
                add(
                    "it changes nothing that would be committed".into(),
                    format!("forkpoint exec {label} -- COMMAND"),
                );
            }
            if !preview.drift.is_empty() && record.verified.is_some() {
                add(
                    "the directory changed elsewhere, which voids the verification".into(),
                    format!("forkpoint commit {label} --reverify COMMAND"),
                );
            }
            self.others(record, &mut add)?;
        }
        outlook.obstacles = found;
        Ok(())
    }

    /// Independent branches of the same base that run keep it from being changed.
    fn others(&self, record: &BranchRecord, add: &mut impl FnMut(String, String)) -> Result<()> {
        if self.committed_into(record)?.is_some() {
            return Ok(());
        }
        let running = self.engine.store().running()?;
        for other in running {
            let sibling = record.group.is_some() && other.group == record.group;
            if other.world != record.world || sibling || other.id == record.id {
                continue;
            }
            if self.engine.activity(&other)? != Activity::Stopped {
                let other = name(&other);
                add(
                    format!("{other} runs on the same directory"),
                    format!("forkpoint stop {other}"),
                );
            }
        }
        Ok(())
    }
}

fn would_open(record: &BranchRecord) -> Result<Vec<String>> {
    let defaults = defaults(record)?;
    let host = (defaults.network == Network::Host).then(|| NETWORK_HOST.to_owned());
    let devices = defaults.devices.iter().map(|path| device::effect(path));
    Ok(host.into_iter().chain(devices).collect())
}

fn stale_because(engine: &Engine, record: &BranchRecord) -> Result<String> {
    let commits = engine.store().commits(record.world)?;
    let later = commits
        .iter()
        .filter(|c| c.state != forkpoint_store::CommitState::Reserved && c.branch != record.id)
        .find(|c| c.to > record.generation);
    Ok(match later {
        Some(commit) => format!(
            "it is stale: commit {} of {} moved the directory on since it was forked",
            commit.id, commit.branch
        ),
        None => "it is stale: the directory moved on since it was forked".into(),
    })
}

fn blocked_by(engine: &Engine, record: &BranchRecord) -> Result<Vec<Conflict>> {
    let commits = engine.store().commits(record.world)?;
    let mut own = commits.into_iter().filter(|c| c.branch == record.id);
    Ok(own.next().map(|c| c.blocked).unwrap_or_default())
}

/// What makes sense next, the likeliest first.
fn next(outlook: &Outlook) -> Vec<(String, String)> {
    let record = &outlook.record;
    let label = match record.name {
        Some(_) => name(record),
        None => record
            .exploration
            .map_or_else(|| name(record), |(x, index)| format!("{x}/{index}")),
    };
    let mut all = Vec::new();
    let mut say = |verb: &str, rest: &str, what: &str| {
        all.push((format!("forkpoint {verb} {label}{rest}"), what.to_owned()));
    };
    let reasoning = record.layer == ForkLayer::Reasoning;
    match record.state {
        state if state.is_live() => {
            let clear = outlook.obstacles.is_empty() && !reasoning;
            if clear {
                say("commit", "", "make its changes the directory's");
            }
            if record.stale {
                say("rebase", "", "see whether it still fits, and make it fresh");
            }
            match (outlook.activity, record.state) {
                (Activity::Paused, _) => say("resume", "", "let its processes go on"),
                (Activity::Running, _) => say("stop", "", "end its processes; the files stay"),
                (Activity::Stopped, BranchState::Open) => {
                    say("exec", " -- COMMAND", "run something in it");
                }
                (Activity::Stopped, _) => {}
            }
            if outlook
                .preview
                .as_ref()
                .is_some_and(|p| p.changed.items > 0)
            {
                say("diff", "", "see what it changed");
                if !reasoning {
                    say("verify", " -- COMMAND", "judge it in a throwaway fork");
                }
            }
            say("abort", "", "roll it back");
        }
        BranchState::Committed => {
            all.push(("forkpoint undo".into(), "take the commit back".into()));
        }
        _ if record.retained => {
            say("diff", "", "see what it changed");
            say("fork", "", "go on from there");
            all.push(("forkpoint gc".into(), "free what is kept too long".into()));
        }
        BranchState::RollbackIncomplete | BranchState::Aborting | BranchState::Invalidated => {
            say("abort", "", "go on rolling it back");
        }
        _ => {}
    }
    all
}
