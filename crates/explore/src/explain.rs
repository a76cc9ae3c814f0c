//! What a specification would do, said without doing it: the attempts, the effect paths, what is masked,
//! which laws hold as they stand, and what it may cost at most. Reads nothing of the machine.

use forkpoint_model::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::spec::{EnvVar, ExploreSpec, LimitSpec, NetworkSpec, Trial};
use crate::text::OsText;
use crate::units::{Time, human_bytes, human_time};

/// The schema of [`Explanation`].
pub const SCHEMA: &str = "forkpoint.explain/1";

/// One attempt that would be made.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedAttempt {
    /// Its number, from 0.
    pub index: u32,
    /// Its name.
    pub name: Option<String>,
    /// What it runs.
    pub command: String,
    /// Its parameters.
    pub params: BTreeMap<String, String>,
    /// The names of the variables it is given beside the caller's.
    pub env: Vec<String>,
    /// Its time limit.
    pub timeout: Option<Time>,
    /// Its other limits.
    pub limits: LimitSpec,
}

/// A law of docs/semantics.md, for this specification.
#[derive(Clone, Debug, Serialize)]
pub struct LawReport {
    /// Its number.
    pub law: u32,
    /// Whether it holds without a reservation.
    pub holds: bool,
    /// What it says here.
    pub text: String,
}

/// The most that can be used; null where nothing bounds it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Estimate {
    /// Commands run in all: attempts, verifiers, scores.
    pub commands: u64,
    /// Until the last attempt has ended, in seconds.
    pub wall_s: Option<f64>,
    /// Processor time, in seconds.
    pub cpu_s: Option<f64>,
    /// Memory at once.
    pub memory_bytes: Option<u64>,
    /// What is written.
    pub disk_bytes: Option<u64>,
}

/// What a specification would do: `explain --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// `forkpoint.explain/1`.
    pub schema: &'static str,
    /// The base directory.
    pub base: OsText,
    /// How the winner is found.
    pub strategy: &'static str,
    /// How many run at once; null: the number of processors.
    pub jobs: Option<u32>,
    /// What is done, in order.
    pub steps: Vec<String>,
    /// The first round of attempts.
    pub attempts: Vec<PlannedAttempt>,
    /// Ways out that nothing captures.
    pub effect_paths: Vec<String>,
    /// Paths that are masked.
    pub masked: Vec<OsText>,
    /// Variables of the caller that are dropped, since their names say that they are secret.
    pub dropped_env: Vec<String>,
    /// The names of the secrets.
    pub secrets: Vec<String>,
    /// The laws.
    pub laws: Vec<LawReport>,
    /// What it may cost.
    pub at_most: Estimate,
}

/// What is known of the machine that it would run on.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Paths that are masked.
    pub masked: Vec<OsText>,
    /// Variables that are dropped.
    pub dropped_env: Vec<String>,
    /// Processors.
    pub processors: u32,
}

/// Explains `spec`.
///
/// # Errors
/// `FP0501` where it makes no sense.
pub fn explain(spec: &ExploreSpec, machine: Machine) -> Result<Explanation> {
    let trials = spec.expand()?;
    let names = |vars: &[EnvVar]| vars.iter().map(|v| v.name.clone()).collect::<Vec<_>>();
    let planned = |(index, trial): (usize, &Trial)| PlannedAttempt {
        index: index as u32,
        name: trial.name.clone(),
        command: trial.command.display(),
        params: trial.params.clone(),
        env: [names(&spec.env), names(&trial.env)].concat(),
        timeout: trial.timeout,
        limits: trial.limits,
    };
    let jobs = spec.jobs.unwrap_or(machine.processors).max(1);
    Ok(Explanation {
        schema: SCHEMA,
        base: spec.base.clone(),
        strategy: spec.strategy().as_str(),
        jobs: spec.jobs,
        steps: steps(spec, trials.len()),
        effect_paths: effect_paths(spec),
        masked: machine.masked,
        dropped_env: machine.dropped_env,
        secrets: spec.secrets.clone(),
        laws: laws(spec),
        at_most: at_most(spec, &trials, jobs),
        attempts: trials.iter().enumerate().map(planned).collect(),
    })
}

fn times(n: u32) -> String {
    match n {
        1 => String::new(),
        n => format!(", {n} times"),
    }
}

