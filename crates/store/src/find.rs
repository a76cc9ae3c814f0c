//! Queries over branches: by name, identifier or unique prefix; lists; what recovery looks at.

use crate::{
    BranchRecord, Store,
    branches::{BRANCH, read_branch},
    codes,
    row::{key, rows, signed},
};
use forkpoint_model::{BranchId, Error, ExplorationId, GroupId, Result, WorldId};

/// How many candidates an ambiguity lists.
const CANDIDATES: usize = 8;

/// Neither live nor at an end. Word for word the condition of the index `branches_unfinished`, which is
/// used for no other.
const UNFINISHED: &str = "ended_ns IS NULL AND state IN ('staged', 'applying', 'apply_blocked', \
    'invalidated', 'aborting', 'rollback_incomplete')";

impl Store {
    /// The branch that `text` names: a name (of a branch that has not ended, else of the newest that
    /// has), an identifier, or a prefix of exactly one identifier.
    ///
    /// # Errors
    /// FP0108 if nothing fits, FP0109 if several do, with the candidates.
    pub fn find_branch(&self, text: &str) -> Result<BranchRecord> {
        // A live branch's name is found by its index. For an ended one's every row has to be read.
        let live = format!("{BRANCH} WHERE b.name = ? AND b.ended_ns IS NULL");
        if let Some(branch) = rows(&mut *self.cached(&live)?, [text], read_branch)?.pop() {
            return Ok(branch);
        }
        let exact = text.parse::<BranchId>().ok();
        if let Some(branch) = exact.map(|id| self.opt_branch(id)).transpose()?.flatten() {
            return Ok(branch);
        }
        let ended = format!("{BRANCH} WHERE b.name = ? ORDER BY b.created_ns DESC LIMIT 1");
        if let Some(branch) = rows(&mut *self.cached(&ended)?, [text], read_branch)?.pop() {
            return Ok(branch);
        }
        let Some((low, high)) = prefix_range(text) else {
            return Err(no_branch(text));
        };
        let by_id = format!("{BRANCH} WHERE b.id BETWEEN ? AND ? ORDER BY b.id LIMIT {CANDIDATES}");
        let range = [signed(low), signed(high)];
        let mut found = rows(&mut *self.cached(&by_id)?, range, read_branch)?;
        match found.len() {
            0 => Err(no_branch(text)),
            1 => Ok(found.remove(0)),
            n => {
                let mut list: Vec<String> = found.iter().map(describe).collect();
                if n == CANDIDATES {
                    list.push("…".into());
                }
                Err(codes::AMBIGUOUS
                    .error(format!(
                        "several branches begin with {text:?}: {}",
                        list.join(", ")
                    ))
                    .hint("give more characters of the identifier"))
            }
        }
    }

    /// Branches of a world, or of all, oldest first; without the ended ones unless `ended`.
    pub fn branches(&self, world: Option<WorldId>, ended: bool) -> Result<Vec<BranchRecord>> {
        let mut text = String::from(BRANCH);
        let mut params = Vec::new();
        if let Some(world) = world {
            text += " WHERE b.world = ?";
            params.push(key(world.bits()));
        }
        if !ended {
            text += if params.is_empty() { " WHERE" } else { " AND" };
            text += " b.ended_ns IS NULL";
        }
        let params = rusqlite::params_from_iter(params);
        oldest_first(rows(&mut *self.cached(&text)?, params, read_branch))
    }

    /// Live branches of a world that are not based on its head, oldest first; at most `limit`.
    pub fn stale_branches(&self, world: WorldId, limit: u32) -> Result<Vec<BranchRecord>> {
        let text = format!(
            "{BRANCH} WHERE b.world = ? AND b.ended_ns IS NULL AND b.generation <> w.head \
             AND b.state IN ('open', 'sealed', 'verified_passed', 'verified_failed') \
             ORDER BY b.created_ns, b.id LIMIT ?"
        );
        let params = [key(world.bits()), i64::from(limit)];
        rows(&mut *self.cached(&text)?, params, read_branch)
    }

    /// The branches of a sibling group, oldest first.
    pub fn siblings(&self, group: GroupId) -> Result<Vec<BranchRecord>> {
        self.branches_where("b.group_id = ?", Some(key(group.bits())))
    }

