//! Branch rows: adding many at once, the state machine's transitions, and other changes.

use crate::{
    BranchRecord, Durability, NetworkKind, ProcessRecord, SharedRecord, Store, codes,
    row::{Reader, key, list_json, rows, signed, sql, sql_error, to_json},
};
use forkpoint_model::state::{BranchEvent, BranchState, ForkLayer, step};
use forkpoint_model::{
    BranchId, CheckpointId, Epoch, ExplorationId, Generation, GroupId, Result, Source, WorldId,
};
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};

/// The columns of a branch in the order of [`read_branch`]; the world is joined for `stale`.
pub(crate) const BRANCH: &str = "SELECT b.id, b.name, b.world, b.parent_kind, b.parent, \
    b.generation, b.group_id, b.exploration, b.attempt, b.state, b.epoch, b.stacks, b.root_layers, \
    b.stamp_ns, b.durable, b.layer, b.network, b.uncaptured, b.verified, b.reason, b.process, \
    b.created_ns, b.ended_ns, b.retained, b.bytes, b.detail, b.position, b.overlay, b.overlays, w.head \
    FROM branches b JOIN worlds w ON w.id = b.world";

/// The columns of a branch's row, in the order of [`values`].
const COLUMNS: [&str; 29] = [
    "id",
    "name",
    "world",
    "parent_kind",
    "parent",
    "generation",
    "group_id",
    "exploration",
    "attempt",
    "state",
    "epoch",
    "stacks",
    "root_layers",
    "stamp_ns",
    "durable",
    "layer",
    "network",
    "uncaptured",
    "verified",
    "reason",
    "process",
    "created_ns",
    "ended_ns",
    "retained",
    "bytes",
    "detail",
    "position",
    "overlay",
    "overlays",
];

pub(crate) const INSERT: &str = "INSERT INTO branches (id, name, world, parent_kind, parent, generation, \
    group_id, exploration, attempt, state, epoch, stacks, root_layers, stamp_ns, durable, layer, \
    network, uncaptured, verified, reason, process, created_ns, ended_ns, retained, bytes, detail, \
    position, overlay, overlays) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, \
    ?20, ?21, ?22, ?23, ?24, ?25, ?26, \
    coalesce(?27, (SELECT position FROM worlds WHERE id = ?3)), ?28, ?29)";

impl Store {
    /// Adds a branch.
    pub fn insert_branch(&self, branch: &BranchRecord) -> Result<()> {
        self.insert_branches(std::slice::from_ref(branch))
    }

    /// Adds branches, all or none. FP0110 if an identifier is taken (draw another) or a name is.
    pub fn insert_branches(&self, branches: &[BranchRecord]) -> Result<()> {
        self.write(Durability::Normal, |_| {
            branches.iter().try_for_each(|branch| self.add(branch))
        })
    }

    /// A branch. FP0108 if there is none.
    pub fn branch(&self, id: BranchId) -> Result<BranchRecord> {
        self.opt_branch(id)?
            .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no branch {id}")))
    }

    pub(crate) fn opt_branch(&self, id: BranchId) -> Result<Option<BranchRecord>> {
        let text = format!("{BRANCH} WHERE b.id = ?");
        Ok(rows(&mut *self.cached(&text)?, [key(id.bits())], read_branch)?.pop())
    }

    /// Lets `event` happen to a branch, by the rules of [`forkpoint_model::state::step`]. At an end
    /// the time is recorded and the process forgotten. Returns the branch as it now is.
    ///
    /// # Errors
    /// Those of the state machine (FP0080 to FP0084), and FP0108 if there is no such branch.
    pub fn transition(
        &self,
        id: BranchId,
        event: &BranchEvent,
        now_ns: i64,
    ) -> Result<BranchRecord> {
        self.transition_with(id, event, now_ns, |_| {})
    }

