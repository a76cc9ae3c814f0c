//! Money, or whatever else attempts count: a decimal number kept in whole millionths, so that sums are
//! exact and can be compared.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// Millionths in one.
const ONE: u64 = 1_000_000;
/// The largest cost that can be said: beyond it sums could overflow.
const MAX_WHOLE: u64 = 1_000_000_000;

/// A cost, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub u64);

impl Cost {
    /// From a number; none for one that is negative, not finite, or too large. Rounded up to the next
    /// millionth, so that many tiny costs do not vanish.
    pub fn from_f64(number: f64) -> Option<Self> {
        let fits = number.is_finite() && (0.0..=MAX_WHOLE as f64).contains(&number);
        // The bound makes the conversion exact enough: below 2^53.
        fits.then(|| Self((number * ONE as f64).ceil() as u64))
    }

    /// As a number.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / ONE as f64
    }

    /// The sum; the largest cost where it would overflow.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a cost: write a number above zero, as in 2.50");
        let trimmed = text.trim();
        let (whole, decimals) = trimmed.split_once('.').unwrap_or((trimmed, ""));
        let digits = |s: &str| s.len() <= 20 && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || (whole.is_empty() && decimals.is_empty()) {
            return Err(bad());
        }
        let whole: u64 = match whole {
            "" => 0,
            digits => digits.parse().map_err(|_| bad())?,
        };
        if whole > MAX_WHOLE {
            return Err(format!("'{text}' is too large: at most {MAX_WHOLE}"));
        }
        let six: String = decimals.chars().chain("000000".chars()).take(6).collect();
        let cost = whole * ONE + six.parse::<u64>().map_err(|_| bad())?;
        match cost {
            0 => Err(format!(
                "'{text}' is no cost at all: it must be at least 0.000001"
            )),
            cost => Ok(Self(cost)),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / ONE, self.0 % ONE);
        let decimals = format!("{rest:06}");
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            some => write!(f, "{whole}.{some}"),
        }
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(f64),
            Text(String),
        }
        let text = match Form::deserialize(d)? {
            Form::Number(number) => format!("{number:.6}"),
            Form::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_and_written() {
        for (text, millionths) in [("2", 2_000_000), ("0.12", 120_000), (".5", 500_000)] {
            assert_eq!(text.parse(), Ok(Cost(millionths)));
        }
        assert_eq!(Cost(2_500_000).to_string(), "2.5");
        assert_eq!(Cost(3_000_000).to_string(), "3");
        for bad in [
            "",
            "-1",
            "0",
            "1e3",
            "NaN",
            "inf",
            ".",
            "1.2.3",
            "0.0000001",
            "99999999999",
        ] {
            assert!(bad.parse::<Cost>().is_err(), "{bad}");
        }
        assert_eq!(serde_json::from_str::<Cost>("0.25").unwrap(), Cost(250_000));
        assert!(serde_json::from_str::<Cost>("-0.25").is_err());
    }

    #[test]
    fn what_an_attempt_says_is_taken_with_care() {
        assert_eq!(Cost::from_f64(0.12), Some(Cost(120_000)));
        assert_eq!(Cost::from_f64(1e-9), Some(Cost(1)));
        assert_eq!(Cost::from_f64(0.0), Some(Cost(0)));
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(Cost::from_f64(bad), None, "{bad}");
        }
        assert_eq!(Cost(u64::MAX).plus(Cost(1)), Cost(u64::MAX));
    }
}
