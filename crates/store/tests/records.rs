//! Records come back as they were put in; queries find what they should and nothing else.

mod common;

use common::{Fixture, branch, sealed, world};
use forkpoint_model::state::{BranchEvent, BranchState, ForkLayer};
use forkpoint_model::{
    BranchId, CheckpointId, Digest, Epoch, ExplorationId, Generation, GroupId, LayerId, Source,
    WorldId,
};
use forkpoint_store::{
    AttemptRecord, BranchRecord, CheckpointRecord, DiskKind, Durability, ExplorationRecord,
    ExplorationState, HistoryFilter, HistoryRecord, LayerKind, LayerRecord, NetworkKind,
    PrepareRecord, ProcessRecord, VerifiedRecord, codes,
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

fn process() -> ProcessRecord {
    ProcessRecord {
        boot_id: "boot".into(),
        pid: 7,
        start_time: u64::MAX / 2,
    }
}

fn layer(n: u64) -> LayerRecord {
    LayerRecord {
        id: LayerId::from_bits(n),
        kind: LayerKind::Sealed,
        bytes: 10,
        entries: 2,
        merged: 1,
        created_ns: n as i64,
    }
}

fn full_branch() -> BranchRecord {
    BranchRecord {
        name: Some("näme".into()),
        parent: Source::Branch(BranchId::from_bits(77)),
        group: Some(GroupId::from_bits(5)),
        exploration: Some((ExplorationId::from_bits(6), 3)),
        epoch: Epoch(4),
        stacks: vec![vec![LayerId::from_bits(1), LayerId::from_bits(2)], vec![]],
        root_layers: vec![LayerId::from_bits(3)],
        shared: forkpoint_store::SharedRecord {
            position: Some(0),
            overlay: Some(7),
            overlays: vec![6, 3],
        },
        stamp_ns: -9,
        durable: false,
        layer: ForkLayer::Reasoning,
        network: NetworkKind::Host,
        uncaptured: vec!["network host".into()],
        verified: Some(VerifiedRecord {
            passed: true,
            command: "make".into(),
            at_ns: 8,
        }),
        reason: Some("passed".into()),
        process: Some(process()),
        ended_ns: None,
        retained: true,
        bytes: Some(1 << 40),
        detail: Some("{}".into()),
        ..branch(9)
    }
}

#[test]
fn records_survive() {
    let f = Fixture::new();
    let s = &f.store;
    assert_eq!(s.world(WorldId::from_bits(1)).unwrap(), world(1));
    assert_eq!(
        s.find_world(&world(1).disks[0].path, DiskKind::InPlace)
            .unwrap(),
        Some(world(1))
    );
    assert_eq!(
        s.find_world(&world(1).disks[0].path, DiskKind::Snapshot)
            .unwrap(),
        None
    );

    s.insert_branch(&full_branch()).unwrap();
    assert_eq!(s.branch(BranchId::from_bits(9)).unwrap(), full_branch());

    let x = ExplorationRecord {
        id: ExplorationId::from_bits(6),
        world: WorldId::from_bits(1),
        cwd: Path::new(OsStr::from_bytes(b"/not\xffutf8")).into(),
        spec: "{}".into(),
        state: ExplorationState::Running,
        supervisor: Some(process()),
        created_ns: 1,
        ended_ns: None,
        result: None,
    };
    s.put_exploration(&x).unwrap();
    assert_eq!(s.exploration(x.id).unwrap(), x);
    assert_eq!(s.last_exploration(&x.cwd).unwrap(), Some(x.clone()));
    assert_eq!(s.last_exploration(Path::new("/else")).unwrap(), None);
    assert_eq!(s.explorations(true).unwrap(), std::slice::from_ref(&x));

    let attempt = AttemptRecord {
        exploration: x.id,
        index: 0,
        branch: Some(BranchId::from_bits(9)),
        params: r#"{"k":1}"#.into(),
        state: "committed".into(),
        reason: None,
        exit_code: Some(-1),
        score: Some(0.1 + 0.2),
        passed: Some(true),
        detail: None,
    };
    s.put_attempts(std::slice::from_ref(&attempt)).unwrap();
    assert_eq!(s.attempts(x.id).unwrap(), std::slice::from_ref(&attempt));
    assert_eq!(s.attempt(x.id, 0).unwrap(), attempt);
    assert_eq!(s.attempt(x.id, 1).unwrap_err().code, codes::NOT_FOUND.text);

    let c = CheckpointRecord {
        id: CheckpointId::from_bits(1),
        name: Some("base".into()),
        world: WorldId::from_bits(1),
        generation: Generation(2),
        stacks: vec![vec![LayerId::from_bits(1)]],
        root_layers: vec![],
        shared: forkpoint_store::SharedRecord {
            position: Some(0),
            overlay: None,
            overlays: vec![4, 2],
        },
        stamp_ns: 1,
        created_ns: 2,
    };
    s.insert_checkpoint(&c).unwrap();
    assert_eq!(s.checkpoint(c.id).unwrap(), c);
    assert_eq!(
        s.checkpoints(Some(c.world)).unwrap(),
        std::slice::from_ref(&c)
    );
    assert!(s.remove_checkpoint(c.id).unwrap() && !s.remove_checkpoint(c.id).unwrap());

    let p = PrepareRecord {
        key: Digest::of(b"inputs"),
        base: "/base/1".into(),
        disk_layers: vec![vec![LayerId::from_bits(4)]],
        root_layers: vec![LayerId::from_bits(5)],
        pinned: vec![0, 255],
        created_ns: 1,
        used_ns: 2,
    };
    s.put_prepare(&p).unwrap();
    s.touch_prepare(p.key, &p.base, 9).unwrap();
    assert_eq!(
        s.prepare(p.key, &p.base).unwrap(),
        Some(PrepareRecord { used_ns: 9, ..p })
    );
    s.check().unwrap();
}

#[test]
fn a_taken_name_or_base_or_id_is_refused_by_name() {
    let f = Fixture::new();
    let named = |n, name: &str| BranchRecord {
        name: Some(name.into()),
        ..branch(n)
    };
    f.store.insert_branch(&named(1, "fix")).unwrap();
    let error = f.store.insert_branch(&named(2, "fix")).unwrap_err();
    assert_eq!(error.code, codes::TAKEN.text);
    assert!(error.message.contains("\"fix\""), "{error}");
    assert_eq!(
        f.store.insert_branch(&branch(1)).unwrap_err().code,
        codes::TAKEN.text
    );
    assert_eq!(
        f.store.insert_world(&world(1)).unwrap_err().code,
        codes::TAKEN.text
    );
    // All or none.
    assert!(f.store.insert_branches(&[branch(5), branch(1)]).is_err());
    assert!(f.store.branch(BranchId::from_bits(5)).is_err());
    // The name is free again once its branch has ended.
    for event in [
        BranchEvent::AbortRequested,
        BranchEvent::Drained { left: vec![] },
    ] {
        f.store
            .transition(BranchId::from_bits(1), &event, 9)
            .unwrap();
    }
    f.store.insert_branch(&named(2, "fix")).unwrap();
    assert_eq!(
        f.store.find_branch("fix").unwrap().id,
        BranchId::from_bits(2)
    );
}

#[test]
fn a_branch_is_found_by_name_id_and_unique_prefix() {
    let f = Fixture::new();
    let base = 0x12_3456_7800u64;
    f.store
        .insert_branches(&[branch(base), branch(base + 1)])
        .unwrap();
    f.store
        .insert_branch(&BranchRecord {
            name: Some("fix".into()),
            ..branch(1)
        })
        .unwrap();
    let id = BranchId::from_bits(base).to_string();
    assert_eq!(
        f.store.find_branch(&id).unwrap().id,
        BranchId::from_bits(base)
    );
    assert_eq!(
        f.store.find_branch("fix").unwrap().id,
        BranchId::from_bits(1)
    );
    assert_eq!(
        f.store.find_branch("b00").unwrap().id,
        BranchId::from_bits(1)
    );
    let error = f.store.find_branch(&id[..5]).unwrap_err();
    assert_eq!(error.code, codes::AMBIGUOUS.text);
    assert!(error.message.contains(&id), "{error}");
    for missing in ["bzzz", "nope", "", "%", "b_"] {
        assert_eq!(
            f.store.find_branch(missing).unwrap_err().code,
            codes::NOT_FOUND.text
        );
    }
}

#[test]
fn a_transition_follows_the_state_machine_and_nothing_else_changes_the_state() {
    let f = Fixture::new();
    let b = sealed(&f.store, 1, None);
    assert_eq!((b.state, b.epoch), (BranchState::Sealed, Epoch(1)));
    let b = f
        .store
        .modify_branch(b.id, |b| {
            b.state = BranchState::Committed;
            b.epoch = Epoch(9);
            b.bytes = Some(5);
        })
        .unwrap();
    assert_eq!(
        (b.state, b.epoch, b.bytes),
        (BranchState::Sealed, Epoch(1), Some(5))
    );
    let error = f
        .store
        .transition(b.id, &BranchEvent::Applied, 2)
        .unwrap_err();
    assert_eq!(error.code, forkpoint_model::codes::IMPOSSIBLE.text);
    assert_eq!(f.store.branch(b.id).unwrap(), b);
}

#[test]
fn a_batch_is_all_or_nothing() {
    let f = Fixture::new();
    let failed = f.store.batch(Durability::Normal, |s| {
        s.insert_branch(&branch(1))?;
        s.transition(BranchId::from_bits(1), &BranchEvent::Applied, 2)
            .map(|_| ())
    });
    assert!(failed.is_err());
    assert!(f.store.branch(BranchId::from_bits(1)).is_err());
    // Also where the caller did not look at the error.
    let swallowed = f.store.batch(Durability::Normal, |s| {
        s.insert_branch(&branch(1))?;
        assert!(s.insert_branch(&branch(1)).is_err());
        Ok(())
    });
    assert!(swallowed.is_err());
    assert!(f.store.branch(BranchId::from_bits(1)).is_err());
    f.store
        .batch(Durability::Normal, |s| s.insert_branch(&branch(1)))
        .unwrap();
}

#[test]
fn layers_are_free_once_nobody_refers_to_them() {
    let f = Fixture::new();
    for n in 1..=4 {
        f.store.insert_layer(&layer(n)).unwrap();
    }
    let id = LayerId::from_bits;
    let b = BranchRecord {
        stacks: vec![vec![id(1)], vec![id(2)]],
        root_layers: vec![id(3)],
        ..branch(1)
    };
    f.store.insert_branch(&b).unwrap();
    let free = |f: &Fixture| -> Vec<LayerId> {
        f.store
            .unreferenced_layers()
            .unwrap()
            .into_iter()
            .map(|l| l.id)
            .collect()
    };
    assert_eq!(free(&f), [id(4)]);
    assert_eq!(f.store.remove_layers(&[id(1), id(4)]).unwrap(), [id(4)]);
    f.store
        .transition(b.id, &BranchEvent::AbortRequested, 2)
        .unwrap();
    f.store.modify_branch(b.id, |b| b.retained = true).unwrap();
    f.store
        .transition(b.id, &BranchEvent::Drained { left: vec![] }, 3)
        .unwrap();
    assert_eq!(free(&f), []);
    f.store.modify_branch(b.id, |b| b.retained = false).unwrap();
    assert_eq!(free(&f), [id(1), id(2), id(3)]);
}

#[test]
fn the_log_is_read_backwards() {
    let f = Fixture::new();
    for n in 0..5u64 {
        let line = HistoryRecord {
            seq: 0,
            at_ns: 1,
            verb: "fork".into(),
            world: Some(WorldId::from_bits(n % 2)),
            branch: Some(BranchId::from_bits(n)),
            commit: None,
            text: format!("line {n}"),
            json: None,
        };
        assert_eq!(f.store.append_history(&line).unwrap(), n + 1);
    }
    let texts = |filter: HistoryFilter| -> Vec<String> {
        f.store
            .history(&filter)
            .unwrap()
            .into_iter()
            .map(|h| h.text)
            .collect()
    };
    let all = HistoryFilter::default();
    assert_eq!(
        texts(HistoryFilter { limit: 2, ..all }),
        ["line 4", "line 3"]
    );
    let even = HistoryFilter {
        world: Some(WorldId::from_bits(0)),
        ..all
    };
    assert_eq!(texts(even), ["line 4", "line 2", "line 0"]);
    assert_eq!(
        texts(HistoryFilter {
            branch: Some(BranchId::from_bits(9)),
            ..all
        }),
        [""; 0]
    );
}

#[test]
fn lists_find_what_recovery_needs() {
    let f = Fixture::new();
    f.store
        .insert_branches(&[branch(1), branch(2), branch(3)])
        .unwrap();
    f.store
        .modify_branch(BranchId::from_bits(2), |b| b.process = Some(process()))
        .unwrap();
    f.store
        .transition(BranchId::from_bits(3), &BranchEvent::AbortRequested, 2)
        .unwrap();
    let ids = |list: Vec<BranchRecord>| -> Vec<u64> { list.iter().map(|b| b.id.bits()).collect() };
    assert_eq!(ids(f.store.running().unwrap()), [2]);
    assert_eq!(ids(f.store.unfinished().unwrap()), [3]);
    f.store
        .transition(
            BranchId::from_bits(3),
            &BranchEvent::Drained { left: vec![] },
            4,
        )
        .unwrap();
    assert_eq!(f.store.unfinished().unwrap(), []);
    assert_eq!(
        ids(f
            .store
            .branches(Some(WorldId::from_bits(1)), false)
            .unwrap()),
        [1, 2]
    );
    assert_eq!(ids(f.store.branches(None, true).unwrap()), [1, 2, 3]);
    f.store.remove_branch(BranchId::from_bits(3)).unwrap();
    assert!(f.store.remove_branch(BranchId::from_bits(2)).is_err());
}

#[test]
fn recovery_is_asked_for_only_where_there_is_something_to_mend() {
    let f = Fixture::new();
    assert!(f.store.quiet("boot").unwrap());
    let id = BranchId::from_bits(4);
    let unknown = f.store.set_process(id, &process()).unwrap_err();
    assert_eq!(unknown.code, codes::NOT_FOUND.text);
    f.store.insert_branches(&[branch(4), branch(5)]).unwrap();
    let before = f.store.branch(id).unwrap();
    f.store.set_process(id, &process()).unwrap();
    let expected = BranchRecord {
        process: Some(process()),
        ..before
    };
    assert_eq!(f.store.branch(id).unwrap(), expected, "and nothing else");
    assert!(f.store.quiet("boot").unwrap(), "a process of this boot");
    assert!(!f.store.quiet("another").unwrap(), "one of another boot");
    f.store
        .transition(BranchId::from_bits(5), &BranchEvent::AbortRequested, 2)
        .unwrap();
    assert!(!f.store.quiet("boot").unwrap(), "an unfinished branch");
}
