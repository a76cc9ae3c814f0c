//! The life of branches through the library, on real directories.

mod common;

use common::{Place, ok, run};
use forkpoint_engine::{
    AbortOptions, Activity, BranchState, ChangeKind, CommitOptions, CommitOutcome, ForkOptions,
    GcOptions, Layer, SealOptions,
};
use forkpoint_model::commit::CommitPlan;
use forkpoint_model::{CommitId, ParticipantId};
use forkpoint_store::{CommitRecord, Race};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_branch_is_isolated_and_its_commit_lands_whole() {
    let place = Place::new();
    place.write("a.txt", "old");
    place.write("sub/b.txt", "b");
    let branch = place.fork();
    ok(
        &branch,
        "echo -n new > a.txt; rm sub/b.txt; mkdir d; echo -n c > d/c.txt",
    );
    assert_eq!(place.read("a.txt"), "old");
    assert!(!place.file("d").exists());

    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    assert_eq!(report.generation.0, 1);
    assert_eq!(place.read("a.txt"), "new");
    assert_eq!(place.read("d/c.txt"), "c");
    assert!(!place.file("sub/b.txt").exists());
    assert_eq!(branch.state().unwrap(), BranchState::Committed);

    let undone = place.engine.undo(None, &place.base()).unwrap();
    assert_eq!(undone.commit, report.commit);
    assert_eq!(place.read("a.txt"), "old");
    assert_eq!(place.read("sub/b.txt"), "b");
    assert!(!place.file("d").exists());
}

