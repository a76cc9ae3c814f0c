//! A checked file as an [`ExploreSpec`]. What contradicts what is found here, with the place of it.
//! Everything was checked for its type before: what is not as it should be reads as absent.

use forkpoint_model::strategy::Direction;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use toml::de::{DeTable, DeValue};

use super::read::{Checker, Value, scalar};
use crate::params::{Param, Values};
use crate::spec::*;
use crate::text::OsText;

/// A table, and where the file's relative paths begin.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) table: &'a DeTable<'a>,
    pub(super) dir: &'a Path,
}

impl<'a> Reader<'a> {
    fn get(&self, key: &str) -> Option<&'a Value<'a>> {
        self.table.get(key)
    }

    fn span(&self, key: &str) -> Option<Range<usize>> {
        let found = self.table.get_key_value(key);
        found.map(|(name, _)| name.span())
    }

    pub(super) fn sub(&self, key: &str) -> Option<Self> {
        let table = self.get(key)?.get_ref().as_table()?;
        Some(Self { table, ..*self })
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.get_ref().as_str().map(str::to_owned)
    }

    fn bool(&self, key: &str) -> Option<bool> {
        self.get(key)?.get_ref().as_bool()
    }

    fn flag(&self, key: &str) -> bool {
        self.bool(key).unwrap_or_default()
    }

    pub(super) fn count(&self, key: &str) -> Option<u32> {
        scalar(self.get(key)?.get_ref())?.parse().ok()
    }

    pub(super) fn parsed<T: FromStr>(&self, key: &str) -> Option<T> {
        scalar(self.get(key)?.get_ref())?.parse().ok()
    }

    pub(super) fn list(&self, key: &str) -> Vec<String> {
        let list = self.get(key).and_then(|v| v.get_ref().as_array());
        let texts = list.into_iter().flat_map(|l| l.iter());
        texts.filter_map(|v| scalar(v.get_ref())).collect()
    }

    fn path(&self, text: &str) -> OsText {
        self.dir.join(text).into()
    }

    fn paths(&self, key: &str) -> Vec<OsText> {
        self.list(key).iter().map(|p| self.path(p)).collect()
    }

    fn network(&self) -> NetworkSpec {
        match self.text("network").as_deref() {
            Some("host") => NetworkSpec::Host,
            _ => NetworkSpec::Loopback,
        }
    }

    /// The command under `key`: itself, or the `run` of the table there.
    fn command(&self, key: &str) -> Option<CommandLine> {
        command(self.get(key)?.get_ref())
    }

    /// The table of a section; an empty one where only a command is given.
    fn section(&self, key: &str) -> Option<(CommandLine, Option<Self>)> {
        match self.get(key)?.get_ref() {
            DeValue::Table(_) => {
                let table = self.sub(key)?;
                Some((table.command("run")?, Some(table)))
            }
            value => Some((command(value)?, None)),
        }
    }

    fn env(&self) -> Vec<EnvVar> {
        let mut all: Vec<EnvVar> = self
            .list("pass-env")
            .into_iter()
            .map(|name| EnvVar { name, value: None })
            .collect();
        for (name, value) in self.sub("env").map(in_order).unwrap_or_default() {
            all.push(EnvVar {
                name,
                value: scalar(value.get_ref()).map(Into::into),
            });
        }
        all
    }

    pub(super) fn limits(&self) -> LimitSpec {
        self.sub("limits")
            .map_or_else(LimitSpec::default, |l| LimitSpec {
                memory: l.parsed("memory"),
                cpu: l.parsed("cpu"),
                pids: l.count("pids"),
                disk: l.parsed("disk"),
            })
    }

    fn tables(&self, key: &str) -> Vec<(Self, Range<usize>)> {
        let list = self.get(key).and_then(|v| v.get_ref().as_array());
        let items = list.into_iter().flat_map(|l| l.iter());
        items
            .filter_map(|item| {
                let table = item.get_ref().as_table()?;
                Some((Self { table, ..*self }, item.span()))
            })
            .collect()
    }
}

/// The entries as they stand in the file: the last parameter varies fastest.
fn in_order(reader: Reader<'_>) -> Vec<(String, &Value<'_>)> {
    let mut all: Vec<_> = reader.table.iter().collect();
    all.sort_by_key(|(name, _)| name.span().start);
    all.into_iter()
        .map(|(name, value)| (name.get_ref().to_string(), value))
        .collect()
}

fn command(value: &DeValue<'_>) -> Option<CommandLine> {
    match value {
        DeValue::String(line) => Some(CommandLine::Shell(line.to_string().into())),
        DeValue::Array(words) => {
            let words = words.iter().filter_map(|w| w.get_ref().as_str());
            Some(CommandLine::Argv(words.map(Into::into).collect()))
        }
        _ => None,
    }
}

