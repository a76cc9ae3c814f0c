//! Which of two attempts is better: by score, then by the smaller change, then by the earlier finish.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Which score is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A higher score.
    #[default]
    Maximize,
    /// A lower score.
    Minimize,
}

/// What an attempt is ranked by.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Merit {
    /// Its score; none without one. Never NaN: that was dropped when it came in.
    pub(super) score: Option<f64>,
    /// The size of its change.
    pub(super) changed_bytes: u64,
    /// Its place in the order in which attempts finished.
    pub(super) order: u32,
}

/// Compares scores alone; the better is less. One that is missing is worse than any other.
pub(super) fn compare_scores(a: Option<f64>, b: Option<f64>, direction: Direction) -> Ordering {
    match (a, b) {
        (Some(x), Some(y)) => {
            // Not total_cmp: 0.0 and -0.0 are a tie.
            let order = x.partial_cmp(&y).unwrap_or(Ordering::Equal);
            match direction {
                Direction::Maximize => order.reverse(),
                Direction::Minimize => order,
            }
        }
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

/// Compares two attempts; the better is less.
pub(super) fn compare(a: &Merit, b: &Merit, direction: Direction) -> Ordering {
    compare_scores(a.score, b.score, direction)
        .then(a.changed_bytes.cmp(&b.changed_bytes))
        .then(a.order.cmp(&b.order))
}
