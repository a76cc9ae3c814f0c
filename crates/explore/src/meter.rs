//! Keeps the budgets of an exploration: says whether another attempt may start and with what limits,
//! and which of those that run must stop. Pure: what was used comes in.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::Usage;
use crate::budget::BudgetSpec;
use crate::cost::Cost;
use crate::spec::LimitSpec;
use crate::units::{Size, Time};

/// What one attempt has used so far.
#[derive(Debug, Clone, Copy, Default)]
struct Tab {
    running: bool,
    usage: Usage,
    cost: Cost,
}

/// The books of an exploration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    budget: BudgetSpec,
    /// Processor time of verifiers, scores and comparisons.
    judges: Duration,
    /// By the attempt's number, so that the youngest comes last.
    tabs: BTreeMap<u32, Tab>,
}

impl Meter {
    pub(crate) fn new(budget: BudgetSpec) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    /// Whether anything has to be looked at.
    pub(crate) fn watches(&self) -> bool {
        !self.budget.is_empty()
    }

    /// Whether what was written has to be looked at, which costs a walk over it.
    pub(crate) fn watches_disk(&self) -> bool {
        self.budget.disk.is_some()
    }

    /// The attempts whose commands run.
    pub(crate) fn running(&self) -> Vec<u32> {
        let running = self.tabs.iter().filter(|(_, tab)| tab.running);
        running.map(|(&i, _)| i).collect()
    }

    /// Lets attempt `i` start: its limits, cut to what is left of the whole.
    ///
    /// # Errors
    /// Says which budget has nothing left.
    pub(crate) fn start(&mut self, i: u32, own: LimitSpec) -> Result<LimitSpec, String> {
        if let Some(why) = self.used_up() {
            return Err(why);
        }
        let mut limits = own;
        if let Some(Time(all)) = self.budget.cpu {
            let left = all.saturating_sub(self.cpu()).max(Duration::from_millis(1));
            limits.cpu = Some(own.cpu.map_or(Time(left), |t| Time(t.0.min(left))));
        }
        if let Some(Size(all)) = self.budget.disk {
            let left = all.saturating_sub(self.disk()).max(1);
            limits.disk = Some(own.disk.map_or(Size(left), |s| Size(s.0.min(left))));
        }
        if let Some(all) = self.budget.memory {
            limits.memory = Some(own.memory.map_or(all, |s| s.min(all)));
        }
        let tab = self.tabs.entry(i).or_default();
        tab.running = true;
        Ok(limits)
    }

    /// How many attempts fit into memory side by side, at most `jobs`.
    pub(crate) fn jobs(budget: &BudgetSpec, own: &LimitSpec, jobs: u32) -> u32 {
        match (budget.memory, own.memory) {
            (Some(Size(all)), Some(Size(one))) => {
                let fit = u32::try_from(all / one.max(1)).unwrap_or(u32::MAX);
                jobs.min(fit).max(1)
            }
            _ => jobs,
        }
    }

    /// What attempt `i` uses now.
    pub(crate) fn saw(&mut self, i: u32, usage: Usage) {
        let tab = self.tabs.entry(i).or_default();
        // What was used stays used, whatever a dying process says last.
        tab.usage.cpu = tab.usage.cpu.max(usage.cpu);
        tab.usage.disk_bytes = usage.disk_bytes;
        tab.usage.memory_bytes = usage.memory_bytes;
    }

    /// What attempt `i` says that it has cost so far.
    pub(crate) fn costs(&mut self, i: u32, cost: Cost) {
        self.tabs.entry(i).or_default().cost = cost;
    }

    /// The command of attempt `i` is over.
    pub(crate) fn ended(&mut self, i: u32, cpu: Duration) {
        let tab = self.tabs.entry(i).or_default();
        tab.running = false;
        tab.usage.cpu = tab.usage.cpu.max(cpu);
        tab.usage.memory_bytes = 0;
    }

    /// A verifier, a score or a comparison has taken this.
    pub(crate) fn judged(&mut self, cpu: Duration) {
        self.judges = self.judges.saturating_add(cpu);
    }

    fn cpu(&self) -> Duration {
        let attempts: Duration = self.tabs.values().map(|t| t.usage.cpu).sum();
        attempts.saturating_add(self.judges)
    }

