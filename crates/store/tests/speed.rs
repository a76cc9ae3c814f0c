//! Figures the design depends on, loosely held so that a busy machine does not fail them; the
//! benchmark measures them properly. `--nocapture` prints them.

mod common;

use common::{Fixture, branch};
use forkpoint_store::BranchRecord;
use std::time::{Duration, Instant};

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn timed(mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[test]
fn a_fork_row_and_a_list_are_cheap() {
    let f = Fixture::new();
    let one: Vec<_> = (0..2000)
        .map(|n| timed(|| f.store.insert_branch(&branch(n)).unwrap()))
        .collect();
    let eight: Vec<_> = (0..1000u64)
        .map(|round| {
            let all: Vec<BranchRecord> = (0..8).map(|n| branch(2000 + round * 8 + n)).collect();
            timed(|| f.store.insert_branches(&all).unwrap())
        })
        .collect();
    let list = median(
        (0..5)
            .map(|_| timed(|| assert_eq!(f.store.branches(None, true).unwrap().len(), 10_000)))
            .collect(),
    );
    let (one, eight) = (median(one), median(eight));
    eprintln!("fork row {one:?}; eight {eight:?}; list of 10,000 branches {list:?}");
    assert!(one < Duration::from_millis(2), "{one:?}");
    assert!(list < Duration::from_secs(1), "{list:?}");
}
