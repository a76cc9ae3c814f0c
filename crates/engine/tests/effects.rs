//! Effects outside a branch's storage: performed, held, undone, and never forgotten (laws 2 and 5).

mod common;

use common::{Place, ok};
use forkpoint_engine::records::EventCursor;
use forkpoint_engine::{
    AbortOptions, Answer, Branch, BranchState, CommandEffect, CommitOptions, CommitOutcome,
    EffectClass, EffectState, Remote, ResolveOptions, Sent,
};
use forkpoint_store::EffectRecord;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

fn sh(script: &str) -> Vec<OsString> {
    vec!["sh".into(), "-c".into(), script.into()]
}

/// A command in a directory outside the base, where effects can be seen.
fn effect(outside: &std::path::Path, script: &str, undo: Option<&str>) -> CommandEffect {
    CommandEffect {
        command: sh(script),
        undo: undo.map(sh),
        cwd: outside.to_owned(),
        ..CommandEffect::default()
    }
}

fn outside() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn names(dir: &tempfile::TempDir) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .expect("read")
        .map(|e| e.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn abort(branch: &Branch) -> forkpoint_engine::AbortReport {
    branch.abort(&AbortOptions::default()).expect("abort")
}

fn states(branch: &Branch) -> Vec<EffectState> {
    branch
        .effects()
        .expect("journal")
        .iter()
        .map(|e| e.state)
        .collect()
}

fn committed(branch: &Branch) {
    let report = branch.commit(&CommitOptions::default()).expect("commit");
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
}

#[test]
fn law_05_what_was_performed_is_undone_newest_first() {
    let (place, out) = (Place::new(), outside());
    let branch = place.fork();
    for n in 1..=3 {
        let made = effect(
            out.path(),
            &format!("touch made{n}; echo id-{n}"),
            Some(&format!("read id; rm made{n}; echo $id >> undone")),
        );
        let done = branch.perform(&made).expect("performed");
        assert_eq!(
            done.effect.response.as_deref(),
            Some(format!("id-{n}\n").as_bytes())
        );
    }
    assert_eq!(names(&out), ["made1", "made2", "made3"]);
    let done = abort(&branch);
    assert_eq!((done.state, done.left.len()), (BranchState::RolledBack, 0));
    assert_eq!(names(&out), ["undone"]);
    let order = std::fs::read_to_string(out.path().join("undone")).expect("read");
    assert_eq!(order, "id-3\nid-2\nid-1\n");
    assert_eq!(states(&branch), [EffectState::Compensated; 3]);
}

#[test]
fn law_05_a_rollback_with_something_left_is_never_called_one() {
    let (place, out) = (Place::new(), outside());
    let branch = place.fork();
    branch
        .perform(&effect(out.path(), "touch old", Some("rm old")))
        .expect("performed");
    let fails = "echo x >> tried; test -e mended && rm new";
    branch
        .perform(&effect(out.path(), "touch new", Some(fails)))
        .expect("performed");
    let done = abort(&branch);
    assert_eq!(done.state, BranchState::RollbackIncomplete);
    assert_eq!(done.left.len(), 2, "{:?}", done.left);
    assert!(
        done.left[0]
            .why
            .contains("the inverse ended with exit status: 1"),
        "{:?}",
        done.left
    );
    assert!(
        done.left[1].why.contains("waits for effect 2"),
        "{:?}",
        done.left
    );
    assert_eq!(
        names(&out),
        ["new", "old", "tried"],
        "older ones wait for newer ones"
    );
    let tried = std::fs::read_to_string(out.path().join("tried")).expect("read");
    assert_eq!(tried, "x\nx\nx\n", "bounded");

    let again = branch.resolve(&ResolveOptions::default()).expect("resolve");
    assert_eq!(again.state, BranchState::RollbackIncomplete);
    std::fs::write(out.path().join("mended"), "").expect("write");
    let done = branch.resolve(&ResolveOptions::default()).expect("resolve");
    assert_eq!((done.state, done.left.len()), (BranchState::RolledBack, 0));
    assert_eq!(names(&out), ["mended", "tried"]);
    assert!(
        branch.resolve(&ResolveOptions::default()).is_err(),
        "nothing to resolve"
    );
}

#[test]
fn a_person_can_settle_an_effect_or_give_its_inverse() {
    let (place, out) = (Place::new(), outside());
    let branch = place.fork();
    branch
        .perform(&effect(out.path(), "touch a", Some("false")))
        .expect("performed");
    branch
        .perform(&effect(out.path(), "touch b", Some("false")))
        .expect("performed");
    assert_eq!(abort(&branch).left.len(), 2);
    let wrong = ResolveOptions {
        settled: vec![(7, "gone".into())],
        ..ResolveOptions::default()
    };
    assert_eq!(branch.resolve(&wrong).unwrap_err().code, "FP0440");
    assert_eq!(branch.state().unwrap(), BranchState::RollbackIncomplete);
    std::fs::remove_file(out.path().join("b")).expect("by hand");
    let known = ResolveOptions {
        settled: vec![(2, "removed it".into())],
        inverses: vec![(1, sh("rm a"))],
    };
    assert_eq!(
        branch.resolve(&known).expect("resolve").state,
        BranchState::RolledBack
    );
    assert_eq!(names(&out), [] as [&str; 0]);
    let journal = branch.effects().expect("journal");
    assert_eq!(
        journal[1].why.as_deref(),
        Some("settled by hand: removed it")
    );
}

#[test]
fn law_05_what_is_in_doubt_is_asked_for_and_never_taken_for_undone() {
    let (place, out) = (Place::new(), outside());
    let query = |script: &str| Some(sh(script));
    // It failed half way, and the query finds that it is there.
    let branch = place.fork();
    let mut half = effect(out.path(), "touch half; exit 7", Some("rm half"));
    half.query = query("test -e half");
    let done = branch.perform(&half).expect("performed");
    assert_eq!(done.effect.state, EffectState::Acknowledged);
    // It failed, and the query finds that nothing happened: the inverse is not run.
    let mut none = effect(out.path(), "exit 7", Some("touch wrongly-undone"));
    none.query = query("test -e none");
    assert_eq!(
        branch.perform(&none).expect("performed").effect.state,
        EffectState::ConfirmedAbsent
    );
    assert_eq!(abort(&branch).state, BranchState::RolledBack);
    assert_eq!(names(&out), [] as [&str; 0]);

    // Nobody can tell: it is not committed, and not called rolled back.
    let branch = place.fork();
    ok(&branch, "echo x > file");
    let doubtful = effect(out.path(), "exit 7", Some("touch wrongly-undone"));
    assert_eq!(
        branch.perform(&doubtful).expect("sent").effect.state,
        EffectState::Ambiguous
    );
    let report = branch.commit(&CommitOptions::default()).expect("an answer");
    let CommitOutcome::Conflict(items) = report.outcome else {
        panic!("{:?}", report.outcome);
    };
    assert!(items[0].why.contains("exit status: 7"), "{items:?}");
    assert!(!place.file("file").exists());
    let done = abort(&branch);
    assert_eq!(done.state, BranchState::RollbackIncomplete);
    assert_eq!(names(&out), [] as [&str; 0]);

    // An inverse that is safe where nothing happened settles it.
    let branch = place.fork();
    let mut safe = effect(out.path(), "touch safe; exit 7", Some("rm -f safe"));
    safe.absence_safe = true;
    branch.perform(&safe).expect("sent");
    assert_eq!(abort(&branch).state, BranchState::RolledBack);
    assert_eq!(names(&out), [] as [&str; 0]);
}

#[test]
fn what_cannot_be_started_never_happened() {
    let (place, out) = (Place::new(), outside());
    let branch = place.fork();
    let missing = CommandEffect {
        command: vec!["no-such-program-of-forkpoint".into()],
        undo: Some(sh("touch wrongly-undone")),
        cwd: out.path().to_owned(),
        ..CommandEffect::default()
    };
    assert_eq!(branch.perform(&missing).unwrap_err().code, "FP0440");
    assert!(branch.perform(&CommandEffect::default()).is_err());
    assert_eq!(states(&branch), [EffectState::NeverSent]);
    assert_eq!(abort(&branch).state, BranchState::RolledBack);
    assert_eq!(names(&out), [] as [&str; 0]);
}

#[test]
fn law_02_a_held_command_runs_after_the_commit_and_not_before() {
    let (place, out) = (Place::new(), outside());
    let held = effect(out.path(), "cat file >> sent", None);
    let held = CommandEffect {
        cwd: out.path().to_owned(),
        ..held
    };
    let loser = place.fork();
    loser.perform(&held).expect("held");
    assert_eq!(abort(&loser).state, BranchState::RolledBack);
    assert_eq!(names(&out), [] as [&str; 0]);

    let branch = place.fork();
    let link = format!("ln -s {} there", place.base().display());
    std::process::Command::new("sh")
        .args(["-c", &link])
        .current_dir(out.path())
        .status()
        .expect("link");
    ok(&branch, "echo content > file");
    let held = effect(out.path(), "cat there/file >> sent", None);
    branch.perform(&held).expect("held");
    assert_eq!(names(&out), ["there"]);
    committed(&branch);
    let sent = std::fs::read_to_string(out.path().join("sent")).expect("sent");
    assert_eq!(sent, "content\n", "after the files are in place");
    assert_eq!(states(&branch), [EffectState::Released]);
}

#[test]
fn a_held_command_that_fails_is_sent_again_when_the_store_is_opened() {
    let (place, out) = (Place::new(), outside());
    let branch = place.fork();
    ok(&branch, "echo x > file");
    branch
        .perform(&effect(out.path(), "test -e open && touch sent", None))
        .expect("held");
    let report = branch.commit(&CommitOptions::default()).expect("commit");
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    assert!(
        report.notes.iter().any(|n| n.contains("exit status: 1")),
        "{:?}",
        report.notes
    );
    assert_eq!(states(&branch), [EffectState::Releasable]);
    std::fs::write(out.path().join("open"), "").expect("write");
    let again = place.again();
    assert_eq!(names(&out), ["open", "sent"], "{:?}", again.recovered());
    assert_eq!(states(&branch), [EffectState::Released]);
}

/// Answers everything, and writes down what it was asked.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn note(&self, what: &str, effect: &EffectRecord) {
        let line = format!("{what} {}", String::from_utf8_lossy(&effect.intent));
        self.0.lock().unwrap().push(line);
    }
}

