//! The attempts that a specification comes to: each kind of attempt, with each combination of its
//! parameters, as often as is asked for. It must not know how an attempt is run.

use forkpoint_model::Result;
use std::collections::BTreeMap;

use crate::codes;
use crate::params::{self, MAX_ATTEMPTS, Param};
use crate::spec::{AttemptSpec, ExploreSpec, Trial};

type Combination = BTreeMap<String, String>;

impl ExploreSpec {
    /// Lists the attempts. Each kind of attempt is combined with each combination of the parameters:
    /// the product of their lists, with each of `combinations`, less `exclusions`. A parameter that
    /// an attempt gives itself takes the attempt's values.
    ///
    /// `count`, where given, is the number of attempts in all: a multiple of the number of
    /// combinations, each of which is then made that many times (they differ in their seed). Every
    /// combination is made once before any is made again. An attempt's `repeat` says the same for
    /// its own combinations; the two cannot both be given.
    ///
    /// # Errors
    /// `FP0501` where anything contradicts itself; nothing has happened then.
    pub fn expand(&self) -> Result<Vec<Trial>> {
        self.check()?;
        self.check_exclusions()?;
        let repeats = self.attempts.iter().any(|a| a.repeat.is_some());
        if repeats && self.count.is_some() {
            return Err(codes::SPEC
                .error(
                    "the number of attempts is given twice: as a whole and by an attempt's repeat",
                )
                .hint("leave the count (-n) out, or every repeat"));
        }
        let mut rounds: Vec<Vec<Trial>> = Vec::new();
        for attempt in &self.attempts {
            let combinations = self.combinations_of(attempt)?;
            let repeat = attempt.repeat.unwrap_or(1) as usize;
            if repeat == 0 {
                return Err(codes::SPEC.error("an attempt is to be made 0 times"));
            }
            // Bounded before it is made.
            let planned: usize = rounds.iter().map(Vec::len).sum();
            if planned.saturating_add(combinations.len().saturating_mul(repeat)) > MAX_ATTEMPTS {
                return Err(codes::SPEC
                    .error(format!("these are more than {MAX_ATTEMPTS} attempts"))
                    .hint("give fewer values, or explore in steps"));
            }
            for round in 0..repeat {
                if rounds.len() <= round {
                    rounds.push(Vec::new());
                }
                rounds[round].extend(combinations.iter().map(|c| self.trial(attempt, c)));
            }
        }
        let trials: Vec<Trial> = rounds.into_iter().flatten().collect();
        self.as_often_as_asked(trials)
    }

    fn as_often_as_asked(&self, trials: Vec<Trial>) -> Result<Vec<Trial>> {
        let distinct = trials.len();
        if distinct == 0 {
            return Err(codes::SPEC
                .error("every combination of the parameters is excluded")
                .hint("take an exclusion out"));
        }
        let count = self.count.map_or(distinct, |n| n as usize);
        if count == 0 || !count.is_multiple_of(distinct) {
            return Err(codes::SPEC
                .error(format!(
                    "{count} attempts cannot be {distinct} combinations equally often"
                ))
                .hint(format!(
                    "leave -n out for {distinct}, or give a multiple of it"
                )));
        }
        if count > MAX_ATTEMPTS {
            return Err(codes::SPEC.error(format!("{count} attempts are more than {MAX_ATTEMPTS}")));
        }
        let timed = self.timeout.is_some() || self.attempts.iter().all(|a| a.timeout.is_some());
        self.search
            .check(self.strategy(), self.score.is_some(), timed, count)?;
        Ok(trials.into_iter().cycle().take(count).collect())
    }

    fn trial(&self, attempt: &AttemptSpec, params: &Combination) -> Trial {
        Trial {
            name: attempt.name.clone(),
            command: attempt.command.clone(),
            params: params.clone(),
            env: attempt.env.clone(),
            timeout: attempt.timeout.or(self.timeout),
            limits: attempt.limits.or(self.limits),
        }
    }

    fn combinations_of(&self, attempt: &AttemptSpec) -> Result<Vec<Combination>> {
        let mut lists: Vec<Param> = self.params.clone();
        for (name, values) in &attempt.params {
            if !params::valid_name(name) {
                return Err(codes::SPEC.error(format!("'{name}' is not a parameter's name")));
            }
            if self.combinations.iter().any(|c| c.contains_key(name)) {
                return Err(codes::SPEC
                    .error(format!(
                        "an attempt gives the parameter '{name}', whose values belong together with \
                         others in a list of combinations"
                    ))
                    .hint("give it another name, or take it out of the list"));
            }
            let values = values.list();
            match lists.iter_mut().find(|p| p.name == *name) {
                Some(param) => param.values = values,
                None => lists.push(Param {
                    name: name.clone(),
                    values,
                }),
            }
        }
        let product = params::product(&lists)?;
        let linked = self.linked(&lists)?;
        if product.len().saturating_mul(linked.len()) > MAX_ATTEMPTS {
            return Err(codes::SPEC
                .error(format!(
                    "the parameters make more than {MAX_ATTEMPTS} combinations"
                ))
                .hint("give fewer values, or explore in steps"));
        }
        let mut all = Vec::new();
        for together in &linked {
            for combination in &product {
                let mut one = together.clone();
                one.extend(combination.iter().cloned());
                if !self.exclusions.iter().any(|e| holds(&one, e)) {
                    all.push(one);
                }
            }
        }
        Ok(all)
    }