fn values(value: &DeValue<'_>) -> Option<Values> {
    match value {
        DeValue::Array(list) => {
            let list = list.iter().filter_map(|v| scalar(v.get_ref()));
            Some(Values::Many(list.collect()))
        }
        value => scalar(value).map(Values::One),
    }
}

fn combinations(params: Reader<'_>, key: &str) -> Vec<BTreeMap<String, String>> {
    let entries = |(table, _): (Reader<'_>, _)| {
        in_order(table)
            .into_iter()
            .filter_map(|(name, value)| Some((name, scalar(value.get_ref())?)))
            .collect()
    };
    params.tables(key).into_iter().map(entries).collect()
}

/// Reads a checked file. `dir`: where its relative paths begin. `others`: attempts come from
/// elsewhere too, so that the file may have none.
pub(crate) fn spec(
    table: &DeTable<'_>,
    dir: &Path,
    others: bool,
    checker: &mut Checker,
) -> ExploreSpec {
    let root = Reader { table, dir };
    let mut spec = ExploreSpec {
        base: root.text("base").map(|b| root.path(&b)).unwrap_or_default(),
        snapshot: root.flag("snapshot"),
        attempts: attempts(root, others, checker),
        count: root.count("count"),
        prepare: root.section("prepare").map(prepare),
        verify: root.section("verify").map(verify),
        score: root.section("score").map(score),
        protect: root.list("protect"),
        env: root.env(),
        secrets: root.list("secrets"),
        timeout: root.parsed("timeout"),
        total_timeout: root.parsed("total-timeout"),
        jobs: root.count("jobs"),
        keep: match root.text("keep").as_deref() {
            Some("none") => Keep::None,
            Some("all") => Keep::All,
            _ => Keep::Losers,
        },
        limits: root.limits(),
        network: root.network(),
        expose: root.paths("expose"),
        hide: root.paths("hide"),
        devices: root.paths("devices"),
        ..ExploreSpec::default()
    };
    if let Some(params) = root.sub("params") {
        for (name, value) in in_order(params) {
            if matches!(name.as_str(), "list" | "exclude") {
                continue;
            }
            if let Some(values) = values(value.get_ref()) {
                let values = values.list();
                spec.params.push(Param { name, values });
            }
        }
        spec.combinations = combinations(params, "list");
        spec.exclusions = combinations(params, "exclude");
    }
    strategy(root, &mut spec);
    commit(root, &mut spec);
    if let Some(budget) = root.sub("budget") {
        spec.budget.cpu = budget.parsed("cpu");
        spec.budget.memory = budget.parsed("memory");
        spec.budget.disk = budget.parsed("disk");
        spec.budget.cost = budget.parsed("cost");
    }
    if let Some(path) = spec.expose.iter().find(|p| spec.hide.contains(p)) {
        let what = format!("{} is both exposed and hidden", path.lossy());
        checker.wrong(
            root.span("hide").unwrap_or(0..0),
            what,
            "leave it in one of the two",
        );
    }
    if checker.mistakes.is_empty() && !spec.attempts.is_empty() {
        contradiction(root, &spec, checker);
    }
    spec
}

fn attempts(root: Reader<'_>, others: bool, checker: &mut Checker) -> Vec<AttemptSpec> {
    let common = root.command("run");
    let tables = root.tables("attempt");
    let mut all: Vec<AttemptSpec> = Vec::new();
    for (table, at) in &tables {
        let Some(command) = table.command("run").or_else(|| common.clone()) else {
            let hint = "give it a run, or give one at the top of the file for all";
            checker.wrong(at.clone(), "an attempt has no run in [[attempt]]", hint);
            continue;
        };
        let mut attempt = AttemptSpec::new(command);
        attempt.name = table.text("name");
        if attempt.name.is_some() && all.iter().any(|a| a.name == attempt.name) {
            let what = format!(
                "two attempts have the name {}",
                attempt.name.clone().unwrap_or_default()
            );
            checker.wrong(
                table.span("name").unwrap_or(at.clone()),
                what,
                "give each its own",
            );
        }
        let params = table.sub("params").map(in_order).unwrap_or_default();
        attempt.params = params
            .into_iter()
            .filter_map(|(name, value)| Some((name, values(value.get_ref())?)))
            .collect();
        attempt.env = table.env();
        attempt.timeout = table.parsed("timeout");
        attempt.limits = table.limits();
        attempt.repeat = table.count("repeat");
        all.push(attempt);
    }
    if tables.is_empty() {
        match common {
            Some(command) => all.push(AttemptSpec::new(command)),
            None if !others && checker.mistakes.is_empty() => checker.wrong(
                0..0,
                "there is nothing to attempt",
                "give run = \"COMMAND\" at the top, or one [[attempt]] or more",
            ),
            None => {}
        }
    } else if common.is_some() && tables.iter().all(|(t, _)| t.get("run").is_some()) {
        let hint = "take it out, or take run out of an [[attempt]] that is to use it";
        let at = root.span("run").unwrap_or(0..0);
        checker.wrong(at, "run at the top is used by no attempt", hint);
    }
    all
}