    /// The branches forked from this one, oldest first.
    pub fn children(&self, parent: BranchId) -> Result<Vec<BranchRecord>> {
        self.branches_where(
            "b.parent_kind = 'branch' AND b.parent = ?",
            Some(key(parent.bits())),
        )
    }

    /// The branches of an exploration, in the order of its attempts.
    pub fn exploration_branches(&self, exploration: ExplorationId) -> Result<Vec<BranchRecord>> {
        let mut found = self.branches_where("b.exploration = ?", Some(key(exploration.bits())))?;
        found.sort_by_key(|b| b.exploration.map(|(_, index)| index));
        Ok(found)
    }

    /// The branches with a process, for recovery and for `gc`.
    pub fn running(&self) -> Result<Vec<BranchRecord>> {
        self.branches_where("b.process IS NOT NULL", None)
    }

    /// The branches that are neither live nor at an end: what recovery must drive on.
    pub fn unfinished(&self) -> Result<Vec<BranchRecord>> {
        self.branches_where(UNFINISHED, None)
    }

    /// Whether recovery has nothing to look at: no exploration that has not ended, no commit in
    /// doubt, no unfinished branch, and no process of another boot than `boot_id`. One short query
    /// in place of four, since whoever opens the store asks.
    pub fn quiet(&self, boot_id: &str) -> Result<bool> {
        let text = format!(
            "SELECT NOT EXISTS (SELECT 1 FROM explorations WHERE ended_ns IS NULL) \
             AND NOT EXISTS (SELECT 1 FROM commits WHERE ended_ns IS NULL) \
             AND NOT EXISTS (SELECT 1 FROM branches WHERE {UNFINISHED}) \
             AND NOT EXISTS (SELECT 1 FROM branches WHERE process IS NOT NULL \
             AND instr(process, ?) = 0)"
        );
        let found = rows(&mut *self.cached(&text)?, [boot_id], |r| r.get::<bool>())?;
        Ok(found.first().copied().unwrap_or(false))
    }

    /// The ended branches whose delta is retained, oldest end first: what `gc` chooses from.
    pub fn retained(&self) -> Result<Vec<BranchRecord>> {
        let mut found = self.branches_where("b.retained = 1 AND b.ended_ns IS NOT NULL", None)?;
        found.sort_by_key(|b| b.ended_ns);
        Ok(found)
    }

    fn branches_where(&self, condition: &str, param: Option<i64>) -> Result<Vec<BranchRecord>> {
        let text = format!("{BRANCH} WHERE {condition}");
        let params = rusqlite::params_from_iter(param);
        oldest_first(rows(&mut *self.cached(&text)?, params, read_branch))
    }
}

/// Sorted here, since SQLite would carry every column of every row through its sorter.
fn oldest_first(found: Result<Vec<BranchRecord>>) -> Result<Vec<BranchRecord>> {
    let mut found = found?;
    found.sort_by_key(|b| (b.created_ns, b.id.bits()));
    Ok(found)
}

fn no_branch(text: &str) -> Error {
    codes::NOT_FOUND
        .error(format!("there is no branch {text:?}"))
        .hint("forkpoint list shows what there is")
}

fn describe(branch: &BranchRecord) -> String {
    match &branch.name {
        Some(name) => format!("{} ({name})", branch.id),
        None => branch.id.to_string(),
    }
}

/// The identifiers that begin with `text` (the kind letter and up to eight characters), as a range
/// of their bits.
fn prefix_range(text: &str) -> Option<(u64, u64)> {
    let digits = text.strip_prefix('b')?;
    if digits.len() > 8 {
        return None;
    }
    let bound = |pad: char| {
        let full: String = text.chars().chain(std::iter::repeat(pad)).take(9).collect();
        full.parse::<BranchId>().ok().map(BranchId::bits)
    };
    Some((bound('0')?, bound('z')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range() {
        let id = BranchId::from_bits(0x12_3456_789a);
        let text = id.to_string();
        assert_eq!(prefix_range(&text), Some((id.bits(), id.bits())));
        for n in 1..text.len() {
            let (low, high) = prefix_range(&text[..n]).unwrap();
            assert!(low <= id.bits() && id.bits() <= high);
        }
        assert_eq!(prefix_range("b"), Some((0, 0xff_ffff_ffff)));
        for bad in ["", "w12", "bé", "b000000000", "bU"] {
            assert_eq!(prefix_range(bad), None, "{bad}");
        }
    }
}
