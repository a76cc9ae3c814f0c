//! Carrying out a commit: each command of the model's coordinator is executed here, and what
//! happened is fed back. The simulator drives the same coordinator through crashes.

use crate::branch::{Branch, kill_recorded};
use crate::codes;
use crate::disk::{Disk, participant};
use crate::engine::Engine;
use crate::keys::Keys;
use crate::lock::{self, Lock};
use crate::options::{CommitOptions, SealOptions};
use crate::world::World;
use forkpoint_model::commit::{Command, CommitPlan, Coordinator, Event, Outcome};
use forkpoint_model::participant::{ApplyOutcome, Participant};
use forkpoint_model::{BranchId, CommitId, Error, Generation, ParticipantId, Result};
use forkpoint_store::{CommitRecord, Decision, DiskRecord, Durability, Race};
use std::collections::VecDeque;

/// No commit takes more steps than this; a coordinator that asks for more is at fault.
const MOST_STEPS: usize = 10_000;

/// One commit being carried out. Holds the lock of every base.
pub(crate) struct Driver<'a> {
    engine: &'a Engine,
    branch: Branch,
    branch_lock: Option<&'a Lock>,
    pub(crate) disks: Vec<Disk>,
    keys: Keys,
    /// Whether the keys take part in a commit that begins: only where the branch read or wrote any.
    with_keys: bool,
    _bases: Vec<Lock>,
    force: bool,
    /// What was staged lies in the store, where recovery finds it without a row.
    in_store: bool,
    summary: Option<String>,
    pub(crate) invalidated: Vec<BranchId>,
    /// What a person should know of it.
    pub(crate) notes: Vec<String>,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        world: &World,
        branch: BranchId,
        branch_lock: Option<&'a Lock>,
        options: &CommitOptions,
    ) -> Result<Self> {
        let mut bases = Vec::new();
        for disk in world.disks() {
            let lock = lock::directory(&disk.path, || {
                codes::BASE_BUSY
                    .error(format!(
                        "{} is being committed to by another process",
                        disk.path.display()
                    ))
                    .hint("wait for it to end, then try again")
            })?;
            same_directory(&lock, disk)?;
            bases.push(lock);
        }
        bases.push(lock::alone(&engine.paths().starts(world.id()))?);
        if engine.rootless() {
            // The worker applies: its hold ends only when nothing can be applied any more, even if
            // this process is killed in the middle.
            let worker = engine.worker()?;
            bases.iter().try_for_each(|base| worker.hold(base.fd()))?;
        }
        let disks = world
            .disks()
            .iter()
            .enumerate()
            .map(|(index, disk)| Disk::new(engine, index, disk.path.clone(), options.clone()))
            .collect();
        let commits = engine.paths().commits();
        let in_store = world
            .disks()
            .iter()
            .all(|disk| forkpoint_fs::apply::stays_in_store(&disk.path, &commits));
        Ok(Self {
            engine,
            in_store,
            branch: Branch::new(engine.clone(), branch),
            branch_lock,
            disks,
            keys: Keys::new(engine),
            with_keys: false,
            _bases: bases,
            force: options.force,
            summary: None,
            invalidated: Vec::new(),
            notes: Vec::new(),
        })
    }

    pub(crate) fn plan(&self, world: &World, txn: CommitId) -> Result<CommitPlan> {
        let record = self.branch.record()?;
        Ok(CommitPlan {
            txn,
            world: world.id(),
            branch: record.id,
            parent_generation: record.generation,
            group: record.group,
            participants: (0..self.disks.len())
                .map(participant)
                .chain(self.with_keys.then(|| self.keys.id()))
                .collect(),
        })
    }

    /// Lets the sealed branch's keys take part, if it read or wrote any.
    pub(crate) fn with_keys(&mut self) -> Result<()> {
        let stack = self.branch.record()?.shared.stack();
        self.with_keys = self.engine.store().kv_touched(&stack)?;
        Ok(())
    }

    /// The keys, where they take part.
    pub(crate) fn keys(&mut self) -> Option<&mut Keys> {
        self.with_keys.then_some(&mut self.keys)
    }

    pub(crate) fn summary(&mut self, json: String) {
        self.summary = Some(json);
    }

    /// Executes commands until none is left.
    pub(crate) fn run(
        &mut self,
        mut coordinator: Coordinator,
        first: Vec<Command>,
    ) -> Result<Outcome> {
        let mut queue = VecDeque::from(first);
        let mut failed_last: Option<Error> = None;
        for _ in 0..MOST_STEPS {
            let Some(command) = queue.pop_front() else {
                return match (coordinator.outcome(), failed_last) {
                    (Some(outcome), _) => Ok(outcome.clone()),
                    (None, Some(error)) => Err(error),
                    (None, None) => Err(codes::INTERNAL.error("a commit ended without an outcome")),
                };
            };
            let event = match self.execute(&command, coordinator.plan()) {
                Ok(event) => event,
                Err(error) => {
                    failed_last = Some(error.clone());
                    Event::Failed { command, error }
                }
            };
            queue.extend(coordinator.handle(event));
        }
        Err(codes::INTERNAL.error("a commit did not come to an end"))
    }

    fn participant(&mut self, id: &ParticipantId) -> Result<&mut dyn Participant> {
        if *id == self.keys.id() {
            return Ok(&mut self.keys);
        }
        let disk = self.disks.iter_mut().find(|d| d.id() == *id);
        disk.map(|disk| disk as &mut dyn Participant)
            .ok_or_else(|| codes::INTERNAL.error(format!("there is no participant {id}")))
    }

    /// A vote. Keys are compared once more, under the reservation: from here on nobody writes any.
    fn stage(
        &mut self,
        id: &ParticipantId,
        (txn, branch, target): (CommitId, BranchId, Generation),
    ) -> Result<Event> {
        let participant = id.clone();
        if *id == self.keys.id() {
            let conflicts = self.keys.validate(branch, target)?;
            if !conflicts.is_empty() {
                return Ok(Event::VotedNo {
                    participant,
                    conflicts,
                });
            }
        }
        Ok(Event::Voted {
            participant,
            vote: self.participant(id)?.stage(txn, branch, target)?,
        })
    }

    fn execute(&mut self, command: &Command, plan: &CommitPlan) -> Result<Event> {
        let now = self.engine.now();
        Ok(match command {
            Command::Seal { .. } => {
                match self.branch_lock {
                    Some(lock) => self.branch.seal_locked(lock, &SealOptions::default())?,
                    None => self.branch.seal(&SealOptions::default())?,
                };
                Event::Sealed
            }
            Command::Validate {
                participant,
                branch,
                parent,
            } => Event::Validated {
                participant: participant.clone(),
                conflicts: self.participant(participant)?.validate(*branch, *parent)?,
            },
            Command::Reserve { .. } => {
                let record = CommitRecord::reservation(plan, now);
                let (store, force) = (self.engine.store(), self.force);
                let durability = match self.in_store {
                    true => Durability::Normal,
                    false => Durability::Full,
                };
                match store.batch(durability, |store| store.reserve(&record, force, now))? {
                    Race::Won(()) => Event::Reserved,
                    Race::Lost(why) => Event::Beaten { why },
                }
            }
            Command::Stage {
                participant,
                txn,
                branch,
                target,
            } => self.stage(participant, (*txn, *branch, *target))?,
            Command::Decide { txn, votes } => self.decide(*txn, votes.clone(), now)?,
            Command::Inquire { txn } => {
                let decided = self.engine.store().commit(*txn)?.decided_ns.is_some();
                Event::Inquired { decided }
            }
            Command::Apply {
                participant,
                txn,
                digest,
            } => {
                self.end_siblings()?;
                let outcome = self.participant(participant)?.commit(*txn, *digest)?;
                applied(outcome, participant, |participant| Event::Applied {
                    participant,
                })
            }
            Command::MarkApplied { txn } => {
                self.engine.store().mark_applied(*txn, now)?;
                Event::MarkedApplied
            }
            Command::MarkBlocked { txn, items } => {
                self.engine.store().mark_blocked(*txn, items, now)?;
                Event::MarkedBlocked
            }
            Command::Release { .. } => {
                let waiting = self.branch.release_effects()?;
                self.notes.extend(waiting.iter().cloned());
                match waiting.first() {
                    None => Event::Released,
                    // Sent again by the next recovery; the commit stands.
                    Some(first) => return Err(codes::EFFECT.error(first.clone())),
                }
            }
            Command::End { participant, txn } => {
                self.participant(participant)?.end(*txn)?;
                Event::Ended {
                    participant: participant.clone(),
                }
            }
            Command::EndTxn { txn } => {
                self.engine.store().end_commit(*txn, now)?;
                Event::TxnEnded
            }
            Command::Unreserve { txn } => match self.engine.store().abort_commit(*txn, now)? {
                true => Event::Unreserved,
                false => Event::Decided,
            },
            Command::AbortStaged { participant, txn } => {
                self.participant(participant)?.abort(*txn)?;
                Event::StagedAborted {
                    participant: participant.clone(),
                }
            }
            Command::MarkUndoing { txn } => {
                self.engine.store().begin_undo(*txn)?;
                Event::MarkedUndoing
            }
            Command::Undo {
                participant,
                txn,
                digest,
            } => {
                let outcome = self.participant(participant)?.undo(*txn, *digest)?;
                applied(outcome, participant, |participant| Event::Undone {
                    participant,
                })
            }
            Command::MarkUndone { txn } => {
                self.engine.store().mark_undone(*txn, now)?;
                Event::MarkedUndone
            }
        })
    }

    fn decide(
        &mut self,
        txn: CommitId,
        votes: Vec<(ParticipantId, forkpoint_model::participant::Vote)>,
        now: i64,
    ) -> Result<Event> {
        let journals = self
            .disks
            .iter()
            .map(|disk| Ok((disk.id(), disk.journal(txn)?)))
            .collect::<Result<_>>()?;
        let decision = Decision {
            txn,
            votes,
            journals,
            summary: self.summary.clone(),
        };
        match self.engine.store().decide(&decision, now)? {
            Race::Won(decided) => {
                self.invalidated = decided.invalidated;
                Ok(Event::Decided)
            }
            Race::Lost(why) => Ok(Event::Beaten { why }),
        }
    }

    /// Law 7: the losers are dead before anything lies changed under their views.
    fn end_siblings(&mut self) -> Result<()> {
        for id in self.invalidated.clone() {
            let record = self.engine.store().branch(id)?;
            kill_recorded(self.engine, &record)?;
        }
        Ok(())
    }
}

/// Refuses a directory that was put in the place of the one the branches were forked from. Not by
/// the device's number, which some file systems draw anew at every mount.
fn same_directory(lock: &Lock, disk: &DiskRecord) -> Result<()> {
    let meta = rustix::fs::fstat(lock.fd())
        .map_err(|e| codes::BASE.io(format!("cannot look at {}", disk.path.display()), e))?;
    if meta.st_ino == disk.ino {
        return Ok(());
    }
    Err(codes::BASE
        .error(format!(
            "{} is not the directory it was when the branch was forked",
            disk.path.display()
        ))
        .hint("put the old directory back, or abort the branch and fork anew"))
}

fn applied(
    outcome: ApplyOutcome,
    participant: &ParticipantId,
    done: impl FnOnce(ParticipantId) -> Event,
) -> Event {
    match outcome {
        ApplyOutcome::Applied => done(participant.clone()),
        ApplyOutcome::Blocked(items) => Event::Blocked {
            participant: participant.clone(),
            items,
        },
    }
}
