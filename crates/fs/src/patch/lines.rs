//! A unified diff of two texts, by Myers' O(ND) algorithm ("An O(ND) Difference Algorithm and Its
//! Variations", 1986) on lines, after the common beginning and end are cut off. Its work is bounded:
//! texts that differ too much are shown as one whole replaced by another.

use std::ops::Range;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// The most edits that are looked for; the trace needs memory of the square of it.
const MAX_EDITS: usize = 2000;

/// One run of lines: the same on both sides, or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    old: Range<usize>,
    new: Range<usize>,
}

/// The hunks that turn `old` into `new`; the same text has none.
pub(super) fn hunks_of(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (a, b) = (lines(old), lines(new));
    for hunk in hunks(&edits(&a, &b)) {
        write_hunk(&mut out, &a, &b, &hunk);
    }
    out
}

/// Lines with their ends.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|&b| b == b'\n').collect()
}

/// The changed runs, in order.
fn edits(a: &[&[u8]], b: &[&[u8]]) -> Vec<Edit> {
    let front = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a_rest, b_rest) = (&a[front..], &b[front..]);
    let back = a_rest
        .iter()
        .rev()
        .zip(b_rest.iter().rev())
        .take_while(|(x, y)| x == y)
        .count();
    let (a_mid, b_mid) = (
        &a_rest[..a_rest.len() - back],
        &b_rest[..b_rest.len() - back],
    );
    if a_mid.is_empty() && b_mid.is_empty() {
        return Vec::new();
    }
    let whole = || {
        vec![Edit {
            old: 0..a_mid.len(),
            new: 0..b_mid.len(),
        }]
    };
    let mut all = myers(a_mid, b_mid).unwrap_or_else(whole);
    for edit in &mut all {
        edit.old = edit.old.start + front..edit.old.end + front;
        edit.new = edit.new.start + front..edit.new.end + front;
    }
    all
}

/// The shortest edit script, or none where it has more than [`MAX_EDITS`] edits.
fn myers(a: &[&[u8]], b: &[&[u8]]) -> Option<Vec<Edit>> {
    let (n, m) = (a.len() as isize, b.len() as isize);
    let most = (a.len() + b.len()).min(MAX_EDITS);
    let offset = most as isize + 1;
    let mut furthest = vec![0isize; 2 * offset as usize + 1];
    let mut trace: Vec<Vec<isize>> = Vec::new();
    for d in 0..=most as isize {
        let window = (offset - d - 1) as usize..(offset + d + 2) as usize;
        trace.push(furthest[window].to_vec());
        for k in (-d..=d).step_by(2) {
            let at = (k + offset) as usize;
            let down = k == -d || (k != d && furthest[at - 1] < furthest[at + 1]);
            let mut x = if down {
                furthest[at + 1]
            } else {
                furthest[at - 1] + 1
            };
            let mut y = x - k;
            while x < n && y < m && a[x as usize] == b[y as usize] {
                (x, y) = (x + 1, y + 1);
            }
            furthest[at] = x;
            if x >= n && y >= m {
                return Some(backtrack(&trace, n, m));
            }
        }
    }
    None
}

/// Walks the trace back from the end to the beginning, joining adjacent edits.
fn backtrack(trace: &[Vec<isize>], n: isize, m: isize) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    let (mut x, mut y) = (n, m);
    for (d, furthest) in trace.iter().enumerate().rev() {
        let d = d as isize;
        let at = |k: isize| furthest[(k + d + 1) as usize];
        let k = x - y;
        let down = k == -d || (k != d && at(k - 1) < at(k + 1));
        let previous = if down { k + 1 } else { k - 1 };
        if d == 0 {
            break;
        }
        let (px, py) = (at(previous), at(previous) - previous);
        // The edit goes from (px, py) one step down or right; what follows is a run of equal lines.
        let (ex, ey) = if down { (px, py + 1) } else { (px + 1, py) };
        let edit = Edit {
            old: px as usize..ex as usize,
            new: py as usize..ey as usize,
        };
        match edits.last_mut() {
            Some(last) if last.old.start == edit.old.end && last.new.start == edit.new.end => {
                last.old.start = edit.old.start;
                last.new.start = edit.new.start;
            }
            _ => edits.push(edit),
        }
        (x, y) = (px, py);
    }
    edits.reverse();
    edits
}

