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

impl Store {
    /// The branch that `text` names: a name (of a branch that has not ended, else of the newest that
    /// has), an identifier, or a prefix of exactly one identifier.
    ///
    /// # Errors
    /// FP0108 if nothing fits, FP0109 if several do, with the candidates.
    pub fn find_branch(&self, text: &str) -> Result<BranchRecord> {
        let by_name = format!(
            "{BRANCH} WHERE b.name = ? ORDER BY b.ended_ns IS NOT NULL, b.created_ns DESC LIMIT 1"
        );
        if let Some(branch) = rows(&mut *self.cached(&by_name)?, [text], read_branch)?.pop() {
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
        text += " ORDER BY b.created_ns, b.id";
        rows(
            &mut *self.cached(&text)?,
            rusqlite::params_from_iter(params),
            read_branch,
        )
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
        self.branches_where(
            "b.ended_ns IS NULL AND b.state IN ('staged', 'applying', 'apply_blocked', \
             'invalidated', 'aborting', 'rollback_incomplete')",
            None,
        )
    }

    /// The ended branches whose delta is retained, oldest end first: what `gc` chooses from.
    pub fn retained(&self) -> Result<Vec<BranchRecord>> {
        let mut found = self.branches_where("b.retained = 1 AND b.ended_ns IS NOT NULL", None)?;
        found.sort_by_key(|b| b.ended_ns);
        Ok(found)
    }

    fn branches_where(&self, condition: &str, param: Option<i64>) -> Result<Vec<BranchRecord>> {
        let text = format!("{BRANCH} WHERE {condition} ORDER BY b.created_ns, b.id");
        rows(
            &mut *self.cached(&text)?,
            rusqlite::params_from_iter(param),
            read_branch,
        )
    }
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
