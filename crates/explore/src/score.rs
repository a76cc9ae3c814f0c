//! Reads a score out of what a score command said: a number on the last line of its standard output
//! that is one, or a JSON object of metrics on descriptor 3 or in the score file. What the attempt
//! itself printed never comes here.

use forkpoint_model::Result;
use forkpoint_model::strategy::median;
use std::collections::BTreeMap;

use crate::codes;

/// The most metrics one score may have.
const MAX_METRICS: usize = 256;

/// One run's numbers. `score` is the one that ranks; it is also in `metrics`, where there are any.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Score {
    /// The number that ranks.
    pub score: f64,
    /// Every metric by name; empty where the score was a plain number.
    pub metrics: BTreeMap<String, f64>,
}

/// Reads one run: `metrics` (descriptor 3 or the score file) where it says anything, else the last
/// number of `stdout`.
///
/// # Errors
/// `FP0504` where there is no number, or one that cannot be ranked (`NaN`, infinite).
pub fn read(stdout: &[u8], metrics: Option<&[u8]>) -> Result<Score> {
    match metrics {
        Some(text) if !text.trim_ascii().is_empty() => from_metrics(text),
        _ => from_lines(stdout),
    }
}

fn bad(why: impl std::fmt::Display) -> forkpoint_model::Error {
    codes::SCORE.error(format!("the score command gave no usable score: {why}")).hint(
        "print a number on a line of its own, or write {\"score\": 1.5} to descriptor 3 or $FORKPOINT_SCORE_FILE",
    )
}

fn from_lines(stdout: &[u8]) -> Result<Score> {
    let lines = stdout.rsplit(|&b| b == b'\n');
    // Bounded: what follows the number in an honest score is a line or two.
    for line in lines.take(1000) {
        let Ok(text) = std::str::from_utf8(line) else {
            continue;
        };
        if let Some(number) = number(text.trim()) {
            return finite(number, text.trim()).map(|score| Score {
                score,
                ..Score::default()
            });
        }
    }
    Err(bad("no line of its standard output is a number"))
}

/// A number as programs print them, also `NaN` and `inf`, so that these are refused and not skipped.
fn number(text: &str) -> Option<f64> {
    let looks = text.bytes().any(|b| b.is_ascii_digit())
        || ["nan", "inf", "infinity"].contains(
            &text
                .trim_start_matches(['+', '-'])
                .to_ascii_lowercase()
                .as_str(),
        );
    if !looks { None } else { text.parse().ok() }
}

fn finite(number: f64, text: &str) -> Result<f64> {
    if number.is_finite() {
        Ok(number)
    } else {
        Err(bad(format!("{text} cannot be ranked")))
    }
}

fn from_metrics(text: &[u8]) -> Result<Score> {
    let text = std::str::from_utf8(text)
        .map_err(|_| bad("its metrics are not UTF-8"))?
        .trim();
    if let Some(number) = number(text) {
        return finite(number, text).map(|score| Score {
            score,
            ..Score::default()
        });
    }
    let object: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).map_err(|e| {
        bad(format!(
            "its metrics are not a JSON object of numbers ({e})"
        ))
    })?;
    if object.len() > MAX_METRICS {
        return Err(bad(format!("it has more than {MAX_METRICS} metrics")));
    }
    let mut metrics = BTreeMap::new();
    for (name, value) in object {
        let number = value
            .as_f64()
            .ok_or_else(|| bad(format!("the metric '{name}' is not a number")))?;
        metrics.insert(name.clone(), finite(number, &name)?);
    }
    let score = match (metrics.get("score"), metrics.len()) {
        (Some(&score), _) => score,
        (None, 1) => metrics.values().next().copied().unwrap_or_default(),
        _ => return Err(bad("it has several metrics and none is called 'score'")),
    };
    Ok(Score { score, metrics })
}

/// The median of several runs, metric by metric; metrics that some run lacks are left out.
pub fn combine(runs: &[Score]) -> Option<Score> {
    let of =
        |pick: &dyn Fn(&Score) -> Option<f64>| median(&runs.iter().map(pick).collect::<Vec<_>>());
    let score = of(&|run| Some(run.score))?;
    let names = runs.first()?.metrics.keys();
    let metrics = names
        .filter_map(|name| Some((name.clone(), of(&|run| run.metrics.get(name).copied())?)))
        .collect();
    Some(Score { score, metrics })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(stdout: &str) -> Option<f64> {
        read(stdout.as_bytes(), None).ok().map(|s| s.score)
    }

    #[test]
    fn the_last_line_that_is_a_number_counts() {
        assert_eq!(plain("1\n2\n"), Some(2.0));
        assert_eq!(plain("12.5\nthat was 3 runs\n\n"), Some(12.5));
        assert_eq!(plain("  -1e-3  "), Some(-0.001));
        assert_eq!(plain(""), None);
        assert_eq!(plain("score: 3"), None);
    }

    #[test]
    fn what_cannot_be_ranked_is_refused_and_not_skipped() {
        for text in ["1\nNaN\n", "1\ninf", "1\n-Infinity", "1e999"] {
            assert_eq!(plain(text), None, "{text}");
        }
        for metrics in [
            r#"{"score": 1e999}"#,
            r#"{"score": "1"}"#,
            r#"{"score": null}"#,
            "[1]",
            r#"{"a":1,"b":2}"#,
            "nan",
            "\u{0}",
        ] {
            assert!(read(b"5", Some(metrics.as_bytes())).is_err(), "{metrics}");
        }
    }

    #[test]
    fn metrics_come_before_standard_output() {
        let score = read(b"5", Some(br#"{"score": 2, "time": 3}"#)).unwrap();
        assert_eq!((score.score, score.metrics["time"]), (2.0, 3.0));
        assert_eq!(read(b"5", Some(br#"{"time": 3}"#)).unwrap().score, 3.0);
        assert_eq!(read(b"5", Some(b"7\n")).unwrap().score, 7.0);
        assert_eq!(read(b"5", Some(b" \n")).unwrap().score, 5.0);
    }

    #[test]
    fn repeated_scores_give_their_median() {
        let run = |score: f64, time: f64| Score {
            score,
            metrics: [("time".to_owned(), time)].into(),
        };
        let all = combine(&[run(3.0, 1.0), run(1.0, 9.0), run(2.0, 2.0)]).unwrap();
        assert_eq!((all.score, all.metrics["time"]), (2.0, 2.0));
        assert_eq!(combine(&[]), None);
    }

    proptest! {
        #[test]
        fn no_input_panics_and_no_score_is_infinite(stdout: Vec<u8>, metrics: Option<Vec<u8>>) {
            if let Ok(score) = read(&stdout, metrics.as_deref()) {
                prop_assert!(score.score.is_finite());
            }
        }
    }
}
