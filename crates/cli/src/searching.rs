//! The flags of `explore` that say how it searches and what all of it may use.

use forkpoint_explore::budget::BudgetSpec;
use forkpoint_explore::cost::Cost;
use forkpoint_explore::spec::{CommandLine, CompareSpec, SearchSpec};
use forkpoint_explore::units::{Size, Time};
use std::ffi::OsString;

use crate::flags::set;

/// How a strategy searches.
#[derive(clap::Args, Debug)]
pub(crate) struct SearchFlags {
    /// beam: how many branches each round keeps. Default: 2
    #[arg(long, value_name = "W")]
    width: Option<u32>,
    /// beam: how many times what is kept is forked again. Default: 3
    #[arg(long, value_name = "D")]
    depth: Option<u32>,
    /// beam, refine: how many forks are made of each branch that is kept. Default: 2 for beam, 1 for
    /// refine
    #[arg(long, value_name = "B")]
    branching: Option<u32>,
    /// halving: one of this many survives each round, and gets this many times the time. Default: 2
    #[arg(long, value_name = "N")]
    eta: Option<u32>,
    /// halving, refine: the most rounds after the first. Default: until one is left for halving, 8 for
    /// refine
    #[arg(long, value_name = "R")]
    rounds: Option<u32>,
    /// refine: end after this many rounds that brought no better score. Default: 2
    #[arg(long, value_name = "R")]
    patience: Option<u32>,
    /// tournament: says which of two attempts is better. It sees their trees at $FORKPOINT_LEFT and
    /// $FORKPOINT_RIGHT, and prints left, right or tie, or exits with 0 for the left, 1 for the right
    #[arg(long, value_name = "CMD")]
    compare: Option<OsString>,
    /// The time limit of one comparison
    #[arg(long, value_name = "T", requires = "compare")]
    compare_timeout: Option<Time>,
    /// beam, halving, refine: the most attempts in all. Default: 1000
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
}

impl SearchFlags {
    /// Lays the flags over what a file says.
    pub(crate) fn over(self, search: &mut SearchSpec) {
        set(&mut search.width, self.width);
        set(&mut search.depth, self.depth);
        set(&mut search.branching, self.branching);
        set(&mut search.eta, self.eta);
        set(&mut search.rounds, self.rounds);
        set(&mut search.patience, self.patience);
        set(&mut search.max_attempts, self.max_attempts);
        let timeout = search.compare.as_ref().and_then(|c| c.timeout);
        let compare = self.compare.map(|line| CompareSpec {
            command: CommandLine::Shell(line.into()),
            timeout,
        });
        set(&mut search.compare, compare);
        if let Some(compare) = &mut search.compare {
            set(&mut compare.timeout, self.compare_timeout);
        }
    }
}

/// What all attempts may use together.
#[derive(clap::Args, Debug)]
pub(crate) struct BudgetFlags {
    /// Processor time of the whole exploration
    #[arg(long, value_name = "T")]
    budget_cpu: Option<Time>,
    /// Memory of everything that runs at once
    #[arg(long, value_name = "SIZE")]
    budget_memory: Option<Size>,
    /// What all attempts may write together
    #[arg(long, value_name = "SIZE")]
    budget_disk: Option<Size>,
    /// What the attempts may cost together, as they say in lines like {"cost":0.12} in the file
    /// $FORKPOINT_COST_FILE
    #[arg(long, value_name = "X")]
    budget_cost: Option<Cost>,
}

impl BudgetFlags {
    /// Lays the flags over what a file says.
    pub(crate) fn over(self, budget: &mut BudgetSpec) {
        set(&mut budget.cpu, self.budget_cpu);
        set(&mut budget.memory, self.budget_memory);
        set(&mut budget.disk, self.budget_disk);
        set(&mut budget.cost, self.budget_cost);
    }
}
