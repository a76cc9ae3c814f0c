//! How an exploration searches: the strategies' names and options, with their bounds and what
//! contradicts what. It must not know how a strategy decides; that is `forkpoint_model::strategy`.

use forkpoint_model::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::codes;
use crate::params::MAX_ATTEMPTS;
use crate::spec::CommandLine;
use crate::units::Time;

/// The deepest that forks of forks may go.
pub const MAX_DEPTH: u32 = 32;
/// The most branches a round may keep, and the most forks of one branch in a round.
pub const MAX_WIDTH: u32 = 64;
/// The most rounds of a refinement.
pub const MAX_ROUNDS: u32 = 64;
/// The most attempts of a strategy that makes them as it goes, unless said otherwise.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 1000;

/// How the winner is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrategyName {
    /// The first that passes; the rest are stopped at once.
    FirstWins,
    /// The best score of all that pass.
    BestOfN,
    /// The best few of each round are forked again.
    Beam,
    /// Many with little time, the best part of them with more, and so on.
    Halving,
    /// Those that pass are compared two by two by a command.
    Tournament,
    /// The best is forked again with what was said of it, until it passes or gets no better.
    Refine,
}

impl StrategyName {
    /// Every strategy.
    pub const ALL: [Self; 6] = [
        Self::FirstWins,
        Self::BestOfN,
        Self::Beam,
        Self::Halving,
        Self::Tournament,
        Self::Refine,
    ];

    /// Whether it forks attempts off others.
    pub const fn nests(self) -> bool {
        matches!(self, Self::Beam | Self::Halving | Self::Refine)
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstWins => "first-wins",
            Self::BestOfN => "best-of-n",
            Self::Beam => "beam",
            Self::Halving => "halving",
            Self::Tournament => "tournament",
            Self::Refine => "refine",
        }
    }
}

impl FromStr for StrategyName {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.into_iter().find(|s| s.as_str() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("'{text}' is not a strategy: {names}")
        })
    }
}

/// A command that says which of two attempts is better. It sees both trees, read-only, below
/// `FORKPOINT_LEFT` and `FORKPOINT_RIGHT`. Its first line of output decides: `left`, `right` or
/// `tie`; without such a line its exit status does: 0 for the left, 1 for the right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareSpec {
    /// The command.
    pub command: CommandLine,
    /// The time limit of one comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
}

/// What a strategy can be told. Each option belongs to the strategies that its text names; given
/// with another it is refused.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchSpec {
    /// beam: how many branches a round keeps. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// beam: how many times what was kept is forked again. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// beam, refine: how many forks are made of each branch that is kept. Default: 2 and 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branching: Option<u32>,
    /// halving: one of this many survives a round, and gets this many times the time. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<u32>,
    /// halving, refine: the most rounds after the first. Default: until one is left, and 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// refine: ends after this many rounds that brought no better score. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    /// tournament: the command that compares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compare: Option<CompareSpec>,
    /// beam, halving, refine: the most attempts in all. Default: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

/// An option's name, whether it is given, and the strategies it belongs to.
type Option_ = (&'static str, bool, &'static [StrategyName]);

impl SearchSpec {
    fn options(&self) -> [Option_; 8] {
        use StrategyName::{Beam, Halving, Refine, Tournament};
        [
            ("width", self.width.is_some(), &[Beam]),
            ("depth", self.depth.is_some(), &[Beam]),
            ("branching", self.branching.is_some(), &[Beam, Refine]),
            ("eta", self.eta.is_some(), &[Halving]),
            ("rounds", self.rounds.is_some(), &[Halving, Refine]),
            ("patience", self.patience.is_some(), &[Refine]),
            ("compare", self.compare.is_some(), &[Tournament]),
            (
                "max-attempts",
                self.max_attempts.is_some(),
                &[Beam, Halving, Refine],
            ),
        ]
    }

    /// Checks the options against `strategy`, which has a score command if `scored` and a time limit
    /// for each attempt if `timed`, and begins with `first` attempts.
    ///
    /// # Errors
    /// `FP0501`, naming the option and what it would need.
    pub fn check(
        &self,
        strategy: StrategyName,
        scored: bool,
        timed: bool,
        first: usize,
    ) -> Result<()> {
        for (name, given, of) in self.options() {
            if given && !of.contains(&strategy) {
                let of = of
                    .iter()
                    .map(|s| s.as_str())
                    .collect::<Vec<_>>()
                    .join(" or ");
                return Err(codes::SPEC
                    .error(format!("{} has no option {name}", strategy.as_str()))
                    .hint(format!("leave it out, or use --strategy {of}")));
            }
        }
        within("width", self.width, 1..=MAX_WIDTH)?;
        within("depth", self.depth, 1..=MAX_DEPTH)?;
        within("branching", self.branching, 1..=MAX_WIDTH)?;
        within("eta", self.eta, 2..=16)?;
        within("rounds", self.rounds, 1..=MAX_ROUNDS)?;
        within("patience", self.patience, 1..=MAX_ROUNDS)?;
        within("max-attempts", self.max_attempts, 1..=MAX_ATTEMPTS as u32)?;
        self.check_needs(strategy, scored, timed)?;
        if strategy.nests() && first > self.max_attempts() as usize {
            return Err(codes::SPEC
                .error(format!(
                    "the first round alone makes {first} attempts, more than the {} in all",
                    self.max_attempts()
                ))
                .hint("raise --max-attempts, or begin with fewer"));
        }
        Ok(())
    }