fn prepare((command, table): (CommandLine, Option<Reader<'_>>)) -> PrepareSpec {
    PrepareSpec {
        command,
        inputs: table.map(|t| t.list("inputs")).unwrap_or_default(),
        network: table.map(|t| t.network()).unwrap_or_default(),
        timeout: table.and_then(|t| t.parsed("timeout")),
        secrets: table.is_some_and(|t| t.flag("secrets")),
    }
}

fn verify((command, table): (CommandLine, Option<Reader<'_>>)) -> VerifySpec {
    let mounts = table.map(|t| t.tables("mounts")).unwrap_or_default();
    let mount = |(m, _): (Reader<'_>, _)| {
        Some(MountSpec {
            source: m.path(&m.text("source")?),
            dest: m.text("dest")?.into(),
        })
    };
    VerifySpec {
        command,
        repeat: table.and_then(|t| t.count("repeat")).unwrap_or(1),
        mounts: mounts.into_iter().filter_map(mount).collect(),
        timeout: table.and_then(|t| t.parsed("timeout")),
        exclusive: table.is_some_and(|t| t.flag("exclusive")),
    }
}

fn score((command, table): (CommandLine, Option<Reader<'_>>)) -> ScoreSpec {
    let lower = table.and_then(|t| t.text("direction")).as_deref() == Some("minimize");
    ScoreSpec {
        command,
        repeat: table.and_then(|t| t.count("repeat")).unwrap_or(1),
        exclusive: table.is_some_and(|t| t.flag("exclusive")),
        direction: match lower {
            true => Direction::Minimize,
            false => Direction::Maximize,
        },
        timeout: table.and_then(|t| t.parsed("timeout")),
    }
}

fn strategy(root: Reader<'_>, spec: &mut ExploreSpec) {
    let Some(table) = root.sub("strategy") else {
        spec.strategy = root.parsed("strategy");
        return;
    };
    spec.strategy = table.parsed("name");
    spec.search = SearchSpec {
        width: table.count("width"),
        depth: table.count("depth"),
        branching: table.count("branching"),
        eta: table.count("eta"),
        rounds: table.count("rounds"),
        patience: table.count("patience"),
        compare: table.command("compare").map(|command| CompareSpec {
            command,
            timeout: table.parsed("compare-timeout"),
        }),
        max_attempts: table.count("max-attempts"),
    };
}

fn commit(root: Reader<'_>, spec: &mut ExploreSpec) {
    let Some(table) = root.sub("commit") else {
        return;
    };
    spec.no_commit = !table.bool("enabled").unwrap_or(true);
    spec.exclude = table.list("exclude");
    spec.exclude_prepared = !table.bool("prepare").unwrap_or(true);
    spec.strict = table.flag("strict");
    spec.allow_empty = table.flag("allow-empty");
    spec.allow_host_exec = table.flag("allow-host-exec");
}

/// A key, and the specification without it.
type Without = (&'static str, fn(&mut ExploreSpec));

/// Finds what the whole contradicts, and blames the first key without which it would not.
fn contradiction(root: Reader<'_>, spec: &ExploreSpec, checker: &mut Checker) {
    let Err(error) = spec.expand() else { return };
    let keys: [Without; 12] = [
        ("count", |s| s.count = None),
        ("strategy", |s| {
            (s.strategy, s.search) = (None, SearchSpec::default())
        }),
        ("budget", |s| s.budget = Default::default()),
        ("secrets", |s| s.secrets.clear()),
        ("env", |s| s.env.clear()),
        ("params.exclude", |s| s.exclusions.clear()),
        ("params.list", |s| s.combinations.clear()),
        ("params", |s| s.params.clear()),
        ("score", |s| s.score = None),
        ("verify", |s| s.verify = None),
        ("timeout", |s| s.timeout = None),
        ("attempt", |s| s.attempts.truncate(1)),
    ];
    let blamed = keys.iter().find(|(_, without)| {
        let mut other = spec.clone();
        without(&mut other);
        other.expand().map_err(|e| e.message) != Err(error.message.clone())
    });
    let span = blamed.and_then(|(key, _)| match key.split_once('.') {
        Some((table, key)) => root.sub(table)?.span(key),
        None => root.span(key),
    });
    checker.wrong(span.unwrap_or(0..0), error.message, error.hint);
}