#[test]
fn a_diff_names_what_changed_and_nothing_else() {
    let place = Place::new();
    for name in ["keep", "edit", "gone"] {
        place.write(name, name);
    }
    let branch = place.fork();
    ok(
        &branch,
        "cat keep; echo more >> edit; rm gone; echo x > new",
    );
    branch.seal(&SealOptions::default()).unwrap();
    let diff = branch.diff().unwrap();
    let seen: Vec<_> = diff
        .changes
        .iter()
        .map(|c| (c.path.to_str().unwrap().to_owned(), c.kind))
        .collect();
    let expected = [
        ("edit".to_owned(), ChangeKind::Modified),
        ("gone".to_owned(), ChangeKind::Removed),
        ("new".to_owned(), ChangeKind::Added),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn an_aborted_branch_leaves_nothing() {
    let place = Place::new();
    place.write("a", "1");
    let branch = place.fork();
    ok(&branch, "echo 2 > a; setsid sleep 1000 >/dev/null 2>&1 &");
    assert!(branch.is_running().unwrap());
    let report = branch.abort(&AbortOptions::default()).unwrap();
    assert_eq!(report.state, BranchState::RolledBack);
    assert!(!branch.is_running().unwrap());
    assert_eq!(place.read("a"), "1");
    assert_eq!(
        fs::read_dir(place.dir().join("store/layers"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(
        fs::read_dir(place.dir().join("store/branches"))
            .unwrap()
            .count(),
        0
    );
    assert!(branch.abort(&AbortOptions::default()).is_err());
}

#[test]
fn a_command_goes_on_where_the_last_one_of_its_branch_ended() {
    let place = Place::new();
    let branch = place.fork();
    ok(&branch, "echo -n one > f");
    assert_eq!(ok(&branch, "cat f"), "one");
    assert_eq!(run(&branch, "exit 7").0, 7);
}

#[test]
fn a_branch_that_ends_while_it_is_looked_at_has_stopped() {
    let place = Place::new();
    let branch = place.fork();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    branch.activity().unwrap();
                    branch.usage(false).unwrap();
                }
            });
        }
        for _ in 0..40 {
            ok(&branch, "true");
            branch.stop().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(branch.activity().unwrap(), Activity::Stopped);
}

#[test]
fn siblings_do_not_see_each_other_and_one_commit_ends_the_rest() {
    let place = Place::new();
    place.write("f", "0");
    let forks = place.forks(3);
    for (index, fork) in forks.iter().enumerate() {
        ok(
            fork,
            &format!("echo -n {index} > mine; ls mine; sleep 1000 >/dev/null 2>&1 &"),
        );
    }
    assert_eq!(ok(&forks[0], "cat mine"), "0");
    let report = forks[1].commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    assert_eq!(report.losers.len(), 2);
    assert_eq!(place.read("mine"), "1");
    for loser in [&forks[0], &forks[2]] {
        assert!(!loser.is_running().unwrap());
        assert_eq!(loser.state().unwrap(), BranchState::Invalidated);
        loser.abort(&AbortOptions::default()).unwrap();
        assert_eq!(loser.state().unwrap(), BranchState::RolledBack);
    }
    assert!(forks[0].commit(&CommitOptions::default()).is_err());
}

#[test]
fn an_independent_branch_becomes_stale_and_can_be_rebased() {
    let place = Place::new();
    place.write("a", "a");
    place.write("b", "b");
    let (first, second, third) = (place.fork(), place.fork(), place.fork());
    ok(&first, "echo -n 1 > a");
    ok(&second, "echo -n 2 > b");
    ok(&third, "echo -n 3 > a");
    first.commit(&CommitOptions::default()).unwrap();
    assert!(second.record().unwrap().stale);
    let refused = second.commit(&CommitOptions::default()).unwrap_err();
    assert_eq!(refused.kind, forkpoint_engine::Kind::Conflict, "{refused}");
    assert!(second.rebase().unwrap().conflicts.is_empty());
    let report = second.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    let conflicts = third.rebase().unwrap().conflicts;
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(conflicts[0].item, "a");
    assert_eq!((place.read("a"), place.read("b")), ("1".into(), "2".into()));
}

#[test]
fn an_edit_of_the_base_is_not_overwritten() {
    let place = Place::new();
    place.write("a", "a");
    let branch = place.fork();
    ok(&branch, "echo -n mine > a");
    place.write("a", "the user's own");
    let report = branch.commit(&CommitOptions::default()).unwrap();
    match report.outcome {
        CommitOutcome::Conflict(list) => assert_eq!(list[0].item, "a"),
        other => panic!("{other:?}"),
    }
    assert_eq!(place.read("a"), "the user's own");
}

#[test]
fn nested_forks_commit_into_their_parents() {
    let place = Place::new();
    place.write("a", "a");
    let outer = place.fork();
    ok(&outer, "echo -n outer > a; echo -n o > o");
    let options = ForkOptions::default();
    let inner = outer.fork(&options).unwrap().pop().unwrap().unwrap();
    assert_eq!(ok(&inner, "cat a o"), "outero");
    ok(&inner, "echo -n inner > a; rm o");
    ok(&outer, "echo -n p > p");
    let report = inner.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    assert_eq!(ok(&outer, "cat a p; test ! -e o"), "innerp");
    outer.commit(&CommitOptions::default()).unwrap();
    assert_eq!(
        (place.read("a"), place.read("p")),
        ("inner".into(), "p".into())
    );
    assert!(!place.file("o").exists());
    // Nothing is left but layers that a collection frees.
    let freed = place.engine.gc(&GcOptions::default()).unwrap();
    assert!(
        freed.items.iter().all(|item| !item.contains("crash")),
        "{:?}",
        freed.items
    );
    let left = fs::read_dir(place.dir().join("store/layers"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}

#[test]
fn a_running_branch_is_frozen_and_cloned_when_it_is_forked() {
    let place = Place::new();
    let branch = place.fork();
    ok(&branch, "echo -n 1 > f; sleep 1000 >/dev/null 2>&1 &");
    assert!(branch.is_running().unwrap());
    let child = branch
        .fork(&ForkOptions::default())
        .unwrap()
        .pop()
        .unwrap()
        .unwrap();
    ok(&branch, "echo -n 2 > f");
    assert_eq!(ok(&child, "cat f"), "1");
    assert_eq!(ok(&branch, "cat f"), "2");
    branch.kill().unwrap();
}

#[test]
fn a_stack_stays_short_however_deep_the_forks() {
    let place = Place::new();
    let mut branch = place.fork();
    for depth in 0..40 {
        ok(
            &branch,
            &format!(
                "echo -n {depth} > f{depth}; echo -n {depth} > last; rm -f f{}",
                depth - 1
            ),
        );
        branch = branch
            .fork(&ForkOptions::default())
            .unwrap()
            .pop()
            .unwrap()
            .unwrap();
        assert!(branch.record().unwrap().stacks[0].len() <= 18);
    }
    assert_eq!(ok(&branch, "cat last; ls"), "39f39\nlast\n");
}

#[test]
fn a_checkpoint_can_be_forked_again_and_again() {
    let place = Place::new();
    let branch = place.fork();
    ok(&branch, "echo -n 1 > f");
    let checkpoint = branch.checkpoint(Some("one")).unwrap();
    ok(&branch, "echo -n 2 > f");
    let again = place.engine.checkpoint("one").unwrap();
    assert_eq!(again.id(), checkpoint.id());
    let fork = again
        .fork(&ForkOptions::default())
        .unwrap()
        .pop()
        .unwrap()
        .unwrap();
    assert_eq!(ok(&fork, "cat f"), "1");
    assert_eq!(ok(&branch, "cat f"), "2");
}

#[test]
fn law_04_a_reasoning_fork_has_no_effect_path_and_ends_discarded() {
    let place = Place::new();
    place.write("f", "1");
    let reasoning = ForkOptions {
        layer: Layer::Reasoning,
        ..ForkOptions::default()
    };
    let effect = place.fork();
    let refused = effect.fork(&reasoning).expect_err("an unsafe fork point");
    assert!(refused.message.contains("disk:0"), "{refused}");
    let fork = place
        .world()
        .fork(&reasoning)
        .unwrap()
        .pop()
        .unwrap()
        .unwrap();
    assert_eq!(
        ok(
            &fork,
            "cat f; exec 2> /dev/null; ! echo 2 > f; ! touch g; echo proposal"
        ),
        "1proposal\n"
    );
    assert_eq!(fork.effect_paths().unwrap(), []);
    ok(&fork, "test ! -e /run/forkpoint/out");
    let mixed = fork
        .fork(&ForkOptions::default())
        .expect_err("unsafe below too");
    assert_eq!(mixed.code, "FP0083");
    let pure = fork.fork(&reasoning).unwrap().pop().unwrap().unwrap();
    assert_eq!(
        pure.abort(&AbortOptions::default()).unwrap().state,
        BranchState::Discarded
    );
    assert!(fork.bus().unwrap().publish("t", b"").is_err());
    assert!(fork.commit(&CommitOptions::default()).is_err());
    let report = fork.abort(&AbortOptions::default()).unwrap();
    assert_eq!(report.state, BranchState::Discarded);
    assert_eq!(place.read("f"), "1");
}

/// Only a commit that somebody is carrying out is passed over in silence.
#[test]
fn recovery_says_why_a_commit_could_not_be_recovered() {
    let place = Place::new();
    place.write("a", "old");
    let branch = place.fork();
    branch.seal(&SealOptions::default()).unwrap();
    let record = branch.record().unwrap();
    let plan = CommitPlan {
        txn: CommitId::from_bits(9),
        world: record.world,
        branch: record.id,
        parent_generation: record.generation,
        group: None,
        participants: vec![ParticipantId("disk:0".into())],
    };
    let row = CommitRecord::reservation(&plan, 1);
    let reserved = place.engine.store().reserve(&row, false, 1).unwrap();
    assert_eq!(reserved, Race::Won(()));
    let (base, away) = (place.base(), place.dir().join("away"));
    fs::rename(&base, &away).unwrap();
    let said = place.again().recovered().to_vec();
    let told = |line: &String| line.contains("could not be recovered") && line.contains("base");
    assert!(said.iter().any(told), "{said:?}");

    fs::rename(&away, &base).unwrap();
    let held = fs::File::open(&base).unwrap();
    held.lock().unwrap();
    assert_eq!(
        place.again().recovered(),
        &[] as &[String],
        "somebody is at it"
    );
    held.unlock().unwrap();
    let said = place.again().recovered().to_vec();
    assert!(said.iter().any(|l| l.contains("discarded")), "{said:?}");
    assert_eq!(branch.state().unwrap(), BranchState::Sealed);
}

/// A reservation is not synced: what was staged under one that a power loss took has no row.
#[test]
fn law_10_a_stage_without_a_row_is_swept_after_a_power_loss_and_a_stage_with_one_stays() {
    let place = Place::new();
    place.write("a", "old");
    let branch = place.fork();
    ok(&branch, "echo -n new > a");
    branch.commit(&CommitOptions::default()).unwrap();
    let store = place.dir().join("store");
    let commits = || fs::read_dir(store.join("commits")).unwrap().count();
    assert_eq!(commits(), 1, "what undoes the commit");
    let stage = store
        .join("commits")
        .join(CommitId::from_bits(77).to_string());
    fs::create_dir_all(stage.join("disk-0")).unwrap();
    fs::write(stage.join("disk-0/0"), "staged").unwrap();
    // Processes that live in this boot are left alone.
    assert_eq!(place.again().recovered(), &[] as &[String]);
    assert_eq!(commits(), 2);
    fs::write(store.join("boot"), "the boot before").unwrap();
    let said = place.again().recovered().to_vec();
    assert!(said.iter().any(|l| l.contains("not decided")), "{said:?}");
    assert_eq!(commits(), 1);
    assert_eq!(place.again().recovered(), &[] as &[String]);
    place.engine.undo(None, &place.base()).unwrap();
    assert_eq!(place.read("a"), "old");
}
