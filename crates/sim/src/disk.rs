//! A fake participant. It implements the interface that real ones do, over a handful of keys, with
//! what is synced kept apart from what is not. A managed one is visible through the generation; an
//! in-place one is a single content that redo changes key by key.

use crate::{Breakage, rng::Rng};
use forkpoint_model::{
    ApplyOutcome, BranchId, ChangeSummary, Code, CommitId, Conflict, Digest, Discarded, Epoch,
    Error, Generation, Kind, Participant, ParticipantId, Result, Source, TxnStatus, Vote,
};
use std::collections::BTreeMap;

pub(crate) const DISK_FULL: Code = Code::new("FP9901", Kind::Io, "simulated: disk full");
pub(crate) const CRASH: Code = Code::new("FP9902", Kind::Io, "simulated: crash");
const REFUSED: Code = Code::new("FP9903", Kind::Closed, "simulated: refused");

/// What is at each key.
pub(crate) type Content = BTreeMap<u8, u64>;
/// What is written over it; none removes.
pub(crate) type Writes = BTreeMap<u8, Option<u64>>;

pub(crate) fn overlaid(lower: &Content, writes: &Writes) -> Content {
    let mut content = lower.clone();
    for (&key, value) in writes {
        match value {
            Some(value) => content.insert(key, *value),
            None => content.remove(&key),
        };
    }
    content
}

pub(crate) fn digest(writes: &Writes) -> Digest {
    Digest::of(format!("{writes:?}").as_bytes())
}

/// What goes wrong when the fuse burns down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Full,
    Crash,
    /// It was done, durably, and an error is reported.
    Ambiguous,
}

#[derive(Debug, Clone)]
pub(crate) struct Overlay {
    pub(crate) parent: Source,
    /// The content of the head below, as it was at the fork.
    pub(crate) lower: Content,
    pub(crate) writes: Writes,
    pub(crate) epoch: Epoch,
    pub(crate) sealed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Txn {
    pub(crate) branch: BranchId,
    pub(crate) target: Generation,
    pub(crate) changes: Writes,
    /// What was at the changed keys.
    pub(crate) before: Writes,
    /// The whole content at the target (of a managed participant).
    pub(crate) content: Content,
    pub(crate) phase: TxnPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxnPhase {
    Staged,
    Applied,
    Undone,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) base: Content,
    pub(crate) versions: BTreeMap<Generation, Content>,
    pub(crate) overlays: BTreeMap<BranchId, Overlay>,
    pub(crate) txns: BTreeMap<CommitId, Txn>,
    /// Ended transactions, kept for their undo.
    pub(crate) ended: BTreeMap<CommitId, Txn>,
}

#[derive(Debug)]
pub(crate) struct FakeDisk {
    pub(crate) name: ParticipantId,
    pub(crate) in_place: bool,
    pub(crate) now: State,
    synced: State,
    pub(crate) fuse: Option<(u32, Fault)>,
    broken: Option<Breakage>,
}

impl FakeDisk {
    pub(crate) fn new(
        n: usize,
        in_place: bool,
        content: Content,
        broken: Option<Breakage>,
    ) -> Self {
        let mut now = State {
            base: content.clone(),
            ..State::default()
        };
        now.versions.insert(Generation(0), content);
        let name = ParticipantId(format!("disk:{n}"));
        Self {
            name,
            in_place,
            synced: now.clone(),
            now,
            fuse: None,
            broken,
        }
    }

    fn is(&self, breakage: Breakage) -> bool {
        self.broken == Some(breakage)
    }

