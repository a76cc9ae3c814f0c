//! The journal's rules, one by one.

use super::*;

fn row(ordinal: u64, state: EffectState) -> Pending {
    Pending {
        ordinal,
        participant: ParticipantId("p".into()),
        class: EffectClass::Compensated,
        state,
        inverse: true,
        absence_safe: false,
        can_inquire: true,
        what: format!("thing {ordinal}"),
        why: None,
    }
}

/// Drains with a remote that always answers well; returns what was done, in order.
fn run(drain: &mut Drain) -> Vec<(u64, Action)> {
    let mut done = Vec::new();
    while let Some((ordinal, action)) = drain.next() {
        done.push((ordinal, action));
        let answer = match action {
            Action::Drop => Answer::Dropped,
            Action::Inquire => Answer::Happened,
            Action::Compensate => Answer::Compensated,
        };
        drain.handle(ordinal, answer).expect("follows");
        assert!(done.len() < 100, "bounded");
    }
    done
}

#[test]
fn law_05_newest_first_and_nothing_left() {
    let rows = vec![
        row(1, S::Acknowledged),
        row(2, S::Sent),
        row(3, S::Intended),
        row(4, S::Compensated),
    ];
    let mut drain = Drain::new(rows, 3);
    let expected = [
        (3, Action::Drop),
        (2, Action::Inquire),
        (2, Action::Compensate),
        (1, Action::Compensate),
    ];
    assert_eq!(run(&mut drain), expected);
    assert_eq!(drain.left(), Vec::new());
}

#[test]
fn law_05_what_cannot_be_told_is_never_taken_for_undone() {
    let mut blind = row(2, S::Sent);
    blind.can_inquire = false;
    let mut drain = Drain::new(vec![row(1, S::Acknowledged), blind.clone()], 3);
    assert_eq!(
        drain.next(),
        None,
        "and the older one of its participant waits"
    );
    let left = drain.left();
    assert_eq!(left.len(), 2);
    assert!(left[0].why.starts_with("sent"), "{left:?}");
    assert!(left[1].why.contains("waits for effect 2"), "{left:?}");
    assert!(drain.handle(9, Answer::Absent).is_err());

    blind.absence_safe = true;
    let mut drain = Drain::new(vec![blind], 3);
    assert_eq!(run(&mut drain), [(2, Action::Compensate)]);
}

#[test]
fn an_inverse_that_fails_is_tried_so_often_and_holds_back_its_participant_alone() {
    let mut other = row(1, S::Acknowledged);
    other.participant = ParticipantId("q".into());
    let mut drain = Drain::new(
        vec![other, row(2, S::Acknowledged), row(3, S::Acknowledged)],
        3,
    );
    for n in 0..3 {
        assert_eq!(drain.next(), Some((3, Action::Compensate)));
        let event = drain
            .handle(3, Answer::Failed("no".into()))
            .expect("follows");
        assert_eq!(event, (n == 2).then_some(EffectEvent::InverseFailed));
    }
    assert_eq!(run(&mut drain), [(1, Action::Compensate)]);
    let left = drain.left();
    assert_eq!(left.len(), 2);
    assert_eq!(left[0].why, "failed: no");
}

#[test]
fn an_inquiry_that_fails_leaves_it_ambiguous() {
    let mut drain = Drain::new(vec![row(1, S::Sent)], 2);
    for _ in 0..2 {
        drain
            .handle(1, Answer::Failed("unreachable".into()))
            .expect("follows");
    }
    assert_eq!(drain.next(), None);
    assert_eq!(drain.left()[0].why, "ambiguous: unreachable");
    let mut again = Drain::new(vec![row(1, S::Ambiguous)], 2);
    assert_eq!(again.next(), Some((1, Action::Inquire)));
    again.handle(1, Answer::Absent).expect("follows");
    assert!(again.left().is_empty());
}

#[test]
fn what_was_read_needs_no_undoing_and_what_is_held_none_either() {
    let mut read = row(1, S::Acknowledged);
    read.class = EffectClass::Read;
    let mut held = row(2, S::Intended);
    held.class = EffectClass::Deferred;
    let mut drain = Drain::new(vec![read, held], 3);
    assert_eq!(run(&mut drain), [(2, Action::Drop)]);
    assert!(drain.left().is_empty());
}

