//! Repeated verification and scoring: pure reductions of what each repetition said.

/// A gate repeated `k` times passes only if every repetition did; none at all is not a pass.
pub fn all_pass(passes: &[bool]) -> bool {
    !passes.is_empty() && passes.iter().all(|&p| p)
}

/// The median of the scores that are numbers; the mean of the middle two of an even count. None if
/// any repetition gave no score or one that is not finite: a score that fails sometimes is not one.
pub fn median(scores: &[Option<f64>]) -> Option<f64> {
    let mut values: Vec<f64> = scores.iter().copied().collect::<Option<_>>()?;
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    Some(if values.len() % 2 == 1 {
        values[mid]
    } else {
        // Halved first, so that two large scores do not overflow.
        values[mid - 1] / 2.0 + values[mid] / 2.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_of_a_repeated_gate_fails_it() {
        assert!(all_pass(&[true, true, true]));
        assert!(!all_pass(&[true, false, true]));
        assert!(!all_pass(&[]));
    }

    #[test]
    fn a_median_needs_every_repetition() {
        assert_eq!(median(&[Some(3.0), Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(median(&[Some(4.0), Some(1.0)]), Some(2.5));
        assert_eq!(median(&[Some(1.0), None, Some(3.0)]), None);
        assert_eq!(median(&[Some(1.0), Some(f64::NAN)]), None);
        assert_eq!(median(&[Some(f64::MAX), Some(f64::MAX)]), Some(f64::MAX));
        assert_eq!(median(&[]), None);
    }
}
