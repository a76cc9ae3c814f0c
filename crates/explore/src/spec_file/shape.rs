//! Every key of a specification file: its name, what it takes, what it is for. The reader checks files
//! against this table, and the JSON Schema and the reference are made from it, so that the three cannot
//! differ. It must not know what a key does.

use crate::params::MAX_ATTEMPTS;
use crate::search::{MAX_DEPTH, MAX_ROUNDS, MAX_WIDTH};

/// What a key takes.
pub(crate) enum Kind {
    /// A path of the host, relative to the file.
    Path,
    /// An absolute path inside a branch, without `..`.
    Inside,
    /// A glob of paths of the base, without `..`.
    Glob,
    /// An attempt's name.
    Label,
    /// An environment variable's name.
    Variable,
    /// True or false.
    Bool,
    /// A whole number within bounds.
    Count(u32, u32),
    /// An amount above zero.
    Cost,
    /// A length of time.
    Time,
    /// A number of bytes.
    Size,
    /// One of these.
    Choice(&'static [&'static str]),
    /// A line for the shell, or a program and its arguments.
    Command,
    /// A list of these.
    List(&'static Kind),
    /// A table.
    Table(&'static Shape),
    /// A list of tables, not empty.
    Tables(&'static Shape),
    /// A command, or a table that has one as `run`.
    Section(&'static Shape),
    /// One of these, or a table that has one as `name`.
    Strategy(&'static [&'static str], &'static Shape),
    /// A table of variables and their values.
    Variables,
    /// A table of parameters, each with a value or a list of them.
    Params,
    /// A table of parameters with a list of values each, and the tables of `list` and `exclude`.
    ParamsAndLists,
    /// A table of parameters with one value each.
    Values,
}

/// One key.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The table makes no sense without it.
    pub(crate) required: bool,
    /// What it is for, in one sentence.
    pub(crate) help: &'static str,
}

/// A table's keys.
pub(crate) struct Shape {
    /// As it is written between brackets; empty for the top of the file.
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [Key],
}

pub(super) const fn key(name: &'static str, kind: Kind, help: &'static str) -> Key {
    Key {
        name,
        kind,
        required: false,
        help,
    }
}

const fn need(name: &'static str, kind: Kind, help: &'static str) -> Key {
    Key {
        name,
        kind,
        required: true,
        help,
    }
}

pub(super) const NETWORKS: Kind = Kind::Choice(&["loopback", "host"]);
const STRATEGIES: &[&str] = &[
    "first-wins",
    "best-of-n",
    "beam",
    "halving",
    "tournament",
    "refine",
];
const MOST: u32 = MAX_ATTEMPTS as u32;
const REPEATS: Kind = Kind::Count(1, 1000);

/// The top of the file.
pub(crate) static ROOT: Shape = Shape {
    name: "",
    keys: &[
        key(
            "base",
            Kind::Path,
            "The directory to explore from. Default: the current directory.",
        ),
        key("snapshot", Kind::Bool, "Fork from a copy of the directory."),
        key(
            "run",
            Kind::Command,
            "What an attempt runs that has no command of its own.",
        ),
        key(
            "count",
            Kind::Count(1, MOST),
            "How many attempts in all. Default: one for each combination.",
        ),
        key(
            "jobs",
            Kind::Count(1, 1024),
            "How many run at once. Default: the number of processors.",
        ),
        key("timeout", Kind::Time, "The time limit of one attempt."),
        key(
            "total-timeout",
            Kind::Time,
            "The time limit of the whole exploration.",
        ),
        key(
            "network",
            NETWORKS,
            "What attempts, verifier and score can reach. Default: loopback.",
        ),
        key(
            "keep",
            Kind::Choice(&["none", "losers", "all"]),
            "What is kept of attempts that did not win. Default: losers.",
        ),
        key(
            "protect",
            Kind::List(&Kind::Glob),
            "Paths that are made what the base has before the verifier looks.",
        ),
        key(
            "expose",
            Kind::List(&Kind::Path),
            "Paths that are not masked, although they hold credentials.",
        ),
        key(
            "hide",
            Kind::List(&Kind::Path),
            "Paths that are masked too.",
        ),
        key(
            "devices",
            Kind::List(&Kind::Path),
            "Devices of the host that every command is shown. Nothing captures what is done with one.",
        ),
        key(
            "pass-env",
            Kind::List(&Kind::Variable),
            "Variables taken from the caller, even if they look like secrets.",
        ),
        key(
            "secrets",
            Kind::List(&Kind::Variable),
            "Variables of the caller that only attempts are given, and that no log shows.",
        ),
        key("env", Kind::Variables, "Variables for every command."),
        key(
            "params",
            Kind::ParamsAndLists,
            "Parameters; each attempt is made with each combination of their values.",
        ),
        key("attempt", Kind::Tables(&ATTEMPT), "The ways to try."),
        key(
            "prepare",
            Kind::Section(&PREPARE),
            "What is run once, before the fork.",
        ),
        key(
            "verify",
            Kind::Section(&VERIFY),
            "The gate: an attempt passes when it exits with 0.",
        ),
        key(
            "score",
            Kind::Section(&SCORE),
            "The score: the last line of its output that is a number.",
        ),
        key(
            "strategy",
            Kind::Strategy(STRATEGIES, &STRATEGY),
            "How the winner is found.",
        ),
        key("limits", Kind::Table(&LIMITS), "What one attempt may use."),
        key(
            "budget",
            Kind::Table(&BUDGET),
            "What all attempts may use together.",
        ),
        key(
            "commit",
            Kind::Table(&COMMIT),
            "What is committed of the winner.",
        ),
    ],
};

static ATTEMPT: Shape = Shape {
    name: "attempt",
    keys: &[
        key(
            "name",
            Kind::Label,
            "What it is called in tables and reports.",
        ),
        key(
            "run",
            Kind::Command,
            "What it runs. Default: the run at the top of the file.",
        ),
        key(
            "params",
            Kind::Params,
            "Values of its own, instead of those under [params].",
        ),
        key("env", Kind::Variables, "Variables of its own."),
        key(
            "pass-env",
            Kind::List(&Kind::Variable),
            "Variables it is given from the caller.",
        ),
        key(
            "timeout",
            Kind::Time,
            "Its time limit, instead of the common one.",
        ),
        key(
            "limits",
            Kind::Table(&LIMITS),
            "Its limits, instead of the common ones.",
        ),
        key(
            "repeat",
            Kind::Count(1, MOST),
            "How often each of its combinations is made. Default: once.",
        ),
    ],
};

static PREPARE: Shape = Shape {
    name: "prepare",
    keys: &[
        need("run", Kind::Command, "What it runs."),
        key(
            "inputs",
            Kind::List(&Kind::Glob),
            "Paths its result depends on: it is run again only when one has changed.",
        ),
        key("network", NETWORKS, "What it can reach. Default: loopback."),
        key("timeout", Kind::Time, "Its time limit."),
        key("secrets", Kind::Bool, "It is given the secrets too."),
    ],
};

static VERIFY: Shape = Shape {
    name: "verify",
    keys: &[
        need("run", Kind::Command, "What it runs."),
        key(
            "repeat",
            REPEATS,
            "How many times it must pass. Default: once.",
        ),
        key(
            "exclusive",
            Kind::Bool,
            "One at a time, while no attempt runs.",
        ),
        key("timeout", Kind::Time, "The time limit of one run."),
        key(
            "mounts",
            Kind::Tables(&MOUNT),
            "What only the verifier and the score see, read-only.",
        ),
    ],
};

static MOUNT: Shape = Shape {
    name: "verify.mounts",
    keys: &[
        need("source", Kind::Path, "A file or directory of the host."),
        need("dest", Kind::Inside, "Where it is seen."),
    ],
};

static SCORE: Shape = Shape {
    name: "score",
    keys: &[
        need("run", Kind::Command, "What it runs."),
        key(
            "direction",
            Kind::Choice(&["maximize", "minimize"]),
            "Which score is better. Default: maximize.",
        ),
        key(
            "repeat",
            REPEATS,
            "How many times it is run; the median counts. Default: once.",
        ),
        key(
            "exclusive",
            Kind::Bool,
            "One at a time, after every attempt has stopped.",
        ),
        key("timeout", Kind::Time, "The time limit of one run."),
    ],
};

static STRATEGY: Shape = Shape {
    name: "strategy",
    keys: &[
        need("name", Kind::Choice(STRATEGIES), "Which."),
        key(
            "width",
            Kind::Count(1, MAX_WIDTH),
            "beam: how many branches a round keeps. Default: 2.",
        ),
        key(
            "depth",
            Kind::Count(1, MAX_DEPTH),
            "beam: how often what was kept is forked again. Default: 3.",
        ),
        key(
            "branching",
            Kind::Count(1, MAX_WIDTH),
            "beam, refine: forks of each kept branch. Default: 2 and 1.",
        ),
        key(
            "eta",
            Kind::Count(2, 16),
            "halving: one of this many survives a round. Default: 2.",
        ),
        key(
            "rounds",
            Kind::Count(1, MAX_ROUNDS),
            "halving, refine: the most rounds after the first.",
        ),
        key(
            "patience",
            Kind::Count(1, MAX_ROUNDS),
            "refine: ends after this many rounds without a better score. Default: 2.",
        ),
        key(
            "max-attempts",
            Kind::Count(1, MOST),
            "beam, halving, refine: the most attempts in all. Default: 1000.",
        ),
        key(
            "compare",
            Kind::Command,
            "tournament: the command that compares two attempts.",
        ),
        key(
            "compare-timeout",
            Kind::Time,
            "tournament: the time limit of one comparison.",
        ),
    ],
};

pub(super) static LIMITS: Shape = Shape {
    name: "limits",
    keys: &[
        key(
            "memory",
            Kind::Size,
            "Memory of all its processes together.",
        ),
        key(
            "cpu",
            Kind::Time,
            "Processor time of all its processes together.",
        ),
        key("pids", Kind::Count(1, u32::MAX), "Processes and threads."),
        key("disk", Kind::Size, "What it may write."),
    ],
};

static BUDGET: Shape = Shape {
    name: "budget",
    keys: &[
        key(
            "cpu",
            Kind::Time,
            "Processor time of the whole exploration.",
        ),
        key(
            "memory",
            Kind::Size,
            "Memory of everything that runs at once.",
        ),
        key("disk", Kind::Size, "What all attempts may write together."),
        key(
            "cost",
            Kind::Cost,
            "What the attempts may cost together, as they report it.",
        ),
    ],
};

static COMMIT: Shape = Shape {
    name: "commit",
    keys: &[
        key(
            "enabled",
            Kind::Bool,
            "False: choose a winner, but do not commit it. Default: true.",
        ),
        key(
            "exclude",
            Kind::List(&Kind::Glob),
            "Paths that are not committed, and listed.",
        ),
        key(
            "prepare",
            Kind::Bool,
            "False: leave out what the preparation changed. Default: true.",
        ),
        key(
            "strict",
            Kind::Bool,
            "Refuse if anything of the base changed meanwhile.",
        ),
        key(
            "allow-empty",
            Kind::Bool,
            "An attempt that changes nothing may pass.",
        ),
        key(
            "allow-host-exec",
            Kind::Bool,
            "Commit also what would make the host run something.",
        ),
    ],
};

/// Every table with fixed keys, for hints and for the reference.
pub(crate) static ALL: &[&Shape] = &[
    &ROOT, &ATTEMPT, &PREPARE, &VERIFY, &MOUNT, &SCORE, &STRATEGY, &LIMITS, &BUDGET, &COMMIT,
];

impl Shape {
    /// The key of that name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }

    /// `[verify]`, or the top of the file.
    pub(crate) fn place(&self) -> String {
        match self.name {
            "" => "at the top of the file".into(),
            "attempt" => "in [[attempt]]".into(),
            name => format!("in [{name}]"),
        }
    }
}
