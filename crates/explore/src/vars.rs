//! The variables that an exploration gives to its commands (docs/command.md lists them).

use forkpoint_model::ExplorationId;
use std::ffi::{OsStr, OsString};

use crate::params;
use crate::spec::{EnvVar, Trial};

/// Variables as a command takes them.
pub(crate) type Vars = Vec<(OsString, OsString)>;

/// Looks up the caller's variables.
pub type Caller<'a> = &'a (dyn Fn(&OsStr) -> Option<OsString> + Sync);

/// Resolves variables; one without a value that the caller lacks too is left out.
pub(crate) fn resolve(vars: &[EnvVar], caller: Caller<'_>) -> Vars {
    let value = |v: &EnvVar| match &v.value {
        Some(value) => Some(value.0.clone()),
        None => caller(OsStr::new(&v.name)),
    };
    vars.iter()
        .filter_map(|v| Some((OsString::from(&v.name), value(v)?)))
        .collect()
}

/// What every command of an attempt sees, its judges included.
pub(crate) fn of_attempt(
    exploration: ExplorationId,
    index: u32,
    trial: &Trial,
    common: &Vars,
    caller: Caller<'_>,
) -> Vars {
    let mut vars = common.clone();
    vars.extend(resolve(&trial.env, caller));
    let mut set = |name: String, value: String| vars.push((name.into(), value.into()));
    set("FORKPOINT_EXPLORATION".into(), exploration.to_string());
    set("FORKPOINT_ATTEMPT".into(), index.to_string());
    set(
        "FORKPOINT_SEED".into(),
        seed(exploration, index).to_string(),
    );
    for (name, value) in &trial.params {
        set(params::variable(name), value.clone());
    }
    vars
}

/// A seed that differs between attempts and explorations, and can be had again from their names.
/// It fits what most random generators take: 32 bits.
pub fn seed(exploration: ExplorationId, index: u32) -> u32 {
    let text = format!("forkpoint seed {exploration} {index}");
    let hash = blake3::hash(text.as_bytes());
    u32::from_le_bytes(std::array::from_fn(|i| hash.as_bytes()[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::CommandLine;

    #[test]
    fn an_attempt_is_told_who_it_is() {
        let exploration = ExplorationId::from_bits(5);
        let trial = Trial {
            name: None,
            timeout: None,
            limits: Default::default(),
            command: CommandLine::Shell("x".into()),
            params: [("learning-rate".to_owned(), "0.1".to_owned())].into(),
            env: vec![
                EnvVar {
                    name: "A".into(),
                    value: None,
                },
                EnvVar {
                    name: "MISSING".into(),
                    value: None,
                },
            ],
        };
        let caller = |name: &OsStr| (name == "A").then(|| OsString::from("1"));
        let vars = of_attempt(exploration, 3, &trial, &Vec::new(), &caller);
        let get = |name: &str| {
            vars.iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.to_string_lossy().into_owned())
        };
        assert_eq!(get("A").as_deref(), Some("1"));
        assert_eq!(get("MISSING"), None);
        assert_eq!(get("FORKPOINT_ATTEMPT").as_deref(), Some("3"));
        assert_eq!(get("FORKPOINT_PARAM_LEARNING_RATE").as_deref(), Some("0.1"));
        assert_eq!(
            get("FORKPOINT_SEED"),
            Some(seed(exploration, 3).to_string())
        );
        assert_ne!(seed(exploration, 3), seed(exploration, 4));
    }
}