    /// The explicit combinations; a single empty one where there are none.
    fn linked(&self, lists: &[Param]) -> Result<Vec<Combination>> {
        for combination in &self.combinations {
            for name in combination.keys() {
                if !params::valid_name(name) {
                    return Err(codes::SPEC.error(format!("'{name}' is not a parameter's name")));
                }
                let variable = params::variable(name);
                if lists.iter().any(|p| params::variable(&p.name) == variable) {
                    return Err(codes::SPEC
                        .error(format!(
                            "the parameter '{name}' has a list of values and is in a list of combinations"
                        ))
                        .hint("give it in one of the two"));
                }
            }
        }
        Ok(match self.combinations.is_empty() {
            true => vec![Combination::new()],
            false => self.combinations.clone(),
        })
    }

    /// An exclusion that names a parameter or a value which no attempt has is a slip of the pen.
    fn check_exclusions(&self) -> Result<()> {
        for exclusion in &self.exclusions {
            if exclusion.is_empty() {
                return Err(
                    codes::SPEC.error("an exclusion without a parameter excludes everything")
                );
            }
            for (name, value) in exclusion {
                let in_lists = self
                    .params
                    .iter()
                    .any(|p| p.name == *name && p.values.contains(value));
                let linked = self.combinations.iter().any(|c| c.get(name) == Some(value));
                let own = self
                    .attempts
                    .iter()
                    .filter_map(|a| a.params.get(name))
                    .any(|v| v.list().contains(value));
                if !(in_lists || linked || own) {
                    return Err(codes::SPEC
                        .error(format!(
                            "an exclusion names {name} = '{value}', which no attempt has"
                        ))
                        .hint("write the parameter and its value as in the lists"));
                }
            }
        }
        Ok(())
    }
}

/// Whether `combination` has all the values of `part`.
fn holds(combination: &Combination, part: &Combination) -> bool {
    part.iter()
        .all(|(name, value)| combination.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Values;
    use crate::spec::CommandLine;

    fn map(pairs: &[(&str, &str)]) -> Combination {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn spec(params: &[&str]) -> ExploreSpec {
        ExploreSpec {
            attempts: vec![AttemptSpec::new(CommandLine::Shell("x".into()))],
            params: params.iter().map(|p| params::parse(p).unwrap()).collect(),
            ..ExploreSpec::default()
        }
    }

    fn texts(spec: &ExploreSpec) -> Vec<String> {
        let text = |t: &Trial| t.params.iter().map(|(k, v)| format!("{k}{v}")).collect();
        spec.expand().unwrap().iter().map(text).collect()
    }

    #[test]
    fn combinations_stay_together_and_multiply_with_the_lists() {
        let mut spec = spec(&["o=1,2"]);
        spec.combinations = vec![
            map(&[("cc", "gcc"), ("f", "a")]),
            map(&[("cc", "clang"), ("f", "b")]),
        ];
        assert_eq!(
            texts(&spec),
            ["ccgccfao1", "ccgccfao2", "ccclangfbo1", "ccclangfbo2"]
        );
        spec.exclusions = vec![map(&[("cc", "gcc"), ("o", "2")])];
        assert_eq!(texts(&spec), ["ccgccfao1", "ccclangfbo1", "ccclangfbo2"]);
    }

    #[test]
    fn an_attempt_pins_a_parameter_and_repeats_its_own() {
        let mut spec = spec(&["o=1,2"]);
        let mut second = AttemptSpec::new(CommandLine::Shell("y".into()));
        second.params.insert("o".into(), Values::One("9".into()));
        second.repeat = Some(2);
        second.limits.pids = Some(3);
        spec.limits.pids = Some(7);
        spec.limits.disk = "5".parse().ok();
        spec.attempts.push(second);
        assert_eq!(texts(&spec), ["o1", "o2", "o9", "o9"]);
        let trials = spec.expand().unwrap();
        assert_eq!(
            (trials[0].limits.pids, trials[2].limits.pids),
            (Some(7), Some(3))
        );
        assert_eq!(trials[2].limits.disk, spec.limits.disk);
        spec.count = Some(8);
        assert!(spec.expand().is_err(), "a count and a repeat");
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |change: &dyn Fn(&mut ExploreSpec)| {
            let mut spec = spec(&["o=1,2"]);
            change(&mut spec);
            spec.expand().unwrap_err().message
        };
        assert!(
            refused(&|s| s.combinations = vec![map(&[("o", "1")])])
                .contains("list of combinations")
        );
        assert!(
            refused(&|s| s.combinations = vec![map(&[("O", "1")])])
                .contains("list of combinations")
        );
        assert!(refused(&|s| s.exclusions = vec![map(&[("o", "3")])]).contains("no attempt has"));
        assert!(refused(&|s| s.exclusions = vec![map(&[])]).contains("without a parameter"));
        let all =
            &|s: &mut ExploreSpec| s.exclusions = vec![map(&[("o", "1")]), map(&[("o", "2")])];
        assert!(refused(all).contains("every combination"));
        assert!(refused(&|s| s.attempts[0].repeat = Some(0)).contains("0 times"));
        assert!(refused(&|s| s.attempts[0].repeat = Some(9999)).contains("more than 10000"));
        assert!(refused(&|s| s.attempts[0].name = Some("../x".into())).contains("not a name"));
    }
}
