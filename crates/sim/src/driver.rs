//! Carries out the coordinators' commands on the fakes, and what an engine does beside commits:
//! sealing, rolling back, recovery.

use crate::{
    disk::{DISK_FULL, is_crash},
    sim::{Live, Msg, Sim},
};
use forkpoint_model::commit::{
    Command, Coordinator, DurablePhase, DurableTxn, Event, settle_in_doubt,
};
use forkpoint_model::state::{BranchEvent, BranchState};
use forkpoint_model::{
    ApplyOutcome, BranchId, CommitId, Conflict, Discarded, Epoch, Participant, ParticipantId,
    Result,
};

impl Sim {
    /// Begins or continues a transaction in a new process.
    pub(crate) fn launch(&mut self, (coordinator, commands): (Coordinator, Vec<Command>)) {
        self.next_live += 1;
        let id = self.next_live;
        self.lives.insert(id, Live { coordinator });
        self.send(id, commands);
    }

    pub(crate) fn send(&mut self, live: u32, commands: Vec<Command>) {
        for command in commands {
            self.msgs.push(Msg::Do(live, command));
        }
        self.reap();
    }

    /// Forgets coordinators that have nothing left to do.
    pub(crate) fn reap(&mut self) {
        self.lives.retain(|_, live| !live.coordinator.is_ended());
    }

    /// Delivers a message; its answer may be lost or repeated.
    pub(crate) fn deliver(&mut self, msg: Msg) {
        match msg {
            Msg::Do(id, command) => {
                let world = match self.lives.get(&id) {
                    Some(live) => self.world_of(&live.coordinator),
                    // Repeated, after its process is gone: it still arrives.
                    None => match self.world_of_command(&command) {
                        Some(world) => world,
                        None => return,
                    },
                };
                let event = match self.execute(world, id, &command) {
                    Ok(event) => event,
                    Err(error) if is_crash(&error) => return self.kill(id),
                    Err(error) => Event::Failed { command, error },
                };
                for _ in 0..self.copies() {
                    self.msgs.push(Msg::Tell(id, event.clone()));
                }
            }
            Msg::Tell(id, event) => {
                if let Some(live) = self.lives.get_mut(&id) {
                    let commands = live.coordinator.handle(event);
                    self.send(id, commands);
                }
            }
        }
    }

    /// How many copies of an answer arrive.
    fn copies(&mut self) -> u32 {
        match self.rng.below(30) {
            _ if self.healed => 1,
            0 => 0,
            1 => 2,
            _ => 1,
        }
    }

    /// `kill -9` of a coordinator's process.
    pub(crate) fn kill(&mut self, id: u32) {
        self.lives.remove(&id);
        self.msgs
            .retain(|msg| !matches!(msg, Msg::Do(of, _) | Msg::Tell(of, _) if *of == id));
    }

    fn execute(&mut self, world: usize, live: u32, command: &Command) -> Result<Event> {
        Ok(match command.clone() {
            Command::Seal { branch } => {
                self.seal(branch)?;
                Event::Sealed
            }
            Command::Validate {
                participant,
                branch,
                parent,
            } => {
                let conflicts = self.part(world, &participant).validate(branch, parent)?;
                Event::Validated {
                    participant,
                    conflicts,
                }
            }
            Command::Reserve { .. } => {
                let Some(plan) = self.lives.get(&live).map(|l| l.coordinator.plan().clone()) else {
                    return Ok(Event::Timeout);
                };
                match self.store.reserve(&plan)? {
                    Ok(()) => Event::Reserved,
                    Err(why) => Event::Beaten { why },
                }
            }
            Command::Stage {
                participant,
                txn,
                branch,
                target,
            } => {
                let vote = self.part(world, &participant).stage(txn, branch, target)?;
                let place = self.place(world, &participant);
                let staged = self.worlds[world].parts[place].now.txns.get(&txn).cloned();
                if let Some(staged) = staged {
                    self.oracle.pinned.entry((txn, place)).or_insert(staged);
                }
                Event::Voted { participant, vote }
            }
            Command::Decide { txn, votes } => match self.store.decide(txn, &votes)? {
                Ok(()) => Event::Decided,
                Err(why) => Event::Beaten { why },
            },
            Command::Inquire { txn } => {
                let row = self.store.now.txns.get(&txn);
                Event::Inquired {
                    decided: row.is_some_and(|r| r.phase.is_decided()),
                }
            }
            Command::Apply {
                participant,
                txn,
                digest,
            } => match self.part(world, &participant).commit(txn, digest)? {
                ApplyOutcome::Applied => Event::Applied { participant },
                ApplyOutcome::Blocked(items) => Event::Blocked { participant, items },
            },
            Command::Undo {
                participant,
                txn,
                digest,
            } => match self.part(world, &participant).undo(txn, digest)? {
                ApplyOutcome::Applied => Event::Undone { participant },
                ApplyOutcome::Blocked(items) => Event::Blocked { participant, items },
            },
            Command::MarkApplied { txn } => {
                self.store.mark_applied(txn)?;
                Event::MarkedApplied
            }
            Command::MarkBlocked { txn, items } => {
                self.store.mark_blocked(txn, &items)?;
                self.stats.blocked += 1;
                Event::MarkedBlocked
            }
            Command::Release { txn } => {
                self.oracle.released.insert(txn);
                Event::Released
            }
            Command::End { participant, txn } => {
                // One of before its undo, delivered late, must not end the undo.
                let row = self.store.now.txns.get(&txn);
                if row.is_some_and(|row| row.phase == DurablePhase::Undoing) {
                    return Err(DISK_FULL.error("it is being taken back"));
                }
                self.part(world, &participant).end(txn)?;
                Event::Ended { participant }
            }
            Command::EndTxn { txn } => {
                self.store.end(txn)?;
                Event::TxnEnded
            }
            Command::Unreserve { txn } => match self.store.unreserve(txn)? {
                true => Event::Unreserved,
                false => Event::Decided,
            },
            Command::AbortStaged { participant, txn } => {
                self.part(world, &participant).abort(txn)?;
                Event::StagedAborted { participant }
            }
            Command::MarkUndoing { txn } => {
                self.store.begin_undo(txn)?;
                Event::MarkedUndoing
            }
            Command::MarkUndone { txn } => {
                self.store.mark_undone(txn)?;
                Event::MarkedUndone
            }
        })
    }