    /// As [`Store::transition`], and changes other fields in the same transaction (which cannot
    /// change the state, the epoch or `stale`).
    pub fn transition_with(
        &self,
        id: BranchId,
        event: &BranchEvent,
        now_ns: i64,
        change: impl FnOnce(&mut BranchRecord),
    ) -> Result<BranchRecord> {
        // An end is a claim about the world (law 5) that must not be lost after it was made; and a
        // delta may be deleted as soon as its branch is aborting (law 10).
        let durability = match event {
            BranchEvent::AbortRequested | BranchEvent::Drained { .. } => Durability::Full,
            _ => Durability::Normal,
        };
        let durability = self.durability(durability);
        self.write(durability, |_| {
            let before = self.branch(id)?;
            let next = step(&before.context(), event)?;
            let mut branch = before.clone();
            change(&mut branch);
            branch.id = id;
            branch.state = next.state;
            branch.epoch = next.epoch;
            if matches!(event, BranchEvent::Rebased) && branch.state.is_live() {
                branch.generation = self.world(branch.world)?.head;
            }
            if branch.state.is_end() {
                branch.ended_ns.get_or_insert(now_ns);
                branch.process = None;
            }
            if !matches!(
                branch.state,
                BranchState::Verified { .. } | BranchState::Staged
            ) && branch.state.is_live()
            {
                branch.verified = None;
            }
            self.rewrite(&before, &branch)?;
            self.branch(id)
        })
    }

    /// Changes the fields of a branch other than its state, epoch and `stale`, in one transaction.
    /// Returns the branch as it now is.
    pub fn modify_branch(
        &self,
        id: BranchId,
        change: impl FnOnce(&mut BranchRecord),
    ) -> Result<BranchRecord> {
        let durability = self.durability(Durability::Normal);
        self.write(durability, |_| {
            let before = self.branch(id)?;
            let mut branch = before.clone();
            change(&mut branch);
            branch.id = id;
            branch.state = before.state;
            branch.epoch = before.epoch;
            self.rewrite(&before, &branch)?;
            self.branch(id)
        })
    }

    /// Records the process of a branch. Of all changes the most frequent, so that it writes nothing
    /// but that. FP0108 if there is no such branch.
    pub fn set_process(&self, id: BranchId, process: &ProcessRecord) -> Result<()> {
        let durability = self.durability(Durability::Normal);
        self.write(durability, |_| {
            let changed = self
                .cached("UPDATE branches SET process = ?2 WHERE id = ?1")?
                .execute(params![key(id.bits()), to_json(process)?])
                .map_err(sql("recording a process"))?;
            match changed {
                0 => Err(codes::NOT_FOUND.error(format!("there is no branch {id}"))),
                _ => Ok(()),
            }
        })
    }

    /// Forgets a branch that has ended, as `gc` does once nothing of it is retained. Refused for one
    /// that has not ended or that others were forked from and still live.
    pub fn remove_branch(&self, id: BranchId) -> Result<()> {
        self.write(Durability::Normal, |_| {
            let branch = self.branch(id)?;
            if !branch.state.is_end() {
                return Err(codes::TAKEN.error(format!(
                    "branch {id} is {} and cannot be forgotten",
                    branch.state
                )));
            }
            self.cached("DELETE FROM branches WHERE id = ?")?
                .execute([key(id.bits())])
                .map_err(sql("removing a branch"))?;
            Ok(())
        })
    }

    fn add(&self, b: &BranchRecord) -> Result<()> {
        self.cached(INSERT)?
            .execute(params_from_iter(values(b)?))
            .map_err(|e| self.explain_taken(b, e))?;
        Ok(())
    }

    /// Writes what differs, and nothing else: SQLite writes a page of every index of whose columns one
    /// is assigned to, also where its value stays the same.
    fn rewrite(&self, before: &BranchRecord, b: &BranchRecord) -> Result<()> {
        let changed: Vec<_> = COLUMNS
            .iter()
            .zip(values(before)?.into_iter().zip(values(b)?))
            .filter(|(_, (old, new))| old != new)
            // A position is not taken back: without one, the row's stays.
            .filter(|(name, (_, new))| **name != "position" || *new != Value::Null)
            .map(|(name, (_, new))| (*name, new))
            .collect();
        if changed.is_empty() {
            return Ok(());
        }
        let list: Vec<_> = changed
            .iter()
            .map(|(name, _)| format!("{name} = ?"))
            .collect();
        let text = format!("UPDATE branches SET {} WHERE id = ?", list.join(", "));
        let id = Value::Integer(key(b.id.bits()));
        let params = changed.into_iter().map(|(_, value)| value).chain([id]);
        self.cached(&text)?
            .execute(params_from_iter(params))
            .map_err(|e| self.explain_taken(b, e))?;
        Ok(())
    }

    /// Says which of the unique values was taken.
    fn explain_taken(&self, b: &BranchRecord, e: rusqlite::Error) -> forkpoint_model::Error {
        let taken = matches!(
            e.sqlite_error_code(),
            Some(rusqlite::ErrorCode::ConstraintViolation)
        );
        match &b.name {
            Some(name) if taken && e.to_string().contains("branches.name") => codes::TAKEN
                .error(format!("a branch named {name:?} exists"))
                .hint("choose another name, or end that branch (forkpoint abort) first"),
            _ => sql_error("writing a branch", &e),
        }
    }
}

