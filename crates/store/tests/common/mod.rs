//! Shared by the store's tests: a store in a fresh directory, and ready-made records.
#![allow(dead_code, reason = "not every test file uses all of it")]

use forkpoint_model::commit::CommitPlan;
use forkpoint_model::state::BranchEvent;
use forkpoint_model::{
    BranchId, CommitId, Digest, Generation, GroupId, ParticipantId, Source, Vote, WorldId,
};
use forkpoint_store::{
    BranchRecord, CommitRecord, Decision, DiskKind, DiskRecord, Race, Store, WorldRecord,
};
use std::path::{Path, PathBuf};

pub(crate) struct Fixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Store,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        store.insert_world(&world(1)).unwrap();
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }
}

pub(crate) fn world(n: u64) -> WorldRecord {
    WorldRecord {
        id: WorldId::from_bits(n),
        disks: vec![DiskRecord {
            path: Path::new("/base").join(n.to_string()),
            dev: u64::MAX,
            ino: 2,
            kind: DiskKind::InPlace,
            snapshot_layer: None,
        }],
        head: Generation(0),
        created_ns: 5,
    }
}

pub(crate) fn branch(n: u64) -> BranchRecord {
    let head = Generation(0);
    let created_ns = n as i64;
    BranchRecord {
        created_ns,
        ..BranchRecord::new(
            BranchId::from_bits(n),
            WorldId::from_bits(1),
            Source::Head(head),
            head,
        )
    }
}

pub(crate) fn disk() -> ParticipantId {
    ParticipantId("disk:0".into())
}

pub(crate) fn plan(txn: u64, branch: &BranchRecord) -> CommitPlan {
    CommitPlan {
        txn: CommitId::from_bits(txn),
        world: branch.world,
        branch: branch.id,
        parent_generation: branch.generation,
        group: branch.group,
        participants: vec![disk()],
    }
}

pub(crate) fn decision(txn: u64, in_place: bool) -> Decision {
    let vote = Vote {
        digest: Digest::of(b"staged"),
        in_place,
    };
    Decision {
        txn: CommitId::from_bits(txn),
        votes: vec![(disk(), vote)],
        journals: vec![(disk(), vec![0, 159, 146, 150])],
        summary: None,
    }
}

/// A sealed branch in the store.
pub(crate) fn sealed(store: &Store, n: u64, group: Option<u64>) -> BranchRecord {
    let group = group.map(GroupId::from_bits);
    store
        .insert_branch(&BranchRecord { group, ..branch(n) })
        .unwrap();
    store
        .transition(BranchId::from_bits(n), &BranchEvent::Sealed, 1)
        .unwrap()
}

pub(crate) fn reserve(store: &Store, txn: u64, branch: &BranchRecord) -> Race<()> {
    let row = CommitRecord::reservation(&plan(txn, branch), 3);
    store.reserve(&row, false, 3).unwrap()
}
