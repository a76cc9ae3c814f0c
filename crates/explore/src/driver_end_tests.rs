//! What becomes of attempts that are left over, interrupts and limits of time, against a scripted backend.

use super::*;

#[test]
fn no_commit_leaves_the_winner_sealed_and_keep_says_what_becomes_of_the_rest() {
    for (keep, loser, how) in [
        (Keep::None, S::RolledBack, "abort failed_verify drop 1"),
        (Keep::Losers, S::RolledBack, "abort failed_verify retain 1"),
        (Keep::All, S::Sealed, ""),
    ] {
        let fake = Fake::new(vec![Script::default(), failing()]);
        let report = explore(
            &fake,
            &ExploreSpec {
                no_commit: true,
                keep,
                ..scored(2)
            },
        )
        .unwrap();
        assert_eq!((report.winner, report.outcome), (Some(0), Outcome::Chosen));
        assert!(!report.committed);
        assert_eq!(states(&report), [S::Sealed, loser]);
        let all = fake.journal.all();
        assert!(!all.iter().any(|e| e.starts_with("commit")), "{all:?}");
        let aborts: Vec<_> = all.iter().filter(|e| e.starts_with("abort")).collect();
        assert_eq!(aborts.first().map_or("", |e| e), how);
    }
}

#[test]
fn protected_paths_are_restored_before_the_verifier_looks_and_listed() {
    let cheat = Script {
        restored: vec!["tests/a"],
        ..Script::default()
    };
    let fake = Fake::new(vec![cheat]);
    let spec = ExploreSpec {
        protect: vec!["tests/**".into()],
        ..spec(1)
    };
    let report = explore(&fake, &spec).unwrap();
    assert_eq!(report.attempts[0].restored, ["tests/a".into()]);
    assert!(fake.journal.place("seal 0") < fake.journal.place("verify 0"));
}

#[test]
fn the_gate_looks_at_the_base_first_and_a_pass_there_is_said() {
    let mut fake = Fake::new(vec![Script::default()]);
    fake.base_verdict = Ended::Code(0);
    let spec = ExploreSpec {
        prepare: Some(PrepareSpec {
            secrets: false,
            command: shell("setup"),
            inputs: Vec::new(),
            network: NetworkSpec::Host,
            timeout: None,
        }),
        ..spec(1)
    };
    let report = explore(&fake, &spec).unwrap();
    let baseline = report.baseline.unwrap();
    assert_eq!((baseline.passed, baseline.exit_code), (Some(true), Some(0)));
    assert!(
        report
            .notes
            .iter()
            .any(|n| n.contains("passes on the base already"))
    );
    let journal = &fake.journal;
    assert!(journal.place("prepare") < journal.place("base verify.log"));
    assert!(journal.place("base verify.log") < journal.place("fork 1"));
}

#[test]
fn a_failed_preparation_ends_it_and_is_recorded() {
    let mut fake = Fake::new(vec![Script::default()]);
    fake.prepare_fails = true;
    let prepare = PrepareSpec {
        secrets: false,
        command: shell("setup"),
        inputs: Vec::new(),
        network: NetworkSpec::Loopback,
        timeout: None,
    };
    let error = explore(
        &fake,
        &ExploreSpec {
            prepare: Some(prepare),
            ..spec(1)
        },
    )
    .unwrap_err();
    assert_eq!(error.code, "FP0990");
    let ended = fake.ended.lock().unwrap();
    let (report, recorded) = ended.as_ref().unwrap();
    assert_eq!(
        (report.outcome, recorded.as_ref()),
        (Outcome::Failed, Some(&error))
    );
}

#[test]
fn when_nothing_can_be_forked_the_reason_is_the_error() {
    let broken = || Script {
        fork_fails: true,
        ..Script::default()
    };
    let error = explore(&Fake::new(vec![broken(), broken()]), &spec(2)).unwrap_err();
    assert_eq!(error.message, "no space left");
}