    /// Participants first, the row after: a row that says sealed is true.
    pub(crate) fn seal(&mut self, branch: BranchId) -> Result<()> {
        let row = self.store.now.branch(branch)?.clone();
        let epoch = match row.ctx.state {
            BranchState::Open => Epoch(row.ctx.epoch.0 + 1),
            _ => row.ctx.epoch,
        };
        let world = self.index(row.world);
        for place in 0..self.worlds[world].parts.len() {
            self.worlds[world].parts[place].seal(branch, epoch)?;
        }
        self.store.transition(branch, &BranchEvent::Sealed)
    }

    /// One step of a rollback.
    pub(crate) fn roll_back(&mut self, branch: BranchId) -> Result<()> {
        let row = self.store.now.branch(branch)?.clone();
        let world = self.index(row.world);
        if row.ctx.state != BranchState::Aborting {
            return self.store.transition(branch, &BranchEvent::AbortRequested);
        }
        let mut left = Vec::new();
        for place in 0..self.worlds[world].parts.len() {
            let stuck = !self.healed && self.rng.one_in(10);
            let part = &mut self.worlds[world].parts[place];
            if stuck {
                left.push(Conflict {
                    participant: part.id(),
                    item: "effect".into(),
                    why: "its inverse failed".into(),
                });
            } else if let Discarded::Left(items) = part.discard(branch)? {
                left.extend(items);
            }
        }
        self.store
            .transition(branch, &BranchEvent::Drained { left })
    }

    /// What opening a store does after a crash: transactions that no process drives are driven on,
    /// and participants are told the outcomes they do not know.
    pub(crate) fn recover(&mut self) -> Result<()> {
        let driven: Vec<CommitId> = self
            .lives
            .values()
            .map(|live| live.coordinator.plan().txn)
            .collect();
        let orphans: Vec<DurableTxn> = (self.store.now.txns.values())
            .filter(|row| !row.ended && !driven.contains(&row.plan.txn))
            .map(|row| DurableTxn {
                plan: row.plan.clone(),
                phase: row.phase.clone(),
                votes: row.votes.clone(),
            })
            .collect();
        for durable in orphans {
            self.launch(Coordinator::recover(durable));
        }
        for world in 0..self.worlds.len() {
            for place in 0..self.worlds[world].parts.len() {
                self.settle(world, place)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, world: usize, place: usize) -> Result<()> {
        let name = self.worlds[world].parts[place].id();
        for txn in self.worlds[world].parts[place].in_doubt()? {
            let row = self.store.now.txns.get(&txn);
            let known = row.map(|row| (&row.phase, row.ended));
            let part = &mut self.worlds[world].parts[place];
            match settle_in_doubt(name.clone(), txn, known) {
                Some(Command::End { .. }) => part.end(txn)?,
                Some(_) => part.abort(txn)?,
                None => {}
            }
        }
        // Overlays of forks whose rows never came to be, or were lost with the power.
        let known = &self.store.now.branches;
        let part = &mut self.worlds[world].parts[place];
        let lost: Vec<BranchId> = part
            .now
            .overlays
            .keys()
            .filter(|b| !known.contains_key(b))
            .copied()
            .collect();
        for branch in lost {
            part.discard(branch)?;
        }
        Ok(())
    }

    fn world_of(&self, coordinator: &Coordinator) -> usize {
        self.index(coordinator.plan().world)
    }

    fn world_of_command(&self, command: &Command) -> Option<usize> {
        let txn = match command {
            Command::Stage { txn, .. }
            | Command::Decide { txn, .. }
            | Command::Apply { txn, .. }
            | Command::Undo { txn, .. }
            | Command::End { txn, .. }
            | Command::AbortStaged { txn, .. } => txn,
            _ => return None,
        };
        self.store
            .now
            .txns
            .get(txn)
            .map(|row| self.index(row.plan.world))
    }

    fn place(&self, world: usize, name: &ParticipantId) -> usize {
        let found = self.worlds[world]
            .parts
            .iter()
            .position(|part| part.name == *name);
        found.expect("a command names a participant of its world")
    }

    fn part(&mut self, world: usize, name: &ParticipantId) -> &mut crate::disk::FakeDisk {
        let place = self.place(world, name);
        &mut self.worlds[world].parts[place]
    }
}
