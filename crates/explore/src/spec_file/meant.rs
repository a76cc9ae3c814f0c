//! What a key that is not known was meant to be.

use super::shape::Shape;

/// What people write when they mean another key.
const ALSO: &[(&str, &str)] = &[
    ("command", "run"),
    ("cmd", "run"),
    ("n", "count"),
    ("attempts", "attempt"),
    ("param", "params"),
    ("parallel", "jobs"),
    ("environment", "env"),
    ("parameters", "params"),
    ("mount", "mounts"),
    ("secret", "secrets"),
    ("target", "dest"),
    ("dst", "dest"),
    ("src", "source"),
];

/// What a wrong `name` in `shape`, one of `all`, was meant to be, in words.
pub(crate) fn meant(all: &[&Shape], shape: &Shape, name: &str) -> Option<String> {
    let also = ALSO.iter().find(|(wrong, _)| *wrong == name).map(|a| a.1);
    if let Some(right) = also.filter(|right| shape.key(right).is_some()) {
        return Some(format!("did you mean '{right}'?"));
    }
    let near = shape
        .keys
        .iter()
        .map(|k| (distance(name, k.name), k.name))
        .filter(|(d, k)| *d <= 1 + k.len() / 4)
        .min();
    if let Some((_, right)) = near {
        return Some(format!("did you mean '{right}'?"));
    }
    let elsewhere = all.iter().find(|s| s.key(name).is_some())?;
    Some(format!("'{name}' stands {}", elsewhere.place()))
}

/// The number of letters to change, add, drop or swap (Damerau's distance, without overlaps).
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (
        a.chars().take(64).flat_map(char::to_lowercase).collect(),
        b.chars().take(64).collect(),
    );
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1)
                .min(row[j - 1] + 1)
                .min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
