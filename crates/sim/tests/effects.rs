//! The effect boundary, over many schedules, and the proof that each mechanism is needed.

use forkpoint_sim::{EffectStats, Removed, run_effects, seeds};

#[test]
fn law_05_the_effect_boundary_holds_through_crashes_and_lost_answers() {
    let mut total = EffectStats::default();
    for seed in seeds(100_000) {
        let stats = run_effects(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        total.performed += stats.performed;
        total.replayed += stats.replayed;
        total.compensated += stats.compensated;
        total.crashes += stats.crashes;
        total.rolled_back += stats.rolled_back;
        total.committed += stats.committed;
        total.incomplete += stats.incomplete;
    }
    eprintln!("{total:?}");
    if std::env::var_os("FORKPOINT_SIM_SEED").is_none() {
        assert!(
            total.rolled_back > 1000 && total.committed > 1000,
            "{total:?}"
        );
        assert!(total.replayed > 1000 && total.incomplete > 100, "{total:?}");
    }
}

/// Each mechanism that is taken away is missed, by the law it serves.
#[test]
fn every_mechanism_of_the_effect_boundary_is_needed() {
    use Removed as R;
    for removed in R::ALL {
        let expected: &[&str] = match removed {
            R::SentBeforeWritten | R::DoubtTakenForAbsence | R::EndedWithoutLooking => {
                &["law_05_rolled_back_means_undone"]
            }
            // One that is forgotten also lies in the way of older ones.
            R::AnswerNotRecorded => &["law_05_rolled_back_means_undone", "law_05_newest_first"],
            R::AskedTooEarly => &["law_05_rolled_back_means_undone"],
            R::OldestFirst => &["law_05_newest_first"],
            R::CommittedInDoubt | R::ReleasedBeforeSent | R::ForsakenKept => {
                &["law_08_atomic_visibility"]
            }
            R::HeldNotHeld | R::ReplayedByPlace => &["law_02_effect_isolation"],
            R::EpochIgnored => &["law_09_sealed_is_immutable"],
        };
        let found = (0..5000).find_map(|seed| run_effects(seed, Some(removed)).err());
        let violation = found.unwrap_or_else(|| panic!("{removed:?} was not missed"));
        assert!(
            expected.contains(&violation.law),
            "{removed:?} was found as: {violation}"
        );
        eprintln!(
            "{removed:?}: {} with seed {}",
            violation.law, violation.seed
        );
    }
}