fn steps(spec: &ExploreSpec, attempts: usize) -> Vec<String> {
    let mut steps = Vec::new();
    if let Some(prepare) = &spec.prepare {
        let cached = match prepare.inputs.is_empty() {
            true => "each time".to_owned(),
            false => format!("unless {} are as they were", prepare.inputs.join(", ")),
        };
        steps.push(format!("prepare, {cached}: {}", prepare.command.display()));
    }
    if spec.verify.is_some() || spec.score.is_some() {
        steps.push("judge the base itself, to tell a fix from no change".into());
    }
    let noun = if attempts == 1 { "attempt" } else { "attempts" };
    steps.push(format!(
        "fork and run {attempts} {noun} ({})",
        spec.strategy().as_str()
    ));
    match &spec.verify {
        Some(verify) => {
            if !spec.protect.is_empty() {
                steps.push(format!(
                    "put back what the base has: {}",
                    spec.protect.join(", ")
                ));
            }
            let alone = if verify.exclusive {
                ", one at a time"
            } else {
                ""
            };
            let command = verify.command.display();
            steps.push(format!(
                "verify each{}{alone}: {command}",
                times(verify.repeat)
            ));
        }
        None => steps.push("an attempt that exits with 0 passes: there is no verifier".into()),
    }
    if let Some(score) = &spec.score {
        let alone = if score.exclusive {
            ", one at a time"
        } else {
            ""
        };
        let command = score.command.display();
        steps.push(format!(
            "score what passed{}{alone}: {command}",
            times(score.repeat)
        ));
    }
    steps.push(match spec.no_commit {
        true => "choose a winner, and commit nothing".into(),
        false => "commit one, and roll all others back".into(),
    });
    steps
}

fn effect_paths(spec: &ExploreSpec) -> Vec<String> {
    let mut all = Vec::new();
    if spec.network == NetworkSpec::Host {
        all.push("attempts, verifier and score reach the host's network".to_owned());
    }
    if spec
        .prepare
        .as_ref()
        .is_some_and(|p| p.network == NetworkSpec::Host)
    {
        all.push("the preparation reaches the host's network".into());
    }
    for path in &spec.devices {
        all.push(format!("attempts, verifier and score use {}", path.lossy()));
    }
    for path in &spec.expose {
        all.push(format!("credentials can be read at {}", path.lossy()));
    }
    all
}

fn laws(spec: &ExploreSpec) -> Vec<LawReport> {
    let network = spec.network == NetworkSpec::Host;
    let open = network || !spec.devices.is_empty();
    let way = match (network, spec.devices.is_empty()) {
        (true, true) => "the host's network",
        (false, _) => "a device of the host",
        (true, false) => "the host's network and a device",
    };
    let law = |law, holds, text: &str| LawReport {
        law,
        holds,
        text: text.into(),
    };
    vec![
        match spec.snapshot {
            true => law(1, true, "every attempt begins from one copy of the base"),
            false => law(
                1,
                true,
                "every attempt begins from the base as it is; an edit of it meanwhile voids the verdict",
            ),
        },
        match open {
            false => law(2, true, "every change lands in the attempt's own branch"),
            true => law(
                2,
                false,
                &format!(
                    "every change of files lands in the attempt's branch; what goes through {way} does not"
                ),
            ),
        },
        match open {
            false => law(3, true, "no attempt can see another"),
            true => law(3, false, &format!("attempts can meet by {way}")),
        },
        match open {
            false => law(5, true, "a loser ends rolled_back: nothing of it is left"),
            true => law(
                5,
                false,
                &format!("a loser ends abandoned: what went through {way} is not taken back"),
            ),
        },
        match &spec.verify {
            Some(_) => law(
                6,
                true,
                "the verifier judges each attempt in a throwaway fork, out of its reach",
            ),
            None => law(
                6,
                false,
                "there is no verifier: an attempt's exit status is its own claim",
            ),
        },
        law(7, true, "one winner at most; all siblings are ended first"),
        law(
            8,
            true,
            "the commit is atomic after recovery, and `forkpoint undo` takes it back",
        ),
        law(
            10,
            true,
            "attempts are volatile: a power loss may cost them, never the base",
        ),
    ]
}