fn cancelled_in(index: u32, scripts: Vec<Script>, spec: &ExploreSpec) -> (Fake, Report) {
    let cancel = Cancel::new().unwrap();
    let mut fake = Fake::new(scripts);
    let raise = cancel.clone();
    fake.on_start = Some(Arc::new(move |i| {
        if i == index {
            raise.cancel();
        }
    }));
    let none = |_: &OsStr| None::<OsString>;
    let begun = Instant::now();
    let report = run(&fake, spec, &none, &mut Seen::default(), &cancel).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    (fake, report)
}

#[test]
fn an_interrupt_stops_and_rolls_back_everything() {
    let (fake, report) = cancelled_in(
        1,
        vec![endless(), endless(), endless()],
        &ExploreSpec {
            jobs: Some(2),
            ..spec(3)
        },
    );
    assert_eq!(
        (report.outcome, report.winner),
        (Outcome::Interrupted, None)
    );
    assert_eq!(reasons(&report), [R::Interrupted; 3]);
    assert_eq!(states(&report), [S::RolledBack; 3]);
    assert!(!fake.journal.all().contains(&"run 2".to_owned()));
    let ended = fake.ended.lock().unwrap();
    assert_eq!(
        ended.as_ref().map(|(r, _)| r.outcome),
        Some(Outcome::Interrupted)
    );
}

#[test]
fn an_interrupt_kills_a_verifier_too() {
    let stuck = Script {
        verify_takes: None,
        ..Script::default()
    };
    let late = Script {
        takes: Some(Duration::from_millis(50)),
        ..Script::default()
    };
    // Attempt 1 begins when a slot is free, which is while attempt 0 is being verified.
    let fake = Fake::new(vec![stuck, late]);
    let timed = ExploreSpec {
        total_timeout: "80ms".parse().ok(),
        ..spec(1)
    };
    let report = explore(&fake, &timed).unwrap();
    assert_eq!(report.outcome, Outcome::Timeout);
    assert!(fake.journal.all().contains(&"judge killed 0".to_owned()));
}

#[test]
fn an_interrupt_during_preparation_forks_nothing() {
    let prepare = PrepareSpec {
        secrets: false,
        command: shell("setup"),
        inputs: Vec::new(),
        network: NetworkSpec::Loopback,
        timeout: None,
    };
    // The watch's thread passes the flag on; whichever side of the fork that falls, all is undone.
    let (_, report) = cancelled_in(
        u32::MAX,
        vec![endless()],
        &ExploreSpec {
            prepare: Some(prepare),
            ..spec(1)
        },
    );
    assert_eq!(
        (report.outcome, reasons(&report)),
        (Outcome::Interrupted, vec![R::Interrupted])
    );
}

#[test]
fn the_total_time_ends_what_runs() {
    let fake = Fake::new(vec![endless(), failing()]);
    let spec = ExploreSpec {
        total_timeout: "60ms".parse().ok(),
        ..spec(2)
    };
    let report = explore(&fake, &spec).unwrap();
    assert_eq!(report.outcome, Outcome::Timeout);
    assert_eq!(reasons(&report), [R::TotalTimeout, R::FailedVerify]);
}

#[test]
fn an_attempt_is_told_its_deadline_and_who_it_is() {
    let fake = Fake::new(vec![Script::default()]);
    let spec = ExploreSpec {
        timeout: "90s".parse().ok(),
        ..spec(1)
    };
    explore(&fake, &spec).unwrap();
    let vars = fake.vars.lock().unwrap();
    assert_eq!(vars[&0]["FORKPOINT_DEADLINE"], "1090");
    assert_eq!(vars[&0]["FORKPOINT_ATTEMPT"], "0");
}

#[test]
fn output_is_in_the_log_and_shown_line_by_line() {
    let loud = Script {
        output: "one\ntwo\n",
        ..Script::default()
    };
    let fake = Fake::new(vec![loud]);
    let mut seen = Seen::default();
    let none = |_: &OsStr| None::<OsString>;
    let report = run(&fake, &spec(1), &none, &mut seen, &Cancel::new().unwrap()).unwrap();
    let log = report.attempts[0].log.as_ref().unwrap();
    assert_eq!(std::fs::read_to_string(&log.0).unwrap(), "one\ntwo\n");
    assert!(
        seen.0.iter().any(|l| l.contains("text: \"two\"")),
        "{:?}",
        seen.0
    );
}