/// A branch as the values of its row.
fn values(b: &BranchRecord) -> Result<[Value; COLUMNS.len()]> {
    let (parent_kind, parent) = match b.parent {
        Source::Head(generation) => ("head", signed(generation.0)),
        Source::Branch(id) => ("branch", key(id.bits())),
        Source::Checkpoint(id) => ("checkpoint", key(id.bits())),
    };
    let layer = match b.layer {
        ForkLayer::Effect => "effect",
        ForkLayer::Reasoning => "reasoning",
    };
    let text = |text: &str| Value::Text(text.to_owned());
    Ok([
        key(b.id.bits()).into(),
        b.name.clone().into(),
        key(b.world.bits()).into(),
        text(parent_kind),
        parent.into(),
        signed(b.generation.0).into(),
        b.group.map(|g| key(g.bits())).into(),
        b.exploration.map(|(x, _)| key(x.bits())).into(),
        b.exploration.map(|(_, i)| i64::from(i)).into(),
        text(b.state.as_str()),
        signed(b.epoch.0).into(),
        list_json(&b.stacks)?.into(),
        list_json(&b.root_layers)?.into(),
        b.stamp_ns.into(),
        b.durable.into(),
        text(layer),
        text(b.network.as_str()),
        list_json(&b.uncaptured)?.into(),
        b.verified.as_ref().map(to_json).transpose()?.into(),
        b.reason.clone().into(),
        b.process.as_ref().map(to_json).transpose()?.into(),
        b.created_ns.into(),
        b.ended_ns.into(),
        b.retained.into(),
        b.bytes.map(signed).into(),
        b.detail.clone().into(),
        b.shared.position.map(signed).into(),
        b.shared.overlay.map(signed).into(),
        list_json(&b.shared.overlays)?.into(),
    ])
}

/// What the number in the column `parent` is.
enum ParentKind {
    Head,
    Branch,
    Checkpoint,
}

impl ParentKind {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "head" => Some(Self::Head),
            "branch" => Some(Self::Branch),
            "checkpoint" => Some(Self::Checkpoint),
            _ => None,
        }
    }

    fn source(self, number: u64) -> Source {
        match self {
            Self::Head => Source::Head(Generation(number)),
            Self::Branch => Source::Branch(BranchId::from_bits(number)),
            Self::Checkpoint => Source::Checkpoint(CheckpointId::from_bits(number)),
        }
    }
}

pub(crate) fn read_branch(r: &mut Reader<'_, '_>) -> Result<BranchRecord> {
    let id = r.id(BranchId::from_bits)?;
    let name = r.get()?;
    let world = r.id(WorldId::from_bits)?;
    let kind = r.text(ParentKind::parse)?;
    let parent = kind.source(r.unsigned()?);
    let generation = Generation(r.unsigned()?);
    let group = r.opt_id(GroupId::from_bits)?;
    let exploration = r.opt_id(ExplorationId::from_bits)?;
    let attempt: Option<u32> = r.get()?;
    let state: BranchState = r.text(|s| s.parse().ok())?;
    let mut branch = BranchRecord {
        name,
        group,
        exploration: exploration.zip(attempt),
        state,
        epoch: Epoch(r.unsigned()?),
        stacks: r.list()?,
        root_layers: r.list()?,
        stamp_ns: r.get()?,
        durable: r.get()?,
        layer: r.text(|s| match s {
            "effect" => Some(ForkLayer::Effect),
            "reasoning" => Some(ForkLayer::Reasoning),
            _ => None,
        })?,
        network: r.text(NetworkKind::parse)?,
        uncaptured: r.list()?,
        verified: r.opt_json()?,
        reason: r.get()?,
        process: r.opt_json()?,
        created_ns: r.get()?,
        ended_ns: r.get()?,
        retained: r.get()?,
        bytes: r.get::<Option<i64>>()?.map(i64::cast_unsigned),
        detail: r.get()?,
        shared: SharedRecord {
            position: Some(r.unsigned()?),
            overlay: r.get::<Option<i64>>()?.map(i64::cast_unsigned),
            overlays: r.list()?,
        },
        ..BranchRecord::new(id, world, parent, generation)
    };
    let head = Generation(r.unsigned()?);
    branch.stale = state.is_live() && generation != head;
    Ok(branch)
}