    /// One write to the medium: the place where faults strike.
    fn io(&mut self) -> Result<()> {
        match &mut self.fuse {
            None => Ok(()),
            Some((0, fault)) => {
                let code = if *fault == Fault::Full {
                    DISK_FULL
                } else {
                    CRASH
                };
                self.fuse = None;
                Err(code.error("the fuse burned down"))
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.io()?;
        self.synced = self.now.clone();
        Ok(())
    }

    /// The power goes. Keys of the base are torn apart; everything else is as last synced.
    pub(crate) fn power_loss(&mut self, rng: &mut Rng) {
        let mut base = self.synced.base.clone();
        let keys: Vec<u8> = self.now.base.keys().chain(base.keys()).copied().collect();
        for key in keys {
            if rng.one_in(2) {
                match self.now.base.get(&key) {
                    Some(value) => base.insert(key, *value),
                    None => base.remove(&key),
                };
            }
        }
        self.synced.base = base;
        self.now = self.synced.clone();
        self.fuse = None;
    }

    /// The user edits the base; durable at once.
    pub(crate) fn edit(&mut self, key: u8, value: Option<u64>) {
        for state in [&mut self.now, &mut self.synced] {
            state.base = overlaid(&state.base, &Writes::from([(key, value)]));
        }
    }

    /// A process of the branch writes.
    pub(crate) fn write(&mut self, b: BranchId, epoch: Epoch, key: u8, value: u64) -> Result<()> {
        let leaks = self.is(Breakage::SealLeaks);
        let overlay = self.overlay(b)?;
        if !leaks && (overlay.sealed || epoch < overlay.epoch) {
            return Err(REFUSED.error("sealed, or an old epoch"));
        }
        // One write in four removes.
        overlay
            .writes
            .insert(key, (!value.is_multiple_of(4)).then_some(value));
        Ok(())
    }

    fn overlay(&mut self, branch: BranchId) -> Result<&mut Overlay> {
        (self.now.overlays.get_mut(&branch))
            .ok_or_else(|| REFUSED.error(format!("no overlay of {branch}")))
    }

    /// What the branch sees. An in-place base shows through where the branch has no copy.
    pub(crate) fn view(&self, branch: BranchId) -> Option<Content> {
        let overlay = self.now.overlays.get(&branch)?;
        let mut content = overlaid(&overlay.lower, &overlay.writes);
        if self.is(Breakage::ReadsThrough) {
            for (other, o) in &self.now.overlays {
                if *other != branch && o.writes.values().any(Option::is_some) {
                    content = overlaid(&content, &o.writes);
                }
            }
        }
        if self.is(Breakage::ForkFollowsParent)
            && let Source::Branch(parent) = overlay.parent
            && let Some(p) = self.now.overlays.get(&parent)
        {
            content = overlaid(&overlaid(&content, &p.writes), &overlay.writes);
        }
        Some(content)
    }

    /// What a reader of generation `generation` sees, published by `txn` if it is that new.
    pub(crate) fn read(&self, generation: Generation, txn: Option<CommitId>) -> Option<Content> {
        if self.in_place {
            return Some(self.now.base.clone());
        }
        let published = txn.and_then(|t| self.now.txns.get(&t)).map(|t| &t.content);
        published
            .or_else(|| self.now.versions.get(&generation))
            .cloned()
    }

    /// Moves a sealed branch onto the content of the present head.
    pub(crate) fn rebase(&mut self, branch: BranchId, head: Generation) -> Result<()> {
        let lower = self.lower_at(head)?;
        self.io()?;
        self.overlay(branch)?.lower = lower;
        self.synced = self.now.clone();
        Ok(())
    }

    fn lower_at(&self, head: Generation) -> Result<Content> {
        if self.in_place {
            return Ok(self.now.base.clone());
        }
        (self.now.versions.get(&head).cloned())
            .ok_or_else(|| REFUSED.error("that generation has not ended its commit yet"))
    }

    fn conflict(&self, key: u8, why: &str) -> Conflict {
        Conflict {
            participant: self.name.clone(),
            item: key.to_string(),
            why: why.into(),
        }
    }

    /// Sets the keys of a transaction one by one, from one side to the other.
    fn drive(&mut self, from: &Writes, to: &Writes) -> Result<Vec<Conflict>> {
        let mut blocked = Vec::new();
        for (&key, &value) in to {
            let now = self.now.base.get(&key).copied();
            if now == value {
                continue;
            }
            if from.get(&key) != Some(&now) {
                blocked.push(self.conflict(key, "edited since"));
                continue;
            }
            self.io()?;
            self.now.base = overlaid(&self.now.base, &Writes::from([(key, value)]));
        }
        Ok(blocked)
    }

    fn txn(&self, txn: CommitId, digest_: Digest) -> Result<Txn> {
        let unknown = || REFUSED.error(format!("{txn} is unknown here"));
        let found = self.now.txns.get(&txn).or_else(|| self.now.ended.get(&txn));
        let found = found.ok_or_else(unknown)?;
        if digest(&found.changes) != digest_ {
            return Err(REFUSED.error("that is not what was staged"));
        }
        Ok(found.clone())
    }
}

impl Participant for FakeDisk {
    fn id(&self) -> ParticipantId {
        self.name.clone()
    }

    fn fork(&mut self, source: Source, child: BranchId) -> Result<()> {
        // A child of a branch begins with what its parent wrote, as a change of the same base.
        let (lower, writes) = match source {
            Source::Head(generation) => (self.lower_at(generation)?, Writes::new()),
            Source::Branch(parent) => {
                let parent = self.overlay(parent)?;
                (parent.lower.clone(), parent.writes.clone())
            }
            Source::Checkpoint(_) => return Err(REFUSED.error("no checkpoints here")),
        };
        let overlay = Overlay {
            parent: source,
            lower,
            writes,
            epoch: Epoch(0),
            sealed: false,
        };
        self.io()?;
        self.now.overlays.insert(child, overlay);
        self.sync()
    }

    fn seal(&mut self, branch: BranchId, epoch: Epoch) -> Result<()> {
        let overlay = self.overlay(branch)?;
        overlay.sealed = true;
        overlay.epoch = overlay.epoch.max(epoch);
        self.sync()
    }

    fn changes(&mut self, branch: BranchId) -> Result<ChangeSummary> {
        let items = self.overlay(branch)?.writes.len() as u64;
        Ok(ChangeSummary {
            items,
            bytes: 8 * items,
        })
    }

    fn validate(&mut self, branch: BranchId, _target: Generation) -> Result<Vec<Conflict>> {
        let overlay = self.overlay(branch)?.clone();
        if !self.in_place || self.is(Breakage::ValidatesAnything) {
            return Ok(Vec::new());
        }
        let changed = |key: &&u8| overlay.lower.get(*key) != self.now.base.get(*key);
        let keys = overlay.writes.keys().filter(changed);
        Ok(keys
            .map(|&key| self.conflict(key, "changed underneath"))
            .collect())
    }

    fn stage(&mut self, txn: CommitId, branch: BranchId, target: Generation) -> Result<Vote> {
        let vote = |t: &Txn, in_place| Vote {
            digest: digest(&t.changes),
            in_place,
        };
        if let Some(t) = self.now.txns.get(&txn) {
            return Ok(vote(t, self.in_place));
        }
        let in_place = self.in_place;
        let mut changes = self.overlay(branch)?.writes.clone();
        if self.is(Breakage::StagesOtherThanVerified) {
            changes.pop_first();
        }
        if !self.validate(branch, target)?.is_empty() {
            return Err(REFUSED.error("changed underneath since it was validated"));
        }
        let base = if in_place {
            &self.now.base
        } else {
            &self.overlay(branch)?.lower.clone()
        };
        let before = changes
            .keys()
            .map(|&key| (key, base.get(&key).copied()))
            .collect();
        let content = overlaid(base, &changes);
        let t = Txn {
            branch,
            target,
            changes,
            before,
            content,
            phase: TxnPhase::Staged,
        };
        self.io()?;
        self.now.txns.insert(txn, t.clone());
        if self.is(Breakage::ApplyBeforeDecide) && in_place {
            self.drive(&t.before, &t.changes)?;
        }
        if !self.is(Breakage::VoteWithoutSync) {
            self.sync()?;
        }
        Ok(vote(&t, in_place))
    }

    fn commit(&mut self, txn: CommitId, digest: Digest) -> Result<ApplyOutcome> {
        let mut t = self.txn(txn, digest)?;
        if t.phase == TxnPhase::Undone || self.now.ended.contains_key(&txn) {
            return Err(REFUSED.error("it is over, or was taken back"));
        }
        if t.phase == TxnPhase::Applied {
            return Ok(ApplyOutcome::Applied);
        }
        if self.is(Breakage::DiffRecomputed) {
            for (key, value) in &mut t.before {
                *value = self.now.base.get(key).copied();
            }
        }
        let blocked = self.drive(&t.before, &t.changes)?;
        self.sync()?;
        if !blocked.is_empty() {
            return Ok(ApplyOutcome::Blocked(blocked));
        }
        t.phase = TxnPhase::Applied;
        t.before = self.now.txns[&txn].before.clone();
        self.now.txns.insert(txn, t);
        self.sync()?;
        Ok(ApplyOutcome::Applied)
    }

    fn undo(&mut self, txn: CommitId, digest: Digest) -> Result<ApplyOutcome> {
        let mut t = self.txn(txn, digest)?;
        if t.phase == TxnPhase::Undone {
            return Ok(ApplyOutcome::Applied);
        }
        if self.in_place {
            let blocked = self.drive(&t.changes, &t.before)?;
            if !blocked.is_empty() {
                self.sync()?;
                return Ok(ApplyOutcome::Blocked(blocked));
            }
        } else {
            let parent = Generation(t.target.0.saturating_sub(1));
            let content = self.lower_at(parent)?;
            self.now
                .versions
                .insert(Generation(t.target.0 + 1), content);
        }
        t.phase = TxnPhase::Undone;
        self.now.ended.remove(&txn);
        self.now.txns.insert(txn, t);
        self.sync()?;
        Ok(ApplyOutcome::Applied)
    }

    fn abort(&mut self, txn: CommitId) -> Result<()> {
        if !self.is(Breakage::StagedKept) {
            self.io()?;
            self.now.txns.remove(&txn);
        }
        Ok(())
    }

    fn end(&mut self, txn: CommitId) -> Result<()> {
        self.io()?;
        if let Some(t) = self.now.txns.remove(&txn) {
            self.now.versions.insert(t.target, t.content.clone());
            if t.phase != TxnPhase::Undone {
                self.now.ended.insert(txn, t);
            }
        }
        Ok(())
    }

    fn status(&mut self, txn: CommitId) -> Result<TxnStatus> {
        Ok(match self.now.txns.get(&txn) {
            None => TxnStatus::Unknown,
            Some(t) if t.phase == TxnPhase::Applied => TxnStatus::Applied(digest(&t.changes)),
            Some(t) => TxnStatus::Staged(digest(&t.changes)),
        })
    }

    fn in_doubt(&mut self) -> Result<Vec<CommitId>> {
        if self.is(Breakage::StagedKept) {
            return Ok(Vec::new());
        }
        Ok(self.now.txns.keys().copied().collect())
    }

    fn discard(&mut self, branch: BranchId) -> Result<Discarded> {
        if self.is(Breakage::DiscardKeeps) {
            return Ok(Discarded::Undone);
        }
        self.io()?;
        self.now.overlays.remove(&branch);
        self.sync()?;
        Ok(Discarded::Undone)
    }
}

/// Whether an error is a simulated crash.
pub(crate) fn is_crash(error: &Error) -> bool {
    error.code == CRASH.text
}
