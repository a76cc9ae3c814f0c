//! What an attempt says of itself, and what is told to it: the cost lines it writes, the feedback that
//! a fork of it is given, and what a comparing command answers. Pure; every text is bounded.

use forkpoint_model::strategy::Comparison;
use serde_json::{Map, Value};

use crate::backend::{Ended, Judged, Told};
use crate::cost::Cost;
use crate::report::AttemptReport;

/// The names of what it says in `FORKPOINT_OUT`, where it writes itself or through the branch's socket.
pub(crate) use forkpoint_engine::{COST_FILE, PROGRESS_FILE, SCORE_FILE};
/// The name of the feedback in `FORKPOINT_OUT`.
pub(crate) const FEEDBACK_FILE: &str = "feedback";
/// At most this much of a cost file is read, and of the others.
pub(crate) use forkpoint_engine::COST_LIMIT;
pub(crate) const CLAIM_LIMIT: u64 = 64 << 10;
/// So many characters of a progress text are told.
const TEXT_LIMIT: usize = 1024;
/// At most this much of a log goes into the feedback: its end.
pub(crate) const FEEDBACK_LIMIT: u64 = 64 << 10;
/// A comparison that said more than this has no first line that could be trusted to be its first.
pub(crate) const COMPARE_LIMIT: usize = 64 << 10;

/// The sum of lines like `{"cost": 0.12}`. Other lines count nothing; a line without its end is not
/// finished and counts once it is.
pub(crate) fn cost(text: &[u8]) -> Cost {
    let finished = text
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1);
    let lines = text[..finished].split(|&b| b == b'\n');
    let costs = lines
        .filter_map(|line| serde_json::from_slice::<Map<String, Value>>(line).ok())
        .filter_map(|line| Cost::from_f64(line.get("cost")?.as_f64()?));
    costs.fold(Cost::default(), Cost::plus)
}

/// What it says its score is: read as a score command's, but it ranks nothing.
pub(crate) fn score(text: &[u8]) -> Option<f64> {
    let said = crate::score::read(&[], Some(text)).ok()?;
    Some(said.score)
}

/// How far it says it is; nothing where that is no object with a `text`.
pub(crate) fn progress(text: &[u8]) -> Option<Told> {
    let object: Map<String, Value> = serde_json::from_slice(text).ok()?;
    let fraction = object.get("fraction").and_then(Value::as_f64);
    Some(Told {
        text: object
            .get("text")?
            .as_str()?
            .chars()
            .take(TEXT_LIMIT)
            .collect(),
        fraction: fraction.filter(|f| (0.0..=1.0).contains(f)),
    })
}

/// What a fork of an attempt is told of it: a few lines of `name value`, an empty one, and the end of
/// what the verifier wrote, or else of what the attempt itself did.
pub(crate) fn feedback(row: &AttemptReport, log: &[u8]) -> Vec<u8> {
    let mut text = format!("attempt {}\n", row.index);
    text += &format!("passed {}\n", if row.passed { "yes" } else { "no" });
    if let Some(score) = row.score {
        text += &format!("score {score}\n");
    }
    for (name, value) in &row.metrics {
        text += &format!("metric {name} {value}\n");
    }
    let exit = match &row.verifier {
        Some(verifier) => verifier.exit_code,
        None => row.exit_code,
    };
    if let Some(exit) = exit {
        text += &format!("exit {exit}\n");
    }
    text.push('\n');
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(log);
    bytes
}

/// What a comparing command says: its first line, where it is one of the words and the command exited
/// with 0; else its exit status, 0 for the left and 1 for the right.
pub(crate) fn comparison(judged: &Judged) -> Comparison {
    let first = judged.stdout.split(|&b| b == b'\n').next().unwrap_or(&[]);
    let whole = judged.stdout.len() < COMPARE_LIMIT;
    let word = first.trim_ascii().to_ascii_lowercase();
    match (&judged.exit.ended, &word[..]) {
        (Ended::Code(0), b"left") if whole => Comparison::Left,
        (Ended::Code(0), b"right") if whole => Comparison::Right,
        (Ended::Code(0), b"tie") if whole => Comparison::Tie,
        (Ended::Code(0), _) => Comparison::Left,
        (Ended::Code(1), _) => Comparison::Right,
        _ => Comparison::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Exit;
    use std::time::Duration;

    #[test]
    fn cost_lines_are_summed_and_others_count_nothing() {
        assert_eq!(
            cost(b"{\"cost\":0.5}\n{\"cost\": 1, \"model\": \"x\"}\n"),
            Cost(1_500_000)
        );
        let odd: [&[u8]; 7] = [
            b"",
            b"{\"cost\":9}",
            b"cost 9\n",
            b"{\"cost\":-9}\n",
            b"{\"cost\":\"9\"}\n",
            b"[9]\n",
            b"\xff{\"cost\":9}\n",
        ];
        for text in odd {
            assert_eq!(cost(text), Cost(0), "{:?}", text.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_claimed_score_and_progress_are_read_or_nothing() {
        assert_eq!(score(b"{\"score\":1.5,\"time\":3}"), Some(1.5));
        assert_eq!(
            progress(b"{\"text\":\"half\",\"fraction\":0.5}\n")
                .unwrap()
                .fraction,
            Some(0.5)
        );
        let far = progress(b"{\"text\":\"x\",\"fraction\":7}").unwrap();
        assert_eq!((far.text.as_str(), far.fraction), ("x", None));
        for bad in ["", "x", "{}", "[1]", "{\"text\":null}", "{\"score\":\"1\"}"] {
            assert_eq!(score(bad.as_bytes()), None, "{bad}");
            assert_eq!(progress(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn feedback_says_what_was_found() {
        let row = AttemptReport {
            index: 3,
            score: Some(0.5),
            exit_code: Some(0),
            ..AttemptReport::default()
        };
        let text = String::from_utf8(feedback(&row, b"2 of 4 tests fail\n")).unwrap();
        assert_eq!(
            text,
            "attempt 3\npassed no\nscore 0.5\nexit 0\n\n2 of 4 tests fail\n"
        );
    }

    fn said(ended: Ended, stdout: &str) -> Comparison {
        comparison(&Judged {
            exit: Exit {
                ended,
                wall: Duration::ZERO,
                cpu: Duration::ZERO,
                peak_memory_bytes: 0,
                uncaptured: Vec::new(),
            },
            stdout: stdout.into(),
            metrics: None,
            log: None,
        })
    }

    #[test]
    fn a_comparison_is_read_from_its_line_or_its_status() {
        let zero = || Ended::Code(0);
        assert_eq!(said(zero(), "right\nbecause\n"), Comparison::Right);
        assert_eq!(said(zero(), " LEFT \n"), Comparison::Left);
        assert_eq!(said(zero(), "tie"), Comparison::Tie);
        assert_eq!(said(zero(), "whatever\n"), Comparison::Left);
        assert_eq!(said(Ended::Code(1), "left\n"), Comparison::Right);
        assert_eq!(said(Ended::Code(2), "left\n"), Comparison::Error);
        assert_eq!(said(Ended::TimeLimit, ""), Comparison::Error);
        let flood = format!("right\n{}", "x".repeat(COMPARE_LIMIT));
        assert_eq!(said(zero(), &flood), Comparison::Left);
    }
}