#[test]
fn events_can_be_delivered_twice() {
    use EffectClass as C;
    use EffectEvent as E;
    let twice = [
        (C::Compensated, S::Intended, E::SendBegan),
        (C::Compensated, S::Sent, E::Acknowledged),
        (C::Compensated, S::Sent, E::Lost),
        (C::Compensated, S::Acknowledged, E::Compensated),
        (C::Compensated, S::Acknowledged, E::InverseFailed),
        (C::Deferred, S::Intended, E::Dropped),
        (C::Deferred, S::Intended, E::Committed),
        (C::Deferred, S::Releasable, E::Released),
        (C::Compensated, S::Failed, E::Settled),
    ];
    for (class, state, event) in twice {
        let once = step(class, state, event).expect("follows");
        assert_eq!(step(class, once, event), Ok(once), "{event:?}");
    }
    // What is held is never sent before its commit, and what is out is not called back.
    assert!(step(C::Deferred, S::Intended, E::SendBegan).is_err());
    assert!(step(C::Deferred, S::Intended, E::Released).is_err());
    assert!(step(C::Deferred, S::Released, E::Dropped).is_err());
    assert!(step(C::Deferred, S::Releasable, E::Dropped).is_err());
}

#[test]
fn another_intent_at_the_same_place_has_another_key() {
    let (a, b) = (BranchId::from_bits(1), BranchId::from_bits(2));
    let post = Intent {
        participant: "http",
        class: EffectClass::Compensated,
        bytes: b"POST /x",
    };
    let key = idempotency_key(a, 3, 0, post);
    assert_eq!(key, idempotency_key(a, 3, 0, post));
    let with = |intent: Intent<'static>| idempotency_key(a, 3, 0, intent);
    for other in [
        with(Intent {
            bytes: b"POST /x?",
            ..post
        }),
        with(Intent {
            participant: "httpP",
            bytes: b"OST /x",
            ..post
        }),
        with(Intent {
            class: EffectClass::Deferred,
            ..post
        }),
        idempotency_key(a, 3, 1, post),
        idempotency_key(a, 4, 0, post),
        idempotency_key(b, 3, 0, post),
    ] {
        assert_ne!(key, other);
    }
}

#[test]
fn every_state_and_class_is_found_by_its_text() {
    for state in EffectState::ALL {
        assert_eq!(EffectState::parse(state.as_str()), Some(state));
    }
    for class in EffectClass::ALL {
        assert_eq!(EffectClass::parse(class.as_str()), Some(class));
    }
    assert_eq!(EffectState::parse("gone"), None);
}

#[test]
fn an_intent_is_taken_up_again_only_if_it_is_the_same_and_was_gone_back_before() {
    let one = Recorded {
        ordinal: 4,
        present: false,
        same_intent: true,
        state: S::Acknowledged,
    };
    assert_eq!(take_up([one]), TakenUp::Again { ordinal: 4 });
    let other = Recorded {
        same_intent: false,
        ..one
    };
    let present = Recorded {
        present: true,
        ..one
    };
    let undone = Recorded {
        state: S::Compensated,
        ..one
    };
    assert_eq!(take_up([other, present]), TakenUp::Anew { again: 0 });
    assert_eq!(take_up([undone, other, undone]), TakenUp::Anew { again: 2 });
}

#[test]
fn nothing_in_doubt_and_nothing_forsaken_is_decided_on() {
    use EffectClass as C;
    assert_eq!(
        at_decision(C::Deferred, S::Intended, true),
        Ok((S::Releasable, false))
    );
    assert_eq!(
        at_decision(C::Deferred, S::Intended, false),
        Ok((S::NeverSent, true))
    );
    assert_eq!(
        at_decision(C::Compensated, S::Acknowledged, true),
        Ok((S::Acknowledged, true))
    );
    for (state, present) in [
        (S::Acknowledged, false),
        (S::Sent, true),
        (S::Ambiguous, true),
        (S::Failed, true),
    ] {
        assert!(
            at_decision(C::Compensated, state, present).is_err(),
            "{state}"
        );
    }
    assert_eq!(at_decision(C::Read, S::Sent, true), Ok((S::Sent, true)));
}