/// Groups edits whose contexts touch.
fn hunks(edits: &[Edit]) -> Vec<Vec<Edit>> {
    let mut all: Vec<Vec<Edit>> = Vec::new();
    for edit in edits {
        match all.last_mut() {
            Some(hunk)
                if hunk
                    .last()
                    .is_some_and(|l| edit.old.start - l.old.end <= 2 * CONTEXT) =>
            {
                hunk.push(edit.clone());
            }
            _ => all.push(vec![edit.clone()]),
        }
    }
    all
}

fn write_hunk(out: &mut Vec<u8>, a: &[&[u8]], b: &[&[u8]], hunk: &[Edit]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
        return;
    };
    let before = first.old.start.min(CONTEXT);
    let after = (a.len() - last.old.end).min(CONTEXT);
    let old = first.old.start - before..last.old.end + after;
    let new = first.new.start - before..last.new.end + after;
    let range = |r: &Range<usize>| match r.len() {
        0 => format!("{},0", r.start),
        1 => format!("{}", r.start + 1),
        n => format!("{},{n}", r.start + 1),
    };
    out.extend_from_slice(format!("@@ -{} +{} @@\n", range(&old), range(&new)).as_bytes());
    let mut at = old.start;
    for edit in hunk {
        a[at..edit.old.start]
            .iter()
            .for_each(|line| put(out, b' ', line));
        a[edit.old.clone()]
            .iter()
            .for_each(|line| put(out, b'-', line));
        b[edit.new.clone()]
            .iter()
            .for_each(|line| put(out, b'+', line));
        at = edit.old.end;
    }
    a[at..old.end].iter().for_each(|line| put(out, b' ', line));
}

fn put(out: &mut Vec<u8>, mark: u8, line: &[u8]) {
    out.push(mark);
    out.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        out.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(old: &str, new: &str) -> String {
        String::from_utf8(hunks_of(old.as_bytes(), new.as_bytes())).unwrap()
    }

    #[test]
    fn a_change_has_its_context() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";
        let expected = "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n";
        assert_eq!(text(old, new), expected);
    }

    #[test]
    fn added_and_removed_texts_and_missing_ends_are_said() {
        let expected = "@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n";
        assert_eq!(text("", "x"), expected);
        assert_eq!(text("x\n", ""), "@@ -1 +0,0 @@\n-x\n");
        assert_eq!(text("x", "x"), "");
    }

    /// Applies the edits to `a`, taking the new lines from `b`.
    fn applied(a: &[&[u8]], b: &[&[u8]], edits: &[Edit]) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        for edit in edits {
            a[at..edit.old.start]
                .iter()
                .for_each(|l| out.extend_from_slice(l));
            b[edit.new.clone()]
                .iter()
                .for_each(|l| out.extend_from_slice(l));
            at = edit.old.end;
        }
        a[at..].iter().for_each(|l| out.extend_from_slice(l));
        out
    }

    proptest! {
        #[test]
        fn the_edits_turn_one_into_the_other(
            a in proptest::collection::vec(0u8..4, 0..40),
            b in proptest::collection::vec(0u8..4, 0..40),
        ) {
            let text = |v: &[u8]| v.iter().flat_map(|n| [b'a' + n, b'\n']).collect::<Vec<u8>>();
            let (a, b) = (text(&a), text(&b));
            let (old, new) = (lines(&a), lines(&b));
            prop_assert_eq!(applied(&old, &new, &edits(&old, &new)), b);
        }
    }

    #[test]
    fn texts_that_differ_everywhere_are_bounded() {
        let old: String = (0..5000).map(|i| format!("a{i}\n")).collect();
        let new: String = (0..5000).map(|i| format!("b{i}\n")).collect();
        assert_eq!(text(&old, &new).lines().count(), 10_001);
    }
}