    fn check_needs(&self, strategy: StrategyName, scored: bool, timed: bool) -> Result<()> {
        let name = strategy.as_str();
        match strategy {
            StrategyName::Beam | StrategyName::Halving if !scored => Err(codes::SPEC
                .error(format!(
                    "{name} ranks attempts by their score, and there is none"
                ))
                .hint("give --score 'COMMAND', which prints a number")),
            StrategyName::Halving if !timed => Err(codes::SPEC
                .error("halving gives each attempt a little time first, and none is said")
                .hint("give --timeout T: the time of the first round")),
            StrategyName::Tournament if scored => Err(codes::SPEC
                .error("a tournament compares attempts and scores none")
                .hint("leave --score out, or use --strategy best-of-n")),
            StrategyName::Tournament => match &self.compare {
                Some(compare) => compare.command.check("the comparison"),
                None => Err(codes::SPEC
                    .error("a tournament needs a command that compares two attempts")
                    .hint("give --compare 'COMMAND'; it sees FORKPOINT_LEFT and FORKPOINT_RIGHT")),
            },
            StrategyName::FirstWins if scored => Err(codes::SPEC
                .error("first-wins commits the first attempt that passes and never scores any")
                .hint("leave --score out, or use --strategy best-of-n")),
            _ => Ok(()),
        }
    }

    /// How many there are to each that goes on, in effect.
    pub fn eta(&self) -> u32 {
        self.eta.unwrap_or(2)
    }

    /// The most attempts in all, in effect.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts.unwrap_or(DEFAULT_MAX_ATTEMPTS)
    }
}

fn within(name: &str, value: Option<u32>, range: RangeInclusive<u32>) -> Result<()> {
    let bad = |n| -> Error {
        let (low, high) = (range.start(), range.end());
        codes::SPEC
            .error(format!("{name} is {n}"))
            .hint(format!("give a number from {low} to {high}"))
    };
    match value {
        Some(n) if !range.contains(&n) => Err(bad(n)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(search: &SearchSpec, strategy: StrategyName) -> String {
        let error = search.check(strategy, true, true, 4).unwrap_err();
        assert_eq!(error.code, "FP0501");
        assert!(!error.hint.is_empty());
        error.message
    }

    #[test]
    fn an_option_of_another_strategy_is_refused() {
        let wide = SearchSpec {
            width: Some(2),
            ..SearchSpec::default()
        };
        assert!(wide.check(StrategyName::Beam, true, false, 4).is_ok());
        for other in [
            StrategyName::BestOfN,
            StrategyName::Halving,
            StrategyName::Refine,
        ] {
            assert!(refused(&wide, other).contains("width"), "{other:?}");
        }
    }

    #[test]
    fn bounds_are_kept() {
        let set = |f: fn(&mut SearchSpec)| {
            let mut search = SearchSpec::default();
            f(&mut search);
            search
        };
        refused(&set(|s| s.width = Some(0)), StrategyName::Beam);
        refused(&set(|s| s.width = Some(65)), StrategyName::Beam);
        refused(&set(|s| s.depth = Some(33)), StrategyName::Beam);
        refused(&set(|s| s.branching = Some(0)), StrategyName::Refine);
        refused(&set(|s| s.eta = Some(1)), StrategyName::Halving);
        refused(&set(|s| s.rounds = Some(0)), StrategyName::Refine);
        refused(&set(|s| s.patience = Some(0)), StrategyName::Refine);
        refused(&set(|s| s.max_attempts = Some(3)), StrategyName::Beam);
    }

    #[test]
    fn what_a_strategy_needs_is_said() {
        let plain = SearchSpec::default();
        assert!(plain.check(StrategyName::Beam, false, true, 1).is_err());
        assert!(plain.check(StrategyName::Halving, true, false, 1).is_err());
        assert!(
            plain
                .check(StrategyName::Tournament, false, false, 2)
                .is_err()
        );
        assert!(
            plain
                .check(StrategyName::FirstWins, true, false, 1)
                .is_err()
        );
        assert!(plain.check(StrategyName::Refine, false, false, 1).is_ok());
    }

    #[test]
    fn every_name_is_read_as_it_is_written() {
        for name in StrategyName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
            assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
        }
        assert!("best".parse::<StrategyName>().unwrap_err().contains("beam"));
    }
}
