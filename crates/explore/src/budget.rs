//! Budgets of a whole exploration: processor time, memory at once, disk, and a cost that the
//! attempts report. (Its wall time is the total timeout.) What they stop is decided in `meter`.

use forkpoint_model::Result;
use serde::{Deserialize, Serialize};

use crate::codes;
use crate::cost::Cost;
use crate::spec::LimitSpec;
use crate::units::{Size, Time};

/// What all attempts of an exploration may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetSpec {
    /// Processor time of all attempts, verifiers and scores together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Time>,
    /// Memory of all attempts that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// What all attempts together have written and still keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Size>,
    /// The sum of what attempts report in `FORKPOINT_COST_FILE`. It is what they claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl BudgetSpec {
    /// Whether there is anything to watch.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the budgets against what one attempt may use.
    ///
    /// # Errors
    /// `FP0501` where not even one attempt could start.
    pub fn check(&self, limits: &LimitSpec) -> Result<()> {
        let too_much = |what: &str, one: String, all: String| {
            Err(codes::SPEC
                .error(format!(
                    "one attempt may use {one} of {what}, more than the {all} of all together"
                ))
                .hint(format!("lower --{what}, or raise --budget-{what}")))
        };
        if let (Some(one), Some(all)) = (limits.cpu, self.cpu)
            && one > all
        {
            return too_much("cpu", one.to_string(), all.to_string());
        }
        if let (Some(one), Some(all)) = (limits.memory, self.memory)
            && one > all
        {
            return too_much("memory", one.to_string(), all.to_string());
        }
        if let (Some(one), Some(all)) = (limits.disk, self.disk)
            && one > all
        {
            return too_much("disk", one.to_string(), all.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_must_have_room_for_one_attempt() {
        let budget = BudgetSpec {
            memory: Some(Size(100)),
            ..BudgetSpec::default()
        };
        let limits = |n| LimitSpec {
            memory: Some(Size(n)),
            ..LimitSpec::default()
        };
        assert!(budget.check(&limits(100)).is_ok());
        assert!(budget.check(&LimitSpec::default()).is_ok());
        let error = budget.check(&limits(101)).unwrap_err();
        assert_eq!(error.code, "FP0501");
        assert!(error.message.contains("memory"));
    }
}
