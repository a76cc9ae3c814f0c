//! The laws, over many seeds, and the proof that the simulator can find them broken.

use forkpoint_sim::{Breakage, Stats, run, seeds};

#[test]
fn the_laws_hold_through_crashes_delays_and_full_disks() {
    let mut total = Stats::default();
    for seed in seeds(300) {
        let stats = run(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        total.forks += stats.forks;
        total.decisions += stats.decisions;
        total.undone += stats.undone;
        total.rolled_back += stats.rolled_back;
        total.invalidated += stats.invalidated;
        total.crashes += stats.crashes;
        total.blocked += stats.blocked;
    }
    eprintln!("{total:?}");
    if std::env::var_os("FORKPOINT_SIM_SEED").is_none() {
        // A simulation in which nothing happens proves nothing.
        assert!(
            total.decisions > 100 && total.undone > 10 && total.blocked > 0,
            "{total:?}"
        );
        assert!(
            total.rolled_back > 100 && total.invalidated > 10,
            "{total:?}"
        );
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..10 {
        assert_eq!(run(seed, None).unwrap(), run(seed, None).unwrap());
    }
}

/// Each breakage is found, and by the law that forbids it.
#[test]
fn every_breakage_is_found() {
    use Breakage as B;
    for breakage in B::ALL {
        let expected: &[&str] = match breakage {
            B::ReservationNotUnique => &["law_08_atomic_visibility"],
            // Two decisions on one head also show as contents that fit neither.
            B::DecideWithoutLooking => &[
                "law_07_first_commit_wins",
                "law_08_atomic_visibility",
                "law_10_recovery_comes_to_rest",
            ],
            B::SiblingsKept | B::IndependentsKilled => &["law_07_first_commit_wins"],
            B::DecisionNotDurable => {
                &["law_02_effect_isolation", "law_10_nothing_is_lost_silently"]
            }
            B::AbortNotDurable => &["law_10_nothing_is_lost_silently"],
            B::ApplyBeforeDecide => &["law_02_effect_isolation", "law_08_atomic_visibility"],
            B::VoteWithoutSync => &[
                "law_08_atomic_visibility",
                "law_08_recovery_redoes_what_was_pinned",
            ],
            B::StagedKept => &[
                "law_10_recovery_comes_to_rest",
                "law_05_rolled_back_means_undone",
            ],
            B::DiffRecomputed => &["law_10_no_edit_is_overwritten"],
            B::SealLeaks => &["law_09_sealed_is_immutable"],
            B::ReadsThrough => &["law_03_barrier"],
            B::ValidatesAnything => &["law_01_snapshot_dominance"],
            B::DiscardKeeps => &["law_05_rolled_back_means_undone"],
            // A removal has no writer to tell the two apart by.
            B::ForkFollowsParent => &["law_01_snapshot_dominance", "law_03_barrier"],
            B::StagesOtherThanVerified => &["law_06_gate_on_the_overlay"],
        };
        let found = (0..3000).find_map(|seed| run(seed, Some(breakage)).err());
        let violation = found.unwrap_or_else(|| panic!("{breakage:?} was not found"));
        assert!(
            expected.contains(&violation.law),
            "{breakage:?} was found as: {violation}"
        );
        eprintln!(
            "{breakage:?}: {} with seed {}",
            violation.law, violation.seed
        );
    }
}