fn at_most(spec: &ExploreSpec, trials: &[Trial], jobs: u32) -> Estimate {
    let n = trials.len() as u64;
    let verify = spec.verify.as_ref().map_or(0, |v| u64::from(v.repeat));
    let score = spec.score.as_ref().map_or(0, |s| u64::from(s.repeat));
    let all =
        |of: fn(&Trial) -> Option<u64>| -> Option<Vec<u64>> { trials.iter().map(of).collect() };
    let milliseconds = |t: Time| u64::try_from(t.0.as_millis()).unwrap_or(u64::MAX);
    let longest =
        all(|t| t.timeout.map(|t| t.0.as_millis() as u64)).and_then(|v| v.into_iter().max());
    let rounds = n.div_ceil(u64::from(jobs));
    let wall = longest.map(|ms| ms.saturating_mul(rounds));
    let wall = match (wall, spec.total_timeout.map(milliseconds)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let sum = |v: Vec<u64>| v.into_iter().fold(0u64, u64::saturating_add);
    let cpu = all(|t| t.limits.cpu.map(|c| c.0.as_millis() as u64)).map(sum);
    let memory = all(|t| t.limits.memory.map(|m| m.0)).map(|mut v| {
        v.sort_unstable_by(|a, b| b.cmp(a));
        sum(v.into_iter().take(jobs as usize).collect())
    });
    let disk = all(|t| t.limits.disk.map(|d| d.0)).map(sum);
    let least = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let seconds = |ms: u64| ms as f64 / 1000.0;
    Estimate {
        commands: n.saturating_mul(1 + verify + score),
        wall_s: wall.map(seconds),
        cpu_s: least(cpu, spec.budget.cpu.map(milliseconds)).map(seconds),
        memory_bytes: least(memory, spec.budget.memory.map(|m| m.0)),
        disk_bytes: least(disk, spec.budget.disk.map(|d| d.0)),
    }
}

impl Explanation {
    /// As a person reads it, line by line. Paths and commands are as they were given: whoever prints
    /// them makes them fit for a terminal.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("in {}", self.base.lossy())];
        lines.extend(
            self.steps
                .iter()
                .enumerate()
                .map(|(i, s)| format!("  {}. {s}", i + 1)),
        );
        lines.push("attempts".into());
        const SHOWN: usize = 50;
        lines.extend(self.attempts.iter().take(SHOWN).map(attempt_line));
        if self.attempts.len() > SHOWN {
            lines.push(format!("  … and {} more", self.attempts.len() - SHOWN));
        }
        let list = |lines: &mut Vec<String>, head: &str, items: Vec<String>| {
            lines.push(head.into());
            match items.is_empty() {
                true => lines.push("  none".into()),
                false => lines.extend(items.into_iter().map(|i| format!("  {i}"))),
            }
        };
        list(
            &mut lines,
            "effect paths that nothing captures",
            self.effect_paths.clone(),
        );
        let masked = self.masked.iter().map(OsText::lossy).collect();
        list(
            &mut lines,
            "masked, of what there is on this machine",
            masked,
        );
        if !self.dropped_env.is_empty() {
            lines.push(format!(
                "variables dropped: {}",
                self.dropped_env.join(", ")
            ));
        }
        if !self.secrets.is_empty() {
            lines.push(format!(
                "secrets, for attempts only: {}",
                self.secrets.join(", ")
            ));
        }
        let law = |l: &LawReport| {
            let mark = if l.holds { "holds" } else { "NOT  " };
            format!("{mark} {:>2}  {}", l.law, l.text)
        };
        list(
            &mut lines,
            "laws (docs/semantics.md)",
            self.laws.iter().map(law).collect(),
        );
        lines.push("at most".into());
        let time = |s: f64| human_time(Duration::from_secs_f64(s.min(1e9)));
        let or = |value: Option<String>| value.unwrap_or_else(|| "no limit given".into());
        let most = &self.at_most;
        lines.push(format!("  commands   {}", most.commands));
        lines.push(format!("  wall time  {}", or(most.wall_s.map(time))));
        lines.push(format!("  cpu time   {}", or(most.cpu_s.map(time))));
        lines.push(format!(
            "  memory     {}",
            or(most.memory_bytes.map(human_bytes))
        ));
        lines.push(format!(
            "  disk       {}",
            or(most.disk_bytes.map(human_bytes))
        ));
        lines
    }
}

fn attempt_line(a: &PlannedAttempt) -> String {
    let mut line = format!("  {:>3}", a.index);
    if let Some(name) = &a.name {
        line.push_str(&format!("  {name}:"));
    }
    line.push_str(&format!(
        "  {}",
        a.command.lines().next().unwrap_or_default()
    ));
    for (name, value) in &a.params {
        line.push_str(&format!("  {name}={value}"));
    }
    let limits = [
        a.timeout.map(|t| format!("timeout {t}")),
        a.limits.memory.map(|m| format!("memory {m}")),
        a.limits.cpu.map(|c| format!("cpu {c}")),
        a.limits.pids.map(|p| format!("pids {p}")),
        a.limits.disk.map(|d| format!("disk {d}")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if !limits.is_empty() {
        line.push_str(&format!("  ({})", limits.join(", ")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec_file;
    use std::path::Path;

    #[test]
    fn what_is_said_follows_from_the_specification() {
        let text = "run = \"x\"\nnetwork = \"host\"\njobs = 2\ntimeout = \"10s\"\nsecrets = [\"K\"]\n\
                    params = { a = [1, 2, 3] }\nverify = { run = \"t\", repeat = 2 }\n\
                    limits = { memory = \"1G\" }\nbudget = { cpu = \"1m\" }\n";
        let spec = spec_file::parse(text, "s", Path::new("/d"), false).unwrap();
        let machine = Machine {
            masked: vec!["/root/.ssh".into()],
            ..Machine::default()
        };
        let told = explain(&spec, machine).unwrap();
        assert_eq!(told.attempts.len(), 3);
        let most = &told.at_most;
        assert_eq!(
            (most.commands, most.wall_s, most.cpu_s),
            (9, Some(20.0), Some(60.0))
        );
        assert_eq!((most.memory_bytes, most.disk_bytes), (Some(2 << 30), None));
        let law = |n| told.laws.iter().find(|l| l.law == n).unwrap().holds;
        assert!(!law(5) && law(6) && !law(2));
        assert_eq!(told.effect_paths.len(), 1);
        let text = told.lines().join("\n");
        for part in [
            "a=3",
            "timeout 10s",
            "/root/.ssh",
            "secrets, for attempts only: K",
            "no limit given",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
