//! Attempts, verification, scores, strategies and reports.
#![forbid(unsafe_code)]