impl Remote for Recorder {
    fn perform(&self, effect: &EffectRecord, _: BorrowedFd<'_>) -> Sent {
        self.note("perform", effect);
        Sent::Acknowledged(effect.key.clone().into_bytes())
    }
    fn release(&self, effect: &EffectRecord) -> Result<Vec<u8>, String> {
        self.note("release", effect);
        Ok(Vec::new())
    }
    fn inquire(&self, effect: &EffectRecord) -> Answer {
        self.note("inquire", effect);
        Answer::Happened
    }
    fn compensate(&self, effect: &EffectRecord) -> Answer {
        self.note("compensate", effect);
        Answer::Compensated
    }
    fn can_inquire(&self, _: &EffectRecord) -> bool {
        true
    }
    fn absence_safe(&self, _: &EffectRecord) -> bool {
        false
    }
    fn describe(&self, effect: &EffectRecord) -> String {
        String::from_utf8_lossy(&effect.intent).into_owned()
    }
}

#[test]
fn after_a_rewind_the_same_intent_is_answered_from_the_journal_and_another_is_performed() {
    let place = Place::new();
    let remote = Arc::new(Recorder::default());
    place.engine.register_remote("calls", remote.clone());
    let branch = place.fork();
    let call = |intent: &[u8]| {
        let done = branch.perform_for("calls", EffectClass::Compensated, intent, Some(b"undo"));
        done.expect("performed")
    };
    let step = branch.step("first").expect("step");
    let first = call(b"POST /a");
    assert!(!first.replayed);
    branch.rewind(Some(step)).expect("rewind");
    let again = call(b"POST /a");
    assert!(again.replayed, "nothing is sent twice");
    assert_eq!(again.effect.response, first.effect.response);
    branch.rewind(Some(step)).expect("rewind");
    let other = call(b"POST /a politely");
    assert!(!other.replayed, "other words are another request");
    ok(&branch, "echo x > file");
    committed(&branch);
    let asked = remote.0.lock().unwrap().clone();
    let expected = [
        "perform POST /a",
        "perform POST /a politely",
        "compensate POST /a",
    ];
    assert_eq!(
        asked, expected,
        "what was gone back before is undone before the commit"
    );
    assert_eq!(
        states(&branch),
        [EffectState::Compensated, EffectState::Acknowledged]
    );
}

#[test]
fn events_alone_are_a_change_and_only_those_of_the_committed_go_out() {
    let place = Place::new();
    let bus = place.world().bus();
    let all = || {
        let events = bus.read(None, EventCursor::default(), 100).expect("read");
        events.into_iter().map(|e| e.topic).collect::<Vec<_>>()
    };
    let (winner, loser) = (place.fork(), place.fork());
    winner.bus().unwrap().publish("won", b"1").expect("held");
    loser.bus().unwrap().publish("never", b"").expect("held");
    let seen = winner
        .bus()
        .unwrap()
        .read(None, EventCursor::default(), 10)
        .unwrap();
    assert_eq!(seen.len(), 1, "law 3: not its sibling's");
    committed(&winner);
    assert_eq!(all(), ["won"]);
    let late = winner
        .bus_in(forkpoint_engine::Epoch(0))
        .publish("late", b"");
    assert_eq!(late.unwrap_err().code, "FP0112");
    assert_eq!(abort(&loser).state, BranchState::RolledBack);
    assert_eq!(all(), ["won"]);
    assert_eq!(states(&loser), [EffectState::NeverSent]);
}