    fn disk(&self) -> u64 {
        let sizes = self.tabs.values().map(|t| t.usage.disk_bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// What all attempts say that they have cost.
    pub(crate) fn cost(&self) -> Cost {
        self.tabs
            .values()
            .fold(Cost::default(), |sum, tab| sum.plus(tab.cost))
    }

    /// Which budget has nothing left, in words.
    fn used_up(&self) -> Option<String> {
        let budget = &self.budget;
        if let Some(all) = budget.cpu
            && self.cpu() >= all.0
        {
            return Some(format!("the budget of {all} processor time is used up"));
        }
        if let Some(all) = budget.disk
            && self.disk() >= all.0
        {
            return Some(format!("the budget of {all} on disk is used up"));
        }
        if let Some(all) = budget.cost
            && self.cost() >= all
        {
            let spent = self.cost();
            return Some(format!(
                "the budget of {all} is used up: {spent} was reported"
            ));
        }
        None
    }

    /// Which running attempts must stop, and why. Where a sum is used up, all of them; where they take
    /// too much memory at once, the youngest, until the others fit.
    pub(crate) fn over(&self) -> Vec<(u32, String)> {
        if let Some(why) = self.used_up() {
            return (self.running().into_iter())
                .map(|i| (i, why.clone()))
                .collect();
        }
        let Some(Size(all)) = self.budget.memory else {
            return Vec::new();
        };
        let mut stop = Vec::new();
        let running = self.tabs.iter().filter(|(_, tab)| tab.running);
        let mut sum = running.clone().fold(0u64, |sum, (_, tab)| {
            sum.saturating_add(tab.usage.memory_bytes)
        });
        for (&i, tab) in running.rev() {
            if sum <= all {
                break;
            }
            sum = sum.saturating_sub(tab.usage.memory_bytes);
            let why = format!(
                "all attempts together took more than {} of memory",
                Size(all)
            );
            stop.push((i, why));
        }
        stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu_s: u64, memory_bytes: u64, disk_bytes: u64) -> Usage {
        Usage {
            cpu: Duration::from_secs(cpu_s),
            memory_bytes,
            disk_bytes,
        }
    }

    fn names(over: &[(u32, String)]) -> Vec<u32> {
        over.iter().map(|(i, _)| *i).collect()
    }

    #[test]
    fn a_sum_that_is_used_up_stops_all_and_starts_nothing() {
        let mut meter = Meter::new(BudgetSpec {
            cpu: Some("10s".parse().unwrap()),
            ..BudgetSpec::default()
        });
        let first = meter.start(0, LimitSpec::default()).unwrap();
        assert_eq!(first.cpu, Some("10s".parse().unwrap()));
        meter.saw(0, usage(4, 0, 0));
        let second = meter.start(1, LimitSpec::default()).unwrap();
        assert_eq!(second.cpu, Some("6s".parse().unwrap()), "what is left");
        meter.saw(1, usage(3, 0, 0));
        assert!(meter.over().is_empty());
        meter.judged(Duration::from_secs(3));
        assert_eq!(names(&meter.over()), [0, 1]);
        assert!(meter.start(2, LimitSpec::default()).is_err());
        meter.ended(0, Duration::from_secs(5));
        assert_eq!(names(&meter.over()), [1], "what has ended is not stopped");
    }

    #[test]
    fn memory_at_once_stops_the_youngest_until_the_rest_fits() {
        let mut meter = Meter::new(BudgetSpec {
            memory: Some(Size(100)),
            ..BudgetSpec::default()
        });
        for i in 0..4 {
            let limits = meter.start(i, LimitSpec::default()).unwrap();
            assert_eq!(limits.memory, Some(Size(100)), "one alone cannot exceed it");
            meter.saw(i, usage(0, 40, 0));
        }
        assert_eq!(names(&meter.over()), [3, 2]);
        meter.ended(3, Duration::ZERO);
        meter.ended(2, Duration::ZERO);
        assert!(meter.over().is_empty());
        // What has ended takes no memory any more: others may start.
        assert!(meter.start(4, LimitSpec::default()).is_ok());
    }

    #[test]
    fn what_is_written_stays_counted_after_the_end() {
        let mut meter = Meter::new(BudgetSpec {
            disk: Some(Size(100)),
            ..BudgetSpec::default()
        });
        meter.start(0, LimitSpec::default()).unwrap();
        meter.saw(0, usage(0, 0, 70));
        meter.ended(0, Duration::ZERO);
        let own = LimitSpec {
            disk: Some(Size(50)),
            ..LimitSpec::default()
        };
        assert_eq!(meter.start(1, own).unwrap().disk, Some(Size(30)));
        meter.saw(1, usage(0, 0, 30));
        assert_eq!(names(&meter.over()), [1]);
    }

    #[test]
    fn reported_costs_are_summed() {
        let mut meter = Meter::new(BudgetSpec {
            cost: Some("1".parse().unwrap()),
            ..BudgetSpec::default()
        });
        meter.start(0, LimitSpec::default()).unwrap();
        meter.costs(0, Cost(600_000));
        assert!(meter.over().is_empty());
        meter.start(1, LimitSpec::default()).unwrap();
        meter.costs(1, Cost(400_000));
        assert_eq!(names(&meter.over()), [0, 1]);
        assert!(
            meter
                .start(2, LimitSpec::default())
                .unwrap_err()
                .contains('1')
        );
    }

    #[test]
    fn declared_memory_bounds_how_many_run_at_once() {
        let budget = BudgetSpec {
            memory: Some(Size(100)),
            ..BudgetSpec::default()
        };
        let own = |n| LimitSpec {
            memory: Some(Size(n)),
            ..LimitSpec::default()
        };
        assert_eq!(Meter::jobs(&budget, &own(30), 8), 3);
        assert_eq!(Meter::jobs(&budget, &own(100), 8), 1);
        assert_eq!(Meter::jobs(&budget, &LimitSpec::default(), 8), 8);
    }
}
